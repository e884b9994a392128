"""Work in other processes: every result arrives, failures are reported, and no process is left."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from recovery.sim.trials.parallel_trials import NoResult, WorkerError, in_processes, tried_in_processes

pytestmark = pytest.mark.long


def square(seed: int) -> int:
    return seed * seed


def pid(seed: int) -> int:
    return os.getpid()


def fail_at_three(seed: int) -> int:
    if seed == 3:
        raise ValueError("three is not liked")
    return seed


def die_at_three(seed: int) -> int:
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return seed


def interrupt_itself(seed: int) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return seed


def never_end(seed: int) -> int:
    print(seed, flush=True)
    time.sleep(1000)
    return seed


def hang_at_three(seed: int) -> int:
    if seed == 3:
        time.sleep(1000)
    return seed


class LateSquare:
    """Work that takes 1.5 s to arrive in its process."""

    def __call__(self, seed: int) -> int:
        return seed * seed

    def __setstate__(self, state: object) -> None:
        time.sleep(1.5)

    def __getstate__(self) -> object:
        return "not empty: the other side reads it"


def test_every_seed_is_worked_on_once() -> None:
    assert sorted(in_processes(square, range(20), workers=2)) == [(seed, seed * seed) for seed in range(20)]
    assert multiprocessing.active_children() == []


def test_no_more_processes_than_asked_for_and_none_of_them_is_this_one() -> None:
    used = {result for _, result in in_processes(pid, range(10), workers=2)}
    assert 1 <= len(used) <= 2
    assert os.getpid() not in used


def test_a_failure_is_told_with_its_seed_and_its_traceback() -> None:
    with pytest.raises(WorkerError, match=r"seed 3: the simulation itself failed:\n(.|\n)*three is not liked"):
        list(in_processes(fail_at_three, [3, 4], workers=2))
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_is_reported() -> None:
    with pytest.raises(WorkerError, match="seed 3: the process that ran it died"):
        list(in_processes(die_at_three, [3], workers=1))
    assert multiprocessing.active_children() == []


def test_a_seed_that_hangs_is_reported_and_the_others_go_on() -> None:
    """One worker: another process takes its place."""
    tried = tried_in_processes(hang_at_three, [2, 3, 4], 1, limit_seconds=0.5)
    assert list(tried) == [(2, 2), (3, NoResult("it has not ended after 0.5 s", hung=True)), (4, 4)]
    assert multiprocessing.active_children() == []


def test_the_time_of_a_seed_does_not_contain_the_start_of_its_process() -> None:
    assert list(tried_in_processes(LateSquare(), [5], 1, limit_seconds=1)) == [(5, 25)]


def test_after_a_process_that_died_the_others_go_on() -> None:
    tried = dict(tried_in_processes(die_at_three, [2, 3, 4], 1, limit_seconds=None))
    assert tried == {2: 2, 3: NoResult("the process that ran it died (killed, or out of memory)"), 4: 4}


def test_after_a_failure_the_others_go_on_in_the_same_process() -> None:
    two, three, four = tried_in_processes(fail_at_three, [2, 3, 4], 1, limit_seconds=None)
    assert (two, four) == ((2, 2), (4, 4))
    assert isinstance(three[1], NoResult)
    assert "three is not liked" in three[1].why
    assert not three[1].hung


def test_who_stops_asking_leaves_no_process_behind() -> None:
    with closing(in_processes(square, range(1000), workers=2)) as results:
        next(results)
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_ctrl_c_is_the_business_of_the_parent() -> None:
    """A terminal sends it to all processes."""
    assert list(in_processes(interrupt_itself, [1], workers=1)) == [(1, 1)]


def test_a_parent_that_is_killed_leaves_no_process_behind() -> None:
    program = (
        "from recovery.sim.trials.parallel_trials import in_processes\n"
        "from tests.simulation.trials.test_parallel_trials import never_end\n"
        "list(in_processes(never_end, [7], workers=1))\n"
    )
    repository = Path(__file__).parents[3]
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=repository, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "7\n"

    parent.kill()

    rest, _ = parent.communicate(timeout=50)  # until each process that inherited the pipe has ended
    assert rest == ""
