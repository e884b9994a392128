"""What an open incident calls for: standing aside, observing, holding, or the trigger.

The steps out of this module are few and each is one Plan: `say` (nothing is done, and why), `hold_back`, `trigger`.
"""

from datetime import datetime

import msgspec

from recovery.core.decision import fleet_changes
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.hold import hold_back
from recovery.core.decision.teardown import free_the_dead, trigger
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis import native_policies
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.membership import member_count, member_jobs, place, pods_of
from recovery.core.fleet import storm as storms
from recovery.core.incident import attempt_limits, lifecycle
from recovery.core.incident.attempt_limits import Refusal
from recovery.core.incident.preconditions import barred
from recovery.core.model.facts import PodFacts, Snapshot
from recovery.core.model.ledger import Incident, Ledger
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.steps import say, stand_aside
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, Restart

_BY_HAND = "if its ranks hang"
"""How the sentence ends that leaves a loss under Observe to a person, once the policy enforces."""


def judge(context: ReconcileContext, ledger: Ledger, news: tuple[Evidence, ...] = ()) -> Plan:
    """What an open incident without any restart calls for.

    `news`: what came in after the controller had stood aside; only that is judged then. Empty: nothing did.
    """
    snapshot, policy, now = context.snapshot, context.policy, context.now
    open_ = ledger.current_incident
    terms = open_.terms
    observes = open_.mode == Mode.OBSERVE
    if observes and open_.would:
        return _observed(context, ledger)
    # Once the controller has stood aside, only what came in later can call for more.
    found = open_.evidence[-1 if lifecycle.stood_aside(ledger) else 0]
    if not lifecycle.decides(terms):
        return say(ledger, f"{found}; policy {terms.policy_name} says restart: None, so it is left to Kubernetes")
    evidence = lifecycle.present(snapshot, ledger)
    # What ends the Job has decided on whatever comes in later as well.
    decided = native_decision(context, ledger, evidence, news or evidence)
    if decided is not None and not open_.fail_job:  # else it is our own doing
        after = stand_aside(ledger, f"{found}; standing aside, because {decided}", now)
        return Plan(after, after.current_incident.reason, actions=free_the_dead(context, after))
    # To an incident that only observes the mode is no bar, nor a job that is paused.
    bar = barred(context.workload, policy, forced=open_.forced or observes)
    if bar is not None:
        return say(ledger, f"{found}; nothing is done, because {bar}")
    pending = waits_for(snapshot, ledger)
    if pending is not None:
        return say(ledger, f"{found}; {pending}")
    stuck = attempt_limits.refused(ledger, now) if attempt_limits.judged(ledger) else None
    if stuck is not None:
        return hold_back(context, ledger, found, stuck)
    if not news and not evidence and open_.withheld is None and all_run(snapshot):
        # A node that answers again, a fault that has ended: nobody is missing, so there is nothing to restart for.
        return say(ledger, f"{found}; that is over and all {open_.ranks} ranks run: waiting until they are Ready")
    open_to_us = evidence if terms.override_native else native_policies.undecided(snapshot, evidence)
    verdict = verdicts.of(context, ledger, open_to_us or evidence, news=news)
    if observes:
        return _observe(context, ledger, found, verdict)
    return carry_out(context, ledger, found, verdict)


def all_run(snapshot: Snapshot) -> bool:
    """Every member of every member Job runs, Ready or not."""
    jobs = member_jobs(snapshot)
    return bool(jobs) and all(
        len({pod.index for pod in pods_of(snapshot, job) if pod.running and pod.deleting_since is None})
        >= member_count(job)
        for job in jobs
    )


def native_decision(
    context: ReconcileContext, ledger: Ledger, all_of_it: tuple[Evidence, ...], news: tuple[Evidence, ...]
) -> str | None:
    """What the user's native policies decide, in words; None: nothing, or the policy overrides them.

    `all_of_it`: what ends or restarts the whole Job has decided on all of it. `news`: what else may be decided on.
    """
    if ledger.current_incident.terms.override_native:
        return native_policies.trained_to_the_end(news)
    return native_policies.takes_down(context.snapshot, all_of_it) or native_policies.decision(context.snapshot, news)


def _observe(context: ReconcileContext, ledger: Ledger, found: str, verdict: Verdict) -> Plan:
    """What Enforce would do: the verdict within caps and budget, decided once, as Enforce would have.

    Later looks do not decide again: caps fill, and pods go with what they tell. What is recorded is what would have
    been done then.
    """
    if enforced_now(context):
        return _observed(context, ledger, found)
    verdict = fleet_changes.admitted(context, ledger, verdict)
    ledger = _noted(ledger, verdict, context.now)
    open_ = ledger.current_incident
    refusal = attempt_limits.refused(ledger, context.now, free=not verdict.charge)
    jobs = ", ".join(job.name for job in member_jobs(context.snapshot)) or "none"
    free = "" if verdict.charge else f", {_free_words(verdict)}"
    restart = f"delete Job {jobs}, so that all {open_.ranks} ranks restart together{free}"
    call = verdict.call
    match call:
        case Call.WAIT:
            plan = say(ledger, f"{found}; {verdict.why}")
            return msgspec.structs.replace(plan, requeue_at=verdict.requeue_at)
        case Call.IGNORE | Call.NONE:
            would = "leave it to Kubernetes"
        case Call.FAIL_JOB:
            would = "make the JobSet fail"
        case Call.HOLD:
            would = f"hold the group, because {verdict.why}"
        case Call.RECREATE_GROUP | Call.REPLACE_NODE if refusal is not None:
            exhausted = f" (onExhausted: {open_.terms.on_exhausted})" if refusal.exhausted else ""
            would, call = f"hold the group{exhausted}, because {refusal.why}", Call.HOLD
        case Call.RECREATE_GROUP:
            would = restart
        case Call.REPLACE_NODE:
            would = f"quarantine node {verdict.node} and {restart}"
    by = f" ({verdict.why})" if _tells(verdict) and verdict.call is not Call.HOLD else ""
    reason = f"{found}; {would_words(context, ledger, would + by)}"
    if call in {Call.IGNORE, Call.NONE}:
        after = stand_aside(ledger, reason, context.now)
        return Plan(after, after.current_incident.reason, requeue_at=verdict.requeue_at)
    after = verdicts.remembered(ledger.with_incident(would=str(call), reason=reason), verdict.mark)
    # The group may run whole already, and only now may its incident end: the watch tells of this write. No look at
    # once: a CRD of before drops `would`, and each look would pass the verdict anew, without end.
    return Plan(after, reason)


def would_words(context: ReconcileContext, ledger: Ledger, would: str) -> str:
    """What Enforce would do now, and why it is not done."""
    if isinstance(context.policy, Policy) and context.policy.breaker:
        return f"Enforce would now {would}; {context.policy.breaker}"
    return f"policy {ledger.current_incident.terms.policy_name} is in mode Observe: Enforce would now {would}"


def enforced_now(context: ReconcileContext) -> bool:
    """The policy says Enforce by now, and no breaker is open."""
    return isinstance(context.policy, Policy) and context.policy.mode is Mode.ENFORCE


def _observed(context: ReconcileContext, ledger: Ledger, found: str = "") -> Plan:
    """Nothing more is decided in this incident: what was said of it stands, and, where the policy enforces now, that
    this came too late. `found`: what was seen, where nothing has been said of it yet."""
    open_, policy = ledger.current_incident, context.policy
    said = found or open_.reason
    if not isinstance(policy, Policy) or policy.mode is not Mode.ENFORCE or said.endswith(_BY_HAND):
        return Plan(ledger, said)
    when = (
        "while the circuit breaker was open"
        if kept_by_breaker(open_, policy)
        else f"before policy {policy.name} was in mode Enforce"
    )
    by_hand = f"recovery restart {context.workload.name} {_BY_HAND}"
    return say(ledger, f"{said}; that was {when}, so nothing is done: {by_hand}")


def kept_by_breaker(open_: Incident, policy: Policy) -> bool:
    """An incident that only observes, under a policy that said Enforce when it opened: the breaker kept it so."""
    return open_.terms.policy_uid == policy.uid and open_.detected_at >= policy.since


def carry_out(
    context: ReconcileContext,
    ledger: Ledger,
    found: str,
    verdict: Verdict,
    *,
    attempt: int = 1,
    lost: tuple[Evidence, ...] = (),
) -> Plan:
    """What the verdict calls for, as far as the budget and the caps allow it."""
    now, open_ = context.now, ledger.current_incident
    verdict = fleet_changes.admitted(context, ledger, verdict)
    ledger = _noted(ledger, verdict, now)
    match verdict.call:
        case Call.WAIT:
            plan = say(ledger, f"{found}; {verdict.why}")
            return msgspec.structs.replace(plan, requeue_at=verdict.requeue_at)
        case Call.IGNORE | Call.NONE:
            after = stand_aside(ledger, f"{found}; {verdict.why}", now)
            return Plan(after, after.current_incident.reason, requeue_at=verdict.requeue_at)
        case Call.HOLD | Call.FAIL_JOB:
            return hold_back(context, ledger, found, _final(verdict))
    refusal = attempt_limits.refused(ledger, now, free=not verdict.charge)
    if refusal is not None:
        return hold_back(context, ledger, found, refusal)
    jobs = ", ".join(job.name for job in member_jobs(context.snapshot)) or "none"
    first = f"quarantining node {verdict.node} and " if verdict.call is Call.REPLACE_NODE else ""
    if attempt > 1:
        what = f"{found}; {verdict.why}; attempt {attempt}" if _tells(verdict) else f"{found}; attempt {attempt}"
        return trigger(context, ledger, f"{what}: {first}deleting Job {jobs} once more", verdict=verdict, lost=lost)
    left = (
        f"{attempt_limits.left(ledger, now) - (not open_.charged)} of {open_.terms.budget_limit} recoveries left"
        if verdict.charge
        else _free_words(verdict)
    )
    return trigger(
        context,
        ledger,
        f"{found}; {verdict.why}: {first}deleting Job {jobs} so that all {open_.ranks} ranks restart together ({left})",
        verdict=verdict,
        lost=lost,
    )


def _free_words(verdict: Verdict) -> str:
    return f"free of charge{f': the same storm as incident {verdict.paid_by}' if verdict.paid_by else ''}"


def _tells(verdict: Verdict) -> bool:
    """More than that the default applies, which the first attempt has said."""
    return bool(verdict.rule or verdict.considered) or verdict.call is Call.REPLACE_NODE


def _final(verdict: Verdict) -> Refusal:
    """Held whatever the budget; a JobSet that is made to fail is held until it has."""
    return Refusal(verdict.why, None, exhausted=False, fail_job=verdict.call is Call.FAIL_JOB)


def _noted(ledger: Ledger, verdict: Verdict, now: datetime) -> Ledger:
    """The ledger with which rule decided, what was considered and not done, and the storm that the loss is part of."""
    open_ = ledger.current_incident
    if verdict.call is Call.WAIT:
        return ledger
    considered = tuple(dict.fromkeys((*open_.considered, *verdict.considered)))[-lifecycle.MAX_CONSIDERED :]
    ledger = ledger.with_incident(rule=verdict.rule, considered=considered)
    return storms.noted(ledger, verdict.storm, now) if verdict.storm is not None else ledger


def waits_for(snapshot: Snapshot, ledger: Ledger) -> str | None:
    """Under RecreateGroupAfterStart: the pod that has not started yet, and what that means. None: go on.

    As LeaderWorkerSet has it: while a pod of the group is Pending the others wait for it anyhow, and a group that is
    recreated again and again while it waits for capacity never starts.
    """
    terms = ledger.current_incident.terms
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
    """Its training has yet to start. A sidecar that never starts keeps the phase Pending whatever the training does."""
    started = any(each.running_since or each.exit or each.last_exit for each in pod.containers)
    return pod.phase == "Pending" and not started and pod.deleting_since is None
