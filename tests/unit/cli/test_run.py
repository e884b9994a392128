"""How the controller process ends."""

import asyncio
import os
import signal

import pytest

from recovery.cli.run import Stop, first_of
from recovery.ports import ForbiddenError


@pytest.mark.parametrize(("by", "exit_code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_is_a_clean_end_with_the_code_that_a_shell_expects(by: signal.Signals, exit_code: int) -> None:
    stop = Stop()
    stop.listen()
    try:
        os.kill(os.getpid(), by)
        async with asyncio.timeout(1):
            await stop.event.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert stop.exit_code == exit_code


async def test_a_stop_cuts_the_preparations_short() -> None:
    stop = Stop()
    asyncio.get_running_loop().call_later(0.01, stop.event.set)
    async with asyncio.timeout(1):
        assert await stop.cuts_short(asyncio.sleep(60))


async def test_preparations_that_fail_say_so() -> None:
    async def fail() -> None:
        raise ForbiddenError("no")

    with pytest.raises(ForbiddenError):
        await Stop().cuts_short(fail())
    assert not await Stop().cuts_short(asyncio.sleep(0))


async def test_the_first_part_that_ends_ends_the_others_and_its_error_is_the_error() -> None:
    cancelled = []

    async def last() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def refused() -> None:
        await asyncio.sleep(0.01)
        raise ForbiddenError("no")

    with pytest.raises(ForbiddenError):
        await first_of(asyncio.create_task(last()), asyncio.create_task(refused()))
    assert cancelled
