"""What one reconcile of a group with an open incident knows. Its questions are asked about this."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import msgspec

from recovery.core.diagnosis.evidence import Evidence
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext


class Situation(msgspec.Struct, frozen=True):
    """The facts, the ledger as far as it is known by now, and the evidence. It is gathered once in a reconcile."""

    context: ReconcileContext
    ledger: Ledger
    position: Phase
    """How far the group has come, as its objects show. Healthy: it runs whole."""
    lost: tuple[Evidence, ...] = ()
    """Evidence that the ledger does not have yet."""
    news: tuple[Evidence, ...] = ()
    """What has come in since the controller stood aside. If there is any, only it is judged."""
    waits_until: datetime | None = None
    """When an incident whose group runs whole may end. None: no such wait was found."""

    @property
    def open_(self) -> Incident:
        return self.ledger.current_incident


Asked: TypeAlias = Callable[[Situation], Plan | Situation]
"""A question of a reconcile. A Plan ends the reconcile. A Situation is what the next question is about."""
