"""The questions that one reconcile of an open incident asks, in their order, by the step of the incident.

`reconcile` asks them. The first one that answers with a Plan ends the reconcile, and the last one always does.
"""

from collections.abc import Mapping
from types import MappingProxyType

from recovery.core.decision import after_restart as after
from recovery.core.decision import before_restart as before
from recovery.core.decision import in_place_watch as in_place
from recovery.core.decision.situation import Asked
from recovery.core.incident import lifecycle
from recovery.core.model.ledger import Ledger
from recovery.core.model.step import StepType
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext

_SEEN: tuple[Asked, ...] = (before.evidence_noted, before.finishing, before.runs_whole)
_SEEN_AND_MADE: tuple[Asked, ...] = (
    before.evidence_noted,
    before.finishing,
    in_place.made_alone,
    before.runs_whole,
)
BEFORE: Mapping[StepType, tuple[Asked, ...]] = MappingProxyType(
    {
        StepType.WAITING: (before.enforced_since, *_SEEN_AND_MADE, before.judged),
        StepType.ASIDE: (before.enforced_since, *_SEEN_AND_MADE, before.still_aside, before.judged),
        StepType.OBSERVING: (before.enforced_since, *_SEEN_AND_MADE, before.observed_already, before.judged),
        StepType.WITHHELD: (*_SEEN, before.judged),
        StepType.HELD: (*_SEEN, before.judged),
    }
)
"""While no one has restarted the group."""

_FOLLOWED: tuple[Asked, ...] = (after.carried_out, after.size_followed)
_ON_ITS_WAY = (*_FOLLOWED, after.losses_handled, after.runs_again, after.watched)
AFTER: Mapping[StepType, tuple[Asked, ...]] = MappingProxyType(
    {
        StepType.RESTARTING: _ON_ITS_WAY,
        StepType.RETURNING: _ON_ITS_WAY,
        StepType.WITHHELD: (
            *_FOLLOWED,
            after.met_meanwhile,
            after.losses_handled,
            after.withheld_restart_made,
            after.runs_again,
            after.watched,
        ),
        StepType.HELD: (*_FOLLOWED, after.losses_handled, after.runs_again, after.held_on),
    }
)
"""Once the controller or the platform has restarted the group."""


def reconcile(context: ReconcileContext, ledger: Ledger) -> Plan:
    """One reconcile of a group whose incident is open, whose JobSet can be restarted, and whose workload runs."""
    restarted, step = lifecycle.restarted(ledger), ledger.current_incident.step.type
    situation = after.gathered(context, ledger) if restarted else before.gathered(context, ledger)
    for ask in (AFTER if restarted else BEFORE)[step]:
        answer = ask(situation)
        if isinstance(answer, Plan):
            return answer
        situation = answer
    raise AssertionError(f"the last question of {step} answers with a Plan")
