"""What the barrier knows of the rendezvous and of the steps of a job's epochs. A pure machine.

What a slot says costs the same however many slots there are. Only a report goes through all of them.
"""

from array import array
from dataclasses import dataclass, replace
from itertools import islice

from .messages import Steps
from .slots import Slots

RENDEZVOUS_LISTED = 8
SLOTS_LISTED = 16


@dataclass(frozen=True)
class _Rendezvous:
    epoch: int
    first_at: float
    """When the first rank arrived."""
    arrived_at: float | None = None
    """When the last slot said that it has arrived. None: not all have."""
    joined_at: float | None = None
    """When the last rank joined. None: not all have."""


class _SlotSteps:
    """What each slot has said last of its steps. A slot takes 42 bytes here. To keep its message would take 330."""

    def __init__(self, slots: int) -> None:
        self.said = Slots(slots)
        """The slots that have said anything."""
        self.lowest, self.highest, self.first = (array("q", bytes(8 * slots)) for _ in range(3))
        self.absolute = Slots(slots)
        self.at, self.step_seconds = (array("d", bytes(8 * slots)) for _ in range(2))
        """When the slot had reached its lowest step; how long a step takes, negative if that is not known."""

    def put(self, now: float, slot: int, steps: Steps) -> None:
        self.said.add(slot)
        self.lowest[slot], self.highest[slot], self.first[slot] = steps.lowest, steps.highest, steps.first
        self.at[slot] = now - steps.age
        self.step_seconds[slot] = -1.0 if steps.step_seconds is None else steps.step_seconds
        if steps.absolute:
            self.absolute.add(slot)
        else:
            self.absolute.discard(slot)


class JobProgress:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._epoch = 1
        self._rendezvous: list[_Rendezvous] = []
        """Of the epochs in which a slot arrived, newest last."""
        self._arrived = Slots(slots)
        self._joined = Slots(slots)
        self._last_joined_at = 0.0
        self._steps = _SlotSteps(slots)
        self._before: int | None = None
        """The highest step of the latest epoch before that had any. None: none had."""
        self._passed = Slots(slots)
        """The slots all of whose ranks have passed it."""

    def begin(self, epoch: int) -> None:
        if self._steps.said:
            self._before = max(self._steps.highest[slot] for slot in self._steps.said)
        self._epoch = epoch
        self._arrived, self._joined, self._passed = (Slots(self._slots) for _ in range(3))
        self._steps = _SlotSteps(self._slots)

    @property
    def meets(self) -> bool:
        """The ranks of this job show when they arrive: some have, in this epoch or in one before."""
        return bool(self._rendezvous)

    @property
    def lasts(self) -> bool:
        """In the present epoch a slot has arrived, and not all have joined."""
        last = self._present
        return last is not None and last.joined_at is None

    @property
    def _present(self) -> _Rendezvous | None:
        last = self._rendezvous[-1] if self._rendezvous else None
        return last if last is not None and last.epoch == self._epoch else None

    def on_arrived(self, now: float, slot: int, age: float) -> bool:
        """The ranks of this slot have arrived. Whether the controller should know at once."""
        self._arrived.add(slot)
        present, first_at = self._present, now - age
        if present is None:
            self._rendezvous = [*self._rendezvous, _Rendezvous(self._epoch, first_at)][-RENDEZVOUS_LISTED:]
        elif first_at < present.first_at:
            self._rendezvous[-1] = replace(present, first_at=first_at)
        if len(self._arrived) == self._slots and self._rendezvous[-1].arrived_at is None:
            self._rendezvous[-1] = replace(self._rendezvous[-1], arrived_at=now)
        return present is None

    def on_joined(self, now: float, slot: int, age: float) -> bool:
        """The ranks of this slot have joined. Whether the controller should know at once."""
        begins = slot not in self._arrived and self.on_arrived(now, slot, age)
        if slot in self._joined:
            return begins
        self._joined.add(slot)
        self._last_joined_at = now - age if len(self._joined) == 1 else max(self._last_joined_at, now - age)
        present = self._present
        if present is None or len(self._joined) < self._slots:
            return begins
        self._rendezvous[-1] = replace(present, joined_at=max(self._last_joined_at, present.first_at))
        return True

    def on_steps(self, now: float, slot: int, steps: Steps) -> bool:
        """Whether the controller should know at once: all slots have stepped, or have passed the epoch before."""
        all_before = len(self._steps.said) == self._slots
        self._steps.put(now, slot, steps)
        news = len(self._steps.said) == self._slots and not all_before
        if self._before is not None and steps.lowest > self._before and slot not in self._passed:
            self._passed.add(slot)
            news = news or len(self._passed) == self._slots
        return news

    def fields(self, now: float) -> dict[str, object]:
        """What a report says of it."""
        waited_for = self._arrived if len(self._arrived) < self._slots else self._joined
        count = self._slots - len(waited_for) if self.meets else 0
        missing = (slot for slot in range(self._slots) if count and slot not in waited_for)
        steps = self._fields_of_steps(now)
        return {
            "meets": self.meets,
            "rendezvous": [
                {
                    "epoch": each.epoch,
                    "firstAgeSeconds": round(now - each.first_at, 3),
                    "arrivedAgeSeconds": None if each.arrived_at is None else round(now - each.arrived_at, 3),
                    "joinedAgeSeconds": None if each.joined_at is None else round(now - each.joined_at, 3),
                }
                for each in self._rendezvous
            ],
            "arrived": len(self._arrived),
            "joined": len(self._joined),
            "waiting": list(islice(missing, SLOTS_LISTED)),
            "waitingCount": count,
            **({} if steps is None else {"steps": steps}),
        }

    def _fields_of_steps(self, now: float) -> dict[str, object] | None:
        told, said = self._steps, list(self._steps.said)
        if not said:
            return None
        first = min(told.first[slot] for slot in said)
        lowest, at = first, min(told.at[slot] for slot in said)
        if len(said) == self._slots:
            lowest = min(told.lowest)
            at = max(told.at[slot] for slot in said if told.lowest[slot] == lowest)
        seconds = [told.step_seconds[slot] for slot in said if told.step_seconds[slot] >= 0]
        return {
            "lowest": lowest,
            "highest": max(lowest, *(told.highest[slot] for slot in said)),
            "first": first,
            "absolute": len(told.absolute) == len(said),
            "ageSeconds": round(now - at, 3),
            "stepSeconds": max(seconds) if seconds else None,
        }
