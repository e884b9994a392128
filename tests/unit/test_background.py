"""A task that must not end is awaited by somebody, and its end has a name."""

import asyncio

import pytest

from recovery.background import BackgroundTaskError, endless, first_of
from recovery.ports import RefusedError


async def returns() -> None:
    return


async def fails() -> None:
    raise ZeroDivisionError("of nodes by nodes")


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


async def test_one_that_ends_ends_the_others() -> None:
    lasting = asyncio.create_task(asyncio.sleep(60))
    with pytest.raises(BackgroundTaskError):
        await first_of(lasting, asyncio.create_task(endless("resync", returns)))
    assert lasting.cancelled()
