"""A silent watch is replaced by a new list, and known objects may become stale."""

from recovery.kube.watch_lines import WATCH_IDLE_SECONDS_MAX
from recovery.ports import (
    SilentWatchError,
    TryLaterError,
    WatchEnd,
)
from tests.unit.kube.informer.informer_world import LISTED, Stream, World, added, after, end, modified
from tests.unit.kube.testing import Watched, bookmark

SILENT = SilentWatchError("the connection stands, and nothing comes on it")


IDLE = WATCH_IDLE_SECONDS_MAX


async def test_a_watch_that_falls_silent_is_opened_again_by_a_list(world: World) -> None:
    """A continued watch would be silent again if nothing changes, and would not show what was missed."""
    told = await world.run([*LISTED, SILENT], [added("x", 3, 1), end(9)])
    assert world.api.watches[:2] == [Watched(None, send_initial_events=True)] * 2
    assert told[-1] == "drop y@5=1", "what was missed meanwhile is told"
    assert world.observed.watch_ends[0] is WatchEnd.SILENT
    assert world.freshness == []


async def test_where_nothing_ever_comes_but_lists_what_is_known_stays_current(world: World) -> None:
    """An API server without a watch cache sends no bookmarks."""
    quiet: list[Stream] = []
    for number in range(10, 15):
        quiet.append(after(world, IDLE, SILENT))
        quiet.append([added("x", 3, 1), end(number)])
    await world.run(LISTED, *quiet)
    assert world.freshness == []
    assert world.observed.watch_ends.count(WatchEnd.SILENT) == 5


async def test_after_two_failures_and_that_silence_it_is_stale_until_a_list_has_come(world: World) -> None:
    await world.run(LISTED, after(world, IDLE, SILENT), [TryLaterError("no answer in time")])
    assert world.freshness == [True]
    assert world.informer.stale_since is not None
    heard_for = world.clock.now() - world.informer.stale_since
    assert heard_for.total_seconds() >= IDLE
    world.api.idle.clear()
    await world.run([added("x", 3, 1), added("y", 5, 1), end(9)])
    assert world.freshness == [True, False]
    assert world.informer.stale_since is None


async def test_one_failure_is_not_stale(world: World) -> None:
    await world.run(LISTED, after(world, IDLE, SILENT), [added("x", 3, 1), end(9)])
    assert world.freshness == []


async def test_many_failures_within_a_short_time_are_a_server_that_restarts(world: World) -> None:
    await world.run(LISTED, *[[TryLaterError("refused")]] * 20, [modified("x", 8)])
    assert world.clock.seconds < IDLE
    assert world.freshness == []


async def test_a_server_that_stays_away_makes_it_stale_and_any_line_ends_that(world: World) -> None:
    await world.run(LISTED, *[[TryLaterError("refused")]] * 150)
    assert world.freshness == [True]
    world.api.idle.clear()
    await world.run([bookmark(20)])
    assert world.freshness == [True, False], "where it stood, the server has nothing newer to tell"


async def test_a_list_that_is_never_complete_does_not_make_it_current(world: World) -> None:
    half: list[Stream] = [after(world, IDLE / 2, added("x", 3, 1), TryLaterError("lost")) for _ in range(3)]
    await world.run([*LISTED, SILENT], *half)
    assert world.freshness == [True]


async def test_what_was_never_listed_is_not_stale(world: World) -> None:
    await world.run(*[[TryLaterError("refused")]] * 100)
    assert world.freshness == []
    assert not world.informer.synced
