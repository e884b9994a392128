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
