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
    task.cancel()
    assert [name for name, _ in collector.calls] == ["unfreeze", "collect", "freeze"] * 2
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
