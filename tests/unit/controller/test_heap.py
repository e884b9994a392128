"""The caches are kept out of garbage collections. Nothing else is kept out for long."""

import asyncio
import gc

import pytest

from recovery.controller import heap
from recovery.controller.heap import REVIEW_SECONDS, spare_the_caches
from recovery.sim.virtual_time import VirtualClock, virtual_time


class Collector:
    """Stands in for the module `gc`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self.callbacks: list[object] = []

    def __getattr__(self, name: str) -> object:
        return lambda: self.calls.append((name, VirtualClock().monotonic_seconds()))


@virtual_time
async def test_they_are_spared_once_they_are_filled_and_reviewed_every_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    monkeypatch.setattr(heap, "gc", collector)
    filled = False
    began = VirtualClock().monotonic_seconds()
    task = asyncio.create_task(spare_the_caches(lambda: filled, VirtualClock()))
    await asyncio.sleep(10)
    assert collector.calls == []
    filled = True
    await asyncio.sleep(1.5 * REVIEW_SECONDS)
    assert len(collector.callbacks) == 1
    task.cancel()
    assert [name for name, _ in collector.calls] == ["unfreeze", "collect", "freeze", "collect"] * 2
    await asyncio.gather(task, return_exceptions=True)
    assert collector.callbacks == []
    first, second = (at - began for name, at in collector.calls if name == "freeze")
    assert first <= 10.5
    assert second - first == REVIEW_SECONDS


async def test_a_collection_does_not_visit_what_is_spared() -> None:
    caches = [[number] for number in range(10_000)]
    task = asyncio.create_task(spare_the_caches(lambda: True, VirtualClock()))
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert gc.get_freeze_count() > len(caches)
        visited = {id(each) for each in gc.get_objects()}
        assert not any(id(each) in visited for each in caches)
    finally:
        task.cancel()
        gc.unfreeze()


class SlowClock(VirtualClock):
    """Each time that it is read, so many seconds have passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._reads = 0

    def monotonic_seconds(self) -> float:
        self._reads += 1
        return self._reads * self._seconds


@pytest.mark.parametrize(("seconds", "spared"), [(0.05, True), (0.001, False)])
async def test_what_survives_a_long_collection_is_spared_from_the_next_one(seconds: float, *, spared: bool) -> None:
    """After a storm the caches are new objects."""
    task = asyncio.create_task(spare_the_caches(lambda: True, SlowClock(seconds)))
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        recreated = [[number] for number in range(10_000)]
        gc.collect()
        visited = {id(each) for each in gc.get_objects()}
        assert any(id(each) in visited for each in recreated) != spared
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gc.unfreeze()


async def test_garbage_of_a_long_collection_is_freed_and_not_spared() -> None:
    task = asyncio.create_task(spare_the_caches(lambda: True, SlowClock(0.05)))
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        frozen = gc.get_freeze_count()
        for _ in range(10_000):
            cycle: list[object] = []
            cycle.append(cycle)
        gc.collect()
        assert gc.get_freeze_count() < frozen + 5_000
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gc.unfreeze()
