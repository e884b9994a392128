"""What the controller does about an open incident: its step. The phase says where the pods are."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

import msgspec

from recovery.core.model.reason import Reason


class StepType(StrEnum):
    """What the controller does."""

    WAITING = "Waiting"
    """Nothing yet: the verdict is put off, or what it calls for may not be done now."""
    ASIDE = "Aside"
    """It leaves the loss to the user's own policies, to a rule with Ignore, or to Kubernetes."""
    OBSERVING = "Observing"
    """It only records what Enforce would do."""
    WITHHELD = "Withheld"
    """A restart waits for its backoff while the job keeps its pods and their GPUs."""
    HELD = "Held"
    """It makes no restart until the budget allows one or a person asks for one."""
    RESTARTING = "Restarting"
    """The old group goes down, or the workload is suspended until its backoff is over or there is room."""
    RETURNING = "Returning"
    """It follows the new group on its way back."""


BY_BUDGET = frozenset({Reason.BUDGET_EXHAUSTED, Reason.ATTEMPTS_EXHAUSTED})
"""The reasons for which the budget holds a group. Every other reason is a verdict."""


class Step(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The step of an open incident, with what its type says more of. A closed incident keeps its last step."""

    type: StepType
    undecided: bool = False
    """Aside: more has been lost since, and waits for a verdict, a permission or the budget."""
    too_late: bool = False
    """Observing: the policy was switched to Enforce after the loss, and the controller has reported that it leaves the
    loss to a user."""
    until: datetime | None = None
    """Withheld: when the controller restarts the group, unless the group has recovered by itself."""
    lost_at: datetime | None = None
    """Withheld: when the first member was lost. Members whose processes started earlier still wait for it."""
    reason: Reason | None = None
    """Held: why. For BudgetExhausted and AttemptsExhausted the hold ends with the budget's window. For another reason
    it ends with `recovery retry`, or when the JobSet has failed."""
    message: str = ""
    """Held: the verdict as a sentence. Empty: the budget holds the group."""
    fails_job: bool = False
    """Held: the controller is failing the JobSet, because a rule or the exhausted budget says FailJob."""
    forced: bool = False
    """Restarting, Returning: a person forced the restart, so neither mode Observe nor a paused job prevents it."""

    @property
    def withheld(self) -> bool:
        """A restart waits for its backoff while the job keeps its pods."""
        return self.type is StepType.WITHHELD

    @property
    def verdict(self) -> Reason | None:
        """The verdict for which the incident is held. None: it is not held, or only by its budget."""
        return self.reason if self.type is StepType.HELD and self.reason not in BY_BUDGET else None


BELONGS_TO: Mapping[str, frozenset[StepType]] = MappingProxyType(
    {
        "undecided": frozenset({StepType.ASIDE}),
        "too_late": frozenset({StepType.OBSERVING}),
        "until": frozenset({StepType.WITHHELD}),
        "lost_at": frozenset({StepType.WITHHELD}),
        "reason": frozenset({StepType.HELD}),
        "message": frozenset({StepType.HELD}),
        "fails_job": frozenset({StepType.HELD}),
        "forced": frozenset({StepType.RESTARTING, StepType.RETURNING}),
    }
)
"""The types of steps that may have the field."""
REQUIRED: Mapping[StepType, frozenset[str]] = MappingProxyType(
    {StepType.WITHHELD: frozenset({"until", "lost_at"}), StepType.HELD: frozenset({"reason"})}
)
"""The fields that a step of that type must have. The other types require none."""
BEFORE_ANY_RESTART = frozenset({StepType.WAITING, StepType.ASIDE, StepType.OBSERVING})
"""Steps of incidents in which no one has restarted the group."""
AFTER_A_RESTART = frozenset({StepType.RESTARTING, StepType.RETURNING})
"""Steps of incidents in which the group was restarted. In the others it may have been."""

WAITING = Step(StepType.WAITING)
