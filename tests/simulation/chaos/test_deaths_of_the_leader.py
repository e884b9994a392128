"""The leader is killed before and after every one of its writes while a drill runs. The failure is still that drill."""

import pytest
from msgspec.structs import replace

from recovery.core.model.drill import DrillVerdict
from recovery.ports import LEASES, RECOVERY_DRILLS, RECOVERY_INCIDENTS
from recovery.sim.trials.exhaustive import RESTART_SECONDS, StoppedTrial, stops_of
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.trial import TrialOutcome
from tests.simulation.chaos.simulated import POD_KILL, SMALL, DrillTrial, run

SCENARIO = read_scenario(SMALL + POD_KILL)


def drilled(plan: TrialPlan) -> DrillTrial:
    assert SCENARIO.experiment is not None
    return run(plan, SCENARIO.experiment)


def assert_is_the_drill(found: DrillTrial, what: object) -> None:
    assert found.broken == [], what
    [record] = found.server.objects(RECOVERY_INCIDENTS)
    assert record["spec"]["drill"]["name"] == found.outcome.drill, what
    assert (found.outcome.verdict, found.charges()) == (DrillVerdict.PASSED, 0), what


def answers(found: DrillTrial) -> list[FaultKey]:
    """The leader's writes to the RecoveryDrill: the acknowledgment, and the verdict."""
    return [
        FaultKey(record.actor, record.number, FaultKind.PROCESS_KILL_AFTER)
        for record in found.trial.evidence.requests
        if record.request.writes and record.request.resource == RECOVERY_DRILLS
    ]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_leader_that_dies_after_its_acknowledgment_takes_the_failure_for_a_drill(replicas: int) -> None:
    plan = replace(SCENARIO.plan, replicas=replicas)
    acknowledgment, _ = answers(drilled(plan))
    for restart_seconds in (RESTART_SECONDS, 45.0):
        stop = TrialFault(acknowledgment, restart_seconds)
        found = drilled(replace(plan, faults=(stop,)))
        assert [life.how for life in found.trial.evidence.processes].count("killed") == 1
        assert_is_the_drill(found, stop)


@pytest.mark.long
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_leader_that_dies_at_any_write_opens_one_incident_which_is_the_drill(replicas: int) -> None:
    done: list[DrillTrial] = []

    def trial(plan: TrialPlan) -> TrialOutcome:
        done.append(drilled(plan))
        return done[-1].trial

    stops: list[StoppedTrial] = []
    for stop in stops_of("drill", replace(SCENARIO.plan, replicas=replicas), trial):
        stops.append(stop)
        assert_is_the_drill(done[-1], stop)
    writes = {record.request.resource for record in done[0].trial.evidence.requests if record.request.writes}
    assert {RECOVERY_DRILLS, RECOVERY_INCIDENTS, LEASES} < writes
    assert len(stops) > 12
