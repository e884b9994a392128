"""What the engine works with. The real cluster and the modelled one each have their own."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

from recovery.chaos.job_state import JobProbe
from recovery.core.model.reason import Reason
from recovery.ports import ApiClient, Clock, Entropy

T = TypeVar("T")


class ProcessKiller(Protocol):
    """Kills the processes of a rank while its pod stays."""

    async def kill(self, namespace: str, pod: str, container: str) -> str:
        """What was killed, in words. `container` empty: the only one. Raises ApiError."""
        ...


class ChaosTools(msgspec.Struct, frozen=True):
    api: ApiClient
    clock: Clock
    entropy: Entropy
    killer: ProcessKiller
    probe: JobProbe


class ChaosRefusedError(Exception):
    """Nothing was done, because something speaks against the run. Each problem says what to do about it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class RunStoppedError(Exception):
    """The run ends before all its repeats were run."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


async def whole(write: Coroutine[Any, Any, T]) -> T:
    """The result of the write. It is never abandoned half-way: an interruption is raised only after its answer.

    Otherwise the undo could overtake it, and what it changes would stay.
    """
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not report it
        raise
