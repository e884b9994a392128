"""A set of the slots of one job."""

from collections.abc import Iterator


class Slots:
    """It takes a byte for each slot of the job. Python's own set takes half a megabyte with 10,000 slots in it."""

    __slots__ = ("_count", "_has")

    def __init__(self, slots: int) -> None:
        self._has = bytearray(slots)
        self._count = 0

    def add(self, slot: int) -> None:
        if not self._has[slot]:
            self._has[slot] = 1
            self._count += 1

    def discard(self, slot: int) -> None:
        if self._has[slot]:
            self._has[slot] = 0
            self._count -= 1

    def __contains__(self, slot: int) -> bool:
        return bool(self._has[slot])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """In ascending order."""
        return (slot for slot, has in enumerate(self._has) if has)
