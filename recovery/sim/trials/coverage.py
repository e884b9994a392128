"""How often a trial reached each thing that can happen. What no trial reaches is not tested by any.

Keys are `dimension:name`. The names come from the enums of the simulation and of the product, so a new member is
reported as never hit until trials reach it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import get_args

import msgspec

from recovery.core.diagnosis import group_conditions
from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.fleet.counted_marks import marks
from recovery.core.fleet.quarantine import QUARANTINE_REFUSALS, parsed_mark
from recovery.core.incident import budget
from recovery.core.incident.requests import Verb
from recovery.core.incident.transitions import ATTEMPTS, ENDINGS, TRANSITIONS, taken
from recovery.core.model.annotations import QUARANTINE_ANNOTATION
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import AttemptAction, Incident, Outcome, Phase
from recovery.core.model.rules import RuleAction
from recovery.core.plan import actions
from recovery.core.policy.spec import FencingMode, Mode, OnExhausted, OnTerminalFailure, Restart
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, RECOVERY_CONFIGS, TRAIN_JOBS
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, Sidecar, TrainingKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.workloads import WORKLOADS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.actors import CLEANER, KUEUE
from recovery.sim.trials.checkers.group_views import deletion_begins, ours
from recovery.sim.trials.checkers.node_writes import cordoned, quarantined
from recovery.sim.trials.failure_signs import PEERS
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.health_agent import held_by_agent
from recovery.sim.trials.kueue_workload import (
    BACKOFF_FINISHED,
    BY_PODS_READY_TIMEOUT,
    BY_PREEMPTION,
    DEACTIVATED,
    EVICTED,
    REQUEUED,
)
from recovery.sim.trials.ledger_history import LedgerWrite, action_of, ledger_writes
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.rarely_hit import RARELY_HIT
from recovery.sim.trials.trial_evidence import TrialEvidence
from recovery.workloads.jobset import JOBSET_NAME_LABEL

_ENUMS: Mapping[str, type[StrEnum]] = {
    "fault": FaultKind,
    "sign": Sign,
    "runtime": PlannedRuntime,
    "sidecar": Sidecar,
    "marking": Marking,
    "training": TrainingKind,
    "pod-failures": PodFailures,
    "admission": JobAdmission,
    "mode": Mode,
    "rule": Restart,
    "ruled": RuleAction,
    "fencing": FencingMode,
    "class": DisruptionClass,
    "phase": Phase,
    "attempt": AttemptAction,
    "outcome": Outcome,
    "exhausted": OnExhausted,
    "terminal": OnTerminalFailure,
    "verb": Verb,
}
"""rule: `restart` of the policy that an incident was opened under. ruled: actions of rules that decided. fencing: mode
in the policies. marking: of bare JobSets. exhausted, terminal: what was done, not what the policy says."""

_JOB = (
    *("saves", "deadline", "out-of-time", "withheld", "resumed", "lost-after-resume", "suspension-undone"),
    *("expires", "stays-failed", "interval"),
)
"""What happens to jobs, in this order: the ranks of a job save when they get SIGTERM; a job has a deadline; it ends by
that; a restart waits because the job must not be suspended; a Job is resumed; an incident is opened about a resumed
Job; Kueue undoes another client's suspension; a JobSet has a TTL; FailJob has removed one; a restart waits longer than
the attempts in a row ask for (`backoff.minInterval`)."""
_CONDITIONS = (
    group_conditions.POD_KEPT_RUNNING,
    group_conditions.TRAINING_CONTAINER_UNKNOWN,
    group_conditions.TRAINS_AGAIN,
    group_conditions.CRASH_LOOP,
)
"""Conditions of RecoveryGroups about their objects, and about restarts by others."""

_FLEET = ("quarantined", "refused", "released", "suspected", "futile", "breaker", "storm")
"""What concerns several groups: a node was quarantined, was not quarantined because of a cap, was released; …"""

_AGENT = ("before", "between", "after", "released", "kept", "overruled")
"""What happens to nodes that a health agent holds, in this order: the agent begins to hold one that was not quarantined
yet, that is, or that was; the controller releases one, and leaves its own cordon to the agent; the agent gives one up
because another client has uncordoned it. (The controller does not quarantine a node that is cordoned.)"""

_KUEUE = ("preempted", "timed-out", "requeued", "deactivated", "overlapping")
"""What happens to Workloads, in this order: one of higher priority takes the quota; the pods are not ready in time; the
backoff after that is over; the limit of such requeues is reached; the job is resumed while pods of its last run still
terminate."""

_STATE_MACHINE = (
    *(f"transition:{each}" for each in TRANSITIONS),
    *(f"ending:{each}" for each in ENDINGS),
    *(f"becomes:{life.action}>{other}" for life in ATTEMPTS.values() for other in sorted(life.becomes)),
)
"""Every row of the tables of `core.incident.transitions`. becomes: the action of a recorded attempt changes."""

ALL: tuple[str, ...] = (
    *(f"fleet:{what}" for what in _FLEET),
    *(f"job:{what}" for what in _JOB),
    *(f"agent:{what}" for what in _AGENT),
    *(f"kueue:{what}" for what in _KUEUE),
    "cleaner:deleted",
    *(f"condition:{kind}" for kind in _CONDITIONS),
    *(f"{dimension}:{member}" for dimension, members in _ENUMS.items() for member in members),
    *(f"action:{action.__name__}" for action in get_args(actions.Action)),
    *_STATE_MACHINE,
)
"""Everything that trials must reach, or a unit test that `RARELY_HIT` names."""

OF_ELASTIC_GROUPS: tuple[str, ...] = (
    f"fault:{FaultKind.USER_DELETE_JOB}",
    f"ruled:{RuleAction.AVOID_NODE}",
    f"ruled:{RuleAction.SHRINK}",
    f"class:{DisruptionClass.GROWTH}",
    f"attempt:{AttemptAction.AVOID_NODE}",
    f"attempt:{AttemptAction.SHRINK}",
    f"attempt:{AttemptAction.GROW}",
)
"""What the trials of elastic groups must reach."""

_OF_AGENTS = {
    f"phase:{Phase.STOPPING}": "tests/simulation/agents",
    **{
        f"transition:{each}": "tests/unit/core/decision/test_agent_rendezvous.py"
        for each in TRANSITIONS
        if Phase.STOPPING in {each.source, each.target}
    },
    f"attempt:{AttemptAction.RESTART_IN_PLACE}": "tests/simulation/agents",
    f"ruled:{RuleAction.RESTART_IN_PLACE}": "tests/unit/core/decision/test_in_place.py",
    f"action:{actions.LeaveOutAgent.__name__}": "tests/unit/core/decision/test_agent_blocks.py",
}
"""What needs agents in the pods, which the trials do not have. By the test that reaches it."""

NEVER_HIT: Mapping[str, str] = {
    **{key: f"of agents: {test}" for key, test in _OF_AGENTS.items()},
    **{
        key: "of elastic groups: tests/simulation/test_elastic.py"
        for key in OF_ELASTIC_GROUPS
        if not key.startswith("fault:")
    },
    **{
        f"sign:{sign}": "of survivors; a fault names the sign of the cause, and every cascade has these"
        for sign in PEERS
    },
}
"""What no trial can reach, and why."""


def coverage_of(evidence: TrialEvidence) -> dict[str, int]:
    """How often each key of `ALL` happened, without those that did not."""
    found: Counter[str] = Counter()
    found.update(f"fault:{happening.fault.key.kind}" for happening in evidence.happenings)
    found.update(f"sign:{happening.fault.sign}" for happening in evidence.happenings)
    for job in evidence.plan.jobs:
        found.update(_of_job(job))
    # A write of the fleet's ledger contains all of it. Only the changed part shows the action (`_of_fleet`).
    asked = (action for action in map(action_of, evidence.requests) if action not in (None, actions.ChangeFleet))
    found.update(f"action:{action.__name__}" for action in asked if action is not None)
    resumed = _resumed(evidence)
    for write in ledger_writes(evidence):
        found.update(_of_write(write))
        found.update(_of_resumed(write, resumed))
    found.update(_of_fleet(evidence))
    found.update(_of_workloads(evidence))
    found.update(_of_agent(evidence))
    found.update(_of_kueue(evidence))
    if resumed:
        found["job:resumed"] = len(resumed)
    return {key: found[key] for key in ALL if found[key]}


def never_hit(counts: Mapping[str, int]) -> list[str]:
    """What trials should have reached but none did."""
    return [key for key in ALL if not counts.get(key) and key not in NEVER_HIT and key not in RARELY_HIT]


def by_unit_tests_only(counts: Mapping[str, int]) -> dict[str, str]:
    """What no trial reached or has to reach, each with the unit test that reaches it."""
    return {key: test for key, test in RARELY_HIT.items() if not counts.get(key)}


def total(of_trials: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for counts in of_trials:
        found.update(counts)
    return {key: found[key] for key in ALL if found[key]}


def _of_job(job: JobPlan) -> Iterator[str]:
    yield from (f"runtime:{job.runtime}", f"admission:{job.admission}")
    yield from (f"sidecar:{sidecar}" for sidecar in job.sidecars)
    if job.runtime is PlannedRuntime.BARE_JOBSET:
        yield f"marking:{job.marking}"
    yield from (f"training:{job.training}", f"pod-failures:{job.pod_failures}")
    if job.saves is not None:
        yield "job:saves"
    if job.deadline_seconds is not None:
        yield "job:deadline"
    if job.ttl_seconds is not None:
        yield "job:expires"
    if job.policy is not None:
        yield f"fencing:{_fencing_of(job)}"


def _resumed(evidence: TrialEvidence) -> dict[str, datetime]:
    """When each Job that was ever resumed was last resumed, by UID."""
    return {
        change.body["metadata"]["uid"]: at
        for change, at in zip(evidence.changes, evidence.change_times, strict=True)
        if change.resource == JOBS and _switched(change, suspended=False)
    }


def _switched(change: ObjectChange, *, suspended: bool) -> bool:
    """This change set `spec.suspend` to `suspended`."""
    if change.before is None or change.type == "DELETED":
        return False
    now, was = (bool(body["spec"].get("suspend")) for body in (change.body, change.before))
    return now is suspended is not was


def _of_resumed(write: LedgerWrite, resumed: Mapping[str, datetime]) -> Iterator[str]:
    incident, before = write.after.incident, write.before.incident
    if incident is None or (before is not None and before.id == incident.id):
        return
    yield from (
        "job:lost-after-resume" for uid in incident.target.job_uids if uid in resumed and resumed[uid] < write.at
    )


def _of_workloads(evidence: TrialEvidence) -> Iterator[str]:
    suspended_by: dict[str, str] = {}
    for change in evidence.changes:
        if change.resource == JOB_SETS and change.before is not None and _expires(change.before):
            yield from ("job:stays-failed",) * (not _expires(change.body))
        if change.resource != TRAIN_JOBS:
            continue
        uid = change.body["metadata"]["uid"]
        if _switched(change, suspended=True):
            suspended_by[uid] = change.actor
        if _switched(change, suspended=False) and change.actor == KUEUE and suspended_by.get(uid, KUEUE) != KUEUE:
            yield "job:suspension-undone"
        if _is_out_of_time(change.body) and not _is_out_of_time(change.before):
            yield "job:out-of-time"


def _expires(jobset: Body) -> bool:
    return "ttlSecondsAfterFinished" in jobset["spec"]


def _of_agent(evidence: TrialEvidence) -> Iterator[str]:
    were_quarantined: set[str] = set()
    for change in evidence.changes:
        if change.resource != NODES or change.type != "MODIFIED":
            continue
        name, by_us, before = change.body["metadata"]["name"], ours(change.actor), change.before or {}
        held, was_held = held_by_agent(change.body), held_by_agent(before)
        is_quarantined, was_quarantined = quarantined(change.body), quarantined(before)
        if is_quarantined and not was_quarantined:
            were_quarantined.add(name)
        if held and not was_held:
            was = "agent:after" if name in were_quarantined else "agent:before"
            yield "agent:between" if is_quarantined else was
        if held and by_us and was_quarantined and not is_quarantined:
            yield "agent:released"
            mark = parsed_mark((before["metadata"].get("annotations") or {}).get(QUARANTINE_ANNOTATION))
            if cordoned(change.body) and mark is not None and mark.cordoned:
                yield "agent:kept"
        if was_held and not held and not cordoned(before):
            yield "agent:overruled"


def _of_kueue(evidence: TrialEvidence) -> Iterator[str]:
    """`cleaner:deleted`: the client that deletes failed pods has deleted one."""
    terminating: dict[str, set[str]] = {}
    for change in evidence.changes:
        if change.resource not in {PODS, TRAIN_JOBS, WORKLOADS}:
            continue
        metadata = change.body["metadata"]
        if change.resource == PODS:
            going = terminating.setdefault(metadata.get("labels", {}).get(JOBSET_NAME_LABEL, ""), set())
            going.discard(metadata["uid"])
            if change.type != "DELETED" and "deletionTimestamp" in metadata:
                going.add(metadata["uid"])
            if deletion_begins(change) and change.actor == CLEANER:
                yield "cleaner:deleted"
        elif change.resource == TRAIN_JOBS and change.actor == KUEUE and _switched(change, suspended=False):
            yield from ("kueue:overlapping",) * bool(terminating.get(metadata["name"]))
        elif change.resource == WORKLOADS and change.type == "MODIFIED":
            yield from _of_workload_status(change)


def _of_workload_status(change: ObjectChange) -> Iterator[str]:
    now, was = (_true_reasons(body) for body in (change.body, change.before or {}))
    if now.get(EVICTED) != was.get(EVICTED):
        reason = now.get(EVICTED, "")
        yield from ("kueue:preempted",) * (reason == BY_PREEMPTION)
        yield from ("kueue:timed-out",) * (reason == BY_PODS_READY_TIMEOUT)
        yield from ("kueue:deactivated",) * reason.startswith(DEACTIVATED)
    if now.get(REQUEUED) == BACKOFF_FINISHED != was.get(REQUEUED):
        yield "kueue:requeued"


def _true_reasons(workload: Body) -> dict[str, str]:
    """The reasons of the conditions that are True, by type."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return {each["type"]: each["reason"] for each in conditions if each["status"] == "True"}


def _is_out_of_time(trainjob: Body | None) -> bool:
    conditions = ((trainjob or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Failed" and each.get("reason") == "DeadlineExceeded" for each in conditions)


def _fencing_of(job: JobPlan) -> str:
    fencing = (job.policy or {}).get("teardown", {}).get("fencing", {})
    return str(fencing.get("mode", FencingMode.PROVEN))


def _of_fleet(evidence: TrialEvidence) -> Iterator[str]:
    before = FleetLedger()
    for change in evidence.changes:
        if change.resource != RECOVERY_CONFIGS or change.type == "DELETED":
            continue
        after = msgspec.convert(change.body.get("status") or {}, FleetLedger)
        nodes, known = ({entry.node: None for entry in fleet.quarantined} for fleet in (after, before))
        yield from ("fleet:quarantined" for node in nodes if node not in known)
        yield from ("fleet:released" for node in known if node not in nodes)
        yield from ("fleet:suspected" for each in after.suspicions if each not in before.suspicions)
        yield from ("fleet:futile" for each in after.futile if each not in before.futile)
        if after.breaker is not None and before.breaker is None:
            yield "fleet:breaker"
        if msgspec.structs.replace(after, totals=before.totals) != before:
            yield f"action:{actions.ChangeFleet.__name__}"
        if set(marks(after.totals.counted)) - set(marks(before.totals.counted)):
            yield f"action:{actions.CountIncidents.__name__}"
        before = after


def _of_write(write: LedgerWrite) -> Iterator[str]:
    before, after = write.before, write.after
    if after.phase is Phase.HEALTHY and before.phase is not Phase.HEALTHY:
        yield f"phase:{after.phase}"
    held = {each.type for each in before.conditions if each.status == "True"}
    now = [each.type for each in after.conditions if each.status == "True" and each.type in _CONDITIONS]
    yield from (f"condition:{kind}" for kind in now if kind not in held)
    answered = [answer for answer in after.requests if answer not in before.requests]
    yield from (f"verb:{answer.verb}" for answer in answered if answer.accepted)
    incident = after.incident
    if incident is None:
        return
    same = before.incident if before.incident is not None and before.incident.id == incident.id else None
    if same is None:
        yield from (f"mode:{incident.mode}", f"rule:{incident.pinned.restart}")
    if incident.step.withheld and (same is None or not same.step.withheld):
        yield "job:withheld"
    if _waits_for_interval(write, incident, same):
        yield "job:interval"
    yield from _of_verdict(incident, same)
    if same is None or same.disruption_class != incident.disruption_class:
        yield f"class:{incident.disruption_class}"
    # Several phases may pass in one write.
    known = {(span.phase, span.started_at) for span in same.phases} if same is not None else set()
    yield from (f"phase:{span.phase}" for span in incident.phases if (span.phase, span.started_at) not in known)
    yield from (f"transition:{source}>{target}" for source, target in taken(same, incident))
    yield from _of_overtaken(incident, same)
    for attempt in incident.attempts[len(same.attempts) if same is not None else 0 :]:
        yield f"attempt:{attempt.action}"
        if attempt.action is AttemptAction.RECREATE_JOB_SET:
            yield f"terminal:{OnTerminalFailure.RECREATE_JOB_SET}"
    if after.phase is Phase.HELD and before.phase is not Phase.HELD:
        yield f"exhausted:{_when_exhausted(incident)}"
    if incident.closing is not None and (same is None or same.closing is None):
        yield f"outcome:{incident.closing.outcome}"
        yield f"ending:{incident.closing.outcome}/{incident.closing.outcome_reason}"
        if incident.closing.outcome_reason == "PlatformGaveUp":
            yield f"terminal:{OnTerminalFailure.LEAVE}"


def _waits_for_interval(write: LedgerWrite, incident: Incident, same: Incident | None) -> bool:
    """This write suspends the job for longer than the delay of the attempts in a row."""
    wanted = incident.suspension
    until = wanted.until if wanted is not None and not wanted.for_room else None
    if until is None or not incident.pinned.backoff_min_interval_seconds:
        return False
    new = bool(incident.attempts) and (same is None or same.suspension is None)
    return new and until - write.at > budget.delay(incident.pinned, write.after.attempts_in_row)


def _of_overtaken(incident: Incident, same: Incident | None) -> Iterator[str]:
    """Attempts of ours that turned out to be the platform's."""
    if same is None or same.attempts == incident.attempts:
        return
    stood = {attempt.number: attempt.action for attempt in same.attempts}
    for attempt in incident.attempts:
        was = stood.get(attempt.number, attempt.action)
        if was is not attempt.action:
            yield f"becomes:{was}>{attempt.action}"


def _of_verdict(incident: Incident, same: Incident | None) -> Iterator[str]:
    """`same`: the incident as it was before this write. None: this write opened it."""
    if incident.rule and (same is None or same.rule != incident.rule):
        yield from (f"ruled:{rule.action}" for rule in incident.pinned.rules if rule.name == incident.rule)
    if incident.storm and (same is None or not same.storm):
        yield "fleet:storm"
    if any(
        each.reason in QUARANTINE_REFUSALS
        for each in incident.considered[len(same.considered) if same is not None else 0 :]
    ):
        yield "fleet:refused"


def _when_exhausted(incident: Incident) -> OnExhausted:
    if incident.step.fails_job:
        return OnExhausted.FAIL_JOB
    return OnExhausted.SUSPEND if incident.suspension is not None else OnExhausted.HOLD
