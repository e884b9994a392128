"""What the report says of the rendezvous and of the steps, and when the controller hears of it at once."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.agent._trainjob_recovery import messages as msg
from recovery.agent._trainjob_recovery.barrier import ReportNow
from recovery.agent._trainjob_recovery.messages import Arrived, Joined, Leaving, Steps
from recovery.agent._trainjob_recovery.slots import Slots
from recovery.core.model.agent_facts import AgentFacts
from recovery.rendezvous.reports import read_report

from .groups import Group

NOW = datetime(2026, 11, 28, tzinfo=UTC)


def read(group: Group) -> AgentFacts:
    """What the controller makes of the report."""
    body = json.dumps(group.report).encode()
    return read_report(body, job_uid="job", pod_uid="pod", received_at=NOW, sequence=1)


def ago(moment: datetime | None) -> float | None:
    return None if moment is None else (NOW - moment) / timedelta(seconds=1)


def reports(group: Group, slot: int, message: msg.FromMember) -> bool:
    """Whether the controller hears of it at once."""
    return ReportNow() in group.say(slot, message)


def steps(group: Group, lowest: int, highest: int | None = None, **changed: Any) -> Steps:
    fields: dict[str, Any] = {"first": 0, "absolute": True, "age": 0.0, "step_seconds": None} | changed
    return Steps(group.barrier.epoch, lowest, lowest if highest is None else highest, **fields)


def restarted(group: Group) -> None:
    group.fail(0)
    group.stop_all()
    group.start_all()


def test_ranks_that_show_nothing_meet_nobody() -> None:
    group = Group(3)
    facts = read(group)
    assert (facts.meets, facts.rendezvous, facts.waiting, facts.waiting_count) == (False, (), (), 0)
    assert (facts.arrived, facts.joined, facts.steps) == (0, 0, None)
    assert not group.barrier.meeting


def test_a_rendezvous_lasts_from_the_first_arrival_until_all_have_joined() -> None:
    group = Group(3)
    assert reports(group, 1, Arrived(1, 2.0))
    group.now = 10.0
    assert not reports(group, 0, Arrived(1, 1.0))
    facts = read(group)
    [rendezvous] = facts.rendezvous
    assert (rendezvous.epoch, ago(rendezvous.first_at), rendezvous.joined_at) == (1, 12.0, None)
    assert (facts.meets, facts.arrived, facts.waiting, facts.waiting_count) == (True, 2, (2,), 1)
    assert group.barrier.meeting

    group.say(2, Arrived(1, 0.0))
    group.say(0, Joined(1, 0.0))
    facts = read(group)
    assert (facts.arrived, facts.joined, facts.waiting) == (3, 1, (1, 2)), "all have arrived, and two have not joined"

    group.say(2, Joined(1, 0.0))
    group.now = 11.0
    assert reports(group, 1, Joined(1, 0.5))
    facts = read(group)
    assert facts.present_rendezvous is not None
    assert ago(facts.present_rendezvous.joined_at) == 0.5
    assert (facts.joined, facts.waiting, facts.waiting_count) == (3, (), 0)
    assert not group.barrier.meeting


def test_a_slot_that_arrived_earlier_and_said_so_later_is_the_first() -> None:
    group = Group(2)
    group.now = 10.0
    group.say(0, Arrived(1, 1.0))
    group.say(1, Arrived(1, 7.0))
    [rendezvous] = read(group).rendezvous
    assert ago(rendezvous.first_at) == 7.0


def test_what_is_said_again_changes_nothing() -> None:
    group = Group(2)
    for slot in (0, 1):
        group.say(slot, Arrived(1, 0.0))
        group.say(slot, Joined(1, 0.0))
    group.now = 500.0
    assert not reports(group, 1, Arrived(1, 500.0))
    assert not reports(group, 1, Joined(1, 400.0))
    [rendezvous] = read(group).rendezvous
    assert (ago(rendezvous.first_at), ago(rendezvous.joined_at)) == (500.0, 500.0)


def test_a_slot_that_joined_while_it_had_no_link_has_arrived_too() -> None:
    group = Group(1)
    assert reports(group, 0, Joined(1, 0.5))
    facts = read(group)
    assert (facts.arrived, facts.joined) == (1, 1)
    assert facts.present_rendezvous is not None
    assert ago(facts.present_rendezvous.joined_at) == 0.5


def test_after_a_restart_every_slot_is_waited_for_before_the_first_arrives() -> None:
    group = Group(3, alone=1)
    for slot in range(3):
        group.say(slot, Joined(1, 0.0))
    restarted(group)
    facts = read(group)
    assert (facts.meets, facts.arrived, facts.joined, facts.waiting_count) == (True, 0, 0, 3)
    assert facts.present_rendezvous is None
    assert not group.barrier.meeting
    assert not reports(group, 1, Arrived(1, 0.0)), "of the epoch before"
    assert reports(group, 1, Arrived(2, 0.0))
    assert [each.epoch for each in read(group).rendezvous] == [1, 2]


def test_an_epoch_that_ends_before_all_have_joined_stays_without_an_end() -> None:
    group = Group(2, alone=1)
    group.say(0, Arrived(1, 0.0))
    restarted(group)
    group.say(0, Joined(2, 0.0))
    group.say(1, Joined(2, 0.0))
    assert [(each.epoch, each.joined_at is None) for each in read(group).rendezvous] == [(1, True), (2, False)]


def test_a_group_that_goes_on_as_with_torchrun_meets_nobody_any_more() -> None:
    group = Group(2)
    group.say(0, Arrived(1, 0.0))
    group.say(1, Leaving())
    assert not group.barrier.meeting


def test_the_first_16_slots_are_listed_and_all_are_counted() -> None:
    group = Group(40)
    group.say(3, Arrived(1, 0.0))
    facts = read(group)
    assert facts.waiting == (0, 1, 2, *range(4, 17))
    assert facts.waiting_count == 39


def test_the_latest_8_rendezvous_are_listed() -> None:
    group = Group(1, alone=100)
    for epoch in range(1, 12):
        group.say(0, Joined(epoch, 0.0))
        restarted(group)
    assert [each.epoch for each in read(group).rendezvous] == list(range(4, 12))


def test_steps_are_those_of_all_slots() -> None:
    group = Group(2)
    assert not reports(group, 0, steps(group, 10, 12, first=8, age=2.0, step_seconds=0.25))
    group.now = 1.0
    assert reports(group, 1, steps(group, 11, 11, first=9, absolute=False, step_seconds=0.3)), "all have stepped"
    found = read(group).steps
    assert found is not None
    assert (found.lowest, found.highest, found.first, found.absolute) == (10, 12, 8, False)
    assert (ago(found.at), found.step_seconds) == (3.0, 0.3)
    assert not reports(group, 1, steps(group, 12))


def test_a_slot_without_a_step_has_reached_the_one_before_the_first() -> None:
    group = Group(2)
    group.say(0, steps(group, 12, first=8))
    found = read(group).steps
    assert found is not None
    assert (found.lowest, found.highest, found.first) == (8, 12, 8)


def test_the_controller_hears_at_once_when_all_have_passed_the_epoch_before() -> None:
    group = Group(2, alone=2)
    group.say(0, steps(group, 12))
    group.say(1, steps(group, 11, 13))
    restarted(group)
    assert read(group).steps is None, "none in the present epoch"
    group.say(0, steps(group, 11, first=10))
    assert reports(group, 1, steps(group, 11, first=10))
    assert not reports(group, 0, steps(group, 14))
    assert not reports(group, 1, steps(group, 13)), "the epoch before had reached this step"
    assert reports(group, 1, steps(group, 14))
    assert not reports(group, 1, steps(group, 15))


def test_an_epoch_without_a_step_does_not_lower_what_is_to_be_passed() -> None:
    group = Group(1, alone=3)
    group.say(0, steps(group, 12))
    restarted(group)
    restarted(group)
    group.say(0, steps(group, 11))
    assert reports(group, 0, steps(group, 13))


def test_every_report_can_be_read_whatever_members_say() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        group = Group(draw.randint(1, 20), alone=100)
        for _ in range(60):
            epoch, slot = group.barrier.epoch, draw.randrange(group.barrier.slots)
            lowest, age = draw.choice([0, 5, 2**53]), draw.choice([0.0, 3.0, 86_400.0])
            said: list[msg.FromMember] = [Arrived(epoch, age), Joined(epoch, age)]
            said.append(Steps(epoch, lowest, draw.choice([0, 9, 2**53]), draw.choice([0, 5, 2**53]), True, age, age))
            group.say(slot, draw.choice(said))
            if draw.random() < 0.05:
                restarted(group)
            group.now += draw.random()
            read(group)


def test_what_a_slot_says_costs_the_same_in_a_job_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in how often the barrier goes through the slots that have said something."""
    walks = 0

    def walk(slots: Slots) -> Iterator[int]:
        nonlocal walks
        walks += 1
        return (slot for slot in range(50) if slot in slots)

    monkeypatch.setattr(Slots, "__iter__", walk)
    group = Group(50)
    for slot in range(50):
        group.say(slot, Arrived(1, 0.0))
        group.say(slot, Joined(1, 0.0))
        group.say(slot, steps(group, 4))
    assert walks == 0
    assert read(group)
    assert walks > 0, "a report counts"
