"""A group of which some members wait for a node while its other ranks wait for them.

Waiting is not failing. The ranks that run give up their rendezvous after their own timeout and exit, all within a
second, and each exit counts towards the `backoffLimit` of its Job. A Job that has used it up fails, and its JobSet
fails with it, for good: the node that comes back an hour later finds no job. So the controller raises the limit before
the ranks exit. Kubelets restart their containers, and all ranks meet once the last one has a node. The exits open no
attempt and cost no budget: they are consequences of the wait.

A policy may also have the group released: the controller suspends the job, and resumes it when there seems to be room
for all members. Two groups that each hold half of the nodes wait for each other for ever, unless one of them does that.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis import job_limits
from recovery.core.diagnosis.membership import failing, member_count, member_jobs, pods_of, stands_still
from recovery.core.diagnosis.refusals import waiting_refused
from recovery.core.diagnosis.unscheduled import seats, unscheduled
from recovery.core.incident import lifecycle, phases
from recovery.core.incident.preconditions import barred
from recovery.core.model.durations import in_words
from recovery.core.model.facts import JobFacts, Snapshot
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.waits import ROOM_ASKED_EVERY, Released, Suspension
from recovery.core.plan import suspension
from recovery.core.plan.actions import MAX_BACKOFF_LIMIT, DeleteJob, ExtendBackoffLimit, Plan, SuspendWorkload
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, say_of_attempt
from recovery.core.policy.spec import WhileWaiting

PLACED_IN = timedelta(seconds=30)
"""The time that the scheduler gets to place all members of a group, before the group is released."""
_TRY_AGAIN_AFTER = timedelta(seconds=30)
_TRY_AGAIN_AFTER_MAX = timedelta(minutes=10)
_TRY_REGARDLESS = 60
"""A group that waits this many times longer tries without room: after half an hour, then an hour, up to ten hours."""


# --- hold: the Jobs survive the wait -------------------------------------------------------------------------------


def with_limits(context: ReconcileContext, plan: Plan) -> Plan:
    """The plan, which also lets the Jobs survive the exits of the ranks that wait, and the pods that a kubelet refuses
    meanwhile. Unchanged if no member of the group waits for a node, or if the group is taken down or suspended anyway.
    """
    if not _may_write(context, plan.ledger):
        return plan
    if not unscheduled(context.snapshot) and not waiting_refused(context.snapshot):
        return plan
    if any(isinstance(action, DeleteJob | SuspendWorkload) for action in plan.actions):
        return plan
    settled_at = _settled_at(plan.ledger)
    if context.now < settled_at:
        moments = (moment for moment in (plan.requeue_at, settled_at) if moment is not None)
        return msgspec.structs.replace(plan, requeue_at=min(moments))
    plan = msgspec.structs.replace(plan, ledger=lifecycle.without_unseen(plan.ledger, context.snapshot))
    limits = (_extended(context.snapshot, job, plan.ledger.epoch) for job in member_jobs(context.snapshot))
    wanted = tuple(limit for limit in limits if limit is not None)
    return msgspec.structs.replace(plan, actions=(*plan.actions, *wanted)) if wanted else plan


def _settled_at(ledger: Ledger) -> datetime:
    """From this moment on no late evidence makes a rule leave the loss to Kubernetes."""
    open_ = ledger.current_incident
    settle = open_.pinned.settle_seconds if open_.pinned.rules and not lifecycle.restarted(ledger) else 0.0
    return open_.detected_at + timedelta(seconds=settle)


def _may_write(context: ReconcileContext, ledger: Ledger) -> bool:
    """The incident may write to the Jobs. A held group stays as it is, and so does one that was left to the user's own
    policies or to a rule. That its Job replaces a member is no such decision."""
    open_ = ledger.incident
    if open_ is None or open_.closing is not None or not lifecycle.acts(ledger) or ledger.phase is Phase.HELD:
        return False
    left = open_.attempt.reason if lifecycle.still_aside(ledger) and open_.attempt is not None else None
    return left in {None, Reason.MEMBER_REPLACED} and barred(context.workload, context.policy) is None


def _extended(snapshot: Snapshot, job: JobFacts, epoch: int) -> ExtendBackoffLimit | None:
    """The raise of the Job's backoffLimit. None: every rank may exit once more, and then the Job still has the retries
    that its user gave it; or the limit is not ours to raise.

    Room for two exits of each rank is added at once, so that one write lasts for one round of exits. A limit of 0 is
    the user's decision that one failure ends the job.
    """
    left, own = job_limits.exits_left(job, snapshot.pods), job_limits.own_limit(job)
    if left is None or not own or failing(job) is not None or stands_still(job):
        return None
    ranks = member_count(job)
    lacking = own + ranks - left
    if lacking <= 0 or job.backoff_limit >= MAX_BACKOFF_LIMIT:
        return None
    limit = min(job.backoff_limit + lacking + ranks, MAX_BACKOFF_LIMIT)
    return ExtendBackoffLimit(epoch, job.name, job.uid, job.resource_version, own, limit)


def meanwhile(context: ReconcileContext, ledger: Ledger) -> Explanation:
    """What the other ranks do while they wait, and what may end the job before the last member starts."""
    if not _may_write(context, ledger):
        return explained(Sentence.WAITS_ON_ITS_OWN, Reason.WAITING_FOR_CAPACITY)
    for job in member_jobs(context.snapshot):
        limit = job_limits.not_to_be_raised(job)
        if limit is not None:
            return explained(Sentence.WAIT_IS_LIMITED, Reason.WAITING_FOR_CAPACITY, limit=limit)
    for facts in (context.workload, context.snapshot.jobset):
        if facts is not None and facts.active_deadline_seconds is not None:
            limit = explained(Sentence.DEADLINE_RUNS, Reason.DEADLINE, seconds=facts.active_deadline_seconds)
            return explained(Sentence.WAIT_IS_LIMITED, Reason.WAITING_FOR_CAPACITY, limit=limit)
    if any(job.pod_restart_policy == "Never" for job in member_jobs(context.snapshot)):
        return explained(Sentence.WAITS_WITHOUT_NODES, Reason.WAITING_FOR_CAPACITY)
    return explained(Sentence.WAITS_ON_NODES, Reason.WAITING_FOR_CAPACITY)


def each_other(context: ReconcileContext, ledger: Ledger, since: datetime) -> tuple[Explanation | None, datetime]:
    """Why the wait may last for ever, once it has lasted for `capacityWait`; and when to ask again.

    Groups that each hold some of the nodes that the others need wait until one of them lets go. `since`: the beginning
    of the wait, within the present run of the Jobs.
    """
    patience = max(timedelta(seconds=ledger.current_incident.pinned.capacity_wait_seconds), PLACED_IN)
    if context.now < since + patience:
        return None, since + patience
    fleet = context.snapshot.fleet
    usable = frozenset((fleet.with_accelerators or fleet.feasible or ()) if fleet is not None else ())
    waiting = (fleet.waiting or ()) if fleet is not None else ()
    others = [each for each in waiting if each.held & usable]
    own = {pod.node for job in member_jobs(context.snapshot) for pod in pods_of(context.snapshot, job) if pod.node}
    if not others or not own:
        return None, context.now + patience
    keys = sorted(f"{each.key.namespace}/{each.key.name}" for each in others)
    held = len(usable & frozenset().union(*(each.held for each in others)))
    why = because(Reason.WAITS_FOR_EACH_OTHER, other=keys[0], more=len(keys) - 1, held=held, own=len(own))
    return why, context.now + patience


# --- release: others may have the GPUs -----------------------------------------------------------------------------


def release_due_at(context: ReconcileContext, ledger: Ledger, since: datetime) -> datetime | None:
    """When the group is released because a member has no node. None: never.

    `since`: the beginning of the wait, within the present run of the Jobs.
    """
    open_ = ledger.current_incident
    way = open_.pinned.while_waiting
    if way == WhileWaiting.HOLD or not _may_write(context, ledger):
        return None
    if suspension.refused(context, open_) is not None:
        return None
    holds_first = way == WhileWaiting.HOLD_THEN_RELEASE and open_.released is None
    patience = timedelta(seconds=open_.pinned.capacity_wait_seconds) if holds_first else PLACED_IN
    return since + max(patience, PLACED_IN)


def release(context: ReconcileContext, ledger: Ledger, waiting: Explanation) -> Plan:
    """Suspend the job so that others can have its GPUs, until there is room for all members. `waiting`: for what."""
    before = ledger.current_incident.released
    times = before.times + 1 if before is not None else 1
    wait = _wait(times)
    until = context.now + wait
    pods = [pod for job in member_jobs(context.snapshot) for pod in pods_of(context.snapshot, job)]
    released = Released(
        since=before.since if before is not None else context.now,
        times=times,
        priority=max((pod.priority for pod in pods), default=0),
    )
    ledger = phases.enter(ledger, Phase.BACKOFF, context.now)
    ledger = suspension.want(ledger.with_incident(released=released), Suspension(until=until, for_room=True))
    ranks = sum(map(member_count, member_jobs(context.snapshot)))
    why = because(Reason.RELEASED, waiting=waiting, ranks=ranks, wait=in_words(wait))
    said = say_of_attempt(ledger, why)
    return as_before(said, actions=suspension.suspend(said, context.workload), requeue_at=until)


def _wait(times: int) -> timedelta:
    doubled: int = 2 ** min(times - 1, 16)
    return min(_TRY_AGAIN_AFTER * doubled, _TRY_AGAIN_AFTER_MAX)


def room_asked_at(context: ReconcileContext, since: datetime, times: int) -> datetime | None:
    """When a released group asks for room again. None: it tries now, because there seems to be room for all of its
    members. If they find no nodes, it is released again for twice as long.

    It also tries where the room is not known, and after a long time: the count is stricter than the scheduler. `since`:
    when it might have resumed. `times`: how often it was released.
    """
    fleet = context.snapshot.fleet
    room = fleet.room if fleet is not None else None
    regardless_at = since + _TRY_REGARDLESS * _wait(times)
    if room is None or room.pods >= seats(context.snapshot) or context.now >= regardless_at:
        return None
    return min(context.now + ROOM_ASKED_EVERY, regardless_at)
