"""The control loop of the models: which keys are synced, when, how many at a time, and when they are retried."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.request_limiter import UNLIMITED, Limiter
from recovery.sim.virtual_time import VirtualClock, virtual_time

DELAY_SECONDS = 0.01


class Recorder(ModelController[str]):
    """A controller whose syncs last `sync_seconds`, and fail as often as `failures` says."""

    name = "recorder"

    def __init__(self, *, workers: int = 5, sync_seconds: float = 0.0) -> None:
        clock, entropy = VirtualClock(), random.Random(1)
        server = ApiServer([], clock=clock, entropy=entropy)
        limiter = Limiter(clock, per_second=UNLIMITED)
        delay = (DELAY_SECONDS, DELAY_SECONDS)
        super().__init__(server, clock, entropy, limiter=limiter, delay_seconds=delay, workers=workers)
        self.sync_seconds = sync_seconds
        self.failures: dict[str, list[int]] = {}
        """HTTP codes that the next syncs of a key fail with."""
        self.syncs: list[tuple[str, float]] = []
        self.at_work: list[str] = []
        self.most_at_work = 0

    async def sync(self, key: str) -> None:
        self.syncs.append((key, round(self.clock.monotonic_seconds(), 6)))
        assert key not in self.at_work, "one look at a key at a time"
        self.at_work.append(key)
        self.most_at_work = max(self.most_at_work, len(self.at_work))
        await self.clock.sleep(self.sync_seconds)
        self.at_work.remove(key)
        if self.failures.get(key):
            code = self.failures[key].pop(0)
            raise StatusError(code, "Failed", f"code {code}")

    def moments(self, key: str) -> list[float]:
        return [at for synced, at in self.syncs if synced == key]


@asynccontextmanager
async def working(controller: Recorder) -> AsyncIterator[Recorder]:
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(0)
    try:
        yield controller
        assert not task.done(), f"the controller has ended: {task}"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@virtual_time
async def test_many_changes_before_the_sync_are_one() -> None:
    async with working(Recorder()) as controller:
        for _ in range(100):
            controller.enqueue("job")
        await asyncio.sleep(DELAY_SECONDS / 2)
        controller.enqueue("job")
        await asyncio.sleep(1)
        assert controller.moments("job") == [DELAY_SECONDS]


@virtual_time
async def test_a_change_during_a_sync_means_another_one_after_it() -> None:
    async with working(Recorder(sync_seconds=1.0)) as controller:
        controller.enqueue("job")
        for _ in range(3):
            await asyncio.sleep(0.25)
            controller.enqueue("job")
        await asyncio.sleep(10)
        assert controller.moments("job") == [DELAY_SECONDS, 1 + 2 * DELAY_SECONDS]


@virtual_time
async def test_a_key_that_is_synced_does_not_hold_up_others() -> None:
    async with working(Recorder(sync_seconds=1.0, workers=2)) as controller:
        controller.enqueue("slow")
        await asyncio.sleep(0.5)
        controller.enqueue("slow")
        controller.enqueue("other")
        await asyncio.sleep(10)
        assert controller.moments("other") == [0.5 + DELAY_SECONDS]


@virtual_time
async def test_no_more_syncs_at_a_time_than_there_are_workers_and_in_the_order_in_which_they_were_asked_for() -> None:
    async with working(Recorder(sync_seconds=1.0, workers=3)) as controller:
        for number in range(7):
            controller.enqueue(f"job-{number}")
        await asyncio.sleep(10)
        assert controller.most_at_work == 3
        assert [key for key, _ in controller.syncs] == [f"job-{number}" for number in range(7)]


@virtual_time
async def test_what_was_asked_for_before_it_runs_is_synced_when_it_does() -> None:
    controller = Recorder()
    controller.enqueue("job")
    await asyncio.sleep(5)
    async with working(controller):
        await asyncio.sleep(1)
    assert controller.moments("job") == [5 + DELAY_SECONDS]


@virtual_time
async def test_a_sync_at_a_later_moment_comes_then_whatever_happens_before() -> None:
    async with working(Recorder()) as controller:
        controller.enqueue_after("job", 60)
        controller.enqueue("job")
        await asyncio.sleep(100)
        assert controller.moments("job") == [DELAY_SECONDS, 60 + DELAY_SECONDS]


@pytest.mark.parametrize("code", [404, 409, 410, 422])
def test_a_refused_sync_comes_again_after_ever_longer_pauses(code: int) -> None:
    @virtual_time
    async def sync() -> None:
        async with working(Recorder()) as controller:
            controller.failures["job"] = [code] * 4
            controller.enqueue("job")
            await asyncio.sleep(100)
            syncs = controller.moments("job")
            pauses = [round(later - earlier - DELAY_SECONDS, 6) for earlier, later in itertools.pairwise(syncs)]
            assert pauses == [0.005, 0.01, 0.02, 0.04], "and no further look once it has succeeded"

    sync()


@virtual_time
async def test_the_pauses_grow_up_to_a_limit() -> None:
    async with working(Recorder()) as controller:
        controller.failures["job"] = [409] * 20
        controller.enqueue("job")
        await asyncio.sleep(1000)
        syncs = controller.moments("job")
        assert len(syncs) == 21
        assert round(syncs[-1] - syncs[-2] - DELAY_SECONDS, 6) == ModelController.longest_retry_seconds


@virtual_time
async def test_after_a_success_the_first_pause_is_short_again() -> None:
    async with working(Recorder()) as controller:
        controller.failures["job"] = [409] * 8
        controller.enqueue("job")
        await asyncio.sleep(100)
        controller.syncs.clear()
        controller.failures["job"] = [409]
        controller.enqueue("job")
        await asyncio.sleep(1)
        assert controller.moments("job") == pytest.approx([100 + DELAY_SECONDS, 100.005 + 2 * DELAY_SECONDS])


@pytest.mark.parametrize("code", [400, 403, 500])
def test_any_other_refusal_is_a_bug_of_the_model_and_ends_it(code: int) -> None:
    @virtual_time
    async def sync() -> None:
        controller = Recorder()
        controller.failures["job"] = [code]
        controller.enqueue("job")
        with pytest.raises(ExceptionGroup) as raised:
            await controller.run()
        assert [error.code for error in raised.value.exceptions if isinstance(error, StatusError)] == [code]

    sync()


@virtual_time
async def test_a_stalled_controller_begins_no_sync_and_then_catches_up() -> None:
    async with working(Recorder()) as controller:
        controller.stall(True)
        controller.enqueue("job")
        controller.enqueue("other")
        controller.enqueue_after("late", 5)
        await asyncio.sleep(60)
        assert controller.syncs == []

        controller.stall(False)
        await asyncio.sleep(1)
        assert sorted(key for key, _ in controller.syncs) == ["job", "late", "other"]


@virtual_time
async def test_a_controller_that_is_cancelled_begins_no_further_sync() -> None:
    controller = Recorder(sync_seconds=1.0, workers=1)
    async with working(controller):
        controller.enqueue("job")
        controller.enqueue("other")
        await asyncio.sleep(0.5)
    await asyncio.sleep(60)
    assert [key for key, _ in controller.syncs] == ["job"]
