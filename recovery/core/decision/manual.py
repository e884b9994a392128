"""Answers what a person asks for (`core.incident.requests`), each request once: in the ledger write that it leads to.

A person may do what the budget may not: a restart by hand is not charged and has no backoff. But it does not override
what would make the job worse off, and mode Observe, or a pause, only with `force`.
"""

import msgspec

from recovery.core.decision.hold import fail_job
from recovery.core.decision.teardown import trigger
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import budget, lifecycle, phases, requests
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.incident.preconditions import barred, ended, unread
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.steps import close
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, Restart


def answer(context: ReconcileContext, policy: Policy, ledger: Ledger, verb: Verb, asked: Request) -> Plan:
    """The answer to one request, and what follows from it."""
    if requests.expired(asked, context.now):
        return _refuse(context, ledger, verb, asked, f"it was asked for at {asked.at.isoformat()}, too long ago")
    if requests.premature(asked, context.now):
        return _refuse(context, ledger, verb, asked, f"it is dated {asked.at.isoformat()}, which is yet to come")
    if verb is Verb.RESET_BUDGET:
        charges = len(ledger.budget.charges)
        emptied = msgspec.structs.replace(
            ledger, budget=budget.reset(ledger.budget, context.now), attempts_in_row=0, charged_in_row=0
        )
        return _accept(Plan(emptied, ""), verb, asked, f"{charges} charges no longer count", context)
    why = unread(context.snapshot)
    if why is not None:
        return _refuse(context, ledger, verb, asked, why)
    if verb is Verb.RETRY:
        return _retry(context, policy, ledger, verb, asked)
    return _restart(context, policy, ledger, asked)


def _refuse(context: ReconcileContext, ledger: Ledger, verb: Verb, asked: Request, why: str) -> Plan:
    reason = f"{verb} is refused: {why}"
    # Whatever else has to be seen to is looked at next, from the ledger that knows of the answer.
    return Plan(requests.answered(ledger, verb, asked, why, accepted=False), reason, requeue_at=context.now)


def _accept(plan: Plan, verb: Verb, asked: Request, what: str, context: ReconcileContext) -> Plan:
    after = requests.answered(plan.ledger, verb, asked, what, accepted=True)
    said = plan.reason or f"{verb}{_who(asked)}: {what}"
    return msgspec.structs.replace(plan, ledger=after, reason=said, requeue_at=plan.requeue_at or context.now)


def _who(asked: Request) -> str:
    by = f" by {asked.by}" if asked.by else ""
    return f"{by}: {asked.reason}" if asked.reason else by


def _retry(context: ReconcileContext, policy: Policy, ledger: Ledger, verb: Verb, asked: Request) -> Plan:
    """Leave Held or Backoff now. `verb`: what was asked for, and is answered; in Backoff a restart is the same."""
    open_ = ledger.incident
    if open_ is None:
        return _refuse(context, ledger, verb, asked, "no incident is open")
    if ledger.phase is Phase.HELD or open_.withheld is not None:
        why = _no_restart(context, policy, asked)
        if why is None and fail_job(context, ledger):
            why = "the group is Held for good"
        return _again(context, ledger, verb, asked) if why is None else _refuse(context, ledger, verb, asked, why)
    bar = barred(context.workload, policy, forced=open_.forced or asked.force)
    if bar is not None:
        return _refuse(context, ledger, verb, asked, bar)
    if open_.suspension is not None:
        resumed = suspension.want(ledger, msgspec.structs.replace(open_.suspension, until=context.now))
        what = "the backoff is over: it is resumed as soon as the old group is gone"
        return _accept(Plan(resumed, ""), verb, asked, what, context)
    return _refuse(context, ledger, verb, asked, f"nothing is held back: the group is in phase {ledger.phase}")


def _restart(context: ReconcileContext, policy: Policy, ledger: Ledger, asked: Request) -> Plan:
    """Recreate the group now: an incident of its own, or another attempt of the one that is open."""
    why = _no_restart(context, policy, asked)
    if why is not None:
        return _refuse(context, ledger, Verb.RESTART, asked, why)
    if ledger.incident is None:
        return _open(context, policy, ledger, asked)
    if not lifecycle.acts(ledger):
        # It only watched. Once it is closed the request is still unanswered, and opens an incident that acts.
        return close(ledger, Outcome.OBSERVED, "RestartedByHand", f"restart asked for{_who(asked)}", context.now)
    if restart_of(ledger) is not None and ledger.phase in phases.GOING_DOWN:
        return _refuse(context, ledger, Verb.RESTART, asked, f"a restart is under way (phase {ledger.phase})")
    if ledger.phase is Phase.BACKOFF:
        return _retry(context, policy, ledger, Verb.RESTART, asked)
    return _again(context, ledger, Verb.RESTART, asked)


def _no_restart(context: ReconcileContext, policy: Policy, asked: Request) -> str | None:
    workload, jobset = context.workload, context.snapshot.jobset
    over = ended(workload)
    if over is not None:
        return over[1]
    if workload.suspended and not suspension.in_force(workload):
        return f"the {workload.kind} is suspended"
    if jobset is not None and jobset.terminal_state:
        return f"JobSet {jobset.name} is {jobset.terminal_state}"
    if jobset is None or jobset.deleting_since is not None or not member_jobs(context.snapshot):
        return "there is no Job to restart"
    if policy.mode is Mode.OBSERVE and not asked.force:
        why = policy.breaker or f"policy {policy.name} is in mode Observe"
        return f"{why} (force overrides that)"
    return finishing(context.snapshot) or barred(workload, policy, forced=asked.force)


def _open(context: ReconcileContext, policy: Policy, ledger: Ledger, asked: Request) -> Plan:
    text = f"restart asked for{_who(asked)}"
    evidence = Evidence(f"manual/{asked.at.isoformat()}", LossKind.MANUAL, text, "", at=context.now)
    acting = msgspec.structs.replace(policy, mode=Mode.ENFORCE)
    if policy.restart is Restart.NONE:
        acting = msgspec.structs.replace(acting, restart=Restart.RECREATE_GROUP_ON_POD_RESTART)
    opened = lifecycle.open_incident(
        ledger, context.snapshot, acting, classify((evidence,), context.snapshot), context.now
    )
    return _again(context, opened, Verb.RESTART, asked, text)


def _again(context: ReconcileContext, ledger: Ledger, verb: Verb, asked: Request, text: str = "") -> Plan:
    """The trigger, as a person asked for it."""
    open_ = ledger.current_incident
    # What a Hold called for is over; and a force that was used up by an earlier restart is not used again.
    ledger = ledger.with_incident(forced=asked.force, fail_job=False, held="", rule="")
    ledger = suspension.until(context.now, ledger, context.workload, begin=False)
    jobs = ", ".join(job.name for job in member_jobs(context.snapshot))
    found = text or f"{open_.evidence[0]}; {verb} asked for{_who(asked)}"
    reason = (
        f"{found}: deleting Job {jobs} so that all {open_.ranks} ranks restart together, free of charge; no checkpoint "
        "is known of, so steps since the last one are lost"
    )
    plan = trigger(context, ledger, reason, by_hand=True)
    if plan.ledger.incident is not None and plan.ledger.incident.closing is not None:
        return plan  # it is finishing: there is nothing to restart
    return _accept(plan, verb, asked, f"incident {open_.id}: {reason}", context)
