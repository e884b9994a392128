"""The stops with which an incident is played. The simulation stage has to show that each of them is harmless."""

import pytest

from recovery.ports import LEASES
from recovery.sim.trials import exhaustive
from recovery.sim.trials.exhaustive import CANONICAL, RESTART_SECONDS, StoppedTrial, every_stop
from recovery.sim.trials.faults import FaultKey, FaultKind
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.trial import TrialOutcome
from tests.simulation.trials.small import in_world, outcome_of, with_faults

LOST = in_world(FaultKind.POD_KILL)


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> tuple[list[StoppedTrial], list[TrialPlan]]:
    """The stops for the incident of a lost pod, and the plans run for them. Only the first plan is really run."""
    plans: list[TrialPlan] = []

    def run(plan: TrialPlan) -> TrialOutcome:
        plans.append(plan)
        return outcome_of(*plan.faults) if len(plans) == 1 else outcome_of()

    monkeypatch.setattr(exhaustive, "CANONICAL", {"pod": with_faults(LOST)})
    monkeypatch.setattr(exhaustive, "run_trial", run)
    return list(every_stop("pod")), plans


def test_every_write_but_those_of_the_lease_is_stopped_before_and_after(
    stops: tuple[list[StoppedTrial], list[TrialPlan]],
) -> None:
    (whole, *stopped), plans = stops
    writes = [
        record.number
        for record in whole.outcome.evidence.requests
        if record.request.writes and record.request.resource != LEASES
    ]
    assert len(writes) >= 6
    both_sides = (FaultKind.PROCESS_KILL, FaultKind.PROCESS_KILL_AFTER)
    assert [stop.key for stop in stopped] == [
        FaultKey("controller-0", number, kind) for number in writes for kind in both_sides
    ]
    assert len(plans) == len(stopped) + 1


def test_each_trial_has_the_incident_and_one_stop(stops: tuple[list[StoppedTrial], list[TrialPlan]]) -> None:
    (whole, *stopped), (first, *others) = stops
    assert (whole.key, first.faults) == (None, (LOST,))
    for stop, plan in zip(stopped, others, strict=True):
        incident, kill = plan.faults
        assert incident == LOST
        assert kill.key == stop.key
        assert kill.seconds == RESTART_SECONDS


def test_what_a_stop_is_called(stops: tuple[list[StoppedTrial], list[TrialPlan]]) -> None:
    (whole, first, *_), _ = stops
    assert str(whole) == "pod, not stopped"
    assert str(first) == f"pod, {first.key}"


@pytest.mark.parametrize("incident", CANONICAL)
def test_a_canonical_incident_begins_while_the_group_trains_and_is_over_before_the_healing(incident: str) -> None:
    plan = CANONICAL[incident]
    assert plan.faults
    assert [fault.key.number for fault in plan.faults] == list(range(len(plan.faults)))
    for fault in plan.faults:
        assert fault.at_seconds is not None
        assert 60.0 <= fault.at_seconds <= fault.at_seconds + fault.seconds + 120.0 < plan.active_seconds
        assert fault.job == str(plan.jobs[0])
        assert max(fault.indexes) < plan.jobs[0].pods
