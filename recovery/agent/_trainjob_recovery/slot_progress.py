"""What the ranks of one slot show of an epoch, and what of it the barrier is to know. A pure machine."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .messages import Arrived, Joined, Steps

STEPS_SECONDS = 5.0
"""How often the barrier hears of steps."""
AGE_SECONDS_MAX = 86_400.0
_SAMPLES = 7
"""The duration of a step is the mean over so many of the latest messages of steps."""


@dataclass(frozen=True)
class RankProgress:
    """What one rank shows. The tenant's program can write anything there."""

    arrived_at: float | None = None
    """None: it has not called `init_process_group`."""
    joined_at: float | None = None
    """None: that call has not returned."""
    step: int = 0
    first: int = 0
    """The step before the first one of this process."""
    absolute: bool = False
    step_at: float | None = None
    """None: it has made no step."""


Said = Arrived | Joined | Steps


class SlotProgress:
    def __init__(self, epoch: int, before: int | None = None) -> None:
        """`before` is the highest step of the epoch before. None: it had none."""
        self.epoch = epoch
        self.highest = before
        """Of this epoch, else of the one before. None: there was no step."""
        self._before = before
        self._arrived_at: float | None = None
        """When the first rank arrived. None: not all have."""
        self._joined_at: float | None = None
        """When the last rank joined. None: not all have."""
        self._steps: Steps | None = None
        """What the barrier was told last. None: nothing."""
        self._steps_at = 0.0
        """When every rank had reached the lowest step that the barrier was told last."""
        self._seen_at: float | None = None
        """When the first step was seen. None: none was."""
        self._say_at = 0.0
        """When the next message about steps is due."""
        self._all_stepped = False
        """The barrier was told that every rank has made a step."""
        self._samples: deque[tuple[int, float]] = deque(maxlen=_SAMPLES)
        """Steps that every rank has reached, and when."""

    @property
    def joined(self) -> bool:
        """Every rank has joined."""
        return self._joined_at is not None

    def look(self, now: float, ranks: Sequence[RankProgress]) -> list[Said]:
        """What is new for the barrier."""
        if not ranks:  # they are not started yet
            return []
        said: list[Said] = []
        arrived = [rank.arrived_at for rank in ranks if rank.arrived_at is not None]
        if self._arrived_at is None and len(arrived) == len(ranks):
            self._arrived_at = min(arrived)
            said.append(Arrived(self.epoch, _age(now, self._arrived_at)))
        joined = [rank.joined_at for rank in ranks if rank.joined_at is not None]
        if self._joined_at is None and len(joined) == len(ranks):
            self._joined_at = max(joined)
            said.append(Joined(self.epoch, _age(now, self._joined_at)))
        return said + self._look_at_steps(now, ranks)

    def look_last(self, now: float, ranks: Sequence[RankProgress]) -> list[Said]:
        """What the barrier is to know of ranks that were stopped: how far they were."""
        return self._look_at_steps(now, ranks, at_once=True)

    def again(self, now: float) -> list[Said]:
        """All that the barrier was told."""
        said: list[Said] = []
        if self._arrived_at is not None:
            said.append(Arrived(self.epoch, _age(now, self._arrived_at)))
        if self._joined_at is not None:
            said.append(Joined(self.epoch, _age(now, self._joined_at)))
        if self._steps is not None:
            said.append(replace(self._steps, age=_age(now, self._steps_at)))
        return said

    def _look_at_steps(self, now: float, ranks: Sequence[RankProgress], *, at_once: bool = False) -> list[Said]:
        stepped = [(rank.step, rank.step_at, rank) for rank in ranks if rank.step_at is not None]
        if not stepped:
            return []
        if self._seen_at is None:
            self._seen_at, self._say_at = now, now + STEPS_SECONDS
        self.highest = max(step for step, _, _ in stepped)
        first = min(rank.first for _, _, rank in stepped)
        complete = len(stepped) == len(ranks)
        # A rank that has made no step has reached the one before the first.
        lowest = min(step for step, _, _ in stepped) if complete else first
        at = max(at for step, at, _ in stepped if step == lowest) if complete else self._seen_at
        at_once = at_once or (complete and (not self._all_stepped or self._passes(lowest)))
        if not at_once and now < self._say_at:
            return []
        absolute = all(rank.absolute for _, _, rank in stepped)
        seconds = self._step_seconds(lowest, at) if complete else None
        steps = Steps(self.epoch, lowest, self.highest, first, absolute, _age(now, at), seconds)
        self._say_at, self._all_stepped = now + STEPS_SECONDS, self._all_stepped or complete
        if self._steps is not None and replace(self._steps, age=steps.age, step_seconds=seconds) == steps:
            return []
        self._steps, self._steps_at = steps, at
        return [steps]

    def _passes(self, lowest: int) -> bool:
        """What the epoch before had reached is made again, and the barrier does not know it.

        It is said once more with the next step: other slots may have been one step further than this one.
        """
        if self._before is None or self._steps is None:
            return False
        return lowest > self._before and self._steps.lowest <= self._before + 1

    def _step_seconds(self, lowest: int, at: float) -> float | None:
        """How long a step has taken lately. None: not known."""
        if self._samples and (lowest < self._samples[-1][0] or at < self._samples[-1][1]):
            self._samples.clear()  # the program went back
        if not self._samples or lowest > self._samples[-1][0]:
            self._samples.append((lowest, at))
        (begin, began_at), (end, ended_at) = self._samples[0], self._samples[-1]
        return None if end == begin else round(min((ended_at - began_at) / (end - begin), AGE_SECONDS_MAX), 6)


def _age(now: float, at: float) -> float:
    return round(min(max(now - at, 0.0), AGE_SECONDS_MAX), 6)
