"""The informer: what it makes of lists, streams, and everything that goes wrong with either."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pytest

from recovery.core.model.facts import UndecodableObject
from recovery.kube.informer import LIST_BACKOFF_SECONDS_MAX, RESUME_BACKOFF_SECONDS_MAX, Informer
from recovery.kube.projections.metadata import Metadata, ObjectEntry
from recovery.kube.watch_lines import WATCH_IDLE_SECONDS_MAX
from recovery.ports import (
    RECOVERY_POLICIES,
    ExpiredError,
    ForbiddenError,
    NoSuchResourceError,
    RefusedError,
    SilentWatchError,
    TryLaterError,
    WatchEnd,
)
from tests.unit.kube.testing import FakeClock, Middle, Observed, ScriptedApi, Watched, bookmark, event

Stream = Iterable[bytes | Exception]


class Thing(msgspec.Struct, frozen=True):
    metadata: Metadata
    size: int = 0


def decode(raw: bytes | msgspec.Raw) -> ObjectEntry[int]:
    thing = msgspec.json.decode(raw, type=Thing)
    return thing.metadata.entry(thing.size)


def thing(name: str, rv: int, size: object = 0, uid: str = "") -> dict[str, object]:
    metadata = {"name": name, "namespace": "a", "uid": uid or f"uid-{name}", "resourceVersion": str(rv)}
    return {"metadata": {**metadata, "creationTimestamp": "2026-11-21T09:00:00Z"}, "size": size}


def added(name: str, rv: int, size: object = 0, uid: str = "") -> bytes:
    return event("ADDED", thing(name, rv, size, uid))


def modified(name: str, rv: int, size: object = 0, uid: str = "") -> bytes:
    return event("MODIFIED", thing(name, rv, size, uid))


def deleted(name: str, rv: int, size: object = 0, uid: str = "") -> bytes:
    return event("DELETED", thing(name, rv, size, uid))


def page(rv: int, *things: dict[str, object], more: str = "") -> bytes:
    metadata = {"resourceVersion": str(rv), "continue": more}
    return json.dumps({"kind": "ThingList", "metadata": metadata, "items": things or None}).encode()


def end(rv: int) -> bytes:
    return bookmark(rv, initial_events_end=True)


def error_event(code: int, message: str = "no") -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "reason": "Expired", "message": message})


class World:
    """An informer over a script, and what it told."""

    def __init__(
        self, *, forget_undecodable: bool = False, decode: Callable[[msgspec.Raw], ObjectEntry[int]] = decode
    ) -> None:
        self.api = ScriptedApi()
        self.clock = FakeClock()
        self.observed = Observed()
        self.told: list[str] = []
        self.freshness: list[bool] = []
        """What was told of staleness: True is stale."""
        self.changed: list[str] = []
        """What was told of objects that cannot be read, or can be again."""
        self.informer = Informer(
            self.api,
            RECOVERY_POLICIES,
            decode,
            put=lambda entry: self.told.append(f"put {entry.name}@{entry.resource_version}={entry.value}"),
            drop=lambda entry: self.told.append(f"drop {entry.name}@{entry.resource_version}={entry.value}"),
            clock=self.clock,
            entropy=Middle(),
            observer=self.observed,
            label_selector="l",
            readability_changed=lambda found: self.changed.append(f"{found.title} {_got(found)}"),
            forget_undecodable=forget_undecodable,
            freshness_changed=lambda: self.freshness.append(self.informer.stale_since is not None),
        )

    @property
    def undecodable(self) -> dict[str, str]:
        """What `size` was instead of a number, by the object's name."""
        return {found.title: _got(found) for found in self.informer.undecodable.values()}

    async def run(self, *streams: Stream) -> list[str]:
        """Run until the streams are used up; what was told."""
        self.api.streams.extend(streams)
        task = asyncio.create_task(self.informer.run())
        idle = asyncio.create_task(self.api.idle.wait())
        try:
            async with asyncio.timeout(5):
                await asyncio.wait([task, idle], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            task.cancel()
            idle.cancel()
        return self.told


def _got(found: UndecodableObject) -> str:
    return found.problem.partition("got `")[2].partition("`")[0]


@pytest.fixture
def world() -> World:
    return World()


LISTED: Stream = [added("x", 3, 1), added("y", 5, 1), end(7)]


async def test_a_streaming_list_is_complete_at_its_bookmark_and_goes_on_as_a_watch(world: World) -> None:
    told = await world.run([*LISTED, modified("x", 8, 2), deleted("y", 9, 3), added("z", 10)])
    assert told == ["put x@3=1", "put y@5=1", "put x@8=2", "drop y@9=3", "put z@10=0"]
    assert world.api.watches[0] == Watched(None, send_initial_events=True)
    assert world.observed.lists == [("recoverypolicies", 2)]
    assert world.observed.events == 6
    assert world.informer.synced


async def test_nothing_is_told_before_the_list_is_complete(world: World) -> None:
    assert await world.run([added("x", 3)]) == []
    assert not world.informer.synced


async def test_what_changes_while_the_list_arrives_is_part_of_it(world: World) -> None:
    told = await world.run([added("x", 3), added("y", 4), deleted("x", 8), modified("y", 9, 2), end(9)])
    assert told == ["put y@9=2"]


async def test_a_stream_that_ended_is_opened_where_it_stood(world: World) -> None:
    await world.run([*LISTED, modified("x", 8)], [bookmark(20)], [TryLaterError("lost")])
    assert [watch.resource_version for watch in world.api.watches] == [None, "8", "20", "20"]
    assert world.informer.synced


async def test_replays_and_events_from_the_past_are_dropped(world: World) -> None:
    told = await world.run(
        [*LISTED, modified("x", 8, 2), modified("x", 8, 2), modified("x", 6, 9), deleted("y", 6), bookmark(12)],
        [modified("x", 11, 9), added("z", 12)],
    )
    assert told[2:] == ["put x@8=2", "put z@12=0"]


@pytest.mark.parametrize(("one", "two"), [("zz", "aa"), ("²", "1"), ("٣", "٢"), ("9" * 5000, "9" * 4999), ("-1", "-2")])
async def test_resource_versions_that_are_no_numbers_have_no_order(world: World, one: str, two: str) -> None:
    first, second = thing("x", 0, 1), thing("x", 0, 2)
    for body, version in ((first, one), (second, two)):
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        metadata["resourceVersion"] = version
    told = await world.run([end(7), event("ADDED", first), event("MODIFIED", second)])
    assert told == [f"put x@{one}=1", f"put x@{two}=2"]


async def test_a_name_that_is_used_again_is_another_object(world: World) -> None:
    told = await world.run([*LISTED, added("x", 8, 2, uid="second"), deleted("x", 9, 1)])
    assert told[2:] == ["drop x@3=1", "put x@8=2"]


@pytest.mark.parametrize(
    "interruption",
    [[ExpiredError("gone", status=410)], [error_event(410)], [error_event(500, "etcd event received with PrevKv=nil")]],
    ids=["HTTP 410", "ERROR 410", "ERROR 500"],
)
async def test_a_lost_position_means_list_again_and_tell_the_difference(world: World, interruption: Stream) -> None:
    again: Stream = [added("x", 9, 2), added("z", 10), end(30), modified("z", 31, 1)]
    told = await world.run(LISTED, interruption, again)
    assert told[2:] == ["drop y@5=1", "put x@9=2", "put z@10=0", "put z@31=1"]
    assert [watch.resource_version for watch in world.api.watches] == [None, "7", None, "31"]
    assert world.informer.synced


async def test_a_list_that_has_not_changed_tells_nothing(world: World) -> None:
    assert len(await world.run(LISTED, [error_event(410)], LISTED)) == 2


async def test_while_a_list_is_put_it_says_so_and_once_it_is_put(world: World) -> None:
    seen: list[object] = []
    informer = Informer(
        world.api,
        RECOVERY_POLICIES,
        decode,
        put=lambda entry: seen.append((entry.name, informer.taking_over)),
        drop=lambda entry: seen.append(entry.name),
        clock=world.clock,
        entropy=Middle(),
        observer=world.observed,
        taken_over=lambda: seen.append(("taken over", informer.taking_over)),
    )
    world.informer = informer
    await world.run([added("x", 1), added("y", 2), end(2), modified("x", 3)])
    assert seen == [("x", True), ("y", True), ("taken over", False), ("x", False)]


async def test_a_list_that_cannot_be_put_is_no_longer_being_put(world: World) -> None:
    """Else no group would count as trained from then on."""

    def fails(_: object) -> None:
        raise LookupError("a defect")

    informer = Informer(
        world.api,
        RECOVERY_POLICIES,
        decode,
        put=fails,
        drop=fails,
        clock=world.clock,
        entropy=Middle(),
        observer=world.observed,
    )
    world.informer = informer
    with pytest.raises(LookupError):
        await world.run([added("x", 1), end(1)])
    assert not informer.taking_over


async def test_a_list_that_is_cut_off_is_begun_again(world: World) -> None:
    assert await world.run([added("x", 3)], [TryLaterError("lost")], [end(9)]) == []
    assert [watch.send_initial_events for watch in world.api.watches] == [True] * 3 + [False]


async def test_a_server_that_was_set_back_is_not_believed(world: World) -> None:
    told = await world.run([*LISTED, modified("x", 50, 2)], [error_event(410)], [added("x", 20, 1), end(21)])
    assert told[2:] == ["put x@50=2"]
    assert not world.informer.synced
    assert "answers with resourceVersion 21, but 50 has been seen already" in world.observed.restarts[-1]


async def test_a_server_without_streaming_lists_is_asked_for_pages(world: World) -> None:
    world.api.pages.extend([page(7, thing("x", 3), more="next"), page(7, thing("y", 5)), page(30, thing("x", 3))])
    refusal = RefusedError("sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
    told = await world.run([refusal], [modified("x", 8, 2)], [ExpiredError("gone")], [])
    assert told == ["put x@3=0", "put y@5=0", "put x@8=2", "drop y@5=0"]
    assert world.api.lists == [
        ("recoverypolicies", "l", ""),
        ("recoverypolicies", "l", "next"),
        ("recoverypolicies", "l", ""),
    ]
    assert [watch.send_initial_events for watch in world.api.watches] == [True, False, False, False, False]


async def test_an_empty_list_is_a_list(world: World) -> None:
    world.api.pages.append(page(7))
    assert await world.run([RefusedError("no streaming")], []) == []
    assert world.informer.synced


@pytest.mark.parametrize("refusal", [NoSuchResourceError("no CRD"), ForbiddenError("no permission")])
async def test_a_refusal_at_the_start_ends_the_run(world: World, refusal: RefusedError) -> None:
    with pytest.raises(type(refusal), match=str(refusal)):
        await world.run([refusal])


async def test_a_refused_page_at_the_start_ends_the_run(world: World) -> None:
    world.api.pages.append(RefusedError("no pages either"))
    with pytest.raises(RefusedError, match="no pages either"):
        await world.run([RefusedError("no streaming")])


async def test_trouble_at_the_start_is_waited_out(world: World) -> None:
    await world.run([TryLaterError("refused")], [TryLaterError("refused")], LISTED)
    assert world.informer.synced
    assert world.observed.restarts[:2] == ["refused", "refused"]
    assert world.observed.watch_ends[:2] == [WatchEnd.UNREACHABLE, WatchEnd.UNREACHABLE]


async def test_a_refusal_later_takes_synced_back_until_it_is_over(world: World) -> None:
    await world.run(LISTED, [NoSuchResourceError("the CRD is gone")])
    assert not world.informer.synced
    assert world.told[2:] == []
    assert "the CRD is gone" in world.observed.restarts
    assert WatchEnd.FORBIDDEN in world.observed.watch_ends


GONE: Stream = [NoSuchResourceError("the CRD is gone")]


async def test_a_crd_that_was_deleted_is_reported_once_and_its_return_leaves_nothing_of_before(world: World) -> None:
    told = await world.run([*LISTED, bookmark(20)], *[GONE] * 8, [end(40), added("z", 41)])
    assert told[2:] == ["drop x@3=1", "drop y@5=1", "put z@41=0"]
    assert world.informer.synced
    assert world.observed.restarts.count("the CRD is gone") == 1
    assert world.observed.lists == [("recoverypolicies", 2), ("recoverypolicies", 0)]
    waits = world.clock.slept[1:9]
    assert waits == sorted(waits), "it keeps trying, less and less often"
    assert waits[-1] == pytest.approx(LIST_BACKOFF_SECONDS_MAX * 0.75)


async def test_objects_that_go_before_their_crd_are_gone_at_once(world: World) -> None:
    told = await world.run([*LISTED, deleted("x", 8, 1), deleted("y", 9, 1)], GONE)
    assert told[2:] == ["drop x@8=1", "drop y@9=1"]
    assert not world.informer.synced


async def test_a_refusal_is_reported_again_when_it_is_another_or_had_been_over(world: World) -> None:
    forbidden: Stream = [ForbiddenError("no permission")]
    await world.run(LISTED, GONE, forbidden, forbidden, GONE, [end(40)], GONE, [TryLaterError("lost")], GONE)
    assert [reason for reason in world.observed.restarts if "ended the stream" not in reason] == [
        "the CRD is gone",
        "no permission",
        "the CRD is gone",
        "the CRD is gone",
        "lost",
    ]


async def test_a_watch_that_is_refused_does_not_speak_against_streaming_lists(world: World) -> None:
    await world.run(LISTED, [RefusedError("bad request")], [end(40)])
    assert [watch.send_initial_events for watch in world.api.watches] == [True, False, True, False]
    assert world.informer.synced


async def test_after_a_refusal_the_list_is_taken_again(world: World) -> None:
    told = await world.run(LISTED, [NoSuchResourceError("the CRD is gone")], [added("x", 40, 4), end(41)])
    assert told[2:] == ["drop y@5=1", "put x@40=4"]
    assert world.informer.synced


async def test_interruptions_back_off_and_a_healthy_stream_ends_that(world: World) -> None:
    lost: Stream = [TryLaterError("lost")]
    await world.run(LISTED, *[lost] * 9)
    waits = list(world.clock.slept)
    assert waits[0] == pytest.approx(0.075)
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(RESUME_BACKOFF_SECONDS_MAX * 0.75)

    healthy = World()
    await healthy.run(LISTED, *[lost] * 3, Slow(healthy.clock, 300.0), lost)
    assert healthy.clock.slept[-2:] == pytest.approx([0.075, 0.15])
    assert healthy.observed.restarts == [
        "watch recoverypolicies: the server ended the stream after 0 s",
        *["lost"] * 4,
    ]


async def test_a_lost_position_is_listed_at_once_and_lists_that_fail_back_off(world: World) -> None:
    lost: Stream = [TryLaterError("lost")]
    await world.run(LISTED, *[lost] * 6, [error_event(410)], *[lost] * 7, [*LISTED, error_event(410)])
    _, *resuming = world.clock.slept[:8]
    assert resuming[-2:] == pytest.approx([1.5, 0.075]), "the first list after the loss does not wait"
    assert world.clock.slept[-1] == pytest.approx(LIST_BACKOFF_SECONDS_MAX * 0.75), "nor does a list help at once again"


class Slow(list[bytes | Exception]):
    """A stream that lasts, on the clock."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__([bookmark(99)])
        self._clock, self._seconds = clock, seconds

    def __iter__(self) -> Iterator[bytes | Exception]:
        self._clock.seconds += self._seconds
        return super().__iter__()


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
    """What is known of the objects that cannot be read."""

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


# --- silence ---------------------------------------------------------------------------------------------------------


def after(world: World, seconds: float, *lines: bytes | Exception) -> Iterator[bytes | Exception]:
    """A stream on which nothing comes for that long."""
    world.clock.seconds += seconds
    yield from lines


SILENT = SilentWatchError("the connection stands, and nothing comes on it")
IDLE = WATCH_IDLE_SECONDS_MAX


async def test_a_watch_that_falls_silent_is_opened_again_by_a_list(world: World) -> None:
    """To go on where it stood would be silent again, wherever nothing changes, and say nothing about what is true."""
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
