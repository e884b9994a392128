"""Events: one for each change of the ledger that a person wants to hear of, named so that a repeat is recognised."""

from recovery.core.ledger import AttemptAction, Incident, Ledger, Outcome, Phase, RequestAnswer
from recovery.core.plan import EmitEvent

_MAX_NOTE = 1024


def events(before: Ledger, after: Ledger) -> tuple[EmitEvent, ...]:
    """What changed between two ledgers of one group, as Events."""
    answers = tuple(_answer(told) for told in after.requests if told not in before.requests)
    incident = after.incident
    return answers if incident is None else (*answers, *_of_incident(before, after, incident))


def _answer(told: RequestAnswer) -> EmitEvent:
    """A person asked, and hears what became of it where `kubectl describe` looks."""
    reason = "RequestAccepted" if told.accepted else "RequestRefused"
    key = f"{told.verb}-{told.at:%Y%m%d%H%M%S%f}"
    return _event(key, not told.accepted, reason, f"{told.verb}: {told.answer}")


def _of_incident(before: Ledger, after: Ledger, incident: Incident) -> tuple[EmitEvent, ...]:
    known = before.incident if before.incident is not None and before.incident.id == incident.id else None
    found = []
    attempts = [
        a for a in incident.attempts if known is None or a.number > (known.attempt.number if known.attempt else 0)
    ]
    if known is None:
        # What is left to the platform at the first look is no news of its own.
        attempts = [attempt for attempt in attempts if attempt.action is not AttemptAction.NONE]
    if known is None and not attempts:
        found.append(_event(f"{incident.id}.detected", True, "MemberLost", incident.reason))
    for attempt in attempts:
        reason = {
            AttemptAction.RECREATE_GROUP: "RecreatingGroup",
            AttemptAction.RECREATE_JOB_SET: "RecreatingJobSet",
            AttemptAction.ADOPTED: "RestartAdopted",
            AttemptAction.NONE: "MemberReplaced",
        }[attempt.action]
        found.append(_event(f"{incident.id}.attempt-{attempt.number}", True, reason, attempt.reason))
    if after.phase is Phase.HELD and before.phase is not Phase.HELD:
        number = incident.attempt.number if incident.attempt is not None else 0
        found.append(_event(f"{incident.id}.held-{number}", True, "Held", incident.reason))
    was, now = known.suspension if known is not None else None, incident.suspension
    if was is not None and now is None and incident.closing is None:
        number = incident.attempt.number if incident.attempt is not None else 0
        found.append(_event(f"{incident.id}.resumed-{number}", False, "Resumed", incident.reason))
    if incident.closing is not None and (known is None or known.closing is None):
        bad = incident.closing.outcome in {Outcome.FAILED, Outcome.HELD}
        found.append(_event(f"{incident.id}.closed", bad, f"Incident{incident.closing.outcome}", incident.reason))
    return tuple(found)


def _event(key: str, warning: bool, reason: str, note: str) -> EmitEvent:
    return EmitEvent(key=key, warning=warning, reason=reason, note=note[:_MAX_NOTE])
