"""Watches: what they send, where they begin, and how they end."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from recovery.ports import JOB_SETS, JOBS, PODS, PatchKind, Resource
from recovery.sim.api import store
from recovery.sim.api.server import ApiServer
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.sim.api.servers import TEAM, made, meta, named, pod, serving, told


@asynccontextmanager
async def heard(stream: AsyncGenerator[bytes, None]) -> AsyncIterator[list[bytes]]:
    """The lines that have arrived so far, while the watch is open."""
    lines: list[bytes] = []

    async def listen() -> None:
        async for line in stream:
            lines.append(line)  # noqa: PERF401 - each is there as soon as it has arrived

    task = asyncio.create_task(listen())
    await asyncio.sleep(0.001)
    yield lines
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_end(stream: AsyncGenerator[bytes, None]) -> list[bytes]:
    return [line async for line in stream]


def label(server: ApiServer, name: str, value: str | None, resource: Resource = PODS) -> str:
    """Set the label, and return the new resourceVersion."""
    patch = {"metadata": {"labels": {"color": value}}}
    body = server.patch(resource, name, patch, kind=PatchKind.MERGE, namespace=TEAM)
    version = meta(body)["resourceVersion"]
    assert isinstance(version, str)
    return version


@virtual_time
async def test_it_tells_what_follows_its_position_and_then_what_happens() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    position = str(server.revision)
    made(server, PODS, pod("b"))
    made(server, JOBS, named("of another kind"))
    async with heard(server.watch(PODS, resource_version=position)) as lines:
        assert [told(line)[:2] for line in lines] == [("ADDED", "b")]
        label(server, "a", "red")
        made(server, PODS, pod("c"))
        server.delete(PODS, "b", namespace=TEAM)
        await asyncio.sleep(0.001)
        assert [told(line)[:2] for line in lines[1:]] == [
            ("MODIFIED", "a"),
            ("ADDED", "c"),
            ("MODIFIED", "b"),
            ("DELETED", "b"),
        ]
        versions = [int(told(line)[2]) for line in lines]
        assert versions == sorted(versions)
        assert versions[-1] == server.revision


@virtual_time
async def test_a_line_holds_the_whole_object_as_it_was_after_the_change() -> None:
    server = serving()
    async with heard(server.watch(JOB_SETS, resource_version="1")) as lines:
        first = made(server, JOB_SETS, named("llm"))
        label(server, "llm", "red", JOB_SETS)
        await asyncio.sleep(0.001)
        assert msgspec.json.decode(lines[0])["object"] == first


@pytest.mark.parametrize("version", [None, "", "0"])
def test_from_nowhere_it_begins_with_all_that_is_there(version: str | None) -> None:
    @virtual_time
    async def watched() -> None:
        server = serving()
        made(server, PODS, pod("b"))
        made(server, PODS, pod("a"))
        label(server, "b", "red")
        async with heard(server.watch(PODS, resource_version=version)) as lines:
            made(server, PODS, pod("c"))
            await asyncio.sleep(0.001)
            objects = [told(line)[:2] for line in lines if told(line)[0] != "BOOKMARK"]
            assert objects == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]

    watched()


@virtual_time
async def test_a_streaming_list_ends_with_a_bookmark_that_says_so() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    made(server, PODS, pod("b", labels={"color": "red"}))
    stream = server.watch(PODS, label_selector="color=red", send_initial_events=True)
    async with heard(stream) as lines:
        assert [told(line) for line in lines] == [("ADDED", "b", "3"), ("BOOKMARK", "", "3")]
        bookmark = msgspec.json.decode(lines[1])["object"]
        assert (bookmark["kind"], bookmark["apiVersion"]) == ("Pod", "v1")
        assert meta(bookmark)["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert label(server, "a", "red") == "4"
        await asyncio.sleep(0.001)
        assert [told(line) for line in lines[2:]] == [("ADDED", "a", "4")]


@virtual_time
async def test_changes_during_the_initial_events_come_after_their_end() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    made(server, PODS, pod("b"))
    stream = server.watch(PODS, send_initial_events=True)
    first = await anext(stream)
    label(server, "b", "red")
    made(server, PODS, pod("c"))
    rest = [await anext(stream) for _ in range(4)]
    assert [told(line) for line in (first, *rest)] == [
        ("ADDED", "a", "2"),
        ("ADDED", "b", "3"),
        ("BOOKMARK", "", "3"),
        ("MODIFIED", "b", "4"),
        ("ADDED", "c", "5"),
    ]
    await stream.aclose()


@virtual_time
async def test_an_object_that_begins_or_ceases_to_match_is_added_or_deleted() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    stream = server.watch(PODS, label_selector="color=red", resource_version=str(server.revision))
    async with heard(stream) as lines:
        begun, kept = label(server, "a", "red"), None
        kept = meta(server.patch(PODS, "a", {"spec": {"x": 1}}, kind=PatchKind.MERGE, namespace=TEAM))
        ceased = label(server, "a", "blue")
        label(server, "a", "green")
        server.delete(PODS, "a", namespace=TEAM)
        await asyncio.sleep(0.001)
        assert [told(line) for line in lines] == [
            ("ADDED", "a", begun),
            ("MODIFIED", "a", kept["resourceVersion"]),
            ("DELETED", "a", ceased),
        ]
        # The last state that matched, with the resourceVersion at which it no longer did.
        assert meta(msgspec.json.decode(lines[2])["object"])["labels"] == {"color": "red"}


@virtual_time
async def test_a_watch_is_of_one_namespace_or_of_all() -> None:
    server = serving()
    async with (
        heard(server.watch(PODS, namespace="b", resource_version="1")) as of_one,
        heard(server.watch(PODS, resource_version="1")) as of_all,
    ):
        for namespace in ("a", "b"):
            server.create(PODS, pod("x"), namespace=namespace)
        await asyncio.sleep(0.001)
        assert (len(of_one), len(of_all)) == (1, 2)


@virtual_time
async def test_pods_that_are_bound_are_found_by_their_node() -> None:
    server = serving()
    made(server, PODS, pod("rank-0"))
    stream = server.watch(PODS, field_selector="spec.nodeName!=", resource_version=str(server.revision))
    async with heard(stream) as lines:
        label(server, "rank-0", "red")
        binding = {"target": {"name": "n1"}}
        server.create(PODS, binding, namespace=TEAM, name="rank-0", subresource="binding")
        await asyncio.sleep(0.001)
        assert [told(line)[0] for line in lines] == ["ADDED"]


@virtual_time
async def test_a_quiet_stream_is_told_each_minute_and_before_its_end_how_far_it_is() -> None:
    server = serving()
    clock = VirtualClock()

    async def listen() -> list[tuple[float, str, str]]:
        stream = server.watch(PODS, resource_version="1", timeout_seconds=150)
        return [(clock.monotonic_seconds(), told(line)[0], told(line)[2]) async for line in stream]

    task = asyncio.create_task(listen())
    await asyncio.sleep(30)
    made(server, JOBS, named("of another kind"))
    assert await task == [(60.0, "BOOKMARK", "2"), (120.0, "BOOKMARK", "2"), (148.0, "BOOKMARK", "2")]
    assert clock.monotonic_seconds() == 150.0


@virtual_time
async def test_a_stream_ends_when_its_time_is_over_however_busy() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    task = asyncio.create_task(until_end(server.watch(PODS, resource_version="2", timeout_seconds=10)))
    await asyncio.sleep(0.5)
    for number in range(12):
        await asyncio.sleep(1)
        label(server, "a", str(number))
    lines = await task
    assert [told(line)[0] for line in lines if told(line)[0] != "BOOKMARK"] == ["MODIFIED"] * 9


@virtual_time
async def test_a_position_that_is_forgotten_is_answered_by_one_error() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    made(server, PODS, pod("b"))
    server.compact()
    lines = await until_end(server.watch(PODS, resource_version="2"))
    assert len(lines) == 1
    event = msgspec.json.decode(lines[0])
    status = event["object"]
    assert (event["type"], status["kind"]) == ("ERROR", "Status")
    assert (status["code"], status["reason"], status["status"]) == (410, "Expired", "Failure")


@virtual_time
async def test_a_stream_that_is_open_goes_on_over_a_compaction_and_a_position_that_is_current_holds() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    async with heard(server.watch(PODS, resource_version="1")) as lines:
        label(server, "a", "red")
        server.compact()
        async with heard(server.watch(PODS, resource_version=str(server.revision))) as later:
            label(server, "a", "blue")
            await asyncio.sleep(0.001)
            assert [told(line)[:2] for line in lines] == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a")]
            assert later == lines[-1:]


@virtual_time
async def test_an_object_that_never_changes_keeps_no_history_alive() -> None:
    """Otherwise such history would be most of what is kept over simulated days."""

    gc.collect()
    gc.freeze()  # what other tests have left: half a million objects that are not in this history
    server = serving()
    made(server, PODS, pod("never-changed"))
    made(server, PODS, pod("a"))
    for number in range(100):
        label(server, "a", str(number))
    server.compact()
    gc.collect()
    entries = [each for each in gc.get_objects() if isinstance(each, store.HistoryEntry)]
    assert len(entries) == 1, "the place from which the next change follows"


@virtual_time
async def test_the_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HISTORY_MAX", 10)
    server = serving()
    made(server, PODS, pod("a"))
    for number in range(11):
        label(server, "a", str(number))
    assert server.revision == 13
    kept = [told(line)[2] for line in await until_end(server.watch(PODS, resource_version="7", timeout_seconds=0))]
    assert kept == ["8", "9", "10", "11", "12", "13"]
    lost = await until_end(server.watch(PODS, resource_version="5", timeout_seconds=0))
    assert [msgspec.json.decode(line)["type"] for line in lost] == ["ERROR"]
    for number in range(11, 15):
        label(server, "a", str(number))
    assert len(await until_end(server.watch(PODS, resource_version="7", timeout_seconds=0))) == 10
    label(server, "a", "and one more")
    assert len(await until_end(server.watch(PODS, resource_version="13", timeout_seconds=0))) == 5
    assert len(await until_end(server.watch(PODS, resource_version="7", timeout_seconds=0))) == 1


@virtual_time
async def test_a_watch_that_is_closed_or_given_up_leaves_nothing_behind() -> None:
    server = serving()
    unused = server.watch(PODS)
    await unused.aclose()
    begun = server.watch(PODS, resource_version="1")
    made(server, PODS, pod("a"))
    assert told(await anext(begun))[1] == "a"
    waiting = asyncio.ensure_future(anext(begun))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await begun.aclose()
    made(server, PODS, pod("b"))
    with pytest.raises(StopAsyncIteration):
        await anext(begun)


@virtual_time
async def test_a_slow_reader_loses_nothing() -> None:
    server = serving()
    stream = server.watch(PODS, resource_version="1")
    for number in range(3):
        made(server, PODS, pod(f"p{number}"))
    lines = []
    for number in range(3, 6):
        lines.append(await anext(stream))
        await asyncio.sleep(50)
        made(server, PODS, pod(f"p{number}"))
    lines += [await anext(stream) for _ in range(3)]
    assert [told(line)[:2] for line in lines] == [("ADDED", f"p{number}") for number in range(6)]
    await stream.aclose()


@virtual_time
async def test_all_watches_of_an_object_share_its_bytes() -> None:
    server = serving()
    async with (
        heard(server.watch(PODS, resource_version="1")) as first,
        heard(server.watch(PODS, label_selector="!x", resource_version="1")) as second,
    ):
        made(server, PODS, pod("a"))
        await asyncio.sleep(0.001)
        assert first[0] is second[0]
