"""Steps of the training, as the agents of a group report them. `step` alone is what the controller does."""

from datetime import datetime

import msgspec


class TrainingStep(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The training step of a group. It is written at most once in five minutes, and with other changes."""

    lowest: int
    """Of all ranks."""
    highest: int
    at: datetime
    """When the agents reported it."""
    absolute: bool = False
    """Steps count from the beginning of the training. False: from the start of the processes."""


class TrainingSteps(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the agents reported about training steps: where the failure stopped the ranks, and where they continued."""

    before: int
    """The highest step of a rank when the failure happened."""
    absolute: bool = False
    """Steps count from the beginning of the training. False: from the start of the processes, so those before and after
    a restart cannot be compared."""
    step_seconds: float | None = None
    """How long a step took before the failure. None: not known."""
    resumed: int | None = None
    """The step that the restarted ranks continued from. None: they have made no step yet."""

    @property
    def lost(self) -> int | None:
        """How many steps are made twice because of the failure. None: not known."""
        if self.resumed is None or not self.absolute:
            return None
        return max(0, self.before - self.resumed)

    @property
    def rework_seconds(self) -> float | None:
        """How long the ranks need for these steps. None: not known."""
        lost = self.lost
        return None if lost is None or self.step_seconds is None else round(lost * self.step_seconds, 3)
