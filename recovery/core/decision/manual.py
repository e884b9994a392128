"""Answers the requests of a person (`core.incident.requests`), each once, in the ledger write that it leads to.

A person may do what the budget does not allow: a restart by hand is not charged and has no backoff. But it is refused
if it would harm the job, and it overrides mode Observe, or a pause, only with `force`.
"""

import msgspec

from recovery.core.decision.guards import Move, Question, first_stop
from recovery.core.decision.hold import fail_job
from recovery.core.decision.judging import seen_then
from recovery.core.decision.teardown import trigger
from recovery.core.decision.verdict import Call
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import budget, lifecycle, phases, requests
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.incident.closed_incident import by_a_person
from recovery.core.incident.evidence_counts import first_seen
from recovery.core.incident.preconditions import barred, ended, suspended, unread
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import answer as answer_with
from recovery.core.plan.parts import close, message_of
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, Restart


def answer(context: ReconcileContext, policy: Policy, ledger: Ledger, verb: Verb, asked: Request) -> Plan:
    """The answer to one request, and what follows from it."""
    if requests.expired(asked, context.now):
        return _refuse(context, ledger, verb, asked, because(Reason.REQUEST_EXPIRED, at=asked.at.isoformat()))
    if requests.premature(asked, context.now):
        return _refuse(context, ledger, verb, asked, because(Reason.REQUEST_PREMATURE, at=asked.at.isoformat()))
    if verb is Verb.RESET_BUDGET:
        what = because(Reason.BUDGET_RESET, charges=len(ledger.budget.charges), adopted=bool(ledger.budget.adopted))
        emptied = msgspec.structs.replace(
            ledger, budget=budget.reset(ledger.budget, context.now), attempts_in_row=0, charged_in_row=0
        )
        return _accept(context, emptied, verb, asked, what)
    why = unread(context.snapshot)
    if why is not None:
        return _refuse(context, ledger, verb, asked, why)
    if verb is Verb.RETRY:
        return _retry(context, policy, ledger, verb, asked)
    return _restart(context, policy, ledger, verb, asked)


def _refuse(context: ReconcileContext, ledger: Ledger, verb: Verb, asked: Request, why: Explanation) -> Plan:
    after = requests.answered(ledger, verb, asked, why.reason, message_of(why), accepted=False)
    # The next reconcile decides everything else, from the ledger that has the answer.
    return answer_with(after, explained(Sentence.REFUSED, why.reason, verb=verb, why=why), requeue_at=context.now)


def _accept(context: ReconcileContext, ledger: Ledger, verb: Verb, asked: Request, what: Explanation) -> Plan:
    after = requests.answered(ledger, verb, asked, what.reason, message_of(what), accepted=True)
    why = explained(Sentence.ACCEPTED, what.reason, verb=verb, by=asked.by, note=asked.reason, what=what)
    return answer_with(after, why, requeue_at=context.now)


def _asked_for(verb: Verb, asked: Request) -> Explanation:
    """Who asked for what, and why."""
    return because(Reason.RESTARTED_BY_HAND, verb=verb, by=asked.by, note=asked.reason)


def _retry(context: ReconcileContext, policy: Policy, ledger: Ledger, verb: Verb, asked: Request) -> Plan:
    """Leave Held or Backoff now. `verb`: the request to answer; in Backoff a restart means the same as a retry."""
    open_ = ledger.incident
    if open_ is None and ledger.broken is not None:
        return _restart(context, policy, ledger, verb, asked)
    if open_ is None:
        return _refuse(context, ledger, verb, asked, because(Reason.NO_INCIDENT))
    if ledger.phase is Phase.HELD or open_.step.withheld:
        why = _no_restart(context, policy, ledger, asked)
        if why is None and fail_job(context, ledger):
            why = because(Reason.HELD_FOR_GOOD)
        return _again(context, ledger, verb, asked) if why is None else _refuse(context, ledger, verb, asked, why)
    bar = barred(context.workload, policy, forced=open_.step.forced or asked.force)
    if bar is not None:
        return _refuse(context, ledger, verb, asked, bar)
    if open_.suspension is not None:
        # A group that was released is resumed whether there seems to be room or not: the person may know better.
        asked_for = ledger.with_incident(handling=by_a_person(open_))
        ends_now = msgspec.structs.replace(open_.suspension, until=context.now, for_room=False)
        resumed = suspension.want(asked_for, ends_now)
        return _accept(context, resumed, verb, asked, because(Reason.BACKOFF_SKIPPED))
    return _refuse(context, ledger, verb, asked, because(Reason.NOTHING_HELD_BACK, phase=ledger.phase))


def _restart(context: ReconcileContext, policy: Policy, ledger: Ledger, verb: Verb, asked: Request) -> Plan:
    """Recreate the group now: an incident of its own, or another attempt of the one that is open. `verb`: the request
    to answer; a retry of a group that hangs between incidents means the same as a restart."""
    why = _no_restart(context, policy, ledger, asked)
    if why is not None:
        return _refuse(context, ledger, verb, asked, why)
    if ledger.incident is None:
        return _open(context, policy, ledger, verb, asked)
    if not lifecycle.acts(ledger):
        # The incident only observes. Once it is closed, the request is still unanswered, and opens one that acts.
        return close(ledger, Outcome.OBSERVED, _asked_for(verb, asked), context.now)
    if restart_of(ledger) is not None and ledger.phase in phases.GOING_DOWN:
        return _refuse(context, ledger, verb, asked, because(Reason.RESTART_UNDER_WAY, phase=ledger.phase))
    if ledger.phase is Phase.BACKOFF:
        return _retry(context, policy, ledger, verb, asked)
    return _again(context, ledger, verb, asked)


def _no_restart(context: ReconcileContext, policy: Policy, ledger: Ledger, asked: Request) -> Explanation | None:
    workload, jobset = context.workload, context.snapshot.jobset
    over = ended(workload)
    if over is not None:
        return over
    if workload.suspended and not suspension.in_force(workload):
        return suspended(workload)
    if jobset is not None and jobset.terminal_state:
        return explained(
            Sentence.JOB_SET_HAS_ENDED, Reason.JOB_SET_FAILED, jobset=jobset.name, state=jobset.terminal_state
        )
    if jobset is None or jobset.deleting_since is not None or not member_jobs(context.snapshot):
        return because(Reason.NO_JOB)
    if policy.mode is Mode.OBSERVE and not asked.force:
        why = policy.breaker or explained(Sentence.IN_MODE_OBSERVE, Reason.OBSERVE_MODE, policy=policy.name)
        return explained(Sentence.FORCE_OVERRIDES, why.reason, why=why, job=workload.name)
    stop = first_stop(Move.BY_HAND, Question(context, ledger, forced=asked.force))
    return None if stop is None else stop.why


def _open(context: ReconcileContext, policy: Policy, ledger: Ledger, verb: Verb, asked: Request) -> Plan:
    found = _asked_for(verb, asked)
    evidence = Evidence(f"manual/{asked.at.isoformat()}", LossKind.MANUAL, message_of(found), "", at=context.now)
    acting = msgspec.structs.replace(policy, mode=Mode.ENFORCE)
    if policy.restart is Restart.NONE:
        acting = msgspec.structs.replace(acting, restart=Restart.RECREATE_GROUP_ON_POD_RESTART)
    opened = lifecycle.open_incident(
        ledger, context.snapshot, acting, classify((evidence,), context.snapshot), context.now
    )
    return _again(context, opened, verb, asked, found)


def _again(
    context: ReconcileContext, ledger: Ledger, verb: Verb, asked: Request, found: Explanation | None = None
) -> Plan:
    """The trigger that a person asked for. `found` None: the request is about the open incident."""
    open_ = ledger.current_incident
    # A shrink that was refused may work now: the component for it may have been installed meanwhile.
    ledger = ledger.with_incident(
        considered=tuple(each for each in open_.considered if each.action != Call.SHRINK),
        rule="",
        handling=by_a_person(open_),
    )
    ledger = suspension.until(context.now, ledger, context.workload, begin=False)
    if found is None:
        seen = first_seen(open_)
        found = seen_then(seen, _asked_for(verb, asked))
    why = explained(
        Sentence.RESTART_BY_HAND,
        Reason.RESTARTED_BY_HAND,
        found=found,
        jobs=", ".join(job.name for job in member_jobs(context.snapshot)),
        ranks=open_.ranks,
    )
    plan = trigger(context, ledger, why, by_hand=True, forced=asked.force)
    message = message_of(explained(Sentence.ANSWERED_BY_INCIDENT, why.reason, incident=open_.id, why=why))
    after = requests.answered(plan.ledger, verb, asked, why.reason, message, accepted=True)
    return msgspec.structs.replace(plan, ledger=after, requeue_at=plan.requeue_at or context.now)
