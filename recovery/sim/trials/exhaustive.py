"""Stops a controller before and after every single one of its writes, with one trial for each.

The first trial of an incident runs without a stop, and notes the numbers of the writes. Then one trial for each write
and each side of it kills the process there and starts it again. This is exhaustive for one stop per incident. The
seeds cover several stops.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from recovery.ports import LEASES
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.manifests import NATIVE_CODE
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial

RESTART_SECONDS = 5.0
FAILURE_SECONDS = 60.0
"""When the incident begins. The group has trained for a while by then."""
SHORT_SECONDS = 300.0
"""For an incident whose fault is momentary: all ranks train again within a minute or two."""
HEALING_SECONDS = 900.0
"""As long as the longest timeout of the policy, so a timeout that a stop leaves armed fires before the end."""
ENFORCE: Mapping[str, object] = {"mode": "Enforce"}


@dataclass(frozen=True)
class StoppedTrial:
    """One trial of a canonical incident."""

    incident: str
    key: FaultKey | None
    """Key of the stop. None: this trial has no stop."""
    outcome: TrialOutcome

    def __str__(self) -> str:
        return f"{self.incident}, {self.key if self.key is not None else 'not stopped'}"


def _fault(
    number: int,
    kind: FaultKind,
    *,
    at: float = FAILURE_SECONDS,
    seconds: float = 0.0,
    pods: int = 1,
    code: int = 1,
    sign: Sign = Sign.NONE,
) -> TrialFault:
    key = FaultKey("world", number, kind)
    return TrialFault(key, seconds, at, "team-a/llm", tuple(range(pods)), code=code, sign=sign)


_JOB = JobPlan(namespace="team-a", name="llm", pods=4, policy=ENFORCE)
_ALLOWED: Mapping[str, object] = {
    "allow": {"failJob": True, "cordon": True, "assumeDead": True},
    "quarantine": {"maxPercent": 30, "releaseAfter": "10m", "trustedNamespaces": [_JOB.namespace]},
}
"""The namespace is trusted. Otherwise the message that its job leaves would quarantine no node, and no stop would fall
between the writes of a quarantine."""
_ASSUME_DEAD: Mapping[str, object] = {
    **ENFORCE,
    "teardown": {"fencing": {"mode": "AssumeDead", "assumeDeadAfter": "0s"}},
}
_ELASTIC: Mapping[str, object] = {
    **_ASSUME_DEAD,
    "backoff": {"initial": "0s"},
    "elastic": {"minNodes": 2, "maxNodes": 4, "shrinkAfter": "20s", "growBackAfter": "60s"},
}


_BACKOFF: Mapping[str, object] = {**ENFORCE, "backoff": {"initial": "10s"}}
_TWICE = (_fault(0, FaultKind.POD_KILL), _fault(1, FaultKind.POD_KILL, at=2 * FAILURE_SECONDS))
"""The second loss follows a recovery, so its restart waits for the backoff."""


def _rule(name: str, action: str, **when: object) -> Mapping[str, object]:
    return {**ENFORCE, "rules": [{"name": name, "when": when, "action": action}]}


def _plan(
    *faults: TrialFault,
    job: JobPlan = _JOB,
    others: int = 0,
    replicas: int = 1,
    spare_nodes: int = 1,
    active_seconds: float = 1200.0,
    birth_settings: bool = False,
) -> TrialPlan:
    """`others`: how many more jobs like it there are. `active_seconds`: no fault lasts longer."""
    return TrialPlan(
        seed=1,
        jobs=(job, *(replace(job, name=f"{job.name}-{number}") for number in range(others))),
        faults=faults,
        active_seconds=active_seconds,
        healing_seconds=HEALING_SECONDS,
        replicas=replicas,
        lease_seconds=15,
        config=_ALLOWED,
        spare_nodes=spare_nodes,
        birth_settings=birth_settings,
    )


CANONICAL: Mapping[str, TrialPlan] = {
    "pod": _plan(_fault(0, FaultKind.POD_KILL), active_seconds=SHORT_SECONDS),
    "eight pods that go before their Job": _plan(
        _fault(0, FaultKind.CONTAINER_KILL, pods=8),
        job=replace(_JOB, pods=8, policy={**ENFORCE, "teardown": {"graceSeconds": 5}}),
        active_seconds=SHORT_SECONDS,
    ),
    "two Jobs": _plan(
        _fault(0, FaultKind.POD_KILL),
        job=replace(_JOB, runtime=PlannedRuntime.SEVERAL_JOBS, grace_seconds=5),
        active_seconds=SHORT_SECONDS,
    ),
    "JobSet's own restart": _plan(
        _fault(0, FaultKind.CONTAINER_KILL, code=NATIVE_CODE),
        job=replace(_JOB, runtime=PlannedRuntime.NATIVE, grace_seconds=5),
        active_seconds=SHORT_SECONDS,
    ),
    "budget exhausted": _plan(
        _fault(0, FaultKind.CRASH_LOOP, seconds=400.0),
        job=replace(
            _JOB,
            pods=2,
            runtime=PlannedRuntime.PREPARED,
            policy={**ENFORCE, "budget": {"limit": 1, "onExhausted": "Suspend", "window": "10m"}},
        ),
        # Beyond the second window of ten minutes. After it the ledger says that the budget is free again.
        active_seconds=1320.0,
    ),
    "second attempt": _plan(*_TWICE, job=replace(_JOB, grace_seconds=5, policy=_BACKOFF), active_seconds=SHORT_SECONDS),
    "second attempt of a job with a deadline": _plan(
        *_TWICE,
        job=replace(_JOB, grace_seconds=5, policy=_BACKOFF, deadline_seconds=3600),
        active_seconds=SHORT_SECONDS,
    ),
    "retry": _plan(
        _fault(0, FaultKind.POD_KILL),
        _fault(1, FaultKind.USER_RETRY, at=FAILURE_SECONDS + 30.0),
        job=replace(_JOB, grace_seconds=5, policy={**ENFORCE, "budget": {"limit": 0, "onExhausted": "Suspend"}}),
        active_seconds=SHORT_SECONDS,
    ),
    "restart": _plan(
        _fault(0, FaultKind.USER_RESTART), job=replace(_JOB, grace_seconds=5), active_seconds=SHORT_SECONDS
    ),
    "failed JobSet": _plan(
        _fault(0, FaultKind.PROCESS_FREEZE, seconds=20.0),
        _fault(1, FaultKind.POD_KILL, at=FAILURE_SECONDS + 1.0, pods=8),
        job=replace(_JOB, pods=8, grace_seconds=5, policy={**ENFORCE, "onTerminalFailure": "RecreateJobSet"}),
        active_seconds=SHORT_SECONDS,
    ),
    "leader hand-over": _plan(
        _fault(0, FaultKind.POD_KILL), job=replace(_JOB, grace_seconds=5), replicas=2, active_seconds=SHORT_SECONDS
    ),
    "TrainJob deleted": _plan(
        _fault(0, FaultKind.CONTAINER_KILL),
        _fault(1, FaultKind.USER_RECREATE, at=FAILURE_SECONDS + 4.0),
        active_seconds=SHORT_SECONDS,
    ),
    "node": _plan(_fault(0, FaultKind.NODE_POWER_LOSS, seconds=600.0), job=replace(_JOB, policy=_ASSUME_DEAD)),
    "drain": _plan(_fault(0, FaultKind.NODE_DRAIN, seconds=600.0, pods=2), spare_nodes=2),
    "quarantine": _plan(
        _fault(0, FaultKind.CONTAINER_KILL, sign=Sign.XID),
        job=replace(_JOB, policy=_rule("xid", "ReplaceNode", onMessagePattern="Xid .*: 79,")),
    ),
    "storm": _plan(
        _fault(0, FaultKind.RACK_POWER_LOSS, seconds=600.0),
        job=replace(_JOB, pods=2, grace_seconds=5, policy=_ASSUME_DEAD),
        others=1,
        spare_nodes=5,
    ),
    "FailJob": _plan(
        _fault(0, FaultKind.CONTAINER_KILL, code=139),
        job=replace(_JOB, policy=_rule("segfault", "FailJob", onExitCodes={"operator": "In", "values": [139]})),
        active_seconds=SHORT_SECONDS,
    ),
    "FailJob with a TTL": _plan(
        _fault(0, FaultKind.CONTAINER_KILL, code=139),
        job=replace(
            _JOB, policy=_rule("segfault", "FailJob", onExitCodes={"operator": "In", "values": [139]}), ttl_seconds=1
        ),
        active_seconds=SHORT_SECONDS,
    ),
    "smaller group that grows": _plan(
        _fault(0, FaultKind.NODE_POWER_LOSS, seconds=180.0),
        job=replace(_JOB, runtime=PlannedRuntime.PREPARED, grace_seconds=5, policy=_ELASTIC),
        spare_nodes=0,
        active_seconds=2 * SHORT_SECONDS,
        birth_settings=True,
    ),
}
"""The incidents, by name, in which a stop at any write must be harmless. Later features add theirs."""


def every_stop(incident: str) -> Iterator[StoppedTrial]:
    """The trial without a stop, then one trial for each write and each side of it."""
    yield from stops_of(incident, CANONICAL[incident], run_trial)


def stops_of(incident: str, plan: TrialPlan, run: Callable[[TrialPlan], TrialOutcome]) -> Iterator[StoppedTrial]:
    """The same for any plan. `run`: runs the trial, perhaps with a visitor."""
    whole = run(plan)
    yield StoppedTrial(incident, None, whole)
    writes = [
        (record.actor, record.number)
        for record in whole.evidence.requests
        if record.request.writes and record.request.resource != LEASES
    ]
    for actor, number in writes:
        for kind in (FaultKind.PROCESS_KILL, FaultKind.PROCESS_KILL_AFTER):
            stop = TrialFault(FaultKey(actor, number, kind), RESTART_SECONDS)
            stopped = run(replace(plan, faults=(*plan.faults, stop)))
            yield StoppedTrial(incident, stop.key, stopped)
