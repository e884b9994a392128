"""A group on its way back: what may go wrong in each phase, and what each wait reports. No wait is silent."""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import birth, capacity_wait, recreating, resizing
from recovery.core.decision.another_attempt import try_again
from recovery.core.decision.resuming import deadline_of
from recovery.core.decision.teardown import free_the_dead, pod_deletes
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis import job_backoff, not_started
from recovery.core.diagnosis.agent_view import not_arrived
from recovery.core.diagnosis.membership import member_jobs, place, pods_of, rank, stands_still
from recovery.core.diagnosis.trained import began_at
from recovery.core.diagnosis.unscheduled import unscheduled
from recovery.core.incident import fencing, lifecycle, phases
from recovery.core.incident.preconditions import barred
from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, as_said, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan, ReadLive, TouchJob
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import (
    as_before,
    considered,
    say_more,
    say_of_attempt,
    says_more,
)

TOUCH_AFTER = timedelta(seconds=60)
"""A Job without pods for this long is touched, so that its controller syncs it again (k/k 131917, 132042)."""
GIVE_UP_AFTER = timedelta(seconds=120)
"""A Job without pods for this long is given up, and a new attempt begins. After two of them the time doubles."""
SAY_AFTER = timedelta(seconds=30)
"""A wait for capacity, or for pods that are refused, is reported and reconciled again after this long."""
_WAITS = frozenset(
    {
        Reason.FENCING,
        Reason.WAITING_FOR_TEARDOWN,
        Reason.WAITING_FOR_RESUME,
        Reason.WAITING_FOR_PODS,
        Reason.WAITING_FOR_CAPACITY,
        Reason.WAITS_FOR_EACH_OTHER,
        Reason.WAITING_FOR_START,
        Reason.WAITING_FOR_READY,
    }
)
_JOB_MADE_IN = timedelta(seconds=2)
"""Within this time after the old group is gone, JobSet has created the Job, or the API server has refused it."""
_MAX_QUOTE = 300


def watch_the_teardown(context: ReconcileContext, ledger: Ledger, *, ours: bool) -> Plan:
    """Old pods still exist. They are deleted if that is ours to do, and reported if they take too long."""
    open_, snapshot = ledger.current_incident, context.snapshot
    may = ours and barred(context.workload, context.policy, forced=open_.step.forced) is None
    actions = pod_deletes(snapshot, ledger) if may else free_the_dead(context, ledger)
    left = [pod for pod in snapshot.pods if pod.job_uid in open_.target.job_uids and pod.gone_at is None]
    if not left:
        jobs = ", ".join(job.name for job in snapshot.jobs if job.uid in open_.target.job_uids)
        what = explained(Sentence.WAITING_FOR_FINALIZER, Reason.WAITING_FOR_TEARDOWN, jobs=jobs)
        return say_after_a_while(context, ledger, what)
    unseen = next((pod for pod in left if phases.may_live_unseen(snapshot, pod)), None)
    if unseen is not None:
        return msgspec.structs.replace(_watch_the_fence(context, ledger, unseen), actions=actions)
    grace = max(pod.grace_seconds if pod.deletion_grace_seconds is None else pod.deletion_grace_seconds for pod in left)
    what = because(Reason.WAITING_FOR_TEARDOWN, pod=place(left[0]), more=len(left) - 1)
    plan = say_after_a_while(context, ledger, what, after=timedelta(seconds=grace) + SAY_AFTER)
    return msgspec.structs.replace(plan, actions=actions)


def _watch_the_fence(context: ReconcileContext, ledger: Ledger, pod: PodFacts) -> Plan:
    """An old pod is on a node that does not answer. Wait until it is proven or assumed dead, or the node is back."""
    fate = fencing.fates_of_nodes(context.snapshot, context.policy, context.now).get(pod.node)
    what = because(Reason.FENCING, pod=place(pod), fate=fate.why if fate is not None else "its node does not answer")
    return as_before(say_of_attempt(ledger, what), requeue_at=fate.changes_at if fate is not None else None)


def say_after_a_while(
    context: ReconcileContext, ledger: Ledger, what: Explanation, *, after: timedelta = SAY_AFTER
) -> Plan:
    """No wait is silent: once the phase has lasted for `after`, the message says what it waits for. It replaces a wait
    that is over, such as that of the teardown while the new group waits for a node."""
    open_ = ledger.current_incident
    if says_more(ledger) and (open_.reason is what.reason or open_.reason not in _WAITS):
        return as_before(ledger)
    say_at = open_.phases[-1].started_at + after
    if context.now < say_at:
        return as_before(ledger, requeue_at=say_at)
    return as_before(say_of_attempt(ledger, what) if says_more(ledger) else say_more(ledger, what))


def not_ready(snapshot: Snapshot) -> Explanation:
    """Which rank is waited for in Rendezvous: all run, but not all are Ready."""
    agent = snapshot.agent
    if agent is not None and agent.meets:
        return _not_joined(snapshot, agent)
    late = [pod for job in member_jobs(snapshot) for pod in pods_of(snapshot, job) if pod.running and not pod.ready]
    who = place(min(late, key=lambda pod: (pod.index is None, pod.index, pod.name))) if late else "the last pod"
    return because(Reason.WAITING_FOR_READY, who=who, more=max(0, len(late) - 1))


def _not_joined(snapshot: Snapshot, agent: AgentFacts) -> Explanation:
    """The agents say for whom the others wait."""
    late = [pod for pod in snapshot.pods if pod.job_uid == agent.job_uid and pod.index in agent.waiting]
    first = min(late, key=lambda pod: (pod.gone_at is not None, pod.index), default=None)
    who = place(first) if first is not None else "the last rank"
    return explained(
        Sentence.WAITING_FOR_JOIN,
        Reason.WAITING_FOR_READY,
        who=who,
        more=max(0, agent.waiting_count - 1),
        missing=agent.arrived < agent.slots,
    )


def watch_the_backoff(context: ReconcileContext, ledger: Ledger) -> Plan:
    """The old group is gone, and the new one is suspended until its backoff is over."""
    open_ = ledger.current_incident
    if open_.suspension is None:
        who = "Trainer" if context.workload.kind == "TrainJob" else "JobSet"
        return say_after_a_while(context, ledger, because(Reason.WAITING_FOR_RESUME, who=who))
    until = open_.suspension.until
    if until is None or context.now < until:
        return as_before(ledger, requeue_at=until)
    if open_.suspension.for_room and until is not None and open_.released is not None:
        asks_at = capacity_wait.room_asked_at(context, until, open_.released.times)
        if asks_at is not None:
            return as_before(ledger, requeue_at=asks_at)
    return as_before(suspension.want(ledger, None), actions=suspension.resume(context.workload))


def watch_the_rendezvous(context: ReconcileContext, ledger: Ledger) -> Plan:
    """All run, but not all are Ready. `timeouts.rendezvous` counts only if Ready means that a rank has joined."""
    open_ = ledger.current_incident
    timeout = timedelta(seconds=open_.pinned.rendezvous_timeout_seconds)
    what = not_ready(context.snapshot)
    since = _all_wait_since(context, ledger)
    if not timeout or not lifecycle.acts(ledger) or since is None:
        return say_after_a_while(context, ledger, what)
    deadline = since + timeout
    agent = context.snapshot.agent
    if agent is not None and agent.meets and agent.received_at < deadline <= context.now:
        return say_after_a_while(context, ledger, what)  # they may have joined since the report
    if context.now >= deadline:
        seconds = int(timeout.total_seconds())
        found = because(Reason.RENDEZVOUS_TIMEOUT, seconds=seconds, what=what)
        return try_again(context, ledger, found)
    plan = say_after_a_while(context, ledger, what)
    earlier = plan.requeue_at is not None and plan.requeue_at < deadline
    return plan if earlier else msgspec.structs.replace(plan, requeue_at=deadline)


def _all_wait_since(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """Since when all ranks wait for one another. None: that is not known, so that no time-out counts.

    Without a joined probe, only agents that report now can show it. A rank that prepares itself for an hour while the
    others wait is no failure. Ranks that make steps have joined, even if one of them does not show it.
    """
    agent = context.snapshot.agent
    if agent is None or not agent.meets:
        open_ = ledger.current_incident
        proven = open_.probe_proven or (open_.joins_proven and phases.joined_probe(context.snapshot))
        return _under_way_since(context, ledger) if proven else None
    found = agent.present_rendezvous
    if found is None or found.arrived_at is None or agent.steps is not None:
        return None
    return max(found.arrived_at, phases.last_started(context.snapshot) or found.arrived_at)


def watch_the_resuming(context: ReconcileContext, ledger: Ledger) -> Plan:
    """All had joined, but a member is not Ready any more. No timeout tears down a group that may be training."""
    deadline = deadline_of(ledger)
    if context.now < deadline:
        return as_before(ledger, requeue_at=deadline)
    return as_before(say_of_attempt(ledger, not_ready(context.snapshot)))


def watch_the_scheduling(context: ReconcileContext, ledger: Ledger) -> Plan:
    """Not all pods have a node. Capacity may come, so nothing is torn down, but the message says what is missing."""
    open_ = ledger.current_incident
    jobs = member_jobs(context.snapshot)
    empty = [job for job in jobs if not job.suspended and not pods_of(context.snapshot, job)]
    may = lifecycle.acts(ledger) and barred(context.workload, context.policy, forced=open_.step.forced) is None
    overdue = recreating.in_incident(context, ledger) if may else None
    if isinstance(overdue, Explanation):
        return try_again(context, ledger, overdue)
    if overdue is not None:
        what = as_said(Reason.WAITING_FOR_PODS, not_started.words(context.snapshot))
        plan = say_after_a_while(context, ledger, what)
        return msgspec.structs.replace(plan, requeue_at=min(overdue, plan.requeue_at or overdue))
    if empty and may:
        return _watch_for_pods(context, ledger, min(empty, key=lambda job: job.created_at))
    wrong = birth.born_wrong(context, ledger)
    if wrong is not None:
        return _born_wrong(context, ledger, wrong)
    unplaced = unscheduled(context.snapshot)
    if unplaced:
        return _watch_the_unplaced(context, ledger, *unplaced[0])
    if not jobs and ledger.birth_settings is not None and not context.snapshot.live:
        # Only a live read shows that the API server refuses the Job.
        since = open_.phases[-1].started_at + _JOB_MADE_IN
        return as_before(ledger, actions=(ReadLive(),)) if context.now >= since else as_before(ledger, requeue_at=since)
    if not jobs:
        return say_after_a_while(context, ledger, explained(Sentence.WAITING_FOR_JOB, Reason.WAITING_FOR_PODS))
    late = _without_successor(context.snapshot)
    if late is not None and lifecycle.acts(ledger):
        return _watch_for_successor(context, ledger, late)
    pods = [pod for job in jobs for pod in pods_of(context.snapshot, job) if _may_train(pod)]
    placed = sum(bool(pod.node) for pod in pods)
    what = because(Reason.WAITING_FOR_PODS, count=len(pods), ranks=open_.ranks, placed=placed)
    return say_after_a_while(context, ledger, what)


def _may_train(pod: PodFacts) -> bool:
    return pod.phase != "Failed" and pod.deleting_since is None


def _without_successor(snapshot: Snapshot) -> PodFacts | None:
    """A failed pod whose Job has not created the next one for that rank yet. None: there is none."""
    for job in member_jobs(snapshot):
        pods = pods_of(snapshot, job)
        filled = {rank(pod) for pod in pods if _may_train(pod)}
        failed = [pod for pod in pods if pod.phase == "Failed" and pod.index is not None and rank(pod) not in filled]
        if failed and not stands_still(job):
            return max(failed, key=lambda pod: pod.created_at)
    return None


def _watch_for_successor(context: ReconcileContext, ledger: Ledger, late: PodFacts) -> Plan:
    """`timeouts.start` counts here too, from the failure on: a Job waits longer after each failed pod, up to ten
    minutes (MaxJobPodFailureBackOff of Kubernetes). Meanwhile the other ranks give up their rendezvous and fail in
    turn, so they may never all run at the same time. A new Job has no such delay.
    """
    timeout = timedelta(seconds=ledger.current_incident.pinned.start_timeout_seconds)
    ended = (each.exit.finished_at for each in late.containers if each.exit is not None)
    failed_at = max((moment for moment in ended if moment is not None), default=late.created_at)
    deadline = max(_under_way_since(context, ledger), failed_at) + timeout
    if context.now >= deadline:
        seconds = int(timeout.total_seconds())
        found = explained(Sentence.NO_SUCCESSOR_IN_TIME, Reason.START_TIMEOUT, seconds=seconds, pod=place(late))
        return try_again(context, ledger, found)
    what = explained(Sentence.WAITING_FOR_SUCCESSOR, Reason.WAITING_FOR_PODS, pod=place(late))
    plan = say_after_a_while(context, ledger, what)
    earlier = plan.requeue_at is not None and plan.requeue_at < deadline
    return plan if earlier else msgspec.structs.replace(plan, requeue_at=deadline)


def _watch_the_unplaced(context: ReconcileContext, ledger: Ledger, pod: PodFacts, why: str) -> Plan:
    """No node has room for the pod. An elastic group shrinks once it has waited long enough."""
    what = because(Reason.WAITING_FOR_CAPACITY, pod=place(pod), why=why[:_MAX_QUOTE])
    acts = lifecycle.acts(ledger)
    anywhere = resizing.without_avoidance(context, ledger) if acts else None
    if anywhere is not None:
        return try_again(context, anywhere[0], anywhere[1].why, verdict=anywhere[1])
    smaller = resizing.smaller(context, ledger)
    if isinstance(smaller, Verdict):
        return try_again(context, ledger, what, verdict=smaller)
    said_after = SAY_AFTER
    if smaller.why is not None:
        # A person should know at once what keeps an elastic group from shrinking.
        what, said_after = (
            explained(Sentence.BOTH, smaller.why.reason, first=what, more=smaller.why),
            resizing.PLACED_IN,
        )
    due_at = capacity_wait.release_due_at(context, ledger, _under_way_since(context, ledger))
    if due_at is not None and context.now >= due_at:
        return capacity_wait.release(context, ledger, what)
    plan = _say_what_it_waits_for(context, ledger, what, said_after, holds=due_at is None)
    avoids_until = ledger.current_incident.phases[-1].started_at + resizing.AVOIDS_FOR if ledger.avoided else None
    moments = [moment for moment in (plan.requeue_at, smaller.due_at, avoids_until, due_at) if moment is not None]
    return msgspec.structs.replace(plan, requeue_at=min(moments, default=None))


def _say_what_it_waits_for(
    context: ReconcileContext, ledger: Ledger, what: Explanation, after: timedelta, *, holds: bool
) -> Plan:
    """Say it once, and again when groups that wait for each other are found, or are not found any more. `holds`: the
    group never gives its nodes back."""
    others = capacity_wait.meanwhile(context, ledger)
    whole = explained(Sentence.BOTH, what.reason, first=what, more=others)
    if not holds:
        return say_after_a_while(context, ledger, whole, after=after)
    stuck, asks_at = capacity_wait.each_other(context, ledger, _under_way_since(context, ledger))
    said = ledger.current_incident.reason is Reason.WAITS_FOR_EACH_OTHER
    if stuck is not None:
        longer = explained(Sentence.BOTH, stuck.reason, first=whole, more=stuck)
        plan = as_before(ledger if said else say_of_attempt(ledger, longer))
    elif said:
        plan = as_before(say_of_attempt(ledger, whole))
    else:
        plan = say_after_a_while(context, ledger, whole, after=after)
    return msgspec.structs.replace(plan, requeue_at=min(asks_at, plan.requeue_at or asks_at))


def _born_wrong(context: ReconcileContext, ledger: Ledger, wrong: birth.BornWrong) -> Plan:
    """The new Job does not have the ledger's settings: another restart applies them, or they are withdrawn."""
    if not context.snapshot.live:
        return as_before(ledger, actions=(ReadLive(),))
    state = ledger.elastic
    noted = lifecycle.consider(ledger, (considered(Call.SHRINK, "", wrong.why),))
    if wrong.again and state is not None and lifecycle.acts(ledger):
        verdict = Verdict(Call.SHRINK, wrong.why, charge=False, nodes=state.nodes)
        return try_again(context, noted, wrong.why, verdict=verdict)
    after = birth.withdrawn(context, msgspec.structs.replace(noted, elastic=None, avoided=()))
    return as_before(say_of_attempt(after, wrong.why), requeue_at=context.now + SAY_AFTER)


def _watch_for_pods(context: ReconcileContext, ledger: Ledger, job: JobFacts) -> Plan:
    """The watchdog for a new Job that gets no pods. A Job whose pods are refused is only reported."""
    open_ = ledger.current_incident
    gone = [pod.gone_at for pod in context.snapshot.pods if pod.job_uid == job.uid and pod.gone_at is not None]
    # A Job that is about to start must not be restarted for these times: one that was just resumed says that it is
    # suspended until its controller has seen it; one of several Jobs may be created long before the last old one is
    # gone; and without a leader, nothing was done.
    before = phases.GOING_DOWN | {Phase.BACKOFF}
    ready = [span.ended_at for span in open_.phases if span.phase in before and span.ended_at is not None]
    since = max([began_at(job), *gone, *ready])
    waited = context.now - since
    if waited < TOUCH_AFTER:
        return as_before(ledger, requeue_at=since + TOUCH_AFTER)
    if not context.snapshot.live:
        return as_before(ledger, actions=(ReadLive(),))
    if job.failed_create:
        what = because(Reason.PODS_REFUSED, job=job.name, why=job.failed_create[:_MAX_QUOTE])
        return as_before(say_of_attempt(ledger, what), requeue_at=context.now + SAY_AFTER)
    give_up_after = max(GIVE_UP_AFTER, job_backoff.SHORT * recreating.doubled(ledger))
    if waited >= give_up_after:
        found = because(Reason.JOB_WITHOUT_PODS, job=job.name, seconds=int(give_up_after.total_seconds()))
        return try_again(context, ledger, found)
    value = lifecycle.attempt_id(open_)
    touch = () if job.touched == value else (TouchJob(ledger.epoch, job.name, job.uid, value),)
    return as_before(ledger, actions=touch, requeue_at=since + give_up_after)


def _under_way_since(context: ReconcileContext, ledger: Ledger) -> datetime:
    """Since when the group has been in its phase, within the present run of its Jobs.

    If its user suspended and resumed it while there was no leader, the run has only begun. If the Job controller has
    not yet seen the resume, the run has not begun at all.
    """
    runs = (context.now if stands_still(job) else began_at(job) for job in member_jobs(context.snapshot))
    return max([ledger.current_incident.phases[-1].started_at, *runs])  # every Job may have been deleted


def watch_the_start(context: ReconcileContext, ledger: Ledger) -> Plan:
    """`timeouts.start` counts: all pods have a node, but not all run. It does not count for a program that runs in all
    of them and prepares itself before it joins."""
    open_ = ledger.current_incident
    if not_arrived(context.snapshot.agent):
        return say_after_a_while(context, ledger, not_ready(context.snapshot))
    timeout = timedelta(seconds=open_.pinned.start_timeout_seconds)
    deadline = _under_way_since(context, ledger) + timeout
    if context.now < deadline or not lifecycle.acts(ledger):
        hindered = not_started.words(context.snapshot)
        what = as_said(Reason.WAITING_FOR_START, hindered)
        plan = say_after_a_while(context, ledger, what) if hindered else as_before(ledger)
        moments = [moment for moment in (plan.requeue_at, deadline) if moment is not None and moment > context.now]
        return msgspec.structs.replace(plan, requeue_at=min(moments, default=None))
    return try_again(context, ledger, because(Reason.START_TIMEOUT, seconds=int(timeout.total_seconds())))
