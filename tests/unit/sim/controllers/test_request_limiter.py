"""The token bucket of a controller's client: a burst, then a rate, first come first served."""

import asyncio

import pytest

from recovery.sim.controllers.request_limiter import UNLIMITED, Limiter
from recovery.sim.virtual_time import VirtualClock, virtual_time


async def served(limiter: Limiter, clock: VirtualClock, requests: int) -> list[float]:
    """When each of `requests` simultaneous requests may be sent, in seconds from now."""
    began_seconds = clock.monotonic_seconds()
    moments: list[float] = []

    async def send() -> None:
        await limiter.take()
        moments.append(round(clock.monotonic_seconds() - began_seconds, 6))

    await asyncio.gather(*(send() for _ in range(requests)))
    return moments


@virtual_time
async def test_a_burst_is_served_at_once_and_the_rest_by_the_rate() -> None:
    clock = VirtualClock()
    limiter = Limiter(clock, per_second=20, burst=30)

    moments = await served(limiter, clock, 34)

    assert moments[:30] == [0.0] * 30
    assert moments[30:] == [0.05, 0.1, 0.15, 0.2]


@virtual_time
async def test_a_group_of_128_pods_takes_the_stock_manager_five_seconds_a_pass() -> None:
    clock = VirtualClock()
    moments = await served(Limiter(clock), clock, 128)
    assert moments[-1] == pytest.approx((128 - 30) / 20)


@virtual_time
async def test_a_pause_fills_the_bucket_again_but_never_over_the_brim() -> None:
    clock = VirtualClock()
    limiter = Limiter(clock, per_second=2, burst=4)
    await served(limiter, clock, 4)

    await clock.sleep(1.0)
    assert await served(limiter, clock, 3) == [0.0, 0.0, 0.5], "two have come in within a second"

    await clock.sleep(1000.0)
    assert await served(limiter, clock, 6) == [0.0] * 4 + [0.5, 1.0]


@virtual_time
async def test_whoever_asks_first_is_served_first() -> None:
    clock = VirtualClock()
    limiter = Limiter(clock, per_second=1, burst=1)
    order: list[str] = []

    async def send(name: str, after_seconds: float) -> None:
        await clock.sleep(after_seconds)
        await limiter.take()
        order.append(f"{name} at {clock.monotonic_seconds():g}")

    await asyncio.gather(send("third", 0.2), send("first", 0.0), send("fourth", 2.5), send("second", 0.1))

    assert order == ["first at 0", "second at 1", "third at 2", "fourth at 3"]


@virtual_time
async def test_an_unlimited_client_never_waits() -> None:
    clock = VirtualClock()
    assert set(await served(Limiter(clock, per_second=UNLIMITED, burst=0), clock, 1000)) == {0.0}
