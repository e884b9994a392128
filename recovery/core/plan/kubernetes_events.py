"""Events: one for each change of a ledger that a person wants to hear of, named so that a repeat is recognised."""

from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import AttemptAction, Incident, Ledger, Outcome, Phase, RequestAnswer
from recovery.core.plan.actions import EmitEvent
from recovery.core.policy.spec import Mode

_MAX_NOTE = 1024
_KEY_TIME = "%Y%m%d%H%M%S%f"


def events(before: Ledger, after: Ledger) -> tuple[EmitEvent, ...]:
    """What changed between two ledgers of one group, as Events."""
    answers = tuple(_answer(told) for told in after.requests if told not in before.requests)
    incident = after.incident
    return answers if incident is None else (*answers, *_of_incident(before, after, incident))


def fleet_events(before: FleetLedger, after: FleetLedger) -> tuple[EmitEvent, ...]:
    """The circuit breaker opened or closed between two ledgers of the fleet, as Events on the RecoveryConfig."""
    was, now = before.breaker, after.breaker
    found = []
    if was is not None and was != now:
        note = f"the circuit breaker is closed: policies in mode Enforce act again; it had opened because {was.reason}"
        found.append(_event(f"breaker-closed-{was.opened_at:{_KEY_TIME}}", False, "CircuitBreakerClosed", note))
    if now is not None and was != now:
        note = (
            f"the circuit breaker is open: {now.reason}; every policy of the cluster counts as mode Observe until a "
            "person says recovery reset-breaker"
        )
        found.append(_event(f"breaker-opened-{now.opened_at:{_KEY_TIME}}", True, "CircuitBreakerOpened", note))
    return tuple(found)


def _answer(told: RequestAnswer) -> EmitEvent:
    """A person asked, and hears what became of it where `kubectl describe` looks."""
    reason = "RequestAccepted" if told.accepted else "RequestRefused"
    key = f"{told.verb}-{told.at:{_KEY_TIME}}"
    return _event(key, not told.accepted, reason, f"{told.verb}: {told.answer}")


def _of_incident(before: Ledger, after: Ledger, incident: Incident) -> tuple[EmitEvent, ...]:
    known = before.incident if before.incident is not None and before.incident.id == incident.id else None
    found = [*_attempts(known, incident), *_restraint(known, incident)]
    number = incident.attempt.number if incident.attempt is not None else 0
    if after.phase is Phase.FENCING and before.phase is not Phase.FENCING:
        found.append(_event(f"{incident.id}.fencing-{number}", True, "Fencing", incident.reason))
    if incident.fail_job and (known is None or not known.fail_job):
        found.append(_event(f"{incident.id}.fail-job-{number}", True, "FailingJob", incident.reason))
    elif after.phase is Phase.HELD and before.phase is not Phase.HELD:
        reason = "HeldUntilRetry" if incident.held else "Held"
        found.append(_event(f"{incident.id}.held-{number}", True, reason, incident.reason))
    if known is not None and known.withheld is None and incident.withheld is not None:
        found.append(_event(f"{incident.id}.withheld-{number}", True, "RestartWithheld", incident.reason))
    was, now = known.suspension if known is not None else None, incident.suspension
    if was is not None and now is None and incident.closing is None:
        found.append(_event(f"{incident.id}.resumed-{number}", False, "Resumed", incident.reason))
    if incident.closing is not None and (known is None or known.closing is None):
        bad = incident.closing.outcome in {Outcome.FAILED, Outcome.HELD}
        found.append(_event(f"{incident.id}.closed", bad, f"Incident{incident.closing.outcome}", incident.reason))
    if not found and incident.rule and known is not None and known.rule != incident.rule:
        # What the rule led to tells of it as a rule; this one has led to nothing new.
        found.append(_event(f"{incident.id}.rule-{number}", False, "RuleDecided", incident.reason))
    return tuple(found)


def _attempts(known: Incident | None, incident: Incident) -> list[EmitEvent]:
    """The attempts since `known`, each by its own sentence; an incident without any begins by its own."""
    newest = known.attempt.number if known is not None and known.attempt is not None else 0
    attempts = [attempt for attempt in incident.attempts if attempt.number > newest]
    if known is None:
        # What is left to the platform at the first look is no news of its own.
        attempts = [attempt for attempt in attempts if attempt.action is not AttemptAction.NONE]
        if not attempts:
            return [_event(f"{incident.id}.detected", True, "MemberLost", incident.reason)]
    return [
        _event(f"{incident.id}.attempt-{attempt.number}", True, _REASONS[attempt.action], attempt.reason)
        for attempt in attempts
    ]


_REASONS = {
    AttemptAction.RECREATE_GROUP: "RecreatingGroup",
    AttemptAction.REPLACE_NODE: "ReplacingNode",
    AttemptAction.RECREATE_JOB_SET: "RecreatingJobSet",
    AttemptAction.ADOPTED: "RestartAdopted",
    AttemptAction.NONE: "MemberReplaced",
}
"""A node whose quarantine is asked for is told of by the attempt that asks for it: it is named in its sentence."""

_OF_NODES = f"{AttemptAction.REPLACE_NODE}: "
"""How an entry of `considered` about a node that is not quarantined begins."""


def _restraint(known: Incident | None, incident: Incident) -> list[EmitEvent]:
    """A quarantine that was called for and is not asked for: the platform's SRE may have to find room for it.

    Under Observe none was to be made, so none is refused.
    """
    if incident.mode != Mode.ENFORCE:
        return []
    before = known.considered if known is not None else ()
    news = (text for text in incident.considered if text not in before)
    refused = [text.removeprefix(_OF_NODES) for text in news if text.startswith(_OF_NODES)]
    if not refused:
        return []
    number = incident.attempt.number if incident.attempt is not None else 0
    return [_event(f"{incident.id}.not-quarantined-{number}", True, "QuarantineRefused", "; ".join(refused))]


def _event(key: str, warning: bool, reason: str, note: str) -> EmitEvent:
    return EmitEvent(key=key, warning=warning, reason=reason, note=note[:_MAX_NOTE])
