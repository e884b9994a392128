"""Faults of a controller's requests: what the server did, what the sender received and when, and what was recorded."""

import asyncio

import pytest

from recovery.ports import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    NotFoundError,
    TryLaterError,
    UnknownOutcomeError,
)
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.transport import TRAVEL_SECONDS
from recovery.sim.virtual_time import virtual_time
from tests.simulation.trials.small import at_event, second
from tests.simulation.trials.wire import Wire

THERE_AND_BACK = 2 * TRAVEL_SECONDS[1]


def noted(wire: Wire) -> list[tuple[int | None, bool]]:
    """Code of each request, and whether it was applied."""
    return [(record.code, record.applied) for record in wire.requests]


async def error_of(wire: Wire) -> ApiError:
    """The error that the production client raises for a create."""
    try:
        await wire.create()
    except ApiError as error:
        return error
    raise AssertionError("it succeeded")


# Without a fault.


@virtual_time
async def test_a_request_travels_and_is_noted_with_what_became_of_it() -> None:
    wire = Wire()

    await wire.create("a")
    await wire.get("a")
    with pytest.raises(AlreadyExistsError):
        await wire.create("a")
    with pytest.raises(NotFoundError):
        await wire.get("b")

    assert noted(wire) == [(200, True), (200, False), (409, False), (404, False)]
    assert [record.number for record in wire.requests] == [0, 1, 2, 3]
    assert [str(record.request) for record in wire.requests][:2] == ["create jobs team-a", "get jobs team-a/a"]
    assert 4 * 2 * TRAVEL_SECONDS[0] <= wire.seconds <= 4 * THERE_AND_BACK
    assert [record.revision for record in wire.requests] == [wire.server.revision] * 4
    assert {record.fault for record in wire.requests} == {None}


# Failed requests.


@virtual_time
async def test_conflict() -> None:
    wire = Wire(at_event(FaultKind.CONFLICT, 0))
    assert isinstance(await error_of(wire), ConflictError)
    assert (noted(wire), wire.names()) == ([(409, False)], [])


@virtual_time
async def test_server_error() -> None:
    wire = Wire(at_event(FaultKind.SERVER_ERROR, 0))
    assert isinstance(await error_of(wire), UnknownOutcomeError)
    assert (noted(wire), wire.names()) == ([(500, False)], [])


@virtual_time
async def test_server_error_though_applied() -> None:
    wire = Wire(at_event(FaultKind.SERVER_ERROR_APPLIED, 0))
    assert isinstance(await error_of(wire), UnknownOutcomeError)
    assert (noted(wire), wire.names()) == ([(500, True)], ["a"])


@virtual_time
async def test_a_write_that_the_server_refuses_is_not_applied_by_a_server_error_either() -> None:
    wire = Wire(at_event(FaultKind.SERVER_ERROR_APPLIED, 0))
    wire.put("a")
    assert isinstance(await error_of(wire), UnknownOutcomeError)
    assert noted(wire) == [(500, False)]


@pytest.mark.parametrize(("kind", "applied"), [(FaultKind.TIMEOUT, False), (FaultKind.TIMEOUT_APPLIED, True)], ids=str)
def test_a_timeout_is_heard_after_30_seconds(kind: FaultKind, applied: bool) -> None:
    @virtual_time
    async def send() -> None:
        wire = Wire(at_event(kind, 0))
        sending = asyncio.create_task(error_of(wire))
        await asyncio.sleep(29.9)
        assert not sending.done()
        assert (noted(wire), wire.names()) == ([(None, applied)], ["a"] * applied)

        assert isinstance(await sending, UnknownOutcomeError)
        assert 30.0 <= wire.seconds <= 30.0 + THERE_AND_BACK

    send()


@virtual_time
async def test_a_read_that_times_out_has_used_up_the_client_s_time_for_another_try() -> None:
    wire = Wire(at_event(FaultKind.TIMEOUT, 0))
    wire.put("a")
    with pytest.raises(TryLaterError):
        await wire.get()
    assert noted(wire) == [(None, False)]


@virtual_time
async def test_a_read_that_meets_a_server_error_is_sent_again_by_the_client() -> None:
    wire = Wire(at_event(FaultKind.SERVER_ERROR, 0))
    wire.put("a")
    await wire.get()
    assert noted(wire) == [(500, False), (200, False)]


@virtual_time
async def test_the_client_waits_as_long_as_a_429_says() -> None:
    wire = Wire(at_event(FaultKind.TOO_MANY_REQUESTS, 0, 4.0), at_event(FaultKind.TOO_MANY_REQUESTS, 1, 2.0))

    await wire.create()

    assert noted(wire) == [(429, False), (429, False), (200, True)]
    first, again, last = (second(record.at) for record in wire.requests)
    assert 4.0 <= again - first <= 4.0 * 1.2 + THERE_AND_BACK
    assert 2.0 <= last - again <= 2.0 * 1.2 + THERE_AND_BACK
    assert wire.names() == ["a"]


# Late requests.


@virtual_time
async def test_a_delayed_request_is_applied_later_and_its_sender_hears_of_it() -> None:
    wire = Wire(at_event(FaultKind.DELAYED, 0, 20.0))
    sending = asyncio.create_task(wire.create())
    await asyncio.sleep(19.9)
    assert (noted(wire), wire.names()) == ([], [])

    await sending
    assert (noted(wire), wire.names()) == ([(200, True)], ["a"])
    assert 20.0 <= second(wire.requests[0].at) <= 20.0 + TRAVEL_SECONDS[1]


@virtual_time
async def test_a_delayed_request_is_applied_after_its_sender_has_given_up() -> None:
    wire = Wire(at_event(FaultKind.DELAYED, 0, 50.0))

    assert isinstance(await error_of(wire), UnknownOutcomeError)
    assert 30.0 <= wire.seconds <= 30.0 + THERE_AND_BACK
    assert (noted(wire), wire.names()) == ([], [])

    await asyncio.sleep(20.0)
    assert (noted(wire), wire.names()) == ([(None, True)], ["a"])


@virtual_time
async def test_a_delayed_request_is_applied_after_its_sender_died() -> None:
    wire = Wire(at_event(FaultKind.DELAYED, 0, 20.0))
    sending = asyncio.create_task(wire.create())
    await asyncio.sleep(5.0)
    wire.process.kill(1.0)
    sending.cancel()

    await asyncio.sleep(20.0)

    assert (noted(wire), wire.names()) == ([(None, True)], ["a"])
    assert wire.requests[0].process == 0


@virtual_time
async def test_a_delayed_request_may_be_refused_when_it_arrives() -> None:
    wire = Wire(at_event(FaultKind.DELAYED, 0, 20.0))
    sending = asyncio.create_task(wire.create())
    await asyncio.sleep(10.0)
    wire.put("a")
    with pytest.raises(AlreadyExistsError):
        await sending
    assert noted(wire) == [(409, False)]


# The sender dies or is frozen.


async def hears_nothing(wire: Wire, sending: asyncio.Task[None]) -> None:
    await asyncio.sleep(500)
    assert not sending.done(), "the dead do not hear"
    assert wire.process.how == "killed"


@virtual_time
async def test_a_process_that_is_killed_at_a_request_has_not_sent_it() -> None:
    wire = Wire(at_event(FaultKind.PROCESS_KILL, 0, 7.5))
    await hears_nothing(wire, asyncio.create_task(wire.create()))
    assert (noted(wire), wire.names()) == ([], [])
    assert wire.process.restart_seconds == 7.5


@virtual_time
async def test_a_process_that_is_killed_after_a_request_has_sent_it_and_hears_nothing() -> None:
    wire = Wire(at_event(FaultKind.PROCESS_KILL_AFTER, 0, 7.5))
    await hears_nothing(wire, asyncio.create_task(wire.create()))
    assert (noted(wire), wire.names()) == ([(None, True)], ["a"])
    assert wire.process.restart_seconds == 7.5


@virtual_time
async def test_the_dead_write_nothing_more_not_even_while_they_are_taken_apart() -> None:
    wire = Wire()

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await wire.create("last-will")

    working = asyncio.create_task(work())
    await asyncio.sleep(1)
    wire.process.kill(1.0)
    working.cancel()
    await asyncio.sleep(100)

    assert (noted(wire), wire.names()) == ([], [])


@virtual_time
async def test_a_request_of_a_process_that_dies_while_it_travels_does_not_arrive() -> None:
    wire = Wire()
    sending = asyncio.create_task(wire.create())
    await asyncio.sleep(TRAVEL_SECONDS[0] / 2)
    wire.process.kill(1.0)
    await hears_nothing(wire, sending)
    assert (noted(wire), wire.names()) == ([], [])


@virtual_time
async def test_a_frozen_process_sends_nothing_and_goes_on_as_if_nothing_had_been() -> None:
    wire = Wire(at_event(FaultKind.PROCESS_FREEZE, 1, 60.0))
    await wire.create("a")
    frozen_from = wire.seconds

    sending = asyncio.create_task(wire.create("b"))
    other = asyncio.create_task(wire.create("c"))
    await asyncio.sleep(59.9)
    assert wire.names() == ["a"], "the request at which it froze, and those of other tasks"

    await asyncio.gather(sending, other)
    assert sorted(wire.names()) == ["a", "b", "c"]
    assert noted(wire) == [(200, True)] * 3
    assert 60.0 <= wire.seconds - frozen_from <= 60.0 + 2 * THERE_AND_BACK


@virtual_time
async def test_an_answer_that_arrives_while_its_sender_is_frozen_is_heard_when_it_goes_on() -> None:
    wire = Wire()
    sending = asyncio.create_task(wire.create("a"))
    await asyncio.sleep(TRAVEL_SECONDS[0] / 2)
    wire.process.clock.freeze(60.0)

    await asyncio.sleep(59.9)
    assert wire.names() == ["a"], "it was on its way"
    assert not sending.done()

    await sending
    assert wire.seconds >= 60.0


@virtual_time
async def test_a_frozen_process_does_not_wake_up_from_its_waits() -> None:
    wire = Wire()
    waiting = asyncio.create_task(wire.process.clock.sleep(10.0))
    await asyncio.sleep(5.0)
    wire.process.clock.freeze(60.0)
    wire.process.clock.freeze(1.0)  # The longer of two freezes counts.
    await waiting
    assert wire.seconds == pytest.approx(65.0)


@virtual_time
async def test_after_a_clock_jump_its_time_of_day_is_wrong_and_nothing_else() -> None:
    wire = Wire(at_event(FaultKind.CLOCK_JUMP, 0, -90.0))
    clock = wire.process.clock

    await wire.create("a")

    assert noted(wire) == [(200, True)]
    assert (clock.now() - wire.clock.now()).total_seconds() == -90.0
    assert clock.monotonic_seconds() == wire.clock.monotonic_seconds()


@virtual_time
async def test_the_healing_sets_a_clock_right() -> None:
    wire = Wire(at_event(FaultKind.CLOCK_JUMP, 0, 45.0))
    await wire.create("a")
    await asyncio.sleep(998.0)
    assert (wire.process.clock.now() - wire.clock.now()).total_seconds() == 45.0
    await asyncio.sleep(2.0)
    assert wire.process.clock.now() == wire.clock.now()


# No faults in the healing.

OF_REQUESTS = [
    FaultKind.CONFLICT,
    FaultKind.SERVER_ERROR,
    FaultKind.SERVER_ERROR_APPLIED,
    FaultKind.TIMEOUT,
    FaultKind.TIMEOUT_APPLIED,
    FaultKind.TOO_MANY_REQUESTS,
    FaultKind.DELAYED,
    FaultKind.PROCESS_KILL,
    FaultKind.PROCESS_KILL_AFTER,
    FaultKind.PROCESS_FREEZE,
    FaultKind.CLOCK_JUMP,
]


LASTING = [
    FaultKind.TIMEOUT,
    FaultKind.TIMEOUT_APPLIED,
    FaultKind.TOO_MANY_REQUESTS,
    FaultKind.DELAYED,
    FaultKind.PROCESS_KILL,
    FaultKind.PROCESS_KILL_AFTER,
    FaultKind.PROCESS_FREEZE,
    FaultKind.CLOCK_JUMP,
]


async def succeeds_at(wire: Wire, at_seconds: float) -> None:
    await asyncio.sleep(at_seconds)
    await wire.create("a")
    assert noted(wire) == [(200, True)]
    assert (wire.log.faults, wire.process.how) == ([], "")
    assert wire.process.clock.now() == wire.clock.now()


@pytest.mark.parametrize("kind", OF_REQUESTS, ids=str)
def test_no_fault_begins_in_the_healing(kind: FaultKind) -> None:
    """An earlier fault that was struck out may have moved the request: a request is known only by its number."""

    @virtual_time
    async def send() -> None:
        await succeeds_at(Wire(at_event(kind, 0)), 1000.0)

    send()


@pytest.mark.parametrize("kind", LASTING, ids=str)
def test_no_fault_lasts_into_the_healing(kind: FaultKind) -> None:
    @virtual_time
    async def send() -> None:
        await succeeds_at(Wire(at_event(kind, 0, 8.0)), 995.0)

    send()


@virtual_time
async def test_what_took_place_is_told_with_its_moment_and_its_key_replays_it() -> None:
    wire = Wire(at_event(FaultKind.CONFLICT, 1), at_event(FaultKind.CONFLICT, 99))
    await wire.create("a")
    await asyncio.sleep(60.0)
    with pytest.raises(ConflictError):
        await wire.create("b")

    (fault,) = wire.log.faults
    (happening,) = wire.evidence.happenings
    assert fault.key == at_event(FaultKind.CONFLICT, 1).key
    assert fault.at_seconds == pytest.approx(60.0, abs=THERE_AND_BACK)
    assert happening.sentence == "controller-0: conflict at its request 1, create jobs team-a"
    assert wire.requests[1].fault == fault
