"""The labels of what a ledger write decided, derived from the ledger before and after. It is counted after the write.

A decision whose write is refused with a conflict is made again. Counted before the write, it would count twice.
"""

import msgspec

from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.reason import Reason

_UNDECIDED = frozenset({Reason.MEMBER_LOST, Reason.SETTLING, Reason.STORM, Reason.GROUP_PENDING})
"""Reasons of an incident that has no verdict yet. Only the verdict is counted."""


class DecisionLabels(msgspec.Struct, frozen=True):
    """`action` is what is done: an attempt's action, Hold, FailJob, or None. Under Observe: what Enforce would do."""

    action: str
    reason: Reason
    mode: str
    """observe or enforce."""
    suppressed: str = ""
    """What prevented the action: budget, permission or observe. Empty: nothing did, or no action was needed."""


def decisions(before: Ledger, after: Ledger) -> tuple[DecisionLabels, ...]:
    """The decisions that this write made about its incident."""
    incident = after.incident
    if incident is None:
        return ()
    known = before.incident if before.incident is not None and before.incident.id == incident.id else None
    mode = incident.mode.lower()
    made = [
        DecisionLabels(attempt.action, attempt.reason, mode)
        for attempt in incident.attempts
        if known is None
        or (attempt.number, attempt.action) not in {(each.number, each.action) for each in known.attempts}
    ]
    if after.phase is Phase.HELD and (known is None or before.phase is not Phase.HELD):
        made.append(_held(incident, mode))
    if incident.would and (known is None or not known.would):
        made.append(DecisionLabels(incident.would, incident.reason, mode, suppressed="observe"))
    if not made and _is_decided(incident) and (known is None or not _is_decided(known)):
        made.append(_left_alone(incident, mode))
    return tuple(made)


def _held(incident: Incident, mode: str) -> DecisionLabels:
    action = "FailJob" if incident.step.fails_job else "Hold"
    verdict = incident.step.verdict
    if verdict is None:
        return DecisionLabels(action, incident.reason, mode, suppressed="budget")
    not_allowed = verdict is Reason.RULE_FAIL_JOB_NOT_ALLOWED
    return DecisionLabels(action, verdict, mode, suppressed="permission" if not_allowed else "")


def _is_decided(incident: Incident) -> bool:
    """Whether there is a verdict, or none will come."""
    if incident.closing is not None or incident.attempts or incident.would or incident.step.verdict is not None:
        return True
    return incident.reason not in _UNDECIDED and not incident.step.withheld


def _left_alone(incident: Incident, mode: str) -> DecisionLabels:
    """The labels of an incident about which nothing is done."""
    if incident.closing is not None:
        return DecisionLabels("None", incident.closing.outcome_reason, mode)
    # What Enforce would do is counted with `would`. Here no action was needed, unless Enforce came too late.
    return DecisionLabels("None", incident.reason, mode, suppressed="observe" if incident.step.too_late else "")
