"""Objects, pages and lines that cannot be read: each is kept apart, reported, and requested again."""

import json

import msgspec
import pytest

from recovery.kube.projections.metadata import ObjectEntry
from recovery.ports import (
    RefusedError,
    TryLaterError,
)
from tests.unit.kube.informer.informer_world import (
    LISTED,
    Stream,
    World,
    added,
    decode,
    deleted,
    end,
    error_event,
    modified,
    page,
    thing,
)
from tests.unit.kube.testing import event


async def test_a_line_that_is_no_event_breaks_the_stream_and_nothing_else(world: World) -> None:
    told = await world.run([*LISTED, b"<html>"], [modified("x", 8, 2)])
    assert told[2:] == ["put x@8=2"]
    assert "not a watch event" in world.observed.restarts[0]


async def test_an_object_that_cannot_be_read_stays_what_it_was_and_is_reported(world: World) -> None:
    told = await world.run([*LISTED, modified("x", 8, "big"), modified("y", 9, 2), deleted("x", 10, "big")])
    assert told[2:] == ["put x@8=1", "put y@9=2", "drop x@10=1"]
    assert world.observed.unreadable[0] == (
        "recoverypolicies",
        "a/x",
        "Expected `int`, got `str` - at `$.size`",
    )


async def test_an_object_that_cannot_be_read_stays_over_a_list(world: World) -> None:
    told = await world.run(
        LISTED, [error_event(410)], [added("x", 9, "big"), end(30), added("x", 31, "big", uid="new")]
    )
    assert told[2:] == ["drop y@5=1", "put x@9=1", "drop x@9=1"]


async def test_or_counts_as_absent_where_that_is_asked_for() -> None:
    world = World(forget_undecodable=True)
    told = await world.run(
        [added("x", 3, 1), added("bad", 4, "big"), end(7), modified("x", 8, "big"), modified("x", 9, 2)]
    )
    assert told == ["put x@3=1", "drop x@3=1", "put x@9=2"]
    assert [name for _, name, _ in world.observed.unreadable] == ["a/bad", "a/x"]


@pytest.mark.parametrize("object_", [1, "no", {"metadata": 1}, {"metadata": {"labels": 3}}])
async def test_something_without_a_name_is_counted_and_the_watch_goes_on(world: World, object_: object) -> None:
    told = await world.run([*LISTED, event("ADDED", object_), modified("x", 8, 2)])
    assert told[2:] == ["put x@8=2"]
    assert [found.title for found in world.informer.undecodable.values()] == ["without a name"]
    assert not any("not an object" in reason for reason in world.observed.restarts)


class TestUndecodable:
    """What is known about objects that cannot be read."""

    async def test_they_are_known_until_they_can_be_read_or_are_gone(self, world: World) -> None:
        await world.run(
            [added("x", 3, "big"), added("y", 4, 1), added("z", 5, "big"), end(7), modified("y", 8, "big")],
        )
        assert world.undecodable == {"a/x": "str", "a/y": "str", "a/z": "str"}
        assert world.informer.undecodable["a", "y"].uid == "uid-y"
        await world.run([modified("x", 9, 1), modified("y", 10, [1]), deleted("z", 11, "big")])
        assert world.undecodable == {"a/y": "array"}
        await world.run([deleted("y", 12, 1)])
        assert world.undecodable == {}

    async def test_each_change_is_told_once(self, world: World) -> None:
        await world.run(
            [*LISTED, modified("x", 8, "big"), modified("x", 9, "big"), modified("x", 10, [1]), modified("x", 11, 1)]
        )
        assert world.changed == ["a/x str", "a/x array", "a/x array"]
        assert [message[:21] for _, _, message in world.observed.unreadable] == [
            "Expected `int`, got `",
            "Expected `int`, got `",
        ]

    async def test_a_list_tells_the_difference(self, world: World) -> None:
        gone: Stream = [error_event(410)]
        await world.run([added("x", 3, "big"), added("y", 4, "big"), end(7)], gone)
        await world.run([added("y", 4, "big"), added("z", 20, "big"), end(30)])
        assert sorted(world.undecodable) == ["a/y", "a/z"]
        assert world.changed == ["a/x str", "a/y str", "a/x str", "a/z str"]

    async def test_pages_hold_them_as_streams_do(self, world: World) -> None:
        world.api.pages.extend([page(7, thing("x", 3, "big"), more="next"), page(7, thing("y", 4, 1))])
        assert await world.run([RefusedError("no streaming")], []) == ["put y@4=1"]
        assert world.undecodable == {"a/x": "str"}
        assert world.informer.synced

    async def test_an_older_state_of_one_is_a_replay(self, world: World) -> None:
        await world.run([*LISTED, modified("x", 8, 2)], [modified("x", 3, "big")])
        assert world.undecodable == {}
        await world.run([modified("x", 9, "big")], [modified("x", 8, 2)])
        assert world.undecodable == {"a/x": "str"}

    async def test_the_watch_goes_on_from_where_it_stood(self, world: World) -> None:
        await world.run([*LISTED, modified("x", 8, "big"), TryLaterError("lost")], [])
        assert world.api.watches[1].resource_version == "8"

    @pytest.mark.parametrize("error", [OverflowError("date"), RecursionError("deep"), UnicodeError("text")])
    async def test_no_error_of_one_object_ends_the_run(self, error: Exception) -> None:
        def decode_but_x(raw: msgspec.Raw) -> ObjectEntry[int]:
            entry = decode(raw)
            if entry.name == "x":
                raise error
            return entry

        world = World(decode=decode_but_x)
        assert await world.run([*LISTED, modified("x", 8, 2), modified("y", 9, 2)]) == ["put y@5=1", "put y@9=2"]
        assert next(iter(world.informer.undecodable.values())).problem == str(error)
        assert world.informer.synced

    async def test_an_error_of_this_process_does(self) -> None:
        def out_of_memory(_: msgspec.Raw) -> ObjectEntry[int]:
            raise MemoryError

        with pytest.raises(MemoryError):
            await World(decode=out_of_memory).run(LISTED)

    async def test_an_object_of_5000_levels_is_read_in_streams_and_pages(self, world: World) -> None:
        deep = json.dumps(thing("x", 3, 1) | {"deep": "~"}).replace('"~"', '{"a":' * 5000 + "1" + "}" * 5000)
        line = f'{{"type": "ADDED", "object": {deep}}}'.encode()
        listed = f'{{"kind": "ThingList", "metadata": {{"resourceVersion": "7"}}, "items": [{deep}]}}'.encode()
        assert await world.run([line, end(7)]) == ["put x@3=1"]
        paged = World()
        paged.api.pages.append(listed)
        assert await paged.run([RefusedError("no streaming")], []) == ["put x@3=1"]
        assert paged.informer.synced


HTML = b"<html><body>Sign in to go on</body></html>"


@pytest.mark.parametrize("answer", [HTML, b"", b'{"items": 1}', b"\xff\xfe"], ids=["HTML", "empty", "shape", "no text"])
async def test_a_page_that_is_no_list_is_asked_for_again(world: World, answer: bytes) -> None:
    world.api.pages.extend([answer, page(7, thing("x", 3), more="next"), answer, page(7, thing("x", 3, 1))])
    assert await world.run([RefusedError("no streaming")], []) == ["put x@3=1"]
    assert world.informer.synced
    _, first, second, *_ = world.observed.restarts
    for reason in (first, second):
        assert reason.startswith("list recoverypolicies: not a list: ")
        assert "\n" not in reason
    assert world.clock.slept[:3] == pytest.approx([0.075, 0.15, 0.3])


NO_LIST = [
    b"{}",
    b'{"kind": "PodList", "items": []}',
    b'{"metadata": {"resourceVersion": "7"}, "items": []}',
    b'{"kind": "Status", "metadata": {"resourceVersion": "7"}, "message": "Sign in to go on"}',
]


@pytest.mark.parametrize("answer", NO_LIST)
async def test_an_object_that_is_no_list_is_no_empty_list(world: World, answer: bytes) -> None:
    world.api.pages.extend([page(7, thing("x", 3, 1)), answer, page(9, thing("x", 3, 1))])
    no_streaming = RefusedError("no streaming")
    assert await world.run([no_streaming], [error_event(410)], []) == ["put x@3=1"]
    assert sum("list recoverypolicies: the answer is an object" in reason for reason in world.observed.restarts) == 1
    assert world.observed.lists == [("recoverypolicies", 1)] * 2


async def test_one_instead_of_the_first_list_ends_the_run(world: World) -> None:
    world.api.pages.append(b"{}")
    with pytest.raises(RefusedError, match=r"list recoverypolicies: .* not a list; is there something else in front"):
        await world.run([RefusedError("no streaming")])


async def test_a_page_that_is_no_list_costs_nothing_that_is_known(world: World) -> None:
    world.api.pages.extend([page(7, thing("x", 3, 1)), HTML, page(9, thing("x", 3, 1))])
    assert await world.run([RefusedError("no streaming")], [error_event(410)], []) == ["put x@3=1"]
    assert world.informer.synced


async def test_a_streaming_list_that_is_no_stream_of_events_is_asked_for_again(world: World) -> None:
    assert len(await world.run([HTML], [HTML, HTML], LISTED)) == 2
    assert world.informer.synced


@pytest.mark.parametrize("object_", [1, "no", {"metadata": 1}, {"metadata": {"resourceVersion": 8}}])
async def test_a_bookmark_that_cannot_be_read_breaks_the_stream_and_nothing_else(world: World, object_: object) -> None:
    told = await world.run([event("BOOKMARK", object_)], [*LISTED, event("BOOKMARK", object_)], [modified("x", 8, 2)])
    assert told[2:] == ["put x@8=2"]
    assert [watch.resource_version for watch in world.api.watches] == [None, None, "7", "8"]
    assert all("not an object" in reason for reason in world.observed.restarts[:2])


@pytest.mark.parametrize("object_", [1, "no", {"code": "410"}])
async def test_an_error_that_cannot_be_read_means_list_again(world: World, object_: object) -> None:
    told = await world.run([event("ERROR", object_)], [*LISTED, event("ERROR", object_)], [added("x", 9, 2), end(30)])
    assert told[2:] == ["drop y@5=1", "put x@9=2"]
    assert world.informer.synced
    assert all("an error without a status" in reason for reason in world.observed.restarts[:2])
