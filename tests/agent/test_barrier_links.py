"""Which members the barrier takes for whom."""

from recovery.agent._trainjob_recovery.barrier import Barrier, Close, Send
from recovery.agent._trainjob_recovery.messages import Beat, Start, StopEpoch, Welcome

from .groups import IDENTITY, Group, told, told_to_exit


def test_a_welcome_says_what_is_permitted() -> None:
    group = Group(2)
    group.later(10)
    effects = group.join(1, link=201, bound=IDENTITY)
    assert effects[1] == Send(201, Welcome(IDENTITY, 1, True, 590.0, 60.0))


def test_a_lost_link_changes_nothing_while_the_group_runs() -> None:
    group = Group(3)
    assert group.barrier.on_lost(102) == []
    assert (group.report["state"], group.report["missing"]) == ("running", [2])
    group.join(2, link=202, bound=IDENTITY)
    assert (group.report["state"], group.report["missing"]) == ("running", [])


def test_a_link_that_is_not_heard_for_15_seconds_is_lost() -> None:
    group = Group(2)
    group.now = 14.0
    group.say(0, Beat())
    assert group.barrier.tick(14.9) == []
    assert group.barrier.tick(15.0) == [Close(101)]
    assert (group.barrier.report(15.0)["missing"], group.report["state"]) == ([1], "running")


def test_the_same_agent_replaces_its_own_link() -> None:
    group = Group(2)
    effects = group.join(1, link=201, bound=IDENTITY)
    assert effects[0] == Close(101)
    assert group.barrier.on_lost(101) == []
    assert (group.report["state"], group.report["missing"]) == ("running", [])


def test_a_second_agent_of_a_slot_is_refused_while_the_first_is_heard() -> None:
    group = Group(2)
    effects = group.join(1, link=201, inc="second1")
    assert effects[-1] == Close(201)
    assert not [each for each in effects if isinstance(each, Send)]
    assert (group.report["state"], group.report["restarted"]) == ("running", [])


def test_a_new_agent_of_a_slot_breaks_the_group_and_stops_nobody() -> None:
    group = Group(3, alone=3)
    group.barrier.on_lost(101)
    effects = group.join(1, link=201, inc="second1")
    assert (group.report["state"], group.report["restarted"]) == ("broken", [1])
    assert not told(effects, StopEpoch(1))
    assert told_to_exit(effects) == []
    assert told_to_exit(group.fail(2)) == [102]
    assert group.report["state"] == "broken"


def test_a_member_that_was_bound_to_another_barrier_breaks_the_group() -> None:
    group = Group(3, alone=3)
    group.barrier.on_lost(101)
    group.join(1, link=201, bound="c" * 16, epoch=4)
    assert (group.report["state"], group.report["restarted"]) == ("broken", [0])


def test_slots_that_wait_exit_when_the_group_breaks() -> None:
    group = Group(3, alone=3)
    group.fail(0)
    group.barrier.on_lost(101)
    assert sorted(told_to_exit(group.join(1, link=201, inc="second1"))) == [100, 102, 201]


def test_a_member_that_missed_the_stop_hears_it_with_its_next_link() -> None:
    group = Group(3, alone=3)
    group.barrier.on_lost(101)
    group.join(1, link=101, bound=IDENTITY)
    group.fail(0)
    group.barrier.on_lost(101)
    assert told(group.join(1, link=101, bound=IDENTITY), StopEpoch(1)) == [101]


def test_a_member_that_missed_the_start_hears_it_with_its_next_link() -> None:
    group = Group(3, alone=3)
    group.fail(0)
    group.stop_all()
    group.barrier.on_lost(101)
    assert told(group.join(1, link=101, bound=IDENTITY, state="stopped"), Start(2)) == [101]


def test_a_member_in_an_epoch_that_cannot_be_is_refused() -> None:
    group = Group(2)
    group.barrier.on_lost(101)
    for bound, epoch in ((None, 2), (IDENTITY, 2), (IDENTITY, 7)):
        assert group.join(1, link=201, bound=bound, epoch=epoch) == [Close(201)]
    assert group.join(5, link=201) == [Close(201)]
    assert group.report["state"] == "running"


def test_a_link_that_was_not_admitted_has_no_say() -> None:
    barrier = Barrier(IDENTITY, 2, 0.0)
    assert barrier.on_message(0.0, 7, Beat()) == []
    assert barrier.on_lost(7) == []
