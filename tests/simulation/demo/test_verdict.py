"""The reasons for the exit code: what the trace of a training must show, and what it must not."""

import pytest

from recovery.sim.demo.verdict import Course, DemoVerdict, judge
from recovery.sim.training.trace import Trace
from recovery.sim.virtual_time import BEGIN
from tests.simulation.demo.records import RANKS, TRAINING, at, exited, incarnation, met, started


def course(*, loop_at: float | None = 40, failures: tuple[float, ...] = (10, 20, 30), stuck: str = "") -> Course:
    return Course(
        training=TRAINING,
        ranks=RANKS,
        restarts_allowed=2,
        failures=[BEGIN + at(seconds) for seconds in failures],
        loop_at=BEGIN + at(loop_at) if loop_at is not None else None,
        stuck=stuck,
    )


def as_it_should_be() -> Trace:
    """Recovered at 10, 20 and 30, and restarted twice in the crash loop from 40 on."""
    trace = Trace()
    incarnation(trace, "first", starts=1, meets=2, ends=11)
    incarnation(trace, "second", starts=12, meets=13, ends=21)
    incarnation(trace, "third", starts=22, meets=23, ends=31)
    incarnation(trace, "fourth", starts=32, meets=33, ends=41)
    incarnation(trace, "fifth", starts=42, meets=43, ends=45)
    incarnation(trace, "sixth", starts=46, meets=47, ends=None)
    return trace


def recovered_twice_more(trace: Trace) -> None:
    """Recovered at 20 and 30."""
    incarnation(trace, "third", starts=22, meets=23, ends=31)
    incarnation(trace, "fourth", starts=32, meets=33, ends=None)


def test_three_recoveries_and_a_held_crash_loop_are_as_it_should_be() -> None:
    verdict = judge(as_it_should_be(), course(), held=True)

    assert verdict == DemoVerdict(
        proofs=(
            "incident 1: all 4 ranks met again 3.00 s after the failure, as one new incarnation",
            "incident 2: all 4 ranks met again 3.00 s after the failure, as one new incarnation",
            "incident 3: all 4 ranks met again 3.00 s after the failure, as one new incarnation",
            "incident 4: restarted 2 times, of the 2 that the budget had left; then Held, as the ledger says",
            "no two incarnations ran at once at any moment",
        ),
        problems=(),
    )


def test_a_ledger_that_does_not_say_held() -> None:
    assert judge(as_it_should_be(), course(), held=False).problems == ("incident 4: the ledger does not say Held",)


def test_a_restart_beyond_the_budget() -> None:
    trace = as_it_should_be()
    exited(trace, 48, "sixth")
    started(trace, 49, "seventh", range(1))

    assert judge(trace, course(), held=True).problems == (
        "incident 4: 3 incarnations were started, and the budget allowed 2",
    )


def test_incarnations_that_ran_at_once() -> None:
    trace = Trace()
    incarnation(trace, "first", starts=1, meets=2, ends=None)
    started(trace, 12, "second")
    exited(trace, 12.5, "first")
    met(trace, 13, "second")
    exited(trace, 21, "second")
    recovered_twice_more(trace)

    assert judge(trace, course(), held=True).problems == (
        "incarnations first and second ran at once from 08:00:12.000000",
    )


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("round", "incident 1: the ranks met 0 times after the failure, not once"),
        ("rank", "incident 1: 3 of 4 ranks met"),
    ],
)
def test_a_recovery_without_all_ranks(missing: str, told: str) -> None:
    trace = Trace()
    incarnation(trace, "first", starts=1, meets=2, ends=11)
    started(trace, 12, "second", range(4 if missing == "round" else 3))
    if missing == "rank":
        met(trace, 13, "second")
    exited(trace, 21, "second", range(4 if missing == "round" else 3))
    recovered_twice_more(trace)

    assert judge(trace, course(), held=True).problems == (told,)


def test_a_container_that_was_restarted_in_place_is_no_new_incarnation() -> None:
    trace = Trace()
    incarnation(trace, "first", starts=1, meets=2, ends=11)
    incarnation(trace, "first", starts=12, meets=13, ends=21)
    recovered_twice_more(trace)

    assert judge(trace, course(), held=True).problems == (
        "incident 1: 0 new incarnations were started, not one",
        "incident 1: they met in an incarnation that was there before the failure",
    )


def test_a_failure_that_was_recovered_from_twice() -> None:
    trace = Trace()
    incarnation(trace, "first", starts=1, meets=2, ends=11)
    incarnation(trace, "second", starts=12, meets=13, ends=14)
    incarnation(trace, "again", starts=15, meets=16, ends=21)
    recovered_twice_more(trace)

    assert judge(trace, course(), held=True).problems == (
        "incident 1: 2 new incarnations were started, not one",
        "incident 1: the ranks met 2 times after the failure, not once",
    )


def test_a_play_that_ended_before_its_end() -> None:
    trace = Trace()
    incarnation(trace, "first", starts=1, meets=2, ends=None)
    ended = course(failures=(10,), loop_at=None, stuck="the ranks did not meet within 20 s")

    assert judge(trace, ended, held=False).problems == (
        "the ranks did not meet within 20 s",
        "incident 1: 0 new incarnations were started, not one",
        "incident 1: the ranks met 0 times after the failure, not once",
        "not all 4 incidents took place",
    )


def test_a_play_that_never_began() -> None:
    ended = course(failures=(), loop_at=None, stuck="the ranks did not meet within 20 s")

    assert judge(Trace(), ended, held=False).problems == (
        "the ranks did not meet within 20 s",
        "not all 4 incidents took place",
    )
