"""Keeps the step of the training in the ledger of a group whose agents report it."""

from datetime import timedelta

import msgspec

from recovery.core.model.ledger import Ledger
from recovery.core.model.training_steps import TrainingStep
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext

NOTED_EVERY = timedelta(minutes=5)
"""How often a ledger is written for nothing but the training step."""


def noted(context: ReconcileContext, before: Ledger, plan: Plan) -> Plan:
    """The plan whose ledger has the training step, if the ledger is written anyway, or was not for five minutes.

    A group that never had an incident has no ledger.
    """
    plan = msgspec.structs.replace(plan, ledger=_stopped_at(context, plan.ledger))
    agent, after = context.snapshot.agent, plan.ledger
    if agent is None or agent.steps is None or agent.followed or after == Ledger():
        return plan
    known, found = after.training_step, agent.steps
    if known is not None and (
        agent.received_at <= known.at or (after == before and agent.received_at - known.at < NOTED_EVERY)
    ):
        return plan
    step = TrainingStep(found.lowest, found.highest, agent.received_at, absolute=found.absolute)
    return msgspec.structs.replace(plan, ledger=msgspec.structs.replace(after, training_step=step))


def _stopped_at(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger with the step at which the failure stopped the ranks. Ranks that are stopped in place say how far they
    were, so that is known exactly only after the restart is decided."""
    agent, incident = context.snapshot.agent, ledger.incident
    if agent is None or agent.steps is None or incident is None or incident.training_steps is None:
        return ledger
    known, found = incident.training_steps, agent.steps.highest
    if agent.key_of(agent.epoch) != incident.target.epoch or found <= known.before or agent.followed:
        return ledger
    return ledger.with_incident(training_steps=msgspec.structs.replace(known, before=found))
