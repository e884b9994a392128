"""What a member tells the barrier of what its ranks show."""

import pytest

from recovery.agent._trainjob_recovery.messages import Arrived, Joined, Steps
from recovery.agent._trainjob_recovery.slot_progress import RankProgress, SlotProgress


def at_step(step: int, at: float, first: int = 0, *, absolute: bool = True) -> RankProgress:
    return RankProgress(1.0, 2.0, step, first, absolute, at)


WAITING, JOINED = RankProgress(1.0), RankProgress(1.0, 2.0)


def test_a_slot_arrives_with_its_last_rank_and_counts_from_its_first() -> None:
    slot = SlotProgress(1)
    assert slot.look(10.0, [WAITING, RankProgress()]) == []
    assert slot.look(12.0, [WAITING, RankProgress(11.5)]) == [Arrived(1, 11.0)]
    assert slot.look(13.0, [WAITING, RankProgress(11.5)]) == []


def test_a_slot_joins_with_its_last_rank() -> None:
    slot = SlotProgress(1)
    slot.look(3.0, [WAITING, WAITING])
    assert slot.look(4.0, [JOINED, WAITING]) == []
    assert not slot.joined
    assert slot.look(6.0, [JOINED, RankProgress(1.0, 5.5)]) == [Joined(1, 0.5)]
    assert slot.joined


def test_ranks_that_join_between_two_looks_arrive_first() -> None:
    assert SlotProgress(1).look(10.0, [JOINED]) == [Arrived(1, 9.0), Joined(1, 8.0)]


def test_ranks_that_are_not_started_yet_say_nothing() -> None:
    slot = SlotProgress(1)
    assert slot.look(1.0, []) == []
    assert not slot.joined


def test_steps_are_said_at_once_when_every_rank_has_made_one() -> None:
    slot = SlotProgress(1)
    slot.look(9.0, [JOINED, JOINED])
    assert slot.look(10.0, [at_step(1, 9.5), JOINED]) == []
    assert slot.look(11.0, [at_step(2, 10.5), at_step(1, 10.0)]) == [Steps(1, 1, 2, 0, True, 1.0, None)]


def test_a_rank_without_a_step_has_reached_the_one_before_the_first() -> None:
    slot = SlotProgress(1)
    slot.look(10.0, [at_step(7, 9.5, first=5), JOINED])
    [said] = slot.look(15.0, [at_step(9, 14.5, first=5), JOINED])
    assert said == Steps(1, 5, 9, 5, True, 5.0, None)


def test_steps_are_said_every_5_seconds_and_not_at_each() -> None:
    slot = SlotProgress(1)
    said = [each for now in range(10, 31) for each in slot.look(float(now), [at_step(now * 4, now - 0.25)])]
    steps = [each for each in said if isinstance(each, Steps)]
    assert [each.lowest for each in steps] == [40, 60, 80, 100, 120]
    assert [each.step_seconds for each in steps] == [None, 0.25, 0.25, 0.25, 0.25]


def test_nothing_is_said_while_nothing_changes() -> None:
    slot = SlotProgress(1)
    slot.look(10.0, [at_step(4, 9.0)])
    assert [slot.look(float(now), [at_step(4, 9.0)]) for now in range(11, 60)] == [[]] * 49


def test_a_long_step_has_a_duration_too() -> None:
    slot = SlotProgress(1)
    for now in range(10, 300):
        said = slot.look(float(now), [at_step(now // 60, now // 60 * 60 + 1.0)])
    assert said == []
    [_, _, steps] = slot.again(300.0)
    assert isinstance(steps, Steps)
    assert steps.step_seconds == 60.0


def test_a_program_that_goes_back_has_no_duration_until_it_goes_on() -> None:
    slot = SlotProgress(1)
    slot.look(10.0, [at_step(400, 9.0)])
    slot.look(20.0, [at_step(500, 19.0)])
    [back] = slot.look(30.0, [at_step(400, 29.0)])
    assert isinstance(back, Steps)
    assert (back.lowest, back.step_seconds) == (400, None)


def test_steps_are_said_at_once_when_they_pass_those_of_the_epoch_before() -> None:
    slot = SlotProgress(2, before=12)
    slot.look(10.0, [at_step(11, 9.5, first=10)])
    assert slot.look(11.0, [at_step(12, 10.5, first=10)]) == []
    assert slot.look(12.0, [at_step(13, 11.5, first=10)]) == [Steps(2, 13, 13, 10, True, 0.5, 1.0)]
    assert slot.look(12.1, [at_step(13, 11.5, first=10)]) == []
    again = slot.look(13.0, [at_step(14, 12.5, first=10)])
    assert again == [Steps(2, 14, 14, 10, True, 0.5, 1.0)], "other slots may have been one step further"
    assert slot.look(14.0, [at_step(15, 13.5, first=10)]) == []


def test_ranks_that_were_stopped_say_how_far_they_were() -> None:
    slot = SlotProgress(1)
    slot.look(10.0, [at_step(4, 9.0)])
    assert slot.look_last(12.0, [at_step(9, 11.0)]) == [Steps(1, 9, 9, 0, True, 1.0, 0.4)]
    assert slot.look_last(13.0, [at_step(9, 11.0)]) == []
    assert SlotProgress(1).look_last(13.0, [WAITING]) == []


def test_relative_steps_of_one_rank_make_those_of_the_slot_relative() -> None:
    [*_, said] = SlotProgress(1).look(10.0, [at_step(4, 9.0), at_step(5, 9.0, absolute=False)])
    assert said == Steps(1, 4, 5, 0, False, 1.0, None)


def test_all_is_said_again_with_later_ages() -> None:
    slot = SlotProgress(1)
    assert slot.again(1.0) == []
    slot.look(10.0, [at_step(4, 9.0)])
    assert slot.again(20.0) == [Arrived(1, 19.0), Joined(1, 18.0), Steps(1, 4, 4, 0, True, 11.0, None)]


@pytest.mark.parametrize("now", [0.5, 1e9])
def test_ages_fit_a_line_whatever_a_rank_shows(now: float) -> None:
    for said in SlotProgress(1).look(now, [RankProgress(1e300, 1e-300, 3, 1, True, 1e300)]):
        assert 0 <= said.age <= 86_400
