"""What an open incident calls for: to stand aside, to observe, to hold, or to trigger a restart.

Each decision is one Plan built from a few parts: `say` (nothing is done, and why), `hold_back`, `trigger`.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import avoidance, failure_marks, fleet_changes, in_place, settings
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.guards import Guard, Move, Question, Stop, first_stop
from recovery.core.decision.hold import hold_back
from recovery.core.decision.resuming import settling_until, whole_again
from recovery.core.decision.teardown import free_the_dead, left_alone, trigger
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis import native_policies
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.finish_overdue import overdue
from recovery.core.diagnosis.membership import member_count, member_jobs, pods_of
from recovery.core.fleet import storm as storms
from recovery.core.incident import attempt_limits, lifecycle, sizes
from recovery.core.incident.attempt_limits import Refusal
from recovery.core.incident.evidence_counts import first_seen
from recovery.core.incident.standing import hangs
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import AttemptAction, Considered, Incident, Ledger, Outcome, Phase
from recovery.core.model.reason import Explanation, Reason, as_said, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.step import Step, StepType
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, close, considered, note, say, stand_aside
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode


def judge(context: ReconcileContext, ledger: Ledger, news: tuple[Evidence, ...] = ()) -> Plan:
    """What an open incident without any restart calls for.

    `news`: evidence that came in after the controller stood aside. If there is any, only it is judged.
    """
    snapshot, open_ = context.snapshot, ledger.current_incident
    pinned = open_.pinned
    observes = open_.mode == Mode.OBSERVE
    # Once the controller has stood aside, only what came in later can call for more.
    stood_aside = lifecycle.stood_aside(ledger)
    found = because(Reason.MEMBER_LOST, evidence=open_.evidence[-1]) if stood_aside else first_seen(open_)
    if not lifecycle.decides(pinned):
        return say(ledger, seen_then(found, because(Reason.RESTART_NONE, policy=pinned.policy_name)))
    evidence = lifecycle.present(snapshot, ledger)
    late = overdue(snapshot, ledger.handled, timedelta(seconds=pinned.finish_timeout_seconds))
    question = Question(
        context,
        ledger,
        evidence,
        news or evidence,
        # Neither the mode nor a paused job bars an incident that only observes.
        forced=observes,
        overdue=late is not None,
    )
    stop = first_stop(Move.FIRST, question)
    if stop is not None:
        return stopped(question, found, stop)
    is_over = not open_.step.withheld and late is None and all_run(snapshot) and not hangs(snapshot, ledger)
    if not news and not evidence and is_over:
        # A node answers again, or a fault has ended. No member is missing, so there is nothing to restart for.
        return say(ledger, seen_then(found, because(Reason.MEMBERS_RUN_AGAIN, ranks=open_.ranks)))
    stay = not verdicts.recreates_ignored(context, ledger)
    open_to_us = (
        evidence if pinned.override_native else native_policies.undecided(snapshot, evidence, ignored_stay=stay)
    )
    verdict = verdicts.of(context, ledger, open_to_us or evidence, news=news)
    if late is not None:
        verdict = Verdict(Call.HOLD, late)
    stop = first_stop(Move.FIRST, msgspec.structs.replace(question, verdict=verdict))
    if stop is not None:
        return stopped(question, found, stop)
    act = _observe if observes else carry_out
    return act(context, ledger, found, verdict)


def stopped(question: Question, found: Explanation, stop: Stop) -> Plan:
    """What happens instead of the restart. `found`: what was seen."""
    context, ledger, now = question.context, question.ledger, question.context.now
    match stop.guard:
        case Guard.FINISHED:
            return close(ledger, Outcome.SUPERSEDED, left_alone(stop.why), now)
        case Guard.NATIVE:
            after = stand_aside(ledger, stands_aside(found, stop.why), now)
            return as_before(after, actions=free_the_dead(context, after))
        case Guard.BARRED:
            return say(ledger, nothing_done(found, stop.why))
        case Guard.AFTER_START:
            return say(ledger, seen_then(found, stop.why))
        case Guard.LIMIT:
            assert stop.refusal is not None, "the limit says what the group is held for"
            return hold_back(context, ledger, found, stop.refusal)
        case Guard.MET:
            if lifecycle.restarted(ledger) and ledger.phase is not Phase.HELD:
                return whole_again(context, lifecycle.more_evidence(ledger, question.evidence))
            waits_until = settling_until(context, ledger)
            if waits_until is None:
                return whole_again(context, ledger)
            return say(ledger, seen_then(found, stop.why), requeue_at=waits_until)


def seen_then(found: Explanation, what: Explanation) -> Explanation:
    """What was seen, and what that means."""
    return explained(Sentence.SEEN_THEN, what.reason, found=found, what=what)


def stands_aside(found: Explanation, decided: Explanation) -> Explanation:
    """What was seen is left to the user's own policies."""
    return explained(Sentence.STANDING_ASIDE, decided.reason, found=found, decided=decided)


def nothing_done(found: Explanation, bar: Explanation) -> Explanation:
    """What was seen calls for something that may not be done now."""
    return explained(Sentence.NOTHING_DONE, bar.reason, found=found, bar=bar)


def all_run(snapshot: Snapshot) -> bool:
    """Every member of every member Job runs, Ready or not."""
    jobs = member_jobs(snapshot)
    return bool(jobs) and all(
        len({pod.index for pod in pods_of(snapshot, job) if pod.running and pod.deleting_since is None})
        >= member_count(job)
        for job in jobs
    )


def _observe(context: ReconcileContext, ledger: Ledger, found: Explanation, verdict: Verdict) -> Plan:
    """What Enforce would do: the verdict within caps and budget, decided once, as Enforce would have.

    Later reconciles do not decide again, because caps fill and pods take their evidence with them. The record shows
    what Enforce would have done at that moment.
    """
    if enforced_now(context):
        return observed(context, ledger, found)
    verdict = _admitted(context, ledger, verdict)
    ledger = _noted(ledger, verdict, context.now)
    refusal = attempt_limits.refused(ledger, context.now, free=not verdict.charge)
    call, reason, would = verdict.call, verdict.why.reason, _would(context, ledger, verdict)
    match verdict.call:
        case Call.WAIT:
            return say(ledger, seen_then(found, verdict.why), requeue_at=verdict.requeue_at)
        case Call.RECREATE_GROUP | Call.REPLACE_NODE | Call.AVOID_NODE | Call.SHRINK if refusal is not None:
            exhausted = ledger.current_incident.pinned.on_exhausted if refusal.exhausted else ""
            reason, call = refusal.why.reason, Call.HOLD
            would = explained(Sentence.WOULD_HOLD, reason, why=refusal.why, on_exhausted=exhausted)
    if _adds_to_the_default(verdict) and verdict.call is not Call.HOLD:
        would = explained(Sentence.WOULD_BY, reason, would=would, why=verdict.why)
    why = explained(Sentence.SEEN_THEN, reason, found=found, what=would_words(context, ledger, would))
    if call in {Call.IGNORE, Call.NONE}:
        return as_before(stand_aside(ledger, why, context.now), requeue_at=verdict.requeue_at)
    noted = note(ledger, why)
    message = noted.current_incident.message
    # If the incident already says that enforcing comes too late, it says so about the loss, not about this verdict.
    noted_now = noted.with_incident(would=str(call), would_message=message, step=Step(StepType.OBSERVING))
    after = failure_marks.remembered(noted_now, verdict.mark)
    # The group may already run whole, and only now may its incident end: the watch of this write causes that reconcile.
    return as_before(after)


def _would(context: ReconcileContext, ledger: Ledger, verdict: Verdict) -> Explanation:
    """What Enforce would do, to follow "Enforce would have"."""
    reason = verdict.why.reason
    match verdict.call:
        case Call.IGNORE | Call.NONE:
            return explained(Sentence.WOULD_LEAVE, reason)
        case Call.FAIL_JOB:
            return explained(Sentence.WOULD_FAIL, reason)
        case Call.HOLD | Call.WAIT:
            return explained(Sentence.WOULD_HOLD, reason, why=verdict.why, on_exhausted="")
        case Call.RECREATE_GROUP | Call.REPLACE_NODE | Call.AVOID_NODE | Call.SHRINK | Call.GROW:
            return explained(
                Sentence.WOULD_RESTART,
                reason,
                node=_quarantined(verdict),
                jobs=_names(context.snapshot),
                ranks=ledger.current_incident.ranks,
                free="" if verdict.charge else _free(verdict),
            )


def would_words(context: ReconcileContext, ledger: Ledger, would: Explanation) -> Explanation:
    """What Enforce would do now, and why it is not done."""
    if isinstance(context.policy, Policy) and context.policy.breaker is not None:
        return explained(Sentence.WOULD_BUT_BREAKER, would.reason, would=would, breaker=context.policy.breaker)
    policy = ledger.current_incident.pinned.policy_name
    return explained(Sentence.WOULD_BUT_OBSERVE, would.reason, policy=policy, would=would)


def enforced_now(context: ReconcileContext) -> bool:
    """The policy says Enforce now, and no breaker is open."""
    return isinstance(context.policy, Policy) and context.policy.mode is Mode.ENFORCE


def observed(context: ReconcileContext, ledger: Ledger, found: Explanation | None = None) -> Plan:
    """Nothing more is decided in this incident, and its message stays. If the policy enforces now, the message adds
    that this came too late. `found`: what was seen, if the incident has no message about it yet."""
    open_, policy = ledger.current_incident, context.policy
    if not isinstance(policy, Policy) or policy.mode is not Mode.ENFORCE or (found is None and open_.step.too_late):
        return as_before(ledger)
    by_breaker = kept_by_breaker(open_, policy)
    plan = say(
        ledger,
        explained(
            Sentence.TOO_LATE_BY_BREAKER if by_breaker else Sentence.TOO_LATE_BY_MODE,
            Reason.ENFORCED_TOO_LATE,
            said=found if found is not None else as_said(open_.reason, open_.message),
            policy=policy.name,
            workload=context.workload.name,
        ),
    )
    changes: dict[str, object] = {"step": Step(StepType.OBSERVING, too_late=True)}
    if open_.would:
        changes["would_message"] = plan.message
    return msgspec.structs.replace(plan, ledger=plan.ledger.with_incident(**changes))


def kept_by_breaker(open_: Incident, policy: Policy) -> bool:
    """The breaker made this incident only observe: its policy already said Enforce when the incident opened."""
    return open_.pinned.policy_uid == policy.uid and open_.detected_at >= policy.since


def carry_out(
    context: ReconcileContext,
    ledger: Ledger,
    found: Explanation,
    verdict: Verdict,
    *,
    attempt: int = 1,
    lost: tuple[Evidence, ...] = (),
) -> Plan:
    """What the verdict calls for, as far as the budget and the caps allow it."""
    now = context.now
    verdict = _admitted(context, ledger, verdict)
    ledger = _noted(ledger, verdict, now)
    match verdict.call:
        case Call.WAIT:
            return say(ledger, seen_then(found, verdict.why), requeue_at=verdict.requeue_at)
        case Call.IGNORE | Call.NONE:
            after = stand_aside(ledger, seen_then(found, verdict.why), now)
            return as_before(after, requeue_at=verdict.requeue_at)
        case Call.HOLD | Call.FAIL_JOB:
            return hold_back(context, ledger, found, _final(verdict))
    refusal = attempt_limits.refused(ledger, now, free=not verdict.charge)
    if refusal is not None:
        return hold_back(context, ledger, found, refusal)
    tried = _tried_in_place(context, ledger, found, verdict, lost)
    if isinstance(tried, Plan):
        return tried
    prepared = settings.prepared(context, tried, found, verdict)
    if isinstance(prepared, Plan):
        return prepared
    ledger, verdict = prepared
    if verdict.call is Call.HOLD:
        return hold_back(context, _noted(ledger, verdict, now), found, _final(verdict))
    if verdict.call is Call.NONE:
        return as_before(stand_aside(_noted(ledger, verdict, now), seen_then(found, verdict.why), now))
    if verdict.call is Call.SHRINK:
        why = _smaller(context, ledger, found, verdict, attempt)
    elif attempt == 1:
        why = _first_restart(context, ledger, found, verdict)
    else:
        why = _next_restart(context, found, verdict, attempt)
    return trigger(context, ledger, why, verdict=verdict, lost=lost)


def _admitted(context: ReconcileContext, ledger: Ledger, verdict: Verdict) -> Verdict:
    """The verdict, as far as a user's own size, the fleet's caps and the nodes of the group allow it."""
    kept = settings.with_size_kept(context, ledger, verdict)
    wished = avoidance.admitted(context, fleet_changes.admitted(context, ledger, kept))
    return avoidance.instead(context, ledger, wished)


def _smaller(
    context: ReconcileContext, ledger: Ledger, found: Explanation, verdict: Verdict, attempt: int
) -> Explanation:
    job = sizes.only_job(context.snapshot)
    assert job is not None, "only a group of one Job is resized"
    wanted = sizes.wanted_nodes(ledger, context.snapshot, job)
    return explained(
        Sentence.SHRINKS,
        verdict.why.reason,
        found=found,
        why=verdict.why,
        attempt=attempt,
        nodes=verdict.nodes,
        jobs=_names(context.snapshot),
        free="" if verdict.charge else _free(verdict),
        quota=sizes.quota_kept(context.workload, wanted) or "",
    )


def _first_restart(context: ReconcileContext, ledger: Ledger, found: Explanation, verdict: Verdict) -> Explanation:
    return explained(
        Sentence.RESTART,
        verdict.why.reason,
        found=found,
        why=verdict.why,
        node=_quarantined(verdict),
        jobs=_names(context.snapshot),
        ranks=ledger.current_incident.ranks,
        left=_left(context, ledger, verdict),
    )


def _left(context: ReconcileContext, ledger: Ledger, verdict: Verdict) -> Explanation:
    """What the first restart of the incident leaves of the budget, or why it costs nothing."""
    if not verdict.charge:
        return _free(verdict)
    open_ = ledger.current_incident
    left = attempt_limits.left(ledger, context.now) - (not open_.charged)
    return explained(Sentence.BUDGET_LEFT, verdict.why.reason, count=left, limit=open_.pinned.budget_limit)


def _tried_in_place(
    context: ReconcileContext, ledger: Ledger, found: Explanation, verdict: Verdict, lost: tuple[Evidence, ...]
) -> Plan | Ledger:
    """The restart in place where it fits. Else the ledger, which says why it does not if the agents asked for it."""
    if verdict.call is not Call.RECREATE_GROUP or not verdict.in_place:
        return ledger
    unfit = in_place.unfit(context, ledger, lost or lifecycle.present(context.snapshot, ledger))
    if unfit is None:
        why = explained(
            Sentence.RESTART_IN_PLACE,
            verdict.why.reason,
            found=found,
            why=verdict.why,
            ranks=ledger.current_incident.ranks,
            left=_left(context, ledger, verdict),
        )
        return in_place.begin(context, ledger, why, verdict)
    if unfit.reason is Reason.AGENTS_DO_NOT_ASK:
        return ledger
    return lifecycle.consider(ledger, (considered(AttemptAction.RESTART_IN_PLACE, "", unfit),))


def _next_restart(context: ReconcileContext, found: Explanation, verdict: Verdict, attempt: int) -> Explanation:
    """Why the group is restarted again. The reason is what was found, unless more than the default has decided."""
    adds = _adds_to_the_default(verdict)
    return explained(
        Sentence.RESTART_AGAIN,
        verdict.why.reason if adds else found.reason,
        found=found,
        why=verdict.why if adds else "",
        attempt=attempt,
        node=_quarantined(verdict),
        jobs=_names(context.snapshot),
    )


def _quarantined(verdict: Verdict) -> str:
    """The nodes to be quarantined. Empty: none, though the group may avoid some."""
    return ", node ".join(verdict.node_names) if verdict.call is Call.REPLACE_NODE else ""


def _names(snapshot: Snapshot) -> str:
    """The member Jobs by name."""
    return ", ".join(job.name for job in member_jobs(snapshot)) or "none"


def _free(verdict: Verdict) -> Explanation:
    if verdict.drill:
        return explained(Sentence.FREE_AS_DRILL, verdict.why.reason, drill=verdict.drill)
    if verdict.spared_by is not None:
        return explained(Sentence.SPARED, verdict.why.reason, rule=verdict.spared_by)
    return explained(Sentence.FREE_OF_CHARGE, verdict.why.reason, incident=verdict.paid_by)


def _adds_to_the_default(verdict: Verdict) -> bool:
    """The verdict says more than that the default applies, which the first attempt has already said."""
    return bool(verdict.rule or verdict.considered) or verdict.call in {Call.REPLACE_NODE, Call.AVOID_NODE}


def _final(verdict: Verdict) -> Refusal:
    """The group is held, whatever the budget. A JobSet that is made to fail is held until it has failed."""
    return Refusal(verdict.why, None, exhausted=False, fail_job=verdict.call is Call.FAIL_JOB)


def _noted(ledger: Ledger, verdict: Verdict, now: datetime) -> Ledger:
    """The ledger with the rule that decided, what was considered and not done, and the storm that caused the loss."""
    if verdict.call is Call.WAIT:
        return ledger
    ledger = lifecycle.consider(ledger.with_incident(rule=verdict.rule), records(verdict))
    return storms.noted(ledger, verdict.storm, now) if verdict.storm is not None else ledger


def records(verdict: Verdict) -> tuple[Considered, ...]:
    """What the verdict has considered and not called for, as the ledger keeps it."""
    return tuple(considered(each.call, each.node, each.why) for each in verdict.considered)
