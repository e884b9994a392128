"""The pages on which the ranks show their progress, as the agent makes and reads them."""

import fcntl
import mmap
import os
from contextlib import suppress

from .rank_progress import ABSOLUTE, ARRIVED_AT, FIRST_STEP, JOINED_AT, PAGE_BYTES, STEP, STEP_AT, STEP_MAX
from .slot_progress import RankProgress

_NOT_EXECUTABLE = 8
"""MFD_NOEXEC_SEAL: some hosts allow no other memory, and kernels before 6.3 do not know it."""


class Page:
    """The memory that the agent shares with one rank in one epoch."""

    def __init__(self) -> None:
        """Raises OSError, or AttributeError where Python was built without it."""
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        try:
            self.file = os.memfd_create("recovery-progress", flags | _NOT_EXECUTABLE)
        except OSError:
            self.file = os.memfd_create("recovery-progress", flags)
        try:
            os.ftruncate(self.file, PAGE_BYTES)
            # Reading it would end the agent if the rank could make it smaller.
            with suppress(OSError, AttributeError):
                fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            view = memoryview(mmap.mmap(self.file, PAGE_BYTES, prot=mmap.PROT_READ))
        except BaseException:
            os.close(self.file)
            raise
        self._times, self._numbers = view.cast("d"), view.cast("q")

    def close_file(self) -> None:
        """The rank has it, or was not started. What it shows can still be read."""
        os.close(self.file)

    def read(self) -> RankProgress:
        times, numbers = self._times, self._numbers
        return RankProgress(
            arrived_at=_moment(times[ARRIVED_AT]),
            joined_at=_moment(times[JOINED_AT]),
            step=_step(numbers[STEP]),
            first=min(_step(numbers[FIRST_STEP]), _step(numbers[STEP])),
            absolute=numbers[ABSOLUTE] == 1,
            step_at=_moment(times[STEP_AT]),
        )


def new_page() -> Page | None:
    """None: the kernel refuses, so that the rank shows nothing."""
    try:
        return Page()
    except (OSError, AttributeError, ValueError):
        return None


def _moment(value: float) -> float | None:
    return value if 0.0 < value < float("inf") else None


def _step(value: int) -> int:
    return min(max(value, 0), STEP_MAX)
