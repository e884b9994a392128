"""The parts that plans are built from: say why, leave a loss to the platform, add an attempt, close.

Here an explanation becomes a message. Ledgers and plans hold both its reason and its message.
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
    """A plan that says why, and does not change the ledger."""
    return Plan(ledger, why.reason, message_of(why), actions=actions, requeue_at=requeue_at)


def as_before(ledger: Ledger, *, actions: tuple[Action, ...] = (), requeue_at: datetime | None = None) -> Plan:
    """A plan with the present reason and message of the incident."""
    open_ = ledger.current_incident
    return Plan(ledger, open_.reason, open_.message, actions=actions, requeue_at=requeue_at)


def note(ledger: Ledger, why: Explanation) -> Ledger:
    """The ledger whose incident says this and nothing else."""
    return ledger.with_incident(reason=why.reason, message=message_of(why), message_relation=MessageRelation.ELSE)


def say(
    ledger: Ledger, why: Explanation, *, actions: tuple[Action, ...] = (), requeue_at: datetime | None = None
) -> Plan:
    """A plan whose only change is what the incident says."""
    return as_before(note(ledger, why), actions=actions, requeue_at=requeue_at)


def say_more(ledger: Ledger, why: Explanation) -> Ledger:
    """The ledger whose incident says this as well."""
    open_ = ledger.current_incident
    more = MessageRelation.MORE if open_.message_relation is MessageRelation.ATTEMPT else open_.message_relation
    return ledger.with_incident(reason=why.reason, message=f"{open_.message}; {message_of(why)}", message_relation=more)


def says_more(ledger: Ledger) -> bool:
    """Something was already added to the message of the latest attempt, or replaced it. Once is enough: what a group
    waits for would change with every new node."""
    open_ = ledger.current_incident
    return open_.attempt is not None and open_.message_relation is not MessageRelation.ATTEMPT


def say_of_attempt(ledger: Ledger, why: Explanation) -> Ledger:
    """The ledger whose incident says why its latest attempt was made, and this as well."""
    attempt = ledger.current_incident.attempt
    if attempt is None:
        return say_more(ledger, why)
    message = f"{attempt.whole_message}; {message_of(why)}"
    return ledger.with_incident(reason=why.reason, message=message, message_relation=MessageRelation.MORE)


def say_as_attempted(ledger: Ledger, made: Attempt) -> Ledger:
    """The ledger whose incident says why this attempt was made, and nothing else."""
    relation = (
        MessageRelation.ATTEMPT if made.number == ledger.current_incident.attempts[-1].number else MessageRelation.ELSE
    )
    return ledger.with_incident(reason=made.reason, message=made.whole_message, message_relation=relation)


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
    forced: bool = False,
    nodes: tuple[str, ...] = (),
) -> Ledger:
    """The ledger with another attempt (`lifecycle.add_attempt`)."""
    return lifecycle.add_attempt(
        ledger,
        action,
        target,
        why.reason,
        message_of(why),
        now,
        free_of_charge=free_of_charge,
        forced=forced,
        nodes=nodes,
    )


def stand_aside(ledger: Ledger, why: Explanation, now: datetime) -> Ledger:
    """Leave the loss to the platform, and record that: its evidence may be gone before the platform has acted."""
    if ledger.current_incident.step.withheld:
        ledger = phases.enter(ledger, Phase.DECIDED, now)
    before = ledger.current_incident.attempt
    if before is None or not lifecycle.stood_aside(ledger):
        return attempt(ledger, AttemptAction.NONE, ledger.current_incident.target, why, now)
    # Keep only the first message and the latest: a cascade must not make the message grow.
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
    """End the incident. The message says how it began, keeps what was said last, and adds how it ended."""
    full = "; ".join(part for part in (_so_far(ledger), message_of(why)) if part)
    ledger = ledger.with_incident(reason=why.reason, message=full, message_relation=MessageRelation.ELSE)
    closing = Closing(outcome=outcome, outcome_reason=why.reason, ended_at=ended_at, source=source, verified=verified)
    return Plan(lifecycle.close(ledger, closing), why.reason, full)


def _so_far(ledger: Ledger) -> str:
    """The incident's message, preceded by how it began if the message does not say that. Empty: there is none yet."""
    open_ = ledger.current_incident
    if not open_.attempts:
        return open_.message
    began, latest = open_.attempts[0], open_.attempts[-1]
    if open_.message_relation is not MessageRelation.ELSE and _repeats(latest, began):
        return open_.message
    return f"{began.whole_message}; then {open_.message}" if open_.message else began.whole_message


def _repeats(later: Attempt, earlier: Attempt) -> bool:
    """`later` says the same as `earlier`. They may differ in dates and targets."""
    return earlier == msgspec.structs.replace(
        later,
        number=earlier.number,
        epoch=earlier.epoch,
        started_at=earlier.started_at,
        job_set_uid=earlier.job_set_uid,
        nodes=earlier.nodes,
    )
