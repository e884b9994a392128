"""The steps that touch nothing: it is said why nothing is done, the loss is left to the platform, the incident ends."""

from datetime import datetime

from recovery.core.incident import lifecycle, phases
from recovery.core.model.ledger import AttemptAction, Closing, Ledger, Outcome, Phase
from recovery.core.plan.actions import Plan

_THEN = "; then "
"""Between how an incident began and what was said last."""


def say(ledger: Ledger, reason: str) -> Plan:
    return Plan(lifecycle.say(ledger, reason), reason)


def stand_aside(ledger: Ledger, reason: str, now: datetime) -> Ledger:
    """Leave it to the platform, and remember that: the evidence for it may be gone before the platform has acted."""
    if ledger.current_incident.withheld is not None:
        ledger = phases.enter(ledger, Phase.DECIDED, now)
    attempt = ledger.current_incident.attempt
    if attempt is not None and lifecycle.stood_aside(ledger):
        # How it began, and what came last: a cascade must not make the sentence grow.
        began = attempt.reason.partition(_THEN)[0]
        told = reason if began == reason else f"{began}{_THEN}{reason}"
        return lifecycle.say(lifecycle.reword_attempt(ledger, told), told)
    return lifecycle.add_attempt(ledger, AttemptAction.NONE, ledger.current_incident.target, reason, now)


def close(
    ledger: Ledger,
    outcome: Outcome,
    why: str,
    reason: str,
    ended_at: datetime,
    *,
    source: str = "",
    verified: bool = False,
) -> Plan:
    """End the incident; the sentence tells how it began, keeps what was said last, and adds how it ended."""
    said, tries = ledger.current_incident.reason, ledger.current_incident.attempts
    if tries and not said.startswith(tries[0].reason):
        said = f"{tries[0].reason}{_THEN}{said}"
    full = f"{said}; {reason}" if said and not said.endswith(reason) else reason
    closing = Closing(outcome=outcome, outcome_reason=why, ended_at=ended_at, source=source, verified=verified)
    return Plan(lifecycle.close(lifecycle.say(ledger, full), closing), full)
