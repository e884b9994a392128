"""A soak goes on after what breaks or hangs, and its end says what did, and how to see it again."""

import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from recovery.sim.trials.parallel_trials import NoResult
from tests.soak import soak
from tests.soak.attempt import Attempt, Broken
from tests.soak.tally import Tally
from tests.unit.soak.campaigns import SEVENS, odd_seven_breaks

ROOT = Path(__file__).parents[3]
HUNG = NoResult("it has not ended after 1 s", hung=True)


def test_a_soak_goes_on_and_says_in_the_end_what_broke_and_what_hung() -> None:
    said: list[str] = []
    code = soak.soak(SEVENS, range(7, 18), workers=2, limit_seconds=1, say=said.append)
    assert code == soak.EXIT_BROKEN
    assert "number 7 breaks no seven: 7 has one" in said
    assert "number 13: it has not ended after 1 s" in said
    assert said[2:] == [
        "\nnumber 7",
        "  7 ends with 7",
        "  Again: show 7",
        "\nnumber 13",
        "  number 13",
        "  Again: show 13",
        "  digits: 17",
        "  CPU-seconds each: 0.500",
        "  broken 2 times: no seven",
        "    by number 7, 17",
        "  hung: number 13",
        "11 of the numbers 7 to 17 ran, 2 broke, 1 hung; CPU-seconds: 5.0",
    ]
    assert multiprocessing.active_children() == []


def test_a_soak_in_which_all_held_ends_with_zero() -> None:
    said: list[str] = []
    assert soak.soak(SEVENS, range(2), workers=1, limit_seconds=50, say=said.append) == 0
    assert said[-1] == "2 of the numbers 0 to 1 ran, 0 broke; CPU-seconds: 1.0"


def test_the_interrupt_of_a_terminal_ends_it_with_the_summary_so_far() -> None:
    program = (
        "import sys; from tests.soak.soak import soak; from tests.unit.soak.campaigns import ENDLESS\n"
        "sys.exit(soak(ENDLESS, range(5), workers=1, limit_seconds=99, say=print))"
    )
    running = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "0 has begun\n"
    running.send_signal(signal.SIGINT)
    rest, _ = running.communicate(timeout=50)  # until each process that inherited the pipe has ended
    assert running.returncode == soak.EXIT_INTERRUPTED
    assert rest.splitlines()[-2:] == ["0 of the numbers 0 to 4 ran, 0 broke; CPU-seconds: 0.0", "interrupted"]


def test_progress_is_said_once_a_minute() -> None:
    said: list[str] = []
    minutes = iter(number * 25.0 for number in range(100))
    tried = [(number, Attempt(1.0)) for number in range(7)]
    soak.count(Tally(SEVENS, range(7)), tried, said.append, lambda: next(minutes))
    assert said == [
        "3 of the numbers 0 to 6 ran, 0 broke; CPU-seconds: 3.0",
        "6 of the numbers 0 to 6 ran, 0 broke; CPU-seconds: 6.0",
    ]


def test_only_the_first_break_of_an_invariant_is_news() -> None:
    tally = Tally(SEVENS, range(7, 40))
    assert tally.add(27, odd_seven_breaks(27)) == "number 27 breaks no seven: 27 has one"
    assert tally.add(7, odd_seven_breaks(7)) == ""
    assert tally.add(8, Attempt(1, (Broken("other"), Broken("no seven")))) == "number 8 breaks other"
    assert tally.broken == 3


def test_each_number_without_a_result_is_news() -> None:
    tally = Tally(SEVENS, range(5))
    assert tally.add(3, HUNG) == "number 3: it has not ended after 1 s"
    assert tally.add(4, NoResult("the process that ran it died")) == "number 4: the process that ran it died"
    assert tally.progress() == "2 of the numbers 0 to 4 ran, 0 broke, 1 hung, 1 failed; CPU-seconds: 0.0"
    assert not tally.all_held


def test_the_summary_has_the_most_frequent_invariant_first_and_few_numbers_of_each() -> None:
    tally = Tally(SEVENS, range(30))
    tally.add(29, Attempt(1, (Broken("seldom"),)))
    for number in range(25):
        tally.add(number, Attempt(1, (Broken("often"),)))
    lines = list(tally.summary())
    assert lines[1:5] == [
        "  broken 25 times: often",
        f"    by number {', '.join(map(str, range(20)))} and 5 more",
        "  broken once: seldom",
        "    by number 29",
    ]


def test_no_more_than_five_numbers_are_explained() -> None:
    tally = Tally(SEVENS, range(9))
    for number in range(9):
        tally.add(number, Attempt(1, (Broken(f"invariant {number}"),)))
    said: list[str] = []
    soak.explain(tally, workers=1, limit_seconds=50, say=said.append)
    assert list(_headings(said)) == [f"number {number}" for number in range(soak.MOST_EXPLAINED)]


def _headings(said: list[str]) -> Iterator[str]:
    return (line.strip() for line in said if line.startswith("\n"))
