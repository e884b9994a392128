"""What the barrier decides about failures, restarts and permission."""

import pytest

from recovery.agent._trainjob_recovery.barrier import ReportNow
from recovery.agent._trainjob_recovery.messages import (
    Action,
    Done,
    ExitAgent,
    Failed,
    Finished,
    Leaving,
    Permit,
    Start,
    Started,
    StopEpoch,
    Stopped,
)

from .groups import Group, answer, failure, restart, told, told_to_exit

ALL = [100, 101, 102, 103]


def test_all_slots_have_started_and_the_group_runs() -> None:
    group = Group(2, started=False)
    group.say(0, Started(1))
    assert group.report["state"] == "gathering"
    group.later(5)
    assert ReportNow() in group.say(1, Started(1))
    group.now += 2
    assert (group.report["state"], group.report["epochAgeSeconds"]) == ("running", 2.0)


def test_a_failure_without_permission_to_restart_alone_asks_and_stops_nobody() -> None:
    group = Group(4)
    effects = group.fail(1)
    assert group.report["state"] == "asking"
    assert ReportNow() in effects
    assert not [each for link in ALL for each in told(effects, StopEpoch(1)) if each == link]
    assert group.ended == [(1, 1, None)]


def test_the_answer_to_restart_stops_all_and_starts_all_once_nothing_is_left() -> None:
    group = Group(4)
    group.fail(1)
    assert told(group.answer(restart(1)), StopEpoch(1)) == ALL
    for slot in (0, 1, 2):
        assert not told(group.say(slot, Stopped(1, stuck=False)), Start(2))
    assert told(group.say(3, Stopped(1, stuck=False)), Start(2)) == ALL
    assert (group.report["state"], group.report["epoch"]) == ("starting", 2)
    group.start_all()
    assert group.report["state"] == "running"
    assert group.ended == [(1, 1, "Answer")]


def test_the_answer_to_exit_ends_all() -> None:
    group = Group(4)
    group.fail(1)
    effects = group.answer(answer(action=Action(group.barrier.identity, 1, restart=False)))
    assert told_to_exit(effects) == ALL
    assert group.report["state"] == "exiting"
    assert not told(group.answer(restart(1)), StopEpoch(1))


@pytest.mark.parametrize("failures", [1, 2, 3])
@pytest.mark.parametrize("alone", [0, 3])
def test_several_failures_at_once_cause_one_restart(failures: int, alone: int) -> None:
    group = Group(4, alone=alone)
    effects = [each for slot in range(failures) for each in group.fail(slot)]
    effects += group.answer(restart(1))
    assert told(effects, StopEpoch(1)) == ALL
    assert told(group.stop_all(), Start(2)) == ALL
    assert group.ended == [(1, 0, "Alone" if alone else "Answer")]


def test_a_failure_while_stopping_changes_nothing() -> None:
    group = Group(4, alone=1)
    group.fail(0)
    assert group.fail(2) == []
    assert told(group.stop_all(), Start(2)) == ALL
    assert group.ended == [(1, 0, "Alone")]


def test_a_failure_of_an_earlier_epoch_is_ignored() -> None:
    group = Group(2, alone=1)
    group.fail(0)
    group.stop_all()
    group.start_all()
    assert group.say(1, Failed(1, failure(1))) == []
    assert group.report["state"] == "running"


def test_restarts_alone_count_against_the_report_that_was_answered() -> None:
    group = Group(2, alone=2)
    for _ in range(2):
        group.fail(0)
        assert group.report["state"] == "stopping"
        group.stop_all()
        group.start_all()
    group.fail(0)
    assert group.report["state"] == "asking"
    assert group.ended == [(1, 0, "Alone"), (2, 0, "Alone"), (3, 0, None)]


def test_the_answer_to_a_later_report_permits_anew() -> None:
    group = Group(2, alone=1)
    group.fail(0)
    group.stop_all()
    group.start_all()
    group.answer(answer(alone=1), report_epoch=1)
    group.answer(answer(alone=1), report_epoch=2)
    group.fail(1)
    assert group.report["state"] == "stopping"


def test_a_late_answer_to_a_report_of_the_ended_epoch_does_not_permit_anew() -> None:
    group = Group(2, alone=1)
    group.fail(0)
    group.stop_all()
    group.start_all()
    group.answer(answer(alone=1), report_epoch=1)
    group.fail(1)
    assert group.report["state"] == "asking"


def test_nothing_is_restarted_alone_while_a_slot_is_missing() -> None:
    group = Group(3, alone=1)
    group.barrier.on_lost(102)
    group.fail(0)
    assert group.report["state"] == "asking"
    assert (group.report["missing"], group.report["missingCount"]) == ([2], 1)


@pytest.mark.parametrize(("seconds", "state"), [(599.0, "stopping"), (600.0, "exiting")])
def test_permission_holds_for_600_seconds(seconds: float, state: str) -> None:
    group = Group(2, alone=1)
    for _ in range(99):
        group.later(seconds / 99)
    group.now = seconds
    group.fail(0)
    assert group.report["state"] == state


def test_members_hear_that_permission_has_ended() -> None:
    group = Group(2)
    effects = [each for _ in range(61) for each in group.later(10)]
    assert told(effects, Permit(False, 0.0, 60.0)) == [100, 101]


def test_members_hear_of_permission_with_the_rest_of_its_time() -> None:
    group = Group(2, permitted=False)
    assert told(group.answer(answer()), Permit(True, 600.0, 60.0)) == [100, 101]
    assert not told(group.answer(answer()), Permit(True, 600.0, 60.0))
    group.later(30)
    assert told(group.answer(answer()), Permit(True, 600.0, 60.0)) == [100, 101]


def test_without_permission_only_the_failed_slot_exits() -> None:
    group = Group(3, permitted=False)
    assert told_to_exit(group.fail(1)) == [101]
    assert group.report["state"] == "exiting"
    assert told_to_exit(group.fail(2)) == [102]
    assert group.ended == [(1, 1, None)]


def test_an_answer_that_permits_nothing_ends_the_wait_of_failed_slots() -> None:
    group = Group(3)
    group.fail(1)
    assert told_to_exit(group.answer(answer(permitted=False))) == [101]
    assert group.report["state"] == "exiting"


def test_a_restart_needs_permission_in_the_same_answer() -> None:
    group = Group(2)
    group.fail(1)
    action = Action(group.barrier.identity, 1, restart=True)
    assert not told(group.answer(answer(permitted=False, action=action)), StopEpoch(1))
    assert group.report["state"] == "exiting"


def test_without_a_decision_failed_slots_exit() -> None:
    group = Group(3)
    group.fail(1)
    for _ in range(5):
        assert told_to_exit(group.later(10)) == []
    assert told_to_exit(group.later(10)) == [101]


@pytest.mark.parametrize("given", [restart(2), restart(1, "c" * 16)])
def test_an_answer_for_another_epoch_or_barrier_is_ignored(given: object) -> None:
    group = Group(2)
    group.fail(0)
    group.answer(given)  # type: ignore[arg-type]
    assert group.report["state"] == "asking"


def test_an_action_is_ignored_while_nothing_is_asked() -> None:
    group = Group(2)
    assert not told(group.answer(restart(1)), StopEpoch(1))
    assert group.report["state"] == "running"


def test_a_process_that_does_not_end_makes_all_exit() -> None:
    group = Group(3, alone=1)
    group.fail(0)
    assert told_to_exit(group.say(2, Stopped(1, stuck=True))) == [100, 101, 102]
    assert (group.report["state"], group.report["stuck"]) == ("exiting", [2])
    assert group.stop_all() == []


def test_a_stop_that_takes_too_long_makes_all_exit() -> None:
    group = Group(3, alone=1)
    group.fail(0)
    group.say(0, Stopped(1, stuck=False))
    assert told_to_exit(group.later(59)) == []
    assert told_to_exit(group.later(1)) == [100, 101, 102]


def test_a_start_that_takes_too_long_makes_all_exit() -> None:
    group = Group(3, alone=1)
    group.fail(0)
    group.stop_all()
    group.say(0, Started(2))
    assert told_to_exit(group.later(60)) == [100, 101, 102]


def test_a_slot_that_fails_at_its_start_is_asked_about() -> None:
    """Only a group that has run is restarted alone: what ends before that may never run."""
    group = Group(2, alone=2)
    group.fail(0)
    group.stop_all()
    group.say(0, Started(2))
    group.fail(1)
    assert (group.report["state"], group.report["epoch"]) == ("asking", 2)


def test_a_leaving_slot_refuses_restarts() -> None:
    group = Group(3, alone=3)
    effects = group.say(1, Leaving())
    assert group.report["state"] == "leaving"
    assert told(effects, Permit(False, 0.0, 60.0)) == [100, 101, 102]
    assert told_to_exit(group.fail(2)) == [102]
    assert group.report["state"] == "leaving"


def test_a_slot_that_leaves_while_all_stop_lets_none_wait() -> None:
    group = Group(3, alone=1)
    group.fail(0)
    group.say(0, Stopped(1, stuck=False))
    assert told_to_exit(group.say(1, Leaving())) == [100, 101, 102]


def test_all_slots_done_finish_the_group() -> None:
    group = Group(2)
    group.say(0, Done(1))
    assert told(group.say(1, Done(1)), Finished()) == [100, 101]
    assert group.report["state"] == "finished"
    assert told(group.join(0, link=200, inc="first0", bound=group.barrier.identity, state="done"), Finished()) == [200]


def test_a_done_slot_takes_part_in_the_next_epoch() -> None:
    group = Group(2, alone=1)
    group.say(0, Done(1))
    group.fail(1)
    assert told(group.stop_all(), Start(2)) == [100, 101]
    group.start_all()
    assert not told(group.say(1, Done(2)), Finished())
    assert told(group.say(0, Done(2)), Finished()) == [100, 101]


def test_slots_that_are_done_finish_in_a_group_without_restarts() -> None:
    group = Group(2)
    group.say(0, Done(1))
    group.say(0, Leaving())
    assert told(group.say(1, Done(1)), Finished()) == [100, 101]


def test_a_report_lists_at_most_16_slots_and_the_newest_16_epochs() -> None:
    group = Group(40, alone=100)
    for _ in range(20):
        group.fail(0)
        group.stop_all()
        group.start_all()
    assert [epoch for epoch, _, _ in group.ended] == list(range(5, 21))
    for slot in range(1, 40):
        group.barrier.on_lost(100 + slot)
    assert (group.report["missing"], group.report["missingCount"]) == (list(range(1, 17)), 39)


def test_exit_is_told_again_to_a_link_that_was_lost() -> None:
    group = Group(2, alone=1)
    group.fail(0)
    group.barrier.on_lost(101)
    group.later(60)
    assert told(group.join(1, link=300, bound=group.barrier.identity), ExitAgent()) == [300]
