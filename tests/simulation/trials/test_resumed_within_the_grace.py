"""A user suspends a job and resumes it while its old pods still end. Nothing was lost, so there is no incident.

The runtime has a podFailurePolicy, so its Job has podReplacementPolicy Failed: it creates the new pod of a rank only
when the old one has ended. That is after the resume, and after the kubelet's last delete has dated the deletion again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from recovery.ports import PODS, RECOVERY_GROUPS, RECOVERY_INCIDENTS
from recovery.scenario.modelled_job import JobAdmission, PlannedRuntime
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.trials import trial
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.injected import FAULT, found, made, well_over
from tests.simulation.trials.small import QUIET, in_world, with_faults

GRACE_SECONDS = 30
SAVES = 8.0
IGNORES_SIGTERM = 600.0
RUNTIMES = (PlannedRuntime.SHIPPED, PlannedRuntime.NATIVE)

Runs = Callable[..., TrialOutcome]


@pytest.fixture(params=[SAVES, IGNORES_SIGTERM], ids=["SIGTERM takes 8 s", "SIGTERM is ignored"])
def runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs a trial whose processes end that long after SIGTERM, or at the end of their grace period."""
    slow = partial(TrainingSettings, term_seconds=request.param)
    monkeypatch.setattr(trial, "TrainingSettings", slow)

    def run(*faults: TrialFault, **fields: Any) -> TrialOutcome:
        policy = {"mode": "Enforce"}
        job = {"pods": 2, "grace_seconds": GRACE_SECONDS, "policy": policy, "runtime": PlannedRuntime.NATIVE, **fields}
        return run_trial(with_faults(*faults, plan=QUIET, jobs=(JobPlan("team-a", "llm", **job),)))

    return run


def suspended(seconds: float, *, number: int = 0, at_seconds: float = FAULT) -> TrialFault:
    return in_world(FaultKind.USER_SUSPEND, at_seconds, seconds, number=number)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("seconds", [0.5, 2.0, 7.0, 20.0])
def test_it_is_no_incident(runs: Runs, seconds: float, runtime: PlannedRuntime) -> None:
    outcome = runs(suspended(seconds), runtime=runtime)
    well_over(outcome, FaultKind.USER_SUSPEND, seconds)
    assert found(outcome, RECOVERY_INCIDENTS) == found(outcome, RECOVERY_GROUPS) == []


@pytest.mark.parametrize("seconds", [2.0, 5.0])
def test_nor_is_an_eviction_by_kueue_that_admits_the_job_again(runs: Runs, seconds: float) -> None:
    outcome = runs(in_world(FaultKind.KUEUE_EVICT, FAULT, seconds), admission=JobAdmission.BY_KUEUE)
    assert outcome.violations == ()
    assert found(outcome, RECOVERY_INCIDENTS) == found(outcome, RECOVERY_GROUPS) == []


@pytest.mark.parametrize("evicts_after", [1.0, 12.0])
def test_a_drain_for_which_kueue_moves_the_job_is_one(runs: Runs, evicts_after: float) -> None:
    """Two nodes are drained one after the other. Kueue evicts the job before or after it is restarted for that, and the
    pods end after the job is admitted again."""
    first = in_world(FaultKind.NODE_DRAIN, FAULT, 120.0, number=1, indexes=(0,))
    second = in_world(FaultKind.NODE_DRAIN, FAULT + 0.5, 120.0, number=2, indexes=(1,))
    evicts = in_world(FaultKind.KUEUE_EVICT, FAULT + 0.5 + evicts_after, 6.0, number=3)
    outcome = runs(first, second, evicts, admission=JobAdmission.BY_KUEUE, pods=4)
    assert outcome.violations == ()
    assert [each["spec"]["cause"] for each in found(outcome, RECOVERY_INCIDENTS)] == ["EvictionByEvictionAPI"]


def test_the_new_pods_wait_for_the_old_ones(runs: Runs) -> None:
    """Without this the other tests show nothing."""
    created = [moment for moment in made(runs(suspended(2.0)), PODS) if moment >= FAULT]
    assert created
    assert min(created) >= FAULT + SAVES


@pytest.mark.parametrize("restarts_at", [3.0, 7.9, 8.2, 29.9, 30.2])
def test_nor_is_it_for_a_controller_that_starts_meanwhile(runs: Runs, restarts_at: float) -> None:
    outcome = runs(suspended(2.0), in_world(FaultKind.PROCESS_KILL, FAULT + restarts_at, 0.5, number=1))
    assert outcome.violations == ()
    assert found(outcome, RECOVERY_INCIDENTS) == found(outcome, RECOVERY_GROUPS) == []


def test_a_member_that_is_lost_before_belongs_to_the_run_that_the_suspension_ends(runs: Runs) -> None:
    """Its incident ends with the suspension, and its slow end opens no other one."""
    outcome = runs(in_world(FaultKind.POD_KILL, FAULT - 0.2, number=1), suspended(3.0))
    assert outcome.violations == ()
    assert len(found(outcome, RECOVERY_INCIDENTS)) <= 1


def test_one_that_is_lost_after_it_is_an_incident(runs: Runs) -> None:
    outcome = runs(suspended(2.0), in_world(FaultKind.POD_KILL, FAULT + 100, number=1))
    assert outcome.violations == ()
    assert [each["spec"]["cause"] for each in found(outcome, RECOVERY_INCIDENTS)] == ["PodDeleted"]
