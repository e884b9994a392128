"""Which pods chaos affects."""

import pytest

from recovery.core.model.drill import DrillAction
from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.schema import SelectionMode
from recovery.scenario.selection import chance_of, select
from recovery.scenario.strict_input import BadInputError

PODS = tuple(range(250))


def entry(mode: SelectionMode, value: int | None = None, indexes: tuple[int, ...] = ()) -> ExperimentChaos:
    return ExperimentChaos("chaos[0]", 0, DrillAction.POD_KILL, mode, value, indexes, at_seconds=0.0)


@pytest.mark.parametrize(
    ("chaos", "pods"),
    [
        (entry(SelectionMode.ONE), 1),
        (entry(SelectionMode.ALL), 250),
        (entry(SelectionMode.FIXED, 7), 7),
        (entry(SelectionMode.FIXED_PERCENT, 1), 2),  # 2.5, rounded down
        (entry(SelectionMode.FIXED_PERCENT, 100), 250),
        (entry(SelectionMode.ALL, indexes=(9, 3)), 2),
    ],
)
def test_the_mode_says_how_many(chaos: ExperimentChaos, pods: int) -> None:
    found = select(chaos, PODS, chance_of(7, 1, 0))
    assert len(set(found)) == pods
    assert list(found) == sorted(found)
    assert set(found) <= set(chaos.indexes or PODS)


def test_the_same_seed_repeat_and_entry_choose_the_same_pods() -> None:
    chaos = entry(SelectionMode.FIXED, 5)
    assert select(chaos, PODS, chance_of(7, 1, 0)) == select(chaos, PODS, chance_of(7, 1, 0))


def test_the_choice_stays_the_same_from_one_version_to_the_next() -> None:
    """People write the seed into a ticket, and run the experiment again later."""
    assert select(entry(SelectionMode.FIXED, 5), PODS, chance_of(7, 1, 0)) == (96, 97, 171, 243, 246)


@pytest.mark.parametrize("other", [(8, 1, 0), (7, 2, 0), (7, 1, 1)])
def test_another_seed_repeat_or_entry_chooses_other_pods(other: tuple[int, int, int]) -> None:
    chaos = entry(SelectionMode.FIXED, 5)
    assert select(chaos, PODS, chance_of(*other)) != select(chaos, PODS, chance_of(7, 1, 0))


def test_the_order_of_the_indexes_in_the_file_means_nothing() -> None:
    one, other = (entry(SelectionMode.FIXED, 2, indexes) for indexes in ((1, 2, 3, 4), (4, 2, 3, 1)))
    assert select(one, PODS, chance_of(7, 1, 0)) == select(other, PODS, chance_of(7, 1, 0))


@pytest.mark.parametrize(
    ("chaos", "pods", "says"),
    [
        (
            entry(SelectionMode.FIXED_PERCENT, 1),
            range(64),
            "chaos[0].value: 1 does not make 1 to 64 pods; mode fixed-percent needs a number of per cent of the pods",
        ),
        (
            entry(SelectionMode.FIXED, 5),
            range(4),
            "chaos[0].value: 5 does not make 1 to 4 pods; mode fixed needs a number of pods",
        ),
        (
            entry(SelectionMode.ALL, indexes=(0, 9, 8)),
            range(8),
            "chaos[0].selector.indexes: 8, 9: the job has no such pods now",
        ),
        (entry(SelectionMode.ALL), range(0), "chaos[0]: the job has no pods now"),
    ],
)
def test_an_entry_that_does_not_fit_the_pods_is_refused(chaos: ExperimentChaos, pods: range, says: str) -> None:
    with pytest.raises(BadInputError) as raised:
        select(chaos, pods, chance_of(7, 1, 0))
    assert raised.value.problems == (says,)
