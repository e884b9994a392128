"""What the controller does about an open incident: its step. The phase says where the pods are.

The step follows from fields of the incident that could contradict each other. `contradictions` says which pairs of a
step and a phase, and which fields of a step, no ledger may have. `invariants` refuses a ledger that has them.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

import msgspec

from recovery.core.incident import phases
from recovery.core.incident.lifecycle import restarted, stood_aside
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode


class StepType(StrEnum):
    """What the controller does."""

    WAITING = "Waiting"
    """Nothing yet: the verdict is put off, or what it calls for may not be done now."""
    ASIDE = "Aside"
    """It leaves the loss to the user's own policies, to a rule with Ignore, or to Kubernetes."""
    OBSERVING = "Observing"
    """It only records what Enforce would do."""
    WITHHELD = "Withheld"
    """A restart waits for its backoff while the job keeps its pods."""
    HELD = "Held"
    """It makes no restart until the budget allows one or a person asks for one."""
    RESTARTING = "Restarting"
    """The old group goes down, or the workload is suspended until its backoff is over or there is room."""
    RETURNING = "Returning"
    """It follows the new group on its way back."""


class Step(msgspec.Struct, frozen=True):
    """The step of an open incident, with what its type says more of."""

    type: StepType
    attempt: int = 0
    """Restarting, Returning: the number of the latest attempt."""
    until: datetime | None = None
    """Withheld: when the restart is made."""
    reason: Reason | None = None
    """Held: why."""
    fails: bool = False
    """Held: the controller is failing the JobSet."""
    would: str = ""
    """Observing: the action that Enforce would have taken. Empty: not decided yet."""
    undecided: bool = False
    """Aside: more has been lost since, and waits for a verdict."""


_BACK = frozenset({Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS, Phase.RESUMING})
PHASES: Mapping[StepType, frozenset[Phase]] = MappingProxyType(
    {
        StepType.WAITING: frozenset({Phase.DECIDED}),
        StepType.ASIDE: frozenset({Phase.DECIDED}),
        StepType.OBSERVING: frozenset({Phase.DECIDED}),
        StepType.WITHHELD: frozenset({Phase.BACKOFF}),
        StepType.HELD: frozenset({Phase.HELD}),
        StepType.RESTARTING: phases.GOING_DOWN | {Phase.BACKOFF},
        StepType.RETURNING: _BACK,
    }
)
"""In which phases an incident may be in a step."""


def step_of(ledger: Ledger) -> Step:
    """The step of the open incident. Asked only of ledgers with one."""
    open_ = ledger.current_incident
    held = open_.held_reason or open_.exhausted
    if held is not None:
        return Step(StepType.HELD, reason=held, fails=open_.fail_job)
    if open_.withheld is not None:
        return Step(StepType.WITHHELD, until=open_.withheld.until)
    if restarted(ledger):
        number = open_.attempts[-1].number
        return Step(StepType.RETURNING if ledger.phase in _BACK else StepType.RESTARTING, attempt=number)
    if open_.mode == Mode.OBSERVE:
        return Step(StepType.OBSERVING, would=open_.would)
    return Step(StepType.ASIDE, undecided=open_.undecided) if stood_aside(ledger) else Step(StepType.WAITING)


def contradictions(ledger: Ledger) -> Iterator[str]:
    """What contradicts what in the fields of the open incident, as sentences."""
    open_, step = ledger.current_incident, step_of(ledger).type
    if ledger.phase not in PHASES[step]:
        yield f"Step: incident {open_.id} is {step} in phase {ledger.phase}"
    if open_.held_reason is not None and open_.exhausted is not None:
        yield f"Step: incident {open_.id} is held by a verdict and by its budget"
    if open_.fail_job and step is not StepType.HELD:
        yield f"Step: incident {open_.id} fails the JobSet and is {step}"
    if open_.withheld is not None and step is not StepType.WITHHELD:
        yield f"Step: incident {open_.id} withholds a restart and is {step}"
    if (open_.withheld is not None or open_.fail_job) and open_.mode != Mode.ENFORCE:
        yield f"Step: incident {open_.id} only observes and is {step}"
    if open_.would and open_.mode != Mode.OBSERVE:
        yield f"Step: incident {open_.id} acts, and records what Enforce would do"
