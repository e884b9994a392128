"""Events: one for each change of the ledger that a person wants to hear of, named so that a repeat is recognised."""

from recovery.core.ledger import AttemptAction, Ledger, Outcome, Phase
from recovery.core.plan import EmitEvent

_MAX_NOTE = 1024


def events(before: Ledger, after: Ledger) -> tuple[EmitEvent, ...]:
    """What changed between two ledgers of one group, as Events."""
    incident = after.incident
    if incident is None:
        return ()
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
            AttemptAction.ADOPTED: "RestartAdopted",
            AttemptAction.NONE: "MemberReplaced",
        }[attempt.action]
        found.append(_event(f"{incident.id}.attempt-{attempt.number}", True, reason, attempt.reason))
    if after.phase is Phase.HELD and before.phase is not Phase.HELD:
        number = incident.attempt.number if incident.attempt is not None else 0
        found.append(_event(f"{incident.id}.held-{number}", True, "Held", incident.reason))
    if incident.closing is not None and (known is None or known.closing is None):
        bad = incident.closing.outcome in {Outcome.FAILED, Outcome.HELD}
        found.append(_event(f"{incident.id}.closed", bad, f"Incident{incident.closing.outcome}", incident.reason))
    return tuple(found)


def _event(key: str, warning: bool, reason: str, note: str) -> EmitEvent:
    return EmitEvent(key=key, warning=warning, reason=reason, note=note[:_MAX_NOTE])
