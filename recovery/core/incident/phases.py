"""Where a group stands on its way back, and the accounting of its time.

Phases are contiguous: one ends where the next begins, the first begins at the failure itself. All GPUs of the group are
idle throughout, because one missing member stops all ranks; every idle GPU-second is charged to the phase it falls in.
Which phase may follow which, and when, stands in `transitions`.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.membership import member_count, member_jobs, pods_of
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.ledger import Ledger, Phase, PhaseSpan, Target

_ORDER = (
    Phase.DETECTED,
    Phase.DECIDED,
    Phase.FENCING,
    Phase.TEARING_DOWN,
    Phase.BACKOFF,
    Phase.SCHEDULING,
    Phase.STARTING,
    Phase.RENDEZVOUS,
    Phase.RESUMING,
)

MAX_SPANS = 60
"""Beyond this the two oldest spans of an incident become one: status must stay bounded."""


GOING_DOWN = frozenset({Phase.DECIDED, Phase.FENCING, Phase.TEARING_DOWN})
"""The old group is still there."""


def later(one: Phase, other: Phase) -> Phase:
    """The one further along: within an attempt a group goes back only to wait for capacity. Held counts as Decided."""
    ranks = {phase: number for number, phase in enumerate(_ORDER)} | {Phase.HELD: 1, Phase.HEALTHY: len(_ORDER)}
    return one if ranks[one] >= ranks[other] else other


def position(snapshot: Snapshot, target: Target, ranks: int) -> Phase:
    """Where the facts put a group whose Jobs `target` were, or are to be, taken down. Healthy: all are Ready.

    `ranks`: of the whole group as it was, because JobSet makes one Job after the other, and the first may be Ready
    before the last is there; asked only where it is not known how many Jobs there will be.
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


def may_live_unseen(snapshot: Snapshot, pod: PodFacts) -> bool:
    """It is on a node that does not answer, so that nobody can end it, and is not known to be dead."""
    node = snapshot.nodes.get(pod.node)
    return node is not None and not node.reachable and pod.dead_since is None


def _suspended(snapshot: Snapshot) -> bool:
    """The workload is suspended, or resumed while its JobSet does not know of it yet."""
    workload, jobset = snapshot.workload, snapshot.jobset
    return (workload is not None and workload.suspended) or (jobset is not None and jobset.suspended)


def joined_probe(snapshot: Snapshot) -> bool:
    """Ready says of every member that it has joined the others."""
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


def last_ready(snapshot: Snapshot) -> datetime | None:
    """When the last member became Ready; None: not known."""
    times = [
        pod.ready_since
        for job in member_jobs(snapshot)
        for pod in pods_of(snapshot, job)
        if pod.ready and pod.ready_since is not None
    ]
    return max(times, default=None)


def within_second(moment: datetime, now: datetime) -> datetime:
    """The latest that a moment written in whole seconds can have been: the true one lies in the second that follows."""
    return min(now, moment + timedelta(seconds=1))


def end_of_rendezvous(snapshot: Snapshot, span_started_at: datetime, now: datetime) -> datetime:
    """The end that the facts prove."""
    ready = last_ready(snapshot)
    return max(now if ready is None else within_second(ready, now), span_started_at)


def enter(ledger: Ledger, phase: Phase, at: datetime) -> Ledger:
    """End the running span at `at`, book its GPU-seconds, begin `phase`. The same phase again changes nothing.

    A withheld restart waits in phase Backoff, and the wait ends with the phase.

    A clock that jumped back makes a span of no length, never a gap: the next one begins where this one ended.
    """
    incident = ledger.incident
    assert incident is not None, "phases belong to an incident"
    if incident.phases and incident.phases[-1].phase is phase and incident.phases[-1].ended_at is None:
        return ledger
    ledger = close_span(ledger, at)
    incident = ledger.incident
    assert incident is not None
    phases = incident.phases
    began_at = phases[-1].ended_at or at if phases else at
    if len(phases) >= MAX_SPANS:
        oldest, second = phases[:2]
        spent = oldest.idle_gpu_seconds + second.idle_gpu_seconds
        merged = msgspec.structs.replace(oldest, ended_at=second.ended_at, idle_gpu_seconds=spent)
        phases = (merged, *phases[2:])
    phases = (*phases, PhaseSpan(phase=phase, started_at=began_at))
    incident = msgspec.structs.replace(incident, phases=phases, withheld=None)
    return msgspec.structs.replace(ledger, phase=phase, incident=incident)


def close_span(ledger: Ledger, at: datetime) -> Ledger:
    """End the running span and book what it cost, in the incident and in the totals."""
    incident = ledger.incident
    assert incident is not None, "phases belong to an incident"
    if not incident.phases or incident.phases[-1].ended_at is not None:
        return ledger
    span = incident.phases[-1]
    ended_at = max(at, span.started_at)
    spent = round((ended_at - span.started_at).total_seconds() * incident.gpus, 3)
    closed = msgspec.structs.replace(span, ended_at=ended_at, idle_gpu_seconds=spent)
    by_phase = dict(ledger.totals.idle_gpu_seconds)
    by_phase[span.phase] = round(by_phase.get(span.phase, 0.0) + spent, 3)
    return msgspec.structs.replace(
        ledger,
        incident=msgspec.structs.replace(incident, phases=(*incident.phases[:-1], closed)),
        totals=msgspec.structs.replace(ledger.totals, idle_gpu_seconds=by_phase),
    )
