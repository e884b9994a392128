"""Which requests and lines meet a fault: given faults by their key, drawn ones by a chance that the key decides."""

from collections import Counter

import pytest

from recovery.ports import JOBS, LEASES, PODS, ApiRequest
from recovery.sim.trials.dice import Dice
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.plan import FaultRates
from recovery.sim.trials.request_faults import (
    LEASE_SHARE,
    OF_LINES,
    OF_PROCESSES,
    OF_READS,
    OF_WRITES,
    RequestFaults,
)
from tests.simulation.trials.small import at_event

ACTOR = "controller-0"
WRITE = ApiRequest("delete", JOBS, "team-a", "llm")
READ = ApiRequest("list", PODS)
RENEWAL = ApiRequest("patch", LEASES, "recovery-system", "recovery-controller")
SPREADS = {kind: (least, most) for of in (OF_PROCESSES, OF_WRITES, OF_READS, OF_LINES) for kind, _, least, most in of}


def faults(*given: TrialFault, seed: int = 1, left: float = 1000.0, **rates: float) -> RequestFaults:
    return RequestFaults(seed, given, FaultRates(**rates), lambda: left)


def of(asked: RequestFaults, request: ApiRequest, number: int, actor: str = ACTOR, seed: int = 1) -> TrialFault | None:
    return asked.of_request(actor, number, request, Dice(seed, actor, number))


def kinds(asked: RequestFaults, request: ApiRequest, requests: int = 3000) -> Counter[FaultKind]:
    drawn = (of(asked, request, number) for number in range(requests))
    return Counter(fault.key.kind for fault in drawn if fault is not None)


# Dice.


def test_the_same_key_gives_the_same_throws() -> None:
    one, other = Dice(1, "controller-0", 7), Dice(1, "controller-0", 7)
    assert [one.throw() for _ in range(8)] == [other.throw() for _ in range(8)]


def test_each_part_of_the_key_matters() -> None:
    keys = [(1, "controller-0", 7), (2, "controller-0", 7), (1, "controller-1", 7), (1, "controller-0", 8)]
    assert len({Dice(*key).throw() for key in keys}) == len(keys)


def test_throws_are_spread_over_their_range() -> None:
    throws = [Dice(1, "a", number).between(10.0, 20.0) for number in range(2000)]
    assert all(10.0 <= throw < 20.0 for throw in throws)
    assert all(150 <= count <= 250 for count in Counter(int(throw) for throw in throws).values())


def test_there_are_eight_throws() -> None:
    dice = Dice(1, "a", 1)
    assert len({dice.throw() for _ in range(8)}) == 8
    with pytest.raises(IndexError):
        dice.throw()


# Given ones.


def test_a_given_fault_hits_the_request_of_its_number_alone() -> None:
    fault = at_event(FaultKind.TIMEOUT, 5)
    asked = faults(fault)
    assert of(asked, WRITE, 5) == fault
    assert of(asked, WRITE, 4) is None
    assert of(asked, WRITE, 5, actor="controller-1") is None


def test_requests_and_lines_are_counted_apart() -> None:
    request, line = at_event(FaultKind.TIMEOUT, 5), at_event(FaultKind.WATCH_LAG, 5, 1.0)
    asked = faults(request, line)
    assert (of(asked, WRITE, 5), asked.of_line(ACTOR, 5)) == (request, line)
    assert asked.of_line(ACTOR, 4) is None


def test_a_given_fault_takes_the_place_of_a_drawn_one() -> None:
    fault = at_event(FaultKind.TIMEOUT, 5)
    assert of(faults(fault, request=1.0), WRITE, 5) == fault


# Drawn ones.


def test_without_rates_nothing_is_drawn() -> None:
    asked = faults()
    assert not kinds(asked, WRITE) + kinds(asked, READ)
    assert [asked.of_line(ACTOR, number) for number in range(100)] == [None] * 100


@pytest.mark.parametrize(
    ("asked", "request_", "spreads"),
    [
        (faults(process=1.0), WRITE, OF_PROCESSES),
        (faults(process=1.0), READ, OF_PROCESSES),
        (faults(request=1.0), WRITE, OF_WRITES),
        (faults(request=1.0), READ, OF_READS),
    ],
    ids=["process at write", "process at read", "write", "read"],
)
def test_every_kind_is_drawn_as_often_as_its_weight_says(
    asked: RequestFaults, request_: ApiRequest, spreads: tuple[tuple[FaultKind, float, float, float], ...]
) -> None:
    drawn = kinds(asked, request_)
    whole = sum(weight for _, weight, _, _ in spreads)
    assert drawn.keys() == {kind for kind, _, _, _ in spreads}
    for kind, weight, _, _ in spreads:
        assert drawn[kind] == pytest.approx(3000 * weight / whole, rel=0.2)


def test_every_kind_of_line_is_drawn() -> None:
    asked = faults(line=1.0)
    drawn = Counter(fault.key.kind for fault in (asked.of_line(ACTOR, number) for number in range(1000)) if fault)
    assert drawn.keys() == {kind for kind, _, _, _ in OF_LINES}


def test_it_lasts_as_long_as_its_kind_may() -> None:
    asked = faults(process=0.5, request=0.5, line=1.0)
    drawn = [of(asked, WRITE, number) for number in range(2000)] + [asked.of_line(ACTOR, n) for n in range(2000)]
    for fault in drawn:
        assert fault is not None
        least, most = SPREADS[fault.key.kind]
        assert least <= fault.seconds <= most
    jumps = [fault.seconds for fault in drawn if fault is not None and fault.key.kind is FaultKind.CLOCK_JUMP]
    assert min(jumps) < -30 < 30 < max(jumps), "clocks are set back, too"


def test_a_rate_is_a_share_of_the_requests() -> None:
    assert kinds(faults(request=0.1), WRITE).total() == pytest.approx(300, rel=0.2)
    assert kinds(faults(process=0.05, request=0.05), WRITE).total() == pytest.approx(300, rel=0.2)


def test_a_renewal_of_the_lease_meets_with_a_fault_much_more_seldom() -> None:
    assert kinds(faults(request=1.0), RENEWAL).total() == pytest.approx(3000 * LEASE_SHARE, rel=0.3)


def test_what_was_asked_before_does_not_matter() -> None:
    """If one fault is struck out, all others stay what they were."""
    asked, again = faults(process=0.1, request=0.3, line=0.3), faults(process=0.1, request=0.3, line=0.3)
    forth = [(of(asked, WRITE, number), asked.of_line(ACTOR, number)) for number in range(200)]
    back = [(of(again, WRITE, number), again.of_line(ACTOR, number)) for number in reversed(range(200))]
    assert forth == back[::-1]
    assert any(fault is not None for pair in forth for fault in pair)


# Before the healing.


@pytest.mark.parametrize("left", [0.0, -5.0])
def test_nothing_is_drawn_in_the_healing(left: float) -> None:
    asked = faults(left=left, process=0.5, request=0.5, line=1.0)
    assert not kinds(asked, WRITE)
    assert [asked.of_line(ACTOR, number) for number in range(100)] == [None] * 100
    assert asked.over()


def test_nothing_is_drawn_that_lasts_into_the_healing() -> None:
    asked = faults(left=10.0, process=0.5, request=0.5, line=1.0)
    drawn = [of(asked, WRITE, number) for number in range(1000)] + [asked.of_line(ACTOR, n) for n in range(1000)]
    assert all(abs(fault.seconds) < 10.0 for fault in drawn if fault is not None)
    told = {fault.key.kind for fault in drawn if fault is not None}
    assert FaultKind.PROCESS_KILL in told
    assert FaultKind.TIMEOUT not in told, "it is heard after 30 s"
    assert not asked.over()


def test_nothing_that_was_given_lasts_into_the_healing() -> None:
    given = (at_event(FaultKind.DELAYED, 0, 10.0), at_event(FaultKind.DELAYED, 1, 9.9), at_event(FaultKind.TIMEOUT, 2))
    lines = (at_event(FaultKind.WATCH_STALL, 0, 10.0), at_event(FaultKind.WATCH_STALL, 1, 9.9))
    asked = faults(*given, *lines, left=10.0)
    assert [of(asked, WRITE, number) for number in range(3)] == [None, given[1], None]
    assert [asked.of_line(ACTOR, number) for number in range(2)] == [None, lines[1]]
