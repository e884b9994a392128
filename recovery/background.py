"""Tasks that run as long as the process, or as long as one term of leadership.

A task that nothing awaits can end unnoticed: asyncio logs its exception only when the task is garbage-collected, and
logs nothing when it returns. The process would then run without its resync or without a watch. So each such task runs
in `endless`, and its owner awaits it with `first_of` or in a TaskGroup.

An unrequested cancellation also ends a task unnoticed. It comes from a future that other code has cancelled, and a
TaskGroup treats it as the end that its owner wanted.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from recovery.ports import ApiError


class BackgroundTaskError(Exception):
    """A task that must not end has ended. The process ends with it."""

    def __init__(self, task: str, why: str) -> None:
        super().__init__(f"the background task {task!r} has ended: {why}")
        self.task = task
        """Name of the task."""
        self.why = why


def is_to_end() -> bool:
    """Whether the current task has been cancelled. If not, a CancelledError in it is a failure like any other."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def endless(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do work that only a cancellation may end. Raises BackgroundTaskError if it returns or fails.

    An ApiError is an answer of the API server, not a bug, so it is raised unchanged.
    """
    try:
        await work()
    except (ApiError, BackgroundTaskError):
        raise
    except asyncio.CancelledError as error:
        if is_to_end():
            raise
        raise BackgroundTaskError(name, "what it waited for was cancelled") from error
    except Exception as error:
        raise BackgroundTaskError(name, f"{type(error).__name__}: {error}") from error
    raise BackgroundTaskError(name, "it returned")


async def first_of(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of the tasks ends, then cancel the others.

    Raises what the first one raised. If it was cancelled, raises BackgroundTaskError with its name: a CancelledError
    would look like a cancellation of the caller.
    """
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task not in ended:
            continue
        if task.cancelled():
            raise BackgroundTaskError(task.get_name(), "it was cancelled")
        task.result()
