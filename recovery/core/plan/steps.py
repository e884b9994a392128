"""The steps that decisions are put together from: say why, leave it to the platform, try, close.

Here an explanation becomes a message: what is written to the ledger, and what a plan answers, has both.
"""

from datetime import datetime

import msgspec

from recovery.core.incident import lifecycle, phases
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
    Closing,
    Considered,
    Ledger,
    MessageRelation,
    Outcome,
    Phase,
    Target,
)
from recovery.core.model.reason import Explanation
from recovery.core.plan.actions import Action, Plan
from recovery.core.sentences import render


def message_of(why: Explanation) -> str:
    """The sentence, for a record that people read."""
    return render(why)


def answer(
    ledger: Ledger, why: Explanation, *, actions: tuple[Action, ...] = (), requeue_at: datetime | None = None
) -> Plan:
    """A plan that says why, and leaves the ledger as it is."""
    return Plan(ledger, why.reason, message_of(why), actions=actions, requeue_at=requeue_at)


def as_before(ledger: Ledger, *, actions: tuple[Action, ...] = (), requeue_at: datetime | None = None) -> Plan:
    """A plan that adds nothing to what the incident says."""
    open_ = ledger.current_incident
    return Plan(ledger, open_.reason, open_.message, actions=actions, requeue_at=requeue_at)


def note(ledger: Ledger, why: Explanation) -> Ledger:
    """The ledger whose incident says this and nothing else."""
    return ledger.with_incident(reason=why.reason, message=message_of(why), told=MessageRelation.ELSE)


def say(
    ledger: Ledger, why: Explanation, *, actions: tuple[Action, ...] = (), requeue_at: datetime | None = None
) -> Plan:
    """A plan whose only change is what the incident says."""
    return as_before(note(ledger, why), actions=actions, requeue_at=requeue_at)


def say_more(ledger: Ledger, why: Explanation) -> Ledger:
    """The ledger whose incident says this as well."""
    open_ = ledger.current_incident
    more = MessageRelation.MORE if open_.told is MessageRelation.ATTEMPT else open_.told
    return ledger.with_incident(reason=why.reason, message=f"{open_.message}; {message_of(why)}", told=more)


def say_of_attempt(ledger: Ledger, why: Explanation) -> Ledger:
    """The ledger whose incident says what its latest attempt was made for, and this."""
    attempt = ledger.current_incident.attempt
    if attempt is None:
        return say_more(ledger, why)
    message = f"{attempt.whole_message}; {message_of(why)}"
    return ledger.with_incident(reason=why.reason, message=message, told=MessageRelation.MORE)


def say_as_attempted(ledger: Ledger, made: Attempt) -> Ledger:
    """The ledger whose incident says what this attempt of it was made for, and nothing else."""
    relation = (
        MessageRelation.ATTEMPT if made.number == ledger.current_incident.attempts[-1].number else MessageRelation.ELSE
    )
    return ledger.with_incident(reason=made.reason, message=made.whole_message, told=relation)


def considered(action: str, node: str, why: Explanation) -> Considered:
    """The record of what was considered and not done."""
    return Considered(action=action, node=node, reason=why.reason, message=message_of(why))


def attempt(
    ledger: Ledger,
    action: AttemptAction,
    target: Target,
    why: Explanation,
    now: datetime,
    *,
    free_of_charge: bool = False,
    nodes: tuple[str, ...] = (),
) -> Ledger:
    """The ledger with another attempt, as `lifecycle.add_attempt` has it."""
    return lifecycle.add_attempt(
        ledger, action, target, why.reason, message_of(why), now, free_of_charge=free_of_charge, nodes=nodes
    )


def stand_aside(ledger: Ledger, why: Explanation, now: datetime) -> Ledger:
    """Leave it to the platform, and remember that: the evidence for it may be gone before the platform has acted."""
    if ledger.current_incident.withheld is not None:
        ledger = phases.enter(ledger, Phase.DECIDED, now)
    before = ledger.current_incident.attempt
    if before is None or not lifecycle.stood_aside(ledger):
        return attempt(ledger, AttemptAction.NONE, ledger.current_incident.target, why, now)
    # How it began, and what came last: a cascade must not make the message grow.
    began = before.message if len(ledger.current_incident.evidence) > 1 else ""
    return lifecycle.reword_attempt(ledger, why.reason, began, message_of(why))


def close(
    ledger: Ledger,
    outcome: Outcome,
    why: Explanation,
    ended_at: datetime,
    *,
    source: str = "",
    verified: bool = False,
) -> Plan:
    """End the incident; the message says how it began, keeps what was said last, and adds how it ended."""
    full = "; ".join(part for part in (_so_far(ledger), message_of(why)) if part)
    ledger = ledger.with_incident(reason=why.reason, message=full, told=MessageRelation.ELSE)
    closing = Closing(outcome=outcome, outcome_reason=why.reason, ended_at=ended_at, source=source, verified=verified)
    return Plan(lifecycle.close(ledger, closing), why.reason, full)


def _so_far(ledger: Ledger) -> str:
    """What the incident says, preceded by how it began if it does not say that. Empty: it says nothing yet."""
    open_ = ledger.current_incident
    if not open_.attempts:
        return open_.message
    began, latest = open_.attempts[0], open_.attempts[-1]
    if open_.told is not MessageRelation.ELSE and _repeats(latest, began):
        return open_.message
    return f"{began.whole_message}; then {open_.message}" if open_.message else began.whole_message


def _repeats(later: Attempt, earlier: Attempt) -> bool:
    """It says what the earlier one says: it differs in when it was made and at what it was aimed, or in a code that was
    read out of a sentence of an earlier version."""
    return earlier == msgspec.structs.replace(
        later,
        number=earlier.number,
        epoch=earlier.epoch,
        started_at=earlier.started_at,
        reason=earlier.reason,
        job_set_uid=earlier.job_set_uid,
        nodes=earlier.nodes,
    )
