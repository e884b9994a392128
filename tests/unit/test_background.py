"""Something awaits each task that must not end, and the error for its end names the task."""

import asyncio

import pytest

from recovery.background import BackgroundTaskError, endless, first_of
from recovery.ports import RefusedError
from tests.unit.patience import GUARD_SECONDS


async def returns() -> None:
    return


async def fails() -> None:
    raise ZeroDivisionError("of nodes by nodes")


async def loses_what_it_waits_for() -> None:
    """The future is cancelled, but not the task."""
    shared = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(shared.cancel)
    await shared


async def refused() -> None:
    raise RefusedError("forbidden", status=403)


async def test_a_task_that_returns_is_an_error_with_its_name() -> None:
    with pytest.raises(BackgroundTaskError) as raised:
        await endless("resync", returns)
    assert (raised.value.task, raised.value.why) == ("resync", "it returned")


async def test_a_task_that_fails_is_an_error_with_its_name_and_its_cause() -> None:
    with pytest.raises(BackgroundTaskError) as raised:
        await endless("resync", fails)
    assert (raised.value.task, raised.value.why) == ("resync", "ZeroDivisionError: of nodes by nodes")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


async def test_the_name_is_that_of_the_innermost_task() -> None:
    with pytest.raises(BackgroundTaskError) as raised:
        await endless("watches", lambda: endless("watch of pods", fails))
    assert raised.value.task == "watch of pods"


async def test_what_the_api_server_answers_is_raised_as_it_is() -> None:
    with pytest.raises(RefusedError):
        await endless("watches", refused)


async def test_a_cancellation_is_the_expected_end() -> None:
    task = asyncio.create_task(endless("resync", lambda: asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_no_one_asked_of_the_task_is_an_error_with_its_name() -> None:
    """A TaskGroup treats a cancelled task as ended on purpose, and continues without it."""

    async def both() -> None:
        async with asyncio.timeout(GUARD_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(endless("watch of pods", loses_what_it_waits_for))
            tasks.create_task(endless("resync", lambda: asyncio.sleep(60)))

    with pytest.raises(ExceptionGroup) as raised:
        await both()
    [error] = raised.value.exceptions
    assert isinstance(error, BackgroundTaskError)
    assert (error.task, error.why) == ("watch of pods", "what it waited for was cancelled")


async def test_a_task_that_is_cancelled_while_it_meets_a_stray_cancellation_is_cancelled() -> None:
    task = asyncio.create_task(endless("resync", loses_what_it_waits_for))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_first_one_that_ends_by_a_stray_cancellation_is_an_error_with_its_name() -> None:
    """Otherwise it would look like a cancellation of the caller that waits."""
    lasting = asyncio.create_task(asyncio.sleep(60))
    with pytest.raises(BackgroundTaskError) as raised:
        await first_of(lasting, asyncio.create_task(loses_what_it_waits_for(), name="controller"))
    assert (raised.value.task, raised.value.why) == ("controller", "it was cancelled")
    assert lasting.cancelled()


async def test_a_cancellation_of_whoever_waits_ends_all_of_them_and_is_passed_on() -> None:
    one, other = (asyncio.create_task(asyncio.sleep(60)) for _ in range(2))
    waiting = asyncio.create_task(first_of(one, other))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert one.cancelled()
    assert other.cancelled()


async def test_one_that_ends_ends_the_others() -> None:
    lasting = asyncio.create_task(asyncio.sleep(60))
    with pytest.raises(BackgroundTaskError):
        await first_of(lasting, asyncio.create_task(endless("resync", returns)))
    assert lasting.cancelled()
