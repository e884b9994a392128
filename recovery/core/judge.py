"""What an open incident calls for: standing aside, observing, holding, or the trigger.

The steps out of this module are few and each is one Plan: `say` (nothing is done, and why), `hold_back`, `trigger`,
`close`.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core import attempts, budget, incident, native, phases, restraint, suspension
from recovery.core import verdict as verdicts
from recovery.core.attempts import Refusal, words
from recovery.core.evidence import Evidence, gather, member_jobs, place, pods_of
from recovery.core.facts import PodFacts, Snapshot
from recovery.core.gates import barred, finishing
from recovery.core.history import member_count
from recovery.core.ledger import AttemptAction, Closing, Ledger, Outcome, Phase, Suspension
from recovery.core.look import Look
from recovery.core.plan import (
    MAX_BACKOFF_LIMIT,
    Action,
    DeleteJob,
    DeletePods,
    FailJobSet,
    ForceDeletePods,
    JobRef,
    Plan,
    PodRef,
    RaiseBackoffLimit,
)
from recovery.core.policy import Mode, OnExhausted, Policy, Restart
from recovery.core.verdict import Call, Verdict

_THEN = "; then "
"""Between how an incident began and what was said last."""


def judge(look: Look, ledger: Ledger, news: tuple[Evidence, ...] = ()) -> Plan:
    """What an open incident without any restart calls for.

    `news`: what came in after the controller had stood aside; only that is judged then. Empty: nothing did.
    """
    snapshot, policy, now = look.snapshot, look.policy, look.now
    open_ = incident.incident_of(ledger)
    terms = open_.terms
    # Once the controller has stood aside, only what came in later can call for more.
    found = open_.evidence[-1 if incident.stood_aside(ledger) else 0]
    if terms.restart == Restart.NONE and not terms.rules:
        return say(ledger, f"{found}; policy {terms.policy_name} says restart: None, so it is left to Kubernetes")
    evidence = present(snapshot, ledger)
    # What ends the Job has decided on whatever comes in later as well.
    decided = native_decision(look, ledger, evidence, news or evidence)
    if decided is not None and not open_.fail_job:  # else it is our own doing
        after = stand_aside(ledger, f"{found}; standing aside, because {decided}", now)
        return Plan(after, incident.incident_of(after).reason, actions=free_the_dead(look, after))
    if open_.mode == Mode.OBSERVE:
        return _observe(look, ledger, found, news or evidence)
    bar = barred(look.workload, policy, forced=open_.forced)
    if bar is not None:
        return say(ledger, f"{found}; nothing is done, because {bar}")
    pending = waits_for(snapshot, ledger)
    if pending is not None:
        return say(ledger, f"{found}; {pending}")
    stuck = attempts.refused(ledger, now) if attempts.judged(ledger) else None
    if stuck is not None:
        return hold_back(look, ledger, found, stuck)
    if not news and not evidence and all_run(snapshot):
        # A node that answers again, a fault that has ended: nobody is missing, so there is nothing to restart for.
        return say(ledger, f"{found}; that is over and all {open_.ranks} ranks run: waiting until they are Ready")
    open_to_us = evidence if terms.override_native else native.undecided(snapshot, evidence)
    verdict = verdicts.of(look, ledger, open_to_us or evidence, news=news)
    return carry_out(look, ledger, found, verdict)


def all_run(snapshot: Snapshot) -> bool:
    """Every member of every member Job runs, Ready or not."""
    jobs = member_jobs(snapshot)
    return bool(jobs) and all(
        len({pod.index for pod in pods_of(snapshot, job) if pod.running and pod.deleting_since is None})
        >= member_count(job)
        for job in jobs
    )


def native_decision(
    look: Look, ledger: Ledger, all_of_it: tuple[Evidence, ...], news: tuple[Evidence, ...]
) -> str | None:
    """What the user's native policies decide, in words; None: nothing, or the policy overrides them.

    `all_of_it`: what ends or restarts the whole Job has decided on all of it. `news`: what else may be decided on.
    """
    if incident.incident_of(ledger).terms.override_native:
        return None
    return native.takes_down(look.snapshot, all_of_it) or native.decision(look.snapshot, news)


def _observe(look: Look, ledger: Ledger, found: str, evidence: tuple[Evidence, ...]) -> Plan:
    """What Enforce would do. The fleet is not asked: a cached look knows less of it, and the sentence would flicker."""
    open_, policy = incident.incident_of(ledger), look.policy
    jobs = ", ".join(job.name for job in member_jobs(look.snapshot)) or "none"
    if isinstance(policy, Policy) and policy.mode is Mode.ENFORCE:
        return say(
            ledger,
            f"{found}; that was before policy {policy.name} was in mode Enforce, so nothing is done: delete Job "
            f"{jobs} by hand if its ranks hang",
        )
    unasked = msgspec.structs.replace(look, snapshot=msgspec.structs.replace(look.snapshot, fleet=None))
    verdict = verdicts.of(unasked, ledger, evidence)
    ranks = f"so that all {open_.ranks} ranks restart together"
    match verdict.call:
        case Call.WAIT | Call.RECREATE_GROUP:
            would = f"delete Job {jobs}, {ranks}"
        case Call.REPLACE_NODE:
            would = f"quarantine node {verdict.node} and delete Job {jobs}, {ranks}"
        case Call.FAIL_JOB:
            would = "make the JobSet fail"
        case Call.HOLD:
            would = f"hold the group, because {verdict.why}"
        case Call.IGNORE | Call.NONE:
            would = "leave it to Kubernetes"
    by = f" ({verdict.why})" if verdict.rule and verdict.call is not Call.HOLD else ""
    plan = say(ledger, f"{found}; policy {open_.terms.policy_name} is in mode Observe: Enforce would now {would}{by}")
    return msgspec.structs.replace(plan, look_again_at=verdict.again_at)


def carry_out(
    look: Look,
    ledger: Ledger,
    found: str,
    verdict: Verdict,
    *,
    attempt: int = 1,
    lost: tuple[Evidence, ...] = (),
) -> Plan:
    """What the verdict calls for, as far as the budget and the caps allow it."""
    now, open_ = look.now, incident.incident_of(ledger)
    verdict = restraint.admitted(look, ledger, verdict)
    ledger = _noted(ledger, verdict)
    match verdict.call:
        case Call.WAIT:
            plan = say(ledger, f"{found}; {verdict.why}")
            return msgspec.structs.replace(plan, look_again_at=verdict.again_at)
        case Call.IGNORE | Call.NONE:
            after = stand_aside(ledger, f"{found}; {verdict.why}", now)
            return Plan(after, incident.incident_of(after).reason, look_again_at=verdict.again_at)
        case Call.HOLD | Call.FAIL_JOB:
            return hold_back(look, ledger, found, _final(look, verdict))
    refusal = attempts.refused(ledger, now, free=not verdict.charge)
    if refusal is not None:
        return hold_back(look, ledger, found, refusal)
    jobs = ", ".join(job.name for job in member_jobs(look.snapshot)) or "none"
    first = f"quarantining node {verdict.node} and " if verdict.call is Call.REPLACE_NODE else ""
    if attempt > 1:
        what = f"{found}; {verdict.why}; attempt {attempt}" if _tells(verdict) else f"{found}; attempt {attempt}"
        return trigger(look, ledger, f"{what}: {first}deleting Job {jobs} once more", verdict=verdict, lost=lost)
    left = (
        f"{attempts.left(ledger, now) - (not open_.charged)} of {open_.terms.budget_limit} recoveries left"
        if verdict.charge
        else "free of charge"
    )
    return trigger(
        look,
        ledger,
        f"{found}; {verdict.why}: {first}deleting Job {jobs} so that all {open_.ranks} ranks restart together ({left})",
        verdict=verdict,
        lost=lost,
    )


def _tells(verdict: Verdict) -> bool:
    """More than that the default applies, which the first attempt has said."""
    return bool(verdict.rule or verdict.considered) or verdict.call is Call.REPLACE_NODE


def _final(look: Look, verdict: Verdict) -> Refusal:
    """Held whatever the budget; a JobSet that is made to fail is held until it has."""
    return Refusal(verdict.why, None, exhausted=False, fail_job=verdict.call is Call.FAIL_JOB)


def _noted(ledger: Ledger, verdict: Verdict) -> Ledger:
    """The ledger with which rule decided, and what was considered and not done."""
    open_ = incident.incident_of(ledger)
    if verdict.call is Call.WAIT:
        return ledger
    considered = tuple(dict.fromkeys((*open_.considered, *verdict.considered)))[-incident.MAX_CONSIDERED :]
    changed = msgspec.structs.replace(
        open_, rule=verdict.rule, considered=considered, storm=verdict.storm or open_.storm
    )
    return msgspec.structs.replace(ledger, incident=changed)


def waits_for(snapshot: Snapshot, ledger: Ledger) -> str | None:
    """Under RecreateGroupAfterStart: the pod that has not started yet, and what that means. None: go on.

    As LeaderWorkerSet has it: while a pod of the group is Pending the others wait for it anyhow, and a group that is
    recreated again and again while it waits for capacity never starts.
    """
    terms = incident.incident_of(ledger).terms
    if terms.restart != Restart.RECREATE_GROUP_AFTER_START:
        return None
    pending = [pod for job in member_jobs(snapshot) for pod in pods_of(snapshot, job) if _is_pending(pod)]
    if not pending:
        return None
    first = min(pending, key=lambda pod: (pod.index is None, pod.index, pod.name))
    return (
        f"policy {terms.policy_name} says {terms.restart}, and {place(first)} is Pending: the restart waits until the "
        "group has started"
    )


def _is_pending(pod: PodFacts) -> bool:
    return pod.phase == "Pending" and pod.deleting_since is None


def present(snapshot: Snapshot, ledger: Ledger) -> tuple[Evidence, ...]:
    """The evidence of the open incident that can still be seen."""
    keys = frozenset(ledger.handled.keys[ledger.handled.earlier :])
    return tuple(item for item in gather(snapshot) if item.key in keys)


def say(ledger: Ledger, reason: str) -> Plan:
    return Plan(incident.say(ledger, reason), reason)


def stand_aside(ledger: Ledger, reason: str, now: datetime) -> Ledger:
    """Leave it to the platform, and remember that: the evidence for it may be gone before the platform has acted."""
    attempt = incident.incident_of(ledger).attempt
    if attempt is not None and incident.stood_aside(ledger):
        # How it began, and what came last: a cascade must not make the sentence grow.
        began = attempt.reason.partition(_THEN)[0]
        told = reason if began == reason else f"{began}{_THEN}{reason}"
        return incident.say(incident.reword_attempt(ledger, told), told)
    return incident.add_attempt(ledger, AttemptAction.NONE, incident.incident_of(ledger).target, reason, now)


def hold_back(look: Look, ledger: Ledger, found: str, refusal: Refusal) -> Plan:
    """No attempt may be made now: what `budget.onExhausted` says is done, once, when the group becomes Held."""
    held = ledger
    if ledger.phase is not Phase.HELD:
        # Only then: a person who has resumed it since has decided otherwise.
        held = phases.enter(ledger, Phase.HELD, look.now)
        held = _exhausted(look, held) if refusal.exhausted else _held_for_good(held, refusal)
    elif not refusal.exhausted and not incident.incident_of(ledger).held:
        held = _held_for_good(held, refusal)
    held = msgspec.structs.replace(held, next_attempt_at=refusal.frees_at)
    reason = f"{found}; held, because {refusal.why}{_consequence(look, held)}"
    held = incident.say(held, reason)
    actions = (*suspension.suspend(held, look.workload), *fail_job(look, held))
    return Plan(held, reason, actions=actions, look_again_at=refusal.frees_at)


def _exhausted(look: Look, ledger: Ledger) -> Ledger:
    """What `onExhausted` wants beyond holding, as far as it is allowed; a backoff or a force does not outlast it."""
    open_ = msgspec.structs.replace(incident.incident_of(ledger), suspension=None, forced=False)
    ledger = msgspec.structs.replace(ledger, incident=open_)
    match open_.terms.on_exhausted:
        case OnExhausted.SUSPEND if suspension.refused(look.workload, open_) is None:
            return suspension.want(ledger, Suspension())
        case OnExhausted.FAIL_JOB if isinstance(look.policy, Policy) and look.policy.may_fail_jobs:
            return msgspec.structs.replace(ledger, incident=msgspec.structs.replace(open_, fail_job=True))
    return ledger


def _held_for_good(ledger: Ledger, refusal: Refusal) -> Ledger:
    """By verdict, not by budget: until a person says `retry`; a backoff or a force does not outlast it."""
    open_ = msgspec.structs.replace(
        incident.incident_of(ledger),
        suspension=None,
        forced=False,
        held=refusal.why,
        fail_job=refusal.fail_job,
    )
    return msgspec.structs.replace(ledger, incident=open_)


def _consequence(look: Look, ledger: Ledger) -> str:
    open_ = incident.incident_of(ledger)
    if open_.suspension is not None:
        return "; suspended, so that its GPUs are free"
    if open_.fail_job and open_.held:
        return "; the JobSet is made to fail"
    if open_.held:
        return "; recovery retry ends that"
    if open_.fail_job:
        return "; the JobSet is made to fail (onExhausted: FailJob)"
    match open_.terms.on_exhausted:
        case OnExhausted.SUSPEND if (not_ours := suspension.refused(look.workload, open_)) is not None:
            return f"; it is not suspended, because {not_ours}"
        case OnExhausted.FAIL_JOB:
            return "; it is not made to fail, because RecoveryConfig does not allow FailJob"
    return ""


def fail_job(look: Look, ledger: Ledger) -> tuple[Action, ...]:
    """The deed that ends the JobSet, for as long as the ledger says so and it has not ended.

    A JobSet without a failurePolicy fails with any of its Jobs, and a Job fails by its deadline: the documented way. A
    failurePolicy might restart it instead, so there the JobSet's own status is written.
    """
    open_, jobset = incident.incident_of(ledger), look.snapshot.jobset
    if not open_.fail_job or jobset is None or jobset.terminal_state or finishing(look.snapshot) is not None:
        return ()
    if barred(look.workload, look.policy) is not None:
        return ()
    if not (isinstance(look.policy, Policy) and look.policy.may_fail_jobs):  # RecoveryConfig may take it back
        return ()
    jobs = member_jobs(look.snapshot)
    victim = JobRef(jobs[0].name, jobs[0].uid) if jobs and jobset.failure_policy is None else None
    return (FailJobSet(ledger.epoch, jobset.name, jobset.uid, open_.reason, victim),)


def trigger(
    look: Look,
    ledger: Ledger,
    reason: str,
    *,
    by_hand: bool = False,
    verdict: Verdict | None = None,
    lost: tuple[Evidence, ...] = (),
) -> Plan:
    """Take the group down: the ledger gets the target first, then each Job is deleted by UID and resourceVersion.

    `by_hand`: a person wants it now: no backoff, no charge. `verdict`: what it is done for; None: a person wants it.
    """
    done = finishing(look.snapshot)
    if done is not None:
        return close(ledger, Outcome.SUPERSEDED, "JobFinishing", f"{done}: left alone", look.now)
    if not by_hand:
        ledger, reason = backed_off(look, ledger, reason)
    target = incident.target_of(look.snapshot)
    nodes = (verdict.node,) if verdict is not None and verdict.call is Call.REPLACE_NODE else ()
    action = AttemptAction.REPLACE_NODE if nodes else AttemptAction.RECREATE_GROUP
    free = by_hand or (verdict is not None and not verdict.charge)
    after = incident.add_attempt(ledger, action, target, reason, look.now, free_of_charge=free, nodes=nodes)
    after = verdicts.remembered(after, verdict.mark if verdict is not None else None)
    after = phases.enter(after, Phase.DECIDED, look.now)
    if lost:
        after = incident.more_evidence(after, lost)
    return Plan(after, reason, actions=takedown(look, after))


def backed_off(look: Look, ledger: Ledger, reason: str) -> tuple[Ledger, str]:
    """The ledger with one more attempt in a row and the suspension that its delay asks for, and the sentence."""
    open_ = msgspec.structs.replace(incident.incident_of(ledger), forced=False)  # nobody insisted on this attempt
    number = ledger.attempts_in_row + 1
    ledger = msgspec.structs.replace(ledger, attempts_in_row=number, incident=open_)
    wait = budget.delay(open_.terms, number)
    not_ours = suspension.refused(look.workload, open_)
    if wait and not_ours is not None:
        reason, wait = f"{reason}; no backoff, because {not_ours}", timedelta()
    elif wait:
        reason += f"; it stays suspended for {words(wait)} first (attempt {number} in a row)"
    return suspension.until(look.now + wait, ledger, look.workload, begin=bool(wait)), reason


def takedown(look: Look, ledger: Ledger) -> tuple[Action, ...]:
    """What is asked of the fleet, the trigger for every target Job that still lives, the suspension if it has to wait,
    then the old pods.

    The Job that lost the member comes first: should another one turn out to be Complete, it was not in vain. The
    suspension comes before the pods go, so that the Job that JobSet makes next begins suspended.
    """
    snapshot = look.snapshot
    open_ = incident.incident_of(ledger)
    target, suspects = open_.target, frozenset(suspect.pod for suspect in open_.suspects)
    struck = frozenset(pod.job_uid for pod in snapshot.pods if pod.name in suspects)
    alive = [job for job in snapshot.jobs if job.uid in target.job_uids and job.deleting_since is None]
    alive.sort(key=lambda job: job.uid not in struck)
    triggers = tuple(DeleteJob(ledger.epoch, job.name, job.uid, job.resource_version) for job in alive)
    fleet = restraint.change(look, ledger, present(snapshot, ledger)) if alive else ()
    return (*fleet, *triggers, *suspension.suspend(ledger, look.workload), *pod_deletes(snapshot, ledger))


def pod_deletes(snapshot: Snapshot, ledger: Ledger) -> tuple[Action, ...]:
    """Old pods that nobody has asked to go yet, or that were given longer than the policy's grace.

    Before them the backoffLimit of their Jobs: our deletes count as failures of the dying Job.
    """
    open_ = incident.incident_of(ledger)
    limits = tuple(
        RaiseBackoffLimit(ledger.epoch, job.name, job.uid)
        for job in snapshot.jobs
        if job.uid in open_.target.job_uids and job.backoff_limit < MAX_BACKOFF_LIMIT
    )
    grace = open_.terms.grace_seconds
    pods = tuple(
        PodRef(pod.name, pod.uid)
        for pod in snapshot.pods
        if pod.job_uid in open_.target.job_uids
        and pod.gone_at is None
        and pod.dead_since is None
        and (
            pod.deleting_since is None
            or (grace is not None and pod.deletion_grace_seconds is not None and pod.deletion_grace_seconds > grace)
        )
    )
    asked = (DeletePods(ledger.epoch, pods, grace),) if pods else ()
    return (*limits, *asked, *_force_deletes(snapshot, ledger))


def _force_deletes(snapshot: Snapshot, ledger: Ledger, *, only_deleted: bool = False) -> tuple[Action, ...]:
    """Old pods whose processes are dead: nobody else would end their deletion. `only_deleted`: that others began."""
    target = incident.incident_of(ledger).target
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


def free_the_dead(look: Look, ledger: Ledger) -> tuple[Action, ...]:
    """Pods that the platform itself deletes, on nodes that will never answer: they would block its restart for ever."""
    open_ = incident.incident_of(ledger)
    if open_.mode != Mode.ENFORCE or barred(look.workload, look.policy, forced=open_.forced) is not None:
        return ()
    return _force_deletes(look.snapshot, ledger, only_deleted=True)


def close(
    ledger: Ledger,
    outcome: Outcome,
    why: str,
    reason: str,
    ended_at: datetime,
    *,
    source: str = "",
    verified: bool = False,
) -> Plan:
    """End the incident; the sentence tells how it began, keeps what was said last, and adds how it ended."""
    said, tries = incident.incident_of(ledger).reason, incident.incident_of(ledger).attempts
    if tries and not said.startswith(tries[0].reason):
        said = f"{tries[0].reason}{_THEN}{said}"
    full = f"{said}; {reason}" if said and not said.endswith(reason) else reason
    closing = Closing(outcome=outcome, outcome_reason=why, ended_at=ended_at, source=source, verified=verified)
    return Plan(incident.close(incident.say(ledger, full), closing), full)
