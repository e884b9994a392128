"""Facts that follow from a snapshot alone are found once for each snapshot."""

import msgspec
import pytest

from recovery.core.model.derived import derived
from recovery.core.model.facts import Snapshot
from tests.unit.core.groups import training

asked: list[int] = []


@derived
def pods_times(snapshot: Snapshot, times: int = 1) -> int:
    asked.append(times)
    return len(snapshot.pods) * times


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    asked.clear()


def test_the_answer_is_found_once() -> None:
    snapshot = training(4).snapshot()
    assert [pods_times(snapshot) for _ in range(3)] == [4, 4, 4]
    assert asked == [1]


def test_each_argument_is_a_question_of_its_own() -> None:
    snapshot = training(4).snapshot()
    assert (pods_times(snapshot, 2), pods_times(snapshot, 3), pods_times(snapshot, 2)) == (8, 12, 8)
    assert asked == [2, 3]


def test_a_snapshot_made_from_another_one_knows_no_answers_yet() -> None:
    snapshot = training(4).snapshot()
    assert pods_times(snapshot) == 4
    assert pods_times(msgspec.structs.replace(snapshot, pods=snapshot.pods[:1])) == 1


def test_a_snapshot_is_equal_to_one_that_knows_no_answers() -> None:
    snapshot = training(4).snapshot()
    pods_times(snapshot)
    assert snapshot == training(4).snapshot()


def test_an_argument_that_the_question_would_lack_is_refused() -> None:
    with pytest.raises(AssertionError, match="the answer of another one"):
        pods_times(training(4).snapshot(), times=2)
