"""The state of every rank, from the trace and from the pods that are not running yet."""

from recovery.sim.demo.rank_board import RankBoard
from recovery.sim.training.trace import EventKind, Trace
from tests.simulation.demo.records import RANKS, TRAINING, event, exited, met, started


def letters(board: RankBoard, starting: set[int] | None = None) -> str:
    return "".join(state.value for state in board.states(starting or set()))


def test_a_rank_without_process_is_starting_if_it_has_a_pod_and_gone_if_not() -> None:
    board = RankBoard(Trace(), TRAINING, RANKS)

    assert letters(board, {0, 2}) == "S-S-"


def test_ranks_wait_until_they_have_met_and_train_from_then_on() -> None:
    trace = Trace()
    board = RankBoard(trace, TRAINING, RANKS)

    started(trace, 1, "a", range(3))
    assert letters(board, {3}) == "WWWS"

    started(trace, 2, "a", range(3, 4))
    met(trace, 2, "a")
    assert letters(board) == "TTTT"


def test_survivors_hang_until_they_exit() -> None:
    trace = Trace()
    board = RankBoard(trace, TRAINING, RANKS)
    started(trace, 1, "a")
    met(trace, 1, "a")

    exited(trace, 2, "a", range(1, 2))
    event(trace, EventKind.RANK_LOST, 2, "a", 1)
    for index in (0, 2, 3):
        event(trace, EventKind.RANK_HUNG, 2, "a", index)
    assert letters(board) == "H-HH"

    exited(trace, 3, "a", range(1))
    assert letters(board, {0}) == "S-HH"


def test_of_two_processes_of_a_rank_the_newest_counts() -> None:
    trace = Trace()
    board = RankBoard(trace, TRAINING, RANKS)
    started(trace, 1, "a")
    met(trace, 1, "a")

    started(trace, 2, "b", range(1))
    assert letters(board) == "WTTT"

    exited(trace, 3, "b", range(1))
    assert letters(board) == "TTTT"


def test_a_round_is_of_the_processes_of_its_own_job() -> None:
    trace = Trace()
    board = RankBoard(trace, TRAINING, RANKS)
    started(trace, 1, "a", range(1))
    started(trace, 2, "b", range(1, 4))

    met(trace, 3, "b")

    assert letters(board) == "WTTT"


def test_another_training_is_not_shown() -> None:
    trace = Trace()
    started(trace, 1, "a")

    assert letters(RankBoard(trace, "team-b/other", RANKS)) == "----"
