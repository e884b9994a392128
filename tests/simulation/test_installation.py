"""A policy comes for a fleet in which ranks were lost before it. The controller alarms no one about them."""

from datetime import timedelta

import pytest

from recovery.ports import EVENTS, RECOVERY_GROUPS, RECOVERY_INCIDENTS
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial

pytestmark = pytest.mark.long

JOBS = 200
UNPROTECTED_FROM_SECONDS, PROTECTED_FROM_SECONDS = 60.0, 900.0
LOST_FROM_SECONDS, HANG_UNTIL_SECONDS = 700.0, 1260.0
"""Ranks that hang end about 600 s after the loss, by the timeout of their collective. That end is a loss of its own."""
PASTS: tuple[tuple[FaultKind, tuple[int, ...]], ...] = (
    (FaultKind.CONTAINER_KILL, (0, 1)),
    (FaultKind.POD_KILL, (0, 1)),
    (FaultKind.CONTAINER_KILL, (0,)),
    (FaultKind.POD_KILL, (0,)),
)
"""What was lost, and of which ranks. Of the first two kinds of groups all ranks meet again; the others hang."""
HEALED = 2


def installed_late() -> TrialOutcome:
    """No policy selects any job while the ranks are lost. Later one in mode Enforce selects each."""
    jobs = [
        JobPlan(namespace="team", name=f"old-{number}", pods=2, gpus_per_pod=1, policy={"mode": "Enforce"})
        for number in range(JOBS)
    ]
    faults = []
    for number, job in enumerate(jobs):
        kind, ranks = PASTS[number % len(PASTS)]
        policy = FaultKey("world", number, FaultKind.POLICY_DELETE)
        loss = FaultKey("world", JOBS + number, kind)
        faults += [
            TrialFault(
                policy,
                PROTECTED_FROM_SECONDS - UNPROTECTED_FROM_SECONDS,
                at_seconds=UNPROTECTED_FROM_SECONDS,
                job=str(job),
            ),
            TrialFault(loss, at_seconds=LOST_FROM_SECONDS + number % 60, job=str(job), indexes=ranks, code=1),
        ]
    return run_trial(
        TrialPlan(
            seed=1,
            jobs=tuple(jobs),
            faults=tuple(faults),
            active_seconds=PROTECTED_FROM_SECONDS + 60.0,
            healing_seconds=900.0,
        )
    )


def test_a_policy_for_a_fleet_with_losses_from_before_it_alarms_no_one() -> None:
    outcome = installed_late()
    evidence = outcome.evidence
    assert not outcome.violations, str(outcome.violations[0])
    until = evidence.began_at + timedelta(seconds=HANG_UNTIL_SECONDS)
    met = {str(job): evidence.trace.of(str(job), EventKind.ROUND_FORMED) for job in outcome.plan.jobs}
    rounds = [sum(record.at < until for record in records) for records in met.values()]
    assert rounds == [2 if number % len(PASTS) < HEALED else 1 for number in range(JOBS)]
    written = [change for change, at in zip(evidence.changes, evidence.change_times, strict=True) if at < until]
    assert not {change.resource for change in written} & {RECOVERY_GROUPS, RECOVERY_INCIDENTS}
    assert [change.body for change in written if change.resource == EVENTS and change.body["type"] == "Warning"] == []
