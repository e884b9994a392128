"""The trigger and the teardown of a group: its Jobs, then their pods. Whether that is right is decided elsewhere.

The ledger is written first: each action follows from the target in it, so that it can be repeated after a crash.
"""

from recovery.core.decision import backoff, failure_marks, fleet_changes, resizing
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis import job_limits
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.finish_overdue import left_to_finish
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import lifecycle, phases, sizes
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.incident.preconditions import barred
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.ledger import Attempt, AttemptAction, Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan import suspension
from recovery.core.plan.actions import (
    MAX_BACKOFF_LIMIT,
    Action,
    ClaimJob,
    DeleteJob,
    DeletePods,
    ForceDeletePods,
    LeaveOutAgent,
    Plan,
    PodRef,
    RaiseBackoffLimit,
)
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, attempt, say_of_attempt
from recovery.core.policy.spec import Mode


def trigger(
    context: ReconcileContext,
    ledger: Ledger,
    why: Explanation,
    *,
    by_hand: bool = False,
    forced: bool = False,
    verdict: Verdict | None = None,
    lost: tuple[Evidence, ...] = (),
) -> Plan:
    """Take the group down: the ledger gets the target first, then each Job is deleted by UID and resourceVersion.

    The caller has asked the guards of its move.

    `by_hand`: a person wants it now, without backoff or charge. `forced`: neither mode Observe nor a pause prevents it.
    `verdict`: why it is done. None: a person wants it. `lost`: what was lost since the last restart. Empty after a
    restart: the group took too long.
    """
    if not member_jobs(context.snapshot):
        # Another client has just deleted them. Their successors will be seen.
        awaited = explained(Sentence.WAITING_FOR_JOB, Reason.WAITING_FOR_PODS)
        return as_before(say_of_attempt(ledger, awaited) if ledger.current_incident.attempts else ledger)
    resizes = verdict is not None and verdict.call in {Call.SHRINK, Call.GROW}
    if not resizes:
        ledger = resizing.settled(context, ledger)
    # A resize does not retry what has failed, so it has no backoff: `resizing` has its own waits. Nor does a start
    # without the agent.
    if not by_hand and not resizes and why.reason is not Reason.AGENT_BLOCKS_START:
        hurry = _no_time_to_wait(context, ledger, lost)
        waits = backoff.withheld(context, ledger, why, lost or lifecycle.present(context.snapshot, ledger), hurry)
        if waits is not None:
            return waits
        by_drill = verdict is not None and bool(verdict.drill)
        ledger, why = backoff.taken(context, ledger, why, hurry, in_row=not by_drill)
    target = lifecycle.target_of(context.snapshot)
    nodes = verdict.node_names if verdict is not None and verdict.call is Call.REPLACE_NODE else ()
    action = _ACTIONS[verdict.call] if verdict is not None else AttemptAction.RECREATE_GROUP
    undoes = _is_growth(ledger)
    free = by_hand or (verdict is not None and not verdict.charge)
    after = attempt(ledger, action, target, why, context.now, free_of_charge=free, forced=forced, nodes=nodes)
    after = failure_marks.remembered(after, verdict.mark if verdict is not None else None)
    after = phases.enter(after, Phase.DECIDED, context.now)
    job = sizes.only_job(context.snapshot)
    if verdict is not None and resizes and job is not None:
        undone = undoes and verdict.call is Call.SHRINK
        after = sizes.begun(after, context.snapshot, job, verdict.nodes, context.now, undoes=undone)
    if lost:
        after = lifecycle.more_evidence(after, lost)
    return takedown(context, after)


_ACTIONS = {
    Call.RECREATE_GROUP: AttemptAction.RECREATE_GROUP,
    Call.REPLACE_NODE: AttemptAction.REPLACE_NODE,
    Call.AVOID_NODE: AttemptAction.AVOID_NODE,
    Call.SHRINK: AttemptAction.SHRINK,
    Call.GROW: AttemptAction.GROW,
}


def _is_growth(ledger: Ledger) -> bool:
    """The latest restart of the incident is a growth."""
    restart = restart_of(ledger)
    return restart is not None and restart.action is AttemptAction.GROW


def left_alone(done: Explanation) -> Explanation:
    """The training is finishing, so the group is left alone."""
    return explained(Sentence.LEFT_ALONE, Reason.JOB_FINISHING, why=done)


def _no_time_to_wait(context: ReconcileContext, ledger: Ledger, lost: tuple[Evidence, ...]) -> Explanation | None:
    """Why the trigger must not be withheld. None: it may be."""
    waits, hurry = ledger.current_incident.step.withheld, job_limits.no_time_to_wait(context.snapshot)
    if hurry is None and lifecycle.restarted(ledger) and not lost and not waits:
        return because(Reason.TIME_TO_START)
    return hurry


def takedown(context: ReconcileContext, ledger: Ledger) -> Plan:
    """The change of the fleet, the agent that is left out, the trigger for every target Job that still exists, the
    suspension if there is a backoff, then the old pods.

    The Job that lost the member comes first: if another one turns out to be Complete, its deletion was not in vain. The
    suspension comes before the pods are gone, so that the Job that JobSet creates next begins suspended.

    If the policy's grace period is shorter than the pods' own, the pods come first, and the rest follows at once.
    """
    snapshot = context.snapshot
    open_ = ledger.current_incident
    target, suspects = open_.target, frozenset(suspect.pod for suspect in open_.suspects)
    struck = frozenset(pod.job_uid for pod in snapshot.pods if pod.name in suspects)
    alive = [job for job in snapshot.jobs if job.uid in target.job_uids and job.deleting_since is None]
    alive.sort(key=lambda job: job.uid not in struck)
    fleet = fleet_changes.change(context, ledger, lifecycle.present(snapshot, ledger)) if alive else ()
    before = (*fleet, *_leave_out_agent(snapshot, ledger, alive))
    if _gives_less_time(snapshot, ledger, alive):
        claims = tuple(_claim(snapshot, ledger, job) for job in alive)
        return as_before(ledger, actions=(*before, *claims, *_deletes(snapshot, ledger)), requeue_at=context.now)
    triggers = tuple(DeleteJob(ledger.epoch, job.name, job.uid, job.resource_version) for job in alive)
    suspends = suspension.suspend(ledger, context.workload)
    return as_before(ledger, actions=(*before, *triggers, *suspends, *pod_deletes(snapshot, ledger)))


def _leave_out_agent(snapshot: Snapshot, ledger: Ledger, alive: list[JobFacts]) -> tuple[LeaveOutAgent, ...]:
    """In an incident in which the agent has kept a pod from starting, each trigger for a Job that has it comes after
    this: JobSet creates the next Job at once, with the agent unless the parameters name the job. A later incident does
    not repeat it, because a person may have removed the job from the parameters."""
    has_agent = snapshot.leaves_out_agents and any(job.agent_image for job in alive)
    blocks = any(each.reason is Reason.AGENT_BLOCKS_START for each in ledger.current_incident.attempts)
    if not blocks or not has_agent or snapshot.jobset is None:
        return ()
    return (LeaveOutAgent(ledger.epoch, snapshot.key.namespace, snapshot.jobset.name),)


def claimed_jobs(context: ReconcileContext, ledger: Ledger) -> tuple[DeleteJob, ...]:
    """The deletion of Jobs whose pods this attempt has already deleted, if the attempt ends there.

    Each of those pods counts as a failure. Such a Job, once resumed, waits up to ten minutes before it creates pods
    again (Kubernetes 1.36 `pkg/controller/job/backoff_utils.go`). The next Job of a suspended JobSet begins suspended.
    """
    open_ = ledger.current_incident
    if not open_.attempts or barred(context.workload, context.policy, forced=open_.step.forced) is not None:
        return ()
    if left_to_finish(context.snapshot, ledger.handled) is not None:
        return ()
    attempt_id = lifecycle.attempt_id(open_)
    return tuple(
        DeleteJob(ledger.epoch, job.name, job.uid, job.resource_version)
        for job in context.snapshot.jobs
        if job.uid in open_.target.job_uids and job.torn_down_by == attempt_id and job.deleting_since is None
    )


def _gives_less_time(snapshot: Snapshot, ledger: Ledger, alive: list[JobFacts]) -> bool:
    """The grace period of the policy is shorter than that of old pods. It would have no effect after the trigger, so
    the pods have to be deleted before it.

    False if a failed pod costs more than one retry: a podFailurePolicy could end the Job for it, and
    backoffLimitPerIndex cannot be raised. False before a suspension, because the Job controller then deletes the pods
    itself. True once for each attempt: pods that come later are replacements.
    """
    open_ = ledger.current_incident
    grace, attempt_id = open_.pinned.grace_seconds, lifecycle.attempt_id(open_)
    if grace is None or open_.suspension is not None:
        return False
    if any(job.pod_failure_rules or job.backoff_limit_per_index is not None for job in alive):
        return False
    unclaimed = frozenset(job.uid for job in alive if job.torn_down_by != attempt_id)
    return any(
        pod.job_uid in unclaimed and pod.grace_seconds > grace and pod.node and pod.dead_since is None
        for pod in snapshot.pods
        if _lives(pod)
    )


def _lives(pod: PodFacts) -> bool:
    """The pod has not ended and is not being deleted, so its deletion counts as a failure."""
    return pod.gone_at is None and pod.deleting_since is None and pod.phase in {"Pending", "Running"}


def _claim(snapshot: Snapshot, ledger: Ledger, job: JobFacts) -> ClaimJob:
    alive = (pod for pod in snapshot.pods if pod.job_uid == job.uid and _lives(pod))
    limit = min(job.backoff_limit + sum(1 for _ in alive), MAX_BACKOFF_LIMIT)
    attempt_id = lifecycle.attempt_id(ledger.current_incident)
    return ClaimJob(ledger.epoch, job.name, job.uid, job.resource_version, attempt_id, limit)


def pod_deletes(snapshot: Snapshot, ledger: Ledger) -> tuple[Action, ...]:
    """The deletion of old pods that are not being deleted yet, or with more time than the policy's grace period.

    The backoffLimit of their Jobs is raised first, because our deletions count as failures of the dying Job.
    """
    limits = tuple(
        RaiseBackoffLimit(ledger.epoch, job.name, job.uid)
        for job in snapshot.jobs
        if job.uid in ledger.current_incident.target.job_uids and job.backoff_limit < MAX_BACKOFF_LIMIT
    )
    return (*limits, *_deletes(snapshot, ledger), *_force_deletes(snapshot, ledger))


def _deletes(snapshot: Snapshot, ledger: Ledger) -> tuple[DeletePods, ...]:
    pods = tuple(PodRef(pod.name, pod.uid) for pod in _to_delete(snapshot, ledger))
    return (DeletePods(ledger.epoch, pods, ledger.current_incident.pinned.grace_seconds),) if pods else ()


def remaining_pods(snapshot: Snapshot, ledger: Ledger, restart: Attempt) -> tuple[DeletePods, ...]:
    """The deletion of old pods that are not being deleted yet, while their Jobs stay and have replaced others."""
    old = tuple(
        PodRef(pod.name, pod.uid)
        for pod in snapshot.pods
        if pod.job_uid in ledger.current_incident.target.job_uids and pod.created_at <= restart.started_at
        if _lives(pod) and pod.dead_since is None
    )
    return (DeletePods(ledger.epoch, old, ledger.current_incident.pinned.grace_seconds),) if old else ()


def _to_delete(snapshot: Snapshot, ledger: Ledger) -> tuple[PodFacts, ...]:
    open_ = ledger.current_incident
    grace = open_.pinned.grace_seconds
    return tuple(
        pod
        for pod in snapshot.pods
        if pod.job_uid in open_.target.job_uids
        and pod.gone_at is None
        and pod.dead_since is None
        and (
            pod.deleting_since is None
            or (grace is not None and pod.deletion_grace_seconds is not None and pod.deletion_grace_seconds > grace)
        )
    )


def _force_deletes(snapshot: Snapshot, ledger: Ledger, *, only_deleted: bool = False) -> tuple[Action, ...]:
    """The forced deletion of dead old pods, which nothing else would end. `only_deleted`: if others have begun it."""
    target = ledger.current_incident.target
    dead = tuple(
        PodRef(pod.name, pod.uid)
        for pod in snapshot.pods
        if pod.job_uid in target.job_uids
        and pod.gone_at is None
        and pod.dead_since is not None
        and pod.deletion_grace_seconds != 0
        and (pod.deleting_since is not None or not only_deleted)
    )
    return (ForceDeletePods(ledger.epoch, dead),) if dead else ()


def free_the_dead(context: ReconcileContext, ledger: Ledger) -> tuple[Action, ...]:
    """The forced deletion of pods that the platform deletes on dead nodes: they would block its restart forever."""
    open_ = ledger.current_incident
    if open_.mode != Mode.ENFORCE or barred(context.workload, context.policy, forced=open_.step.forced) is not None:
        return ()
    return _force_deletes(context.snapshot, ledger, only_deleted=True)
