"""Small trials: one job of two pods, five minutes of faults, ten of healing, and questions about their outcome."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from recovery.ports import LEASES, RECOVERY_POLICIES, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from recovery.sim.trials.trial_evidence import Happening, RequestRecord
from recovery.sim.virtual_time import BEGIN

LLM = JobPlan("team-a", "llm", pods=2, grace_seconds=5, policy={"mode": "Enforce"})
QUIET = TrialPlan(seed=1, jobs=(LLM,), active_seconds=300.0, healing_seconds=600.0, replicas=1, spare_nodes=1)
"""Nothing goes wrong in it. It trains by the 100th second."""


def in_world(
    kind: FaultKind,
    at_seconds: float = 100.0,
    seconds: float = 0.0,
    *,
    number: int = 0,
    indexes: tuple[int, ...] = (0,),
    code: int = 1,
) -> TrialFault:
    return TrialFault(FaultKey("world", number, kind), seconds, at_seconds, str(LLM), indexes, code)


def at_event(kind: FaultKind, number: int, seconds: float = 0.0, actor: str = "controller-0") -> TrialFault:
    """A fault of a request, or of a line of a watch."""
    return TrialFault(FaultKey(actor, number, kind), seconds)


def with_faults(*faults: TrialFault, plan: TrialPlan = QUIET, **fields: Any) -> TrialPlan:
    return msgspec.structs.replace(plan, faults=faults, **fields)


@lru_cache(maxsize=8)  # The objects of a trial live as long as its outcome, and slow down the next trials.
def outcome_of(*faults: TrialFault) -> TrialOutcome:
    """The outcome of the quiet trial with these faults."""
    return run_trial(with_faults(*faults))


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def second(moment: datetime) -> float:
    """Seconds since the trial began."""
    return (moment - BEGIN).total_seconds()


def happening(outcome: TrialOutcome, kind: FaultKind) -> Happening:
    """The only happening of that kind."""
    found = [each for each in outcome.evidence.happenings if each.fault.key.kind is kind]
    assert len(found) == 1, f"{kind} took place {len(found)} times"
    return found[0]


def states(outcome: TrialOutcome, resource: Resource, name: str = "") -> Iterator[tuple[float, str, Body]]:
    """Every revision of the resource's objects: its second, its type (ADDED, MODIFIED or DELETED), and the object."""
    evidence = outcome.evidence
    for change, moment in zip(evidence.changes, evidence.change_times, strict=True):
        if change.resource == resource and name in ("", change.body["metadata"]["name"]):
            yield second(moment), change.type, change.body


def writes(outcome: TrialOutcome) -> list[RequestRecord]:
    """Writes of controller processes, except to Leases and to RecoveryPolicies (since when a policy enforces)."""
    beside = {LEASES, RECOVERY_POLICIES}
    return [
        record
        for record in outcome.evidence.requests
        if record.request.writes and record.request.resource not in beside
    ]
