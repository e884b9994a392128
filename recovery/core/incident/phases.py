"""How far the recovery of a group has come, and the accounting of its time.

Phases are contiguous: the first begins at the failure itself, and each one ends where the next begins. All GPUs of the
group are idle throughout, because one missing member stops all ranks. Every idle GPU-second is booked to its phase.
While our own suspension is in force and no pod is left, the GPUs are free for others: that time counts as released.
`transitions` defines which phase may follow which, and when.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.membership import member_count, member_jobs, pods_of
from recovery.core.model.agent_facts import AgentState
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Incident, IncidentHandling, Ledger, Phase, PhaseSpan, Target
from recovery.core.model.step import WAITING, Step, StepType

_ORDER = (
    Phase.DETECTED,
    Phase.DECIDED,
    Phase.STOPPING,
    Phase.FENCING,
    Phase.TEARING_DOWN,
    Phase.BACKOFF,
    Phase.SCHEDULING,
    Phase.STARTING,
    Phase.RENDEZVOUS,
    Phase.RESUMING,
)

MAX_SPANS = 60
"""Beyond this number the two oldest spans of an incident are merged, because status must stay bounded."""


GOING_DOWN = frozenset({Phase.DECIDED, Phase.STOPPING, Phase.FENCING, Phase.TEARING_DOWN})
"""Phases in which the old group, or its processes, still exist."""
COMING_BACK = frozenset({Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS, Phase.RESUMING})
"""Phases in which the new group is on its way."""


def later(one: Phase, other: Phase) -> Phase:
    """The later phase. Within an attempt a group goes back only to wait for capacity. Held counts as Decided."""
    ranks = {phase: number for number, phase in enumerate(_ORDER)} | {Phase.HELD: 1, Phase.HEALTHY: len(_ORDER)}
    return one if ranks[one] >= ranks[other] else other


def position(snapshot: Snapshot, target: Target, ranks: int) -> Phase:
    """The phase that the facts show, for a group whose Jobs `target` were or will be deleted. Healthy: all are Ready.

    `ranks`: the size of the whole group before. JobSet creates one Job after the other, so the first may be Ready
    before the last exists. Used only where it is not known how many Jobs there will be.
    """
    old_jobs = [job for job in snapshot.jobs if job.uid in target.job_uids]
    if any(job.deleting_since is None for job in old_jobs):
        return Phase.DECIDED
    old_pods = [pod for pod in snapshot.pods if pod.job_uid in target.job_uids and pod.gone_at is None]
    if any(may_live_unseen(snapshot, pod) for pod in old_pods):
        return Phase.FENCING
    if old_jobs or old_pods:
        return Phase.TEARING_DOWN
    if _suspended(snapshot):
        return Phase.BACKOFF
    jobs = member_jobs(snapshot)
    # A recreated JobSet may ask for fewer members than the old one had.
    all_made = len(jobs) >= snapshot.expected_jobs if snapshot.expected_jobs else sum(map(member_count, jobs)) >= ranks
    if not jobs or not all_made:
        return Phase.SCHEDULING
    found = Phase.HEALTHY
    for job in jobs:
        place = _job_position(snapshot, job)
        if later(found, place) is found:
            found = place
    return found


def reached_at(snapshot: Snapshot, target: Target, phase: Phase, now: datetime) -> datetime:
    """When the group entered the phase that `position` has found, as far as its objects show.

    A delayed controller sees the phase late. Dated by its own clock, the phase would begin after the training did, and
    the incident could not end at the moment when all ranks met.
    """
    read_at = now if snapshot.read_at is None else min(snapshot.read_at, now)
    reported_at = _reported_at(snapshot, phase)
    if reported_at is not None:
        return min(reported_at, now)
    proven_at = _proven_at(snapshot, target, phase)
    return read_at if proven_at is None else within_second(proven_at, now)


def _reported_at(snapshot: Snapshot, phase: Phase) -> datetime | None:
    """When the ranks entered the phase, as their agents report it. None: they do not report that phase."""
    agent = snapshot.agent
    if agent is None:
        return None
    match phase:
        case Phase.STOPPING if agent.state is AgentState.STOPPING:
            return agent.state_since
        case Phase.STARTING if agent.epoch > 1 and agent.state is AgentState.STARTING:
            return agent.epoch_since
        case Phase.RENDEZVOUS:
            found, ran_at = agent.present_rendezvous, last_started(snapshot)
            # In a new group, the time until the last pod runs is that of its start.
            return None if found is None else max(found.first_at, ran_at or found.first_at)
    return None


def _proven_at(snapshot: Snapshot, target: Target, phase: Phase) -> datetime | None:
    """The date of the objects that prove the phase. None: they have no date, for example because they are gone."""
    jobs = member_jobs(snapshot)
    living = (pod for job in jobs for pod in pods_of(snapshot, job) if pod.phase not in {"Failed", "Succeeded"})
    pods = [pod for pod in living if pod.deleting_since is None]
    match phase:
        case Phase.FENCING | Phase.TEARING_DOWN:
            going = [job.deleting_since for job in snapshot.jobs if job.uid in target.job_uids]
            if going:
                return _latest(going)
            # The cache may lag behind the pods' deletion. The old Jobs were gone when their successors were created.
            old = (pod for pod in snapshot.pods if pod.job_uid in target.job_uids and pod.gone_at is None)
            return _latest(pod.deleting_since for pod in old) or min((job.created_at for job in jobs), default=None)
        case Phase.SCHEDULING:
            # The first pod of each Job. A Job without pods has no date, so `_watch_for_pods` waits since it was seen.
            made = ([pod.created_at for pod in pods if pod.job_uid == job.uid] for job in jobs)
            return _latest(min(times, default=None) for times in made)
        case Phase.STARTING:
            return _latest(pod.scheduled_at for pod in pods)
        case Phase.RENDEZVOUS:
            return _latest(each.running_since for pod in pods for each in pod.containers)
    return None


def _latest(moments: Iterable[datetime | None]) -> datetime | None:
    """The latest moment. None: there is none, or one of them is not known."""
    known: list[datetime] = []
    for moment in moments:
        if moment is None:
            return None
        known.append(moment)
    return max(known, default=None)


def may_live_unseen(snapshot: Snapshot, pod: PodFacts) -> bool:
    """The pod is on a node that does not answer, so nothing can end it, and it is not known to be dead."""
    node = snapshot.nodes.get(pod.node)
    return node is not None and not node.reachable and pod.dead_since is None


def _suspended(snapshot: Snapshot) -> bool:
    """The workload is suspended, or it was resumed and its JobSet is still suspended."""
    workload, jobset = snapshot.workload, snapshot.jobset
    return (workload is not None and workload.suspended) or (jobset is not None and jobset.suspended)


def joined_probe(snapshot: Snapshot) -> bool:
    """For every member, Ready means that it has joined the others."""
    pods = [pod for job in member_jobs(snapshot) for pod in pods_of(snapshot, job) if pod.deleting_since is None]
    return bool(pods) and all(pod.joined_probe for pod in pods)


def _job_position(snapshot: Snapshot, job: JobFacts) -> Phase:
    members = [pod for pod in pods_of(snapshot, job) if pod.deleting_since is None and pod.phase != "Failed"]
    wanted = member_count(job)

    def ranks(*, ready: bool = False, running: bool = False) -> int:
        return len(
            {
                pod.index if pod.index is not None else pod.uid
                for pod in members
                if pod.phase == "Succeeded" or (pod.node and (not running or pod.running) and (not ready or pod.ready))
            }
        )

    if ranks() < wanted:
        return Phase.SCHEDULING
    if ranks(running=True) < wanted:
        return Phase.STARTING
    return Phase.HEALTHY if ranks(running=True, ready=True) >= wanted else Phase.RENDEZVOUS


def last_started(snapshot: Snapshot) -> datetime | None:
    """When the last running member started. None: not known."""
    starts = (
        each.running_since for job in member_jobs(snapshot) for pod in pods_of(snapshot, job) for each in pod.containers
    )
    return max((start for start in starts if start is not None), default=None)


def last_ready(snapshot: Snapshot) -> datetime | None:
    """When the last member became Ready. None: not known."""
    times = [
        pod.ready_since
        for job in member_jobs(snapshot)
        for pod in pods_of(snapshot, job)
        if pod.ready and pod.ready_since is not None
    ]
    return max(times, default=None)


def within_second(moment: datetime, now: datetime) -> datetime:
    """The latest true time of a moment that was written in whole seconds: the true time is up to one second later."""
    return min(now, moment + timedelta(seconds=1))


def end_of_rendezvous(snapshot: Snapshot, span_started_at: datetime, now: datetime) -> datetime:
    """The end of Rendezvous that the facts prove."""
    found = snapshot.agent.present_rendezvous if snapshot.agent is not None else None
    if found is not None and found.joined_at is not None:
        return max(min(found.joined_at, now), span_started_at)
    ready = last_ready(snapshot)
    return max(now if ready is None else within_second(ready, now), span_started_at)


def enter(ledger: Ledger, phase: Phase, at: datetime) -> Ledger:
    """End the running span at `at`, book its GPU-seconds, and begin `phase`. The same phase again changes nothing.

    The step follows the phase: a wait of a withheld restart ends with its phase, and a group that has begun to come
    back is no longer going down.

    If the clock jumped back, the span has no length. There is never a gap: the next span begins where this one ended.
    """
    incident = ledger.current_incident
    if incident.phases and incident.phases[-1].phase is phase and incident.phases[-1].ended_at is None:
        return ledger
    ledger = _begin_span(ledger, phase, at)
    handling = IncidentHandling.HELD if phase is Phase.HELD else incident.handling
    changed = ledger.with_incident(step=_step_in(incident, phase), handling=handling)
    return msgspec.structs.replace(changed, phase=phase)


def _step_in(incident: Incident, phase: Phase) -> Step:
    """The step of the incident in the phase that begins. Entering Held, and an attempt, set their own."""
    step = incident.step
    if step.type not in {StepType.WITHHELD, StepType.RESTARTING, StepType.RETURNING}:
        return step
    if not incident.restarted:
        return WAITING
    return Step(StepType.RETURNING if phase in COMING_BACK else StepType.RESTARTING, forced=step.forced)


def mark_released(ledger: Ledger, snapshot: Snapshot, now: datetime) -> Ledger:
    """Record in the running span whether the GPUs are free now. If that changes within a phase, it gets a new span.

    Free: our own suspension is in force and still wanted, and no pod of the group holds GPUs any more. The time before
    the GPUs are free, and after the suspension ends, is idle: the incident makes the group wait.
    """
    incident = ledger.incident
    if incident is None or incident.closing is not None or not incident.phases:
        return ledger
    ours = incident.suspension is not None and incident.suspension.landed
    released = ours and not any(pod.holds_gpus for pod in snapshot.pods)
    running = incident.phases[-1]
    if running.released == released:
        return ledger
    if now > running.started_at:
        ledger = _begin_span(ledger, running.phase, now)
    spans = ledger.current_incident.phases
    return ledger.with_incident(phases=(*spans[:-1], msgspec.structs.replace(spans[-1], released=released)))


def _begin_span(ledger: Ledger, phase: Phase, at: datetime) -> Ledger:
    ledger = close_span(ledger, at)
    spans = ledger.current_incident.phases
    began_at = spans[-1].ended_at or at if spans else at
    if len(spans) >= MAX_SPANS:
        oldest, second = spans[:2]
        merged = msgspec.structs.replace(
            oldest,
            ended_at=second.ended_at,
            idle_gpu_seconds=round(oldest.idle_gpu_seconds + second.idle_gpu_seconds, 3),
            released_gpu_seconds=round(oldest.released_gpu_seconds + second.released_gpu_seconds, 3),
        )
        spans = (merged, *spans[2:])
    gpus = spans[-1].gpus if spans else None
    return ledger.with_incident(phases=(*spans, PhaseSpan(phase=phase, started_at=began_at, gpus=gpus)))


def resize(ledger: Ledger, gpus: int) -> Ledger:
    """Record that the group has this many GPUs, beginning with the phase that has just begun."""
    spans = ledger.current_incident.phases
    return ledger.with_incident(phases=(*spans[:-1], msgspec.structs.replace(spans[-1], gpus=gpus)))


def close_span(ledger: Ledger, at: datetime) -> Ledger:
    """End the running span and book what it cost, in the incident and in the totals: by phase, and by class and phase.

    Released time is booked only as released.
    """
    incident = ledger.current_incident
    if not incident.phases or incident.phases[-1].ended_at is not None:
        return ledger
    span, totals = incident.phases[-1], ledger.totals
    ended_at = max(at, span.started_at)
    spent = round((ended_at - span.started_at).total_seconds() * incident.gpus_in(span), 3)
    if span.released:
        closed = msgspec.structs.replace(span, ended_at=ended_at, released_gpu_seconds=spent)
        totals = msgspec.structs.replace(totals, released_gpu_seconds=_sum(totals.released_gpu_seconds, spent))
    else:
        closed = msgspec.structs.replace(span, ended_at=ended_at, idle_gpu_seconds=spent)
        totals = booked(totals, incident.booked_class, span.phase, spent)
    return msgspec.structs.replace(ledger.with_incident(phases=(*incident.phases[:-1], closed)), totals=totals)


def booked(totals: Totals, disruption_class: str, phase: str, idle_gpu_seconds: float) -> Totals:
    """The totals with these idle GPU-seconds, by phase, and by class and phase."""
    by_class = dict(totals.idle_gpu_seconds_by_class)
    by_class[disruption_class] = _with(by_class.get(disruption_class, {}), phase, idle_gpu_seconds)
    by_phase = _with(totals.idle_gpu_seconds, phase, idle_gpu_seconds)
    return msgspec.structs.replace(totals, idle_gpu_seconds=by_phase, idle_gpu_seconds_by_class=by_class)


def _with(seconds: Mapping[str, float], phase: str, more: float) -> dict[str, float]:
    return {**seconds, phase: _sum(seconds.get(phase, 0.0), more)}


def _sum(booked: float, more: float) -> float:
    """The sum in thousandths, and never less than before: a total that a person has edited may have more digits."""
    return max(booked, round(booked + more, 3))
