"""What a ledger write decided, as labels: derived from the ledger before and after, told only once it is written.

A decision that was refused with a conflict is decided again; counted when it is made it would count twice.
"""

import msgspec

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.incident.lifecycle import restarted
from recovery.core.model.ledger import Attempt, AttemptAction, Incident, Ledger, Phase
from recovery.core.policy.spec import Mode, Restart


class DecisionLabels(msgspec.Struct, frozen=True):
    """`action` is what `status.action` says (RecreateGroup, Adopted, None), or Hold. `reason` is CamelCase."""

    action: str
    reason: str
    mode: str
    """observe or enforce."""
    suppressed: str = ""
    """What kept the action from being taken: budget or observe. Empty: nothing did, or nothing was called for."""


def decisions(before: Ledger, after: Ledger) -> tuple[DecisionLabels, ...]:
    """The decisions that this write made about its incident."""
    incident = after.incident
    if incident is None:
        return ()
    known = before.incident if before.incident is not None and before.incident.id == incident.id else None
    mode = incident.mode.lower()
    made = list(_attempts(known, incident, mode))
    if after.phase is Phase.HELD and (known is None or before.phase is not Phase.HELD):
        reason = "AttemptsExhausted" if restarted(after) else "BudgetExhausted"
        made.append(DecisionLabels("Hold", reason, mode, suppressed="budget"))
    if known is None and not made:
        made.append(_left_alone(incident, mode))
    return tuple(made)


def _attempts(known: Incident | None, incident: Incident, mode: str) -> tuple[DecisionLabels, ...]:
    """New attempts, and one of ours that became the platform's because its own restart came first."""
    seen = {(attempt.number, attempt.action) for attempt in known.attempts} if known is not None else set()
    made = []
    for attempt in incident.attempts:
        if (attempt.number, attempt.action) in seen:
            continue
        made.append(DecisionLabels(attempt.action, _why(attempt, incident), mode))
    return tuple(made)


def _why(attempt: Attempt, incident: Incident) -> str:
    match attempt.action:
        case AttemptAction.RECREATE_GROUP | AttemptAction.REPLACE_NODE:
            if incident.disruption_class == DisruptionClass.MANUAL:
                return "Manual"
            return incident.terms.restart if attempt.number == 1 else "AttemptFailed"
        case AttemptAction.RECREATE_JOB_SET:
            return "PlatformGaveUp"
        case AttemptAction.ADOPTED:
            return "PlatformRestart"
        case AttemptAction.NONE:
            return "MemberReplaced"


def _left_alone(incident: Incident, mode: str) -> DecisionLabels:
    """The incident was opened and nothing is done about it."""
    if incident.closing is not None:
        return DecisionLabels("None", incident.closing.outcome_reason, mode)
    if incident.terms.restart == Restart.NONE:
        return DecisionLabels("None", "RestartNone", mode)
    if incident.mode == Mode.OBSERVE:
        return DecisionLabels("None", "ObserveMode", mode, suppressed="observe")
    return DecisionLabels("None", "StandingAside", mode)
