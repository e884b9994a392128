"""The measure of `test_seven_days.py` finds objects wherever a controller could keep them."""

import asyncio
from collections.abc import Callable

import pytest

from recovery.core.model.durations import parse_duration
from recovery.sim.virtual_time import virtual_time
from tests.simulation.week.held_memory import held_memory


class Keeper:
    """An object that is kept by the thousand."""

    def __init__(self) -> None:
        self.kept: object = None


def held_keepers(*roots: object) -> int:
    return held_memory(*roots).of_type[f"{__name__}.Keeper"]


def in_attribute(root: Keeper) -> None:
    root.kept = [Keeper() for _ in range(1000)]


def in_keys(root: Keeper) -> None:
    root.kept = {Keeper(): None for _ in range(1000)}


def in_closure(root: Keeper) -> None:
    many = [Keeper() for _ in range(1000)]
    root.kept = lambda: many


@pytest.mark.parametrize("keep", [in_attribute, in_keys, in_closure])
def test_what_is_kept_is_counted(keep: Callable[[Keeper], None]) -> None:
    root = Keeper()
    before = held_memory(root)
    keep(root)
    after = held_memory(root)
    assert held_keepers(root) == 1001
    assert after.size_bytes - before.size_bytes > 1000 * 48


@virtual_time
async def test_what_a_task_waits_with_is_counted() -> None:
    async def wait() -> None:
        many = [Keeper() for _ in range(1000)]
        await asyncio.get_running_loop().create_future()
        assert many

    root = Keeper()
    root.kept = waiting = asyncio.create_task(wait())
    await asyncio.sleep(1)
    assert held_keepers(root) == 1001
    waiting.cancel()


def test_what_a_module_of_the_product_keeps_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{parse_duration.__module__}.kept", [Keeper()], raising=False)
    assert held_keepers() == 1
