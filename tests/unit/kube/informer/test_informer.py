"""The informer: how it handles lists, streams, and every failure of either."""

from collections.abc import Iterator

import pytest

from recovery.kube.informer import LIST_BACKOFF_SECONDS_MAX, RESUME_BACKOFF_SECONDS_MAX, Informer
from recovery.ports import (
    RECOVERY_POLICIES,
    ExpiredError,
    ForbiddenError,
    NoSuchResourceError,
    RefusedError,
    TryLaterError,
    WatchEnd,
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
from tests.unit.kube.testing import FakeClock, Middle, Watched, bookmark, event


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
    """Otherwise no group would count as trained from then on."""

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
    """A stream during which the clock advances."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__([bookmark(99)])
        self._clock, self._seconds = clock, seconds

    def __iter__(self) -> Iterator[bytes | Exception]:
        self._clock.seconds += self._seconds
        return super().__iter__()
