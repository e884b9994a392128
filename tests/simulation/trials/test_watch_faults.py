"""Faults in the lines of a controller's watches. In the end the production informer knows everything."""

import asyncio

import pytest

from recovery.ports import JOBS
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.plan import FaultRates
from recovery.sim.trials.transport import LINE_SECONDS
from recovery.sim.virtual_time import virtual_time
from tests.simulation.trials.small import at_event
from tests.simulation.trials.wire import Watched, Wire, first_lines, watching_until_the_end

A_CHANGE = 2
"""The number of the third line: a Job and the bookmark that ends the list come before it."""


async def watched(*faults: TrialFault) -> tuple[Wire, Watched]:
    """Watches a server with a Job `a`, which grows to 2 after 10 s."""
    wire = Wire(*faults)
    wire.put("a")
    watching = Watched(wire)
    await asyncio.sleep(10.0)
    assert (watching.informer.synced, watching.sizes) == (True, {"a": 1})
    wire.put("a", 2)
    return wire, watching


def never_runs_backwards(watching: Watched) -> None:
    for name, versions in watching.versions.items():
        assert versions == sorted(set(versions)), f"facts about {name} ran backwards, or were told twice"
    assert not watching.task.done()


@virtual_time
@watching_until_the_end
async def test_a_line_comes_a_moment_after_the_change() -> None:
    wire, watching = await watched()
    await asyncio.sleep(1.0)
    (when,) = watching.when("a", 2)
    assert 10.0 + LINE_SECONDS[0] <= when <= 10.0 + LINE_SECONDS[1]
    assert (watching.restarts, wire.log.faults) == ([], [])


@virtual_time
@watching_until_the_end
async def test_lines_that_came_in_meanwhile_are_told_together() -> None:
    wire, watching = await watched()
    for number in range(20):
        wire.put(f"b-{number}")
    await asyncio.sleep(1.0)
    assert len({second for second, _, _ in watching.told[1:]}) == 1


@virtual_time
@watching_until_the_end
async def test_disconnect() -> None:
    """The line is lost, and sent again when the stream is reopened at its last position."""
    wire, watching = await watched(at_event(FaultKind.WATCH_DISCONNECT, A_CHANGE))
    await asyncio.sleep(5.0)

    assert [fault.key.kind for fault in wire.log.faults] == [FaultKind.WATCH_DISCONNECT]
    assert len(watching.restarts) == 1
    assert watching.sizes == {"a": 2}
    assert len(watching.when("a", 2)) == 1
    never_runs_backwards(watching)


@virtual_time
@watching_until_the_end
async def test_expired() -> None:
    """The informer lists again and applies the difference, including objects deleted meanwhile."""
    wire, watching = await watched(at_event(FaultKind.WATCH_EXPIRED, A_CHANGE))
    wire.put("b")
    await asyncio.sleep(5.0)

    assert [fault.key.kind for fault in wire.log.faults] == [FaultKind.WATCH_EXPIRED]
    assert len(watching.restarts) == 1
    assert "too old resource version" in watching.restarts[0]
    assert watching.sizes == {"a": 2, "b": 1}
    never_runs_backwards(watching)


@virtual_time
@watching_until_the_end
async def test_duplicate() -> None:
    """Both lines arrive; the informer reports the change once."""
    wire, watching = await watched(at_event(FaultKind.WATCH_DUPLICATE, A_CHANGE))
    await asyncio.sleep(5.0)

    assert [fault.key.kind for fault in wire.log.faults] == [FaultKind.WATCH_DUPLICATE]
    assert (watching.restarts, len(watching.when("a", 2))) == ([], 1)
    never_runs_backwards(watching)


@virtual_time
@watching_until_the_end
async def test_a_duplicate_is_the_same_line_twice() -> None:
    wire = Wire(at_event(FaultKind.WATCH_DUPLICATE, 0))
    wire.put("a")
    wire.put("b")
    assert await first_lines(wire, 4) == ["ADDED", "ADDED", "ADDED", "BOOKMARK"]
    assert wire.replica.lines == 3, "the repeated one is no event of its own"


@virtual_time
@watching_until_the_end
async def test_stall() -> None:
    """Nothing arrives for that long, and then everything at once."""
    wire, watching = await watched(at_event(FaultKind.WATCH_STALL, A_CHANGE, 40.0))
    wire.put("b")
    await asyncio.sleep(39.9)
    assert watching.sizes == {"a": 1}

    await asyncio.sleep(1.0)
    assert watching.sizes == {"a": 2, "b": 1}
    assert 50.0 <= watching.when("a", 2)[0] <= watching.when("b", 1)[0] <= 50.0 + 3 * LINE_SECONDS[1]
    assert watching.restarts == []
    never_runs_backwards(watching)


@virtual_time
@watching_until_the_end
async def test_lag() -> None:
    """That stream is late from then on. Another stream, or the same one reopened, is not."""
    wire, watching = await watched(at_event(FaultKind.WATCH_LAG, A_CHANGE, 8.0))
    await asyncio.sleep(5.0)
    wire.put("b")
    await asyncio.sleep(7.9)
    assert watching.sizes == {"a": 2}
    await asyncio.sleep(0.2)
    assert watching.when("b", 1)[0] == pytest.approx(23.0)
    assert watching.restarts == []

    other = Watched(wire)
    await asyncio.sleep(1.0)
    wire.put("c")
    await asyncio.sleep(1.0)
    assert (other.sizes, watching.sizes) == ({"a": 2, "b": 1, "c": 1}, {"a": 2, "b": 1})
    never_runs_backwards(watching)


@virtual_time
@watching_until_the_end
async def test_a_lag_ends_when_the_stream_is_opened_again() -> None:
    wire, watching = await watched(at_event(FaultKind.WATCH_LAG, A_CHANGE, 8.0))
    await asyncio.sleep(600.0)  # No stream lasts longer than 480 s.
    wire.put("b")
    await asyncio.sleep(1.0)
    assert len(watching.when("b", 1)) == 1


@virtual_time
@watching_until_the_end
async def test_a_lag_ends_when_the_healing_begins() -> None:
    wire = Wire(at_event(FaultKind.WATCH_LAG, A_CHANGE, 8.0))
    await asyncio.sleep(900.0)
    wire.put("a")
    watching = Watched(wire)
    await asyncio.sleep(1.0)
    wire.put("a", 2)
    await asyncio.sleep(200.0)
    assert len(wire.log.faults) == 1

    wire.put("a", 3)
    await asyncio.sleep(1.0)
    assert watching.sizes == {"a": 3}
    assert watching.restarts == [], "it is the same stream"


@virtual_time
@watching_until_the_end
async def test_the_dead_are_told_nothing() -> None:
    """Neither new lines nor those that were held up."""
    wire, watching = await watched(at_event(FaultKind.WATCH_STALL, A_CHANGE, 40.0))
    await asyncio.sleep(1.0)
    wire.process.kill(1.0)
    wire.put("b")
    await asyncio.sleep(600.0)
    assert watching.sizes == {"a": 1}


@virtual_time
@watching_until_the_end
async def test_the_frozen_are_told_when_they_go_on() -> None:
    wire, watching = await watched()
    wire.process.clock.freeze(60.0)
    await asyncio.sleep(59.9)
    assert watching.sizes == {"a": 1}
    await asyncio.sleep(0.2)
    assert watching.sizes == {"a": 2}


OF_LINES = [
    FaultKind.WATCH_DISCONNECT,
    FaultKind.WATCH_STALL,
    FaultKind.WATCH_EXPIRED,
    FaultKind.WATCH_DUPLICATE,
    FaultKind.WATCH_LAG,
]


@pytest.mark.parametrize("kind", OF_LINES, ids=str)
def test_no_fault_of_a_line_begins_in_the_healing(kind: FaultKind) -> None:
    @virtual_time
    @watching_until_the_end
    async def watch() -> None:
        wire = Wire(at_event(kind, 0))
        await asyncio.sleep(1000.0)
        wire.put("a")
        assert await first_lines(wire, 2) == ["ADDED", "BOOKMARK"]
        assert wire.log.faults == []

    watch()


@pytest.mark.parametrize("seed", range(5))
def test_the_informer_knows_everything_when_the_faults_of_its_watch_have_ended(seed: int) -> None:
    @virtual_time
    @watching_until_the_end
    async def watch() -> None:
        wire = Wire(rates=FaultRates(line=0.3))
        watching = Watched(wire)
        for step in range(200):
            await asyncio.sleep(4.9)
            wire.put(f"job-{(step * 7 + seed) % 13}", step)
        await asyncio.sleep(30.0)

        on_server = {job["metadata"]["name"]: job["spec"]["size"] for job in wire.server.objects(JOBS)}
        assert watching.sizes == on_server
        assert {fault.key.kind for fault in wire.log.faults} == set(OF_LINES)
        never_runs_backwards(watching)

    watch()
