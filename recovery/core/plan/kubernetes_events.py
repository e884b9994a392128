"""Kubernetes Events, one for each ledger change that matters to people, named so that a repeat is recognised."""

import msgspec

from recovery.core.diagnosis.group_conditions import TRAINS_AGAIN
from recovery.core.model.config import why_opened
from recovery.core.model.drill import DrillRef
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
    Incident,
    Ledger,
    Outcome,
    Phase,
)
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.reason import Reason, explained
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import EmitEvent
from recovery.core.policy.spec import Mode
from recovery.core.sentences import render
from recovery.core.sentences.standing import sentence_of

_MAX_NOTE = 1024
_KEY_TIME = "%Y%m%d%H%M%S%f"


def events(before: Ledger, after: Ledger) -> tuple[EmitEvent, ...]:
    """What changed between two ledgers of one group, as Events."""
    found = [_answer(given) for given in after.requests if given not in before.requests]
    if after.incident is not None:
        found += _of_incident(before, after, after.incident)
    if after.broken is not None and before.broken is None:
        found.append(_event(f"{after.broken.incident}.broken", True, "GroupBroken", sentence_of(after.broken)))
    again = _again(after)
    if again is not None and _again(before) is None:
        key = f"{after.handled.terminal_jobset_uid}.trains-again"
        found.append(_event(key, True, again.type, again.message))
    return tuple(found)


def _again(ledger: Ledger) -> LedgerCondition | None:
    """The condition that a failed job trains again. None: it does not hold."""
    found = (each for each in ledger.conditions if (each.type, each.status) == (TRAINS_AGAIN, "True"))
    return next(found, None)


def fleet_events(before: FleetLedger, after: FleetLedger) -> tuple[EmitEvent, ...]:
    """Events on the RecoveryConfig, if the circuit breaker opened or closed between two ledgers of the fleet."""
    was, now = before.breaker, after.breaker
    found = []
    if was is not None and was != now:
        note = render(explained(Sentence.BREAKER_CLOSED, was.reason, why=why_opened(was)))
        found.append(_event(f"breaker-closed-{was.opened_at:{_KEY_TIME}}", False, "CircuitBreakerClosed", note))
    if now is not None and was != now:
        note = render(explained(Sentence.BREAKER_OPENED, now.reason, why=why_opened(now)))
        found.append(_event(f"breaker-opened-{now.opened_at:{_KEY_TIME}}", True, "CircuitBreakerOpened", note))
    return tuple(found)


def _answer(given: RequestAnswer) -> EmitEvent:
    """The answer to a person's request, for `kubectl describe`."""
    reason = "RequestAccepted" if given.accepted else "RequestRefused"
    key = f"{given.verb}-{given.at:{_KEY_TIME}}"
    return _event(key, not given.accepted, reason, f"{given.verb}: {given.message}")


def _of_incident(before: Ledger, after: Ledger, incident: Incident) -> tuple[EmitEvent, ...]:
    known = before.incident if before.incident is not None and before.incident.id == incident.id else None
    found = [*_attempts(known, incident), *_restraint(known, incident)]
    number = incident.attempt.number if incident.attempt is not None else 0
    if after.phase is Phase.FENCING and before.phase is not Phase.FENCING:
        found.append(_event(f"{incident.id}.fencing-{number}", True, "Fencing", incident.message))
    if incident.step.fails_job and (known is None or not known.step.fails_job):
        found.append(_event(f"{incident.id}.fail-job-{number}", True, "FailingJob", incident.message))
    elif after.phase is Phase.HELD and before.phase is not Phase.HELD:
        reason = "HeldUntilRetry" if incident.step.verdict is not None else "Held"
        found.append(_event(f"{incident.id}.held-{number}", True, reason, incident.message))
    if known is not None and not known.step.withheld and incident.step.withheld:
        found.append(_event(f"{incident.id}.withheld-{number}", True, "RestartWithheld", incident.message))
    was, now = known.suspension if known is not None else None, incident.suspension
    if now is not None and now.for_room and (was is None or not was.for_room):
        found.append(_event(f"{incident.id}.released-{number}", True, "Released", incident.message))
    if was is not None and now is None and incident.closing is None:
        found.append(_event(f"{incident.id}.resumed-{number}", False, "Resumed", incident.message))
    if incident.closing is not None and (known is None or known.closing is None):
        closing = incident.closing
        unseen = closing.outcome_reason is Reason.PROGRESS_NOT_SEEN
        bad = unseen or closing.outcome in {Outcome.FAILED, Outcome.HELD}
        found.append(_event(f"{incident.id}.closed", bad, f"Incident{incident.closing.outcome}", incident.message))
    if not found and incident.rule and known is not None and known.rule != incident.rule:
        # Usually the event of what the rule led to reports it; this rule has led to nothing new.
        found.append(_event(f"{incident.id}.rule-{number}", False, "RuleDecided", incident.message))
    return tuple(_of_drill(each, incident.drill) for each in found)


def _of_drill(event: EmitEvent, drill: DrillRef | None) -> EmitEvent:
    """The Event, which begins with the drill that caused its incident, so that no one takes it for a failure."""
    if drill is None:
        return event
    note = render(explained(Sentence.EVENT_OF_DRILL, Reason.DRILL_ACCEPTED, drill=drill.name, said=event.note))
    return msgspec.structs.replace(event, note=note[:_MAX_NOTE])


def _attempts(known: Incident | None, incident: Incident) -> list[EmitEvent]:
    """The attempts since `known`, each with its own sentence. A new incident without any has its own Event instead."""
    newest = known.attempt.number if known is not None and known.attempt is not None else 0
    attempts = [attempt for attempt in incident.attempts if attempt.number > newest]
    if known is None:
        # A loss that is left to the platform at the first reconcile gets no second Event for that.
        attempts = [attempt for attempt in attempts if attempt.action is not AttemptAction.NONE]
        if not attempts:
            return [_event(f"{incident.id}.detected", True, "MemberLost", incident.message)]
    return [
        _event(f"{incident.id}.attempt-{attempt.number}", True, _event_reason(attempt), attempt.whole_message)
        for attempt in attempts
    ]


_BY_ACTION = {
    AttemptAction.RECREATE_GROUP: "RecreatingGroup",
    AttemptAction.REPLACE_NODE: "ReplacingNode",
    AttemptAction.AVOID_NODE: "AvoidingNode",
    AttemptAction.SHRINK: "ShrinkingGroup",
    AttemptAction.GROW: "GrowingGroup",
    AttemptAction.RECREATE_JOB_SET: "RecreatingJobSet",
    AttemptAction.RESTART_IN_PLACE: "RestartingInPlace",
    AttemptAction.ADOPTED: "RestartAdopted",
}
"""A quarantine has no Event of its own: the attempt that asks for it reports it, and its message names the node."""


def _event_reason(attempt: Attempt) -> str:
    """What the attempt does, or why it leaves the loss to the platform."""
    if attempt.action is not AttemptAction.NONE:
        return _BY_ACTION[attempt.action]
    if attempt.reason in {Reason.MEMBER_REPLACED, Reason.RULE_IGNORE}:
        return str(attempt.reason)
    return "StandingAside"


def _restraint(known: Incident | None, incident: Incident) -> list[EmitEvent]:
    """Quarantines that were called for but refused: the platform's SRE may have to make room for them.

    Under Observe no quarantine would be made, so none is refused.
    """
    if incident.mode != Mode.ENFORCE:
        return []
    before = {each.key for each in known.considered} if known is not None else set()
    news = (each for each in incident.considered if each.key not in before)
    refused = [each.message for each in news if each.action == AttemptAction.REPLACE_NODE]
    if not refused:
        return []
    number = incident.attempt.number if incident.attempt is not None else 0
    return [_event(f"{incident.id}.not-quarantined-{number}", True, "QuarantineRefused", "; ".join(refused))]


def _event(key: str, warning: bool, reason: str, note: str) -> EmitEvent:
    return EmitEvent(key=key, warning=warning, reason=reason, note=note[:_MAX_NOTE])
