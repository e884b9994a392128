"""Random walks of a barrier with its members: links that break, ranks that fail, answers that come late.

Each walk is drawn from its own number, so that a failure names the walk that shows it again.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from recovery.agent._trainjob_recovery import barrier as b
from recovery.agent._trainjob_recovery import member as m
from recovery.agent._trainjob_recovery.barrier import Barrier
from recovery.agent._trainjob_recovery.member import AgentMember, RankEnd
from recovery.agent._trainjob_recovery.messages import (
    Action,
    Beat,
    Failure,
    FromMember,
    ReportAnswer,
    Start,
    Stopped,
    Welcome,
)
from recovery.agent._trainjob_recovery.slot_progress import RankProgress

from .groups import IDENTITY, failure

WALKS = 300
STEPS = 400
FAILED_LIMIT_SECONDS = 60.0 + 70.0 + 40.0 + 5.0
"""A decision, a restart, the end of the ranks, and the steps of the walk."""


@dataclass
class Slot:
    member: AgentMember
    link: int | None = None
    """None: there is no link."""
    code: int | None = None
    """None: the agent has not ended."""
    runs: int | None = None
    """The epoch whose ranks run. None: none do."""
    stop_due: float | None = None
    """When the ranks that are being stopped are gone. None: they are not being stopped."""
    start_due: float | None = None
    starts: int = 0
    """The epoch that is being started."""
    failed_at: float | None = None
    shows: RankProgress = field(default_factory=RankProgress)
    joined: bool = False
    """The joined file is there."""
    to_barrier: deque[FromMember] = field(default_factory=deque)
    to_member: deque[object] = field(default_factory=deque)


class Walk:
    def __init__(self, number: int) -> None:
        self.draw = random.Random(number)
        self.now = 0.0
        # Each walk has its own troubles. A walk with all of them would soon be over.
        self.stuck, self.refuses, self.exits = (self.draw.choice([0.0, 0.0, often]) for often in (0.02, 0.05, 0.2))
        self.cuts, self.leaves, self.succeeds = (self.draw.choice([0.0, often]) for often in (0.1, 0.004, 0.3))
        self.stops = self.draw.choice([[0.1], [0.1, 1.0], [0.1, 1.0, 30.0]])
        """How long ranks may take to end."""
        self.replaced = self.draw.choice([0.0, 0.0, 0.004])
        self.fails = self.draw.choice([0.02, 0.1, 0.5])
        self.slots = [Slot(AgentMember(0, 1)) for _ in range(self.draw.randint(4, 8))]
        count = len(self.slots)
        self.barrier = Barrier(IDENTITY, count, 0.0)
        self.links = 0
        self.incs = [0] * count
        self.broken = False
        """A container was restarted, so that slots of different epochs run, as with torchrun."""
        self.permitted_until = 0.0
        self.stopped: dict[int, set[int]] = {}
        self.decided: dict[int, set[str]] = {}
        self.rendezvous: set[int] = set()
        """The epochs in which all slots have joined."""
        for at, slot in enumerate(self.slots):
            slot.member = AgentMember(count, 1)
            self.of_member(at, slot.member.begin())
        if self.draw.random() < 0.9:
            self.answer()

    def of_member(self, at: int, effects: list[m.Effect]) -> None:
        slot = self.slots[at]
        for effect in effects:
            if isinstance(effect, m.StartRanks):
                assert slot.runs is None, "two epochs overlap in one slot"
                if effect.epoch > 1:
                    assert self.stopped[effect.epoch - 1] == set(range(len(self.slots)))
                    assert self.broken or all(each.runs in (None, effect.epoch) for each in self.slots)
                slot.start_due, slot.starts = self.now + self.draw.uniform(0, 2), effect.epoch
                slot.runs, slot.failed_at = effect.epoch, None
                slot.shows, slot.joined = RankProgress(), False
            elif isinstance(effect, m.ShowJoined):
                assert slot.runs == slot.member.epoch, "joined ranks run"
                assert slot.shows.joined_at is not None
                slot.joined = True
            elif isinstance(effect, m.StopRanks):
                slot.joined = False
                slot.stop_due = self.now + self.draw.choice(self.stops)
            elif isinstance(effect, m.Tell) and slot.link is not None:
                slot.to_barrier.append(effect.message)
            elif isinstance(effect, m.End):
                assert slot.code is None, "an agent ends once"
                slot.code, slot.runs = effect.code, None

    def of_barrier(self, effects: list[b.Effect]) -> None:
        sent: set[object] = set()
        for effect in effects:
            if isinstance(effect, b.Send):
                sent.add(effect.message)
                for slot in self.slots:
                    if slot.link == effect.link:
                        slot.to_member.append(effect.message)
            elif isinstance(effect, b.Close):
                self.cut(effect.link)
        for message in sent:
            if isinstance(message, Start):
                assert self.stopped.get(message.epoch - 1) == set(range(len(self.slots)))
        self.check_report()

    def check_report(self) -> None:
        report = self.barrier.report(self.now)
        ended = report["ended"]
        assert isinstance(ended, list)
        epochs = [each["epoch"] for each in ended]
        assert epochs == sorted(set(epochs)), "each ended epoch is listed once"
        assert all(each["by"] is not None for each in ended if each["epoch"] < self.barrier.epoch)
        self.check_rendezvous(report)

    def check_rendezvous(self, report: dict[str, object]) -> None:
        listed = report["rendezvous"]
        assert isinstance(listed, list)
        epochs = [each["epoch"] for each in listed]
        assert epochs == sorted(set(epochs)), "each rendezvous is listed once"
        assert report["meets"] == bool(listed)
        arrived, joined, waiting = report["arrived"], report["joined"], report["waitingCount"]
        assert isinstance(joined, int)
        assert isinstance(arrived, int)
        assert joined <= arrived <= len(self.slots)
        present = next((each for each in listed if each["epoch"] == self.barrier.epoch), None)
        assert (arrived > 0) == (present is not None)
        all_joined = present is not None and present["joinedAgeSeconds"] is not None
        assert all_joined == (joined == len(self.slots))
        assert (waiting == 0) == (all_joined or not listed)
        self.rendezvous.update(each["epoch"] for each in listed if each["joinedAgeSeconds"] is not None)

    def cut(self, link: int) -> None:
        for slot in self.slots:
            if slot.link == link:
                slot.link = None
                slot.to_barrier.clear()
                slot.to_member.clear()
        self.barrier.on_lost(link)

    def act(self, call: list[b.Effect], before: str) -> None:
        """Note what the barrier decides."""
        if self.barrier.state == "stopping" and before != "stopping":
            assert self.now < self.permitted_until, "a restart without permission"
            self.decided.setdefault(self.barrier.epoch, set()).add("Restart")
        if self.barrier.state == "exiting" and before == "asking":
            self.decided.setdefault(self.barrier.epoch, set()).add("Exit")
        assert len(self.decided.get(self.barrier.epoch, ())) <= 1, "one decision an epoch"
        self.of_barrier(call)

    def step(self) -> None:
        self.now += self.draw.choice([0.02, 0.1, 0.5, 1.0])
        for at, slot in enumerate(self.slots):
            self.serve(at, slot)
        before = self.barrier.state
        self.act(self.barrier.tick(self.now), before)
        if self.draw.random() < 0.3:
            self.answer()
        if self.draw.random() < self.cuts:
            linked = [slot.link for slot in self.slots if slot.link is not None]
            if linked:
                self.cut(self.draw.choice(linked))
        if self.draw.random() < self.fails:
            for at in self.draw.sample(range(len(self.slots)), self.draw.choice([1, 1, 2, 3])):
                self.end_rank(at, failure(at))
        if self.draw.random() < self.succeeds:
            self.end_rank(self.draw.randrange(len(self.slots)), None)
        if self.draw.random() < self.leaves:
            at = self.draw.randrange(len(self.slots))
            self.of_member(at, self.slots[at].member.on_signal("SIGTERM"))
        if self.draw.random() < self.replaced:
            self.replace(self.draw.randrange(len(self.slots)))

    def replace(self, at: int) -> None:
        """The kubelet has restarted a container: another agent of the slot, in epoch 1."""
        if (link := self.slots[at].link) is not None:
            self.cut(link)
        self.incs[at] += 1
        self.broken = True
        slot = self.slots[at] = Slot(AgentMember(len(self.slots), 1))
        self.of_member(at, slot.member.begin())

    def serve(self, at: int, slot: Slot) -> None:
        if slot.code is not None:
            if slot.link is not None:
                self.deliver_to_barrier(at, slot)
                self.cut(slot.link)
            return
        if slot.start_due is not None and self.now >= slot.start_due:
            slot.start_due = None
            self.of_member(at, slot.member.on_started(self.now, slot.starts))
        if slot.stop_due is not None and self.now >= slot.stop_due and slot.start_due is None:
            slot.stop_due, nothing_left = None, self.draw.random() >= self.stuck
            slot.runs = None if nothing_left else slot.runs
            self.of_member(at, slot.member.on_last_progress(self.now, slot.member.epoch, [slot.shows]))
            self.of_member(at, slot.member.on_stopped(self.now, nothing_left))
        self.of_member(at, slot.member.tick(self.now))
        if slot.code is None and slot.runs is not None and slot.start_due is None:
            self.show(at, slot)
        if slot.link is None and slot.code is None and self.draw.random() < 0.6:
            self.dial(at, slot)
        self.deliver_to_barrier(at, slot)
        while slot.to_member and self.draw.random() < 0.8:
            message = slot.to_member.popleft()
            if isinstance(message, Welcome):
                self.of_member(at, slot.member.on_welcome(self.now, message))
            else:
                self.of_member(at, slot.member.on_message(self.now, message))  # type: ignore[arg-type]
        slot.failed_at = None if slot.code is not None else slot.failed_at
        if slot.failed_at is not None:
            assert self.now - slot.failed_at < FAILED_LIMIT_SECONDS, "a failed slot neither runs again nor exits"

    def show(self, at: int, slot: Slot) -> None:
        """The rank of this slot may go on, and its agent looks at it."""
        assert slot.runs is not None
        if self.draw.random() < 0.5:
            shows = slot.shows
            if shows.joined_at is None:
                joins = shows.arrived_at is not None and self.draw.random() < 0.8
                slot.shows = RankProgress(shows.arrived_at or self.now, self.now if joins else None)
            else:
                step = shows.step + 1
                slot.shows = RankProgress(shows.arrived_at, shows.joined_at, step, 0, True, self.now)
        self.of_member(at, slot.member.on_progress(self.now, slot.runs, [slot.shows]))

    def deliver_to_barrier(self, at: int, slot: Slot) -> None:
        while slot.to_barrier:
            message = slot.to_barrier.popleft()
            if isinstance(message, Stopped) and not message.stuck:
                self.stopped.setdefault(message.epoch, set()).add(at)
            before = self.barrier.state
            assert slot.link is not None
            self.act(self.barrier.on_message(self.now, slot.link, message), before)
        if slot.link is not None:
            self.barrier.on_message(self.now, slot.link, Beat())

    def dial(self, at: int, slot: Slot) -> None:
        self.links += 1
        slot.link = self.links
        before = self.barrier.state
        self.act(
            self.barrier.on_joined(self.now, slot.link, at, f"{at}-{self.incs[at]}", slot.member.proof("")), before
        )

    def answer(self) -> None:
        epoch = self.barrier.epoch
        if self.draw.random() < 0.1:
            epoch = max(1, epoch - 1)
        action = None
        if self.draw.random() < 0.6:
            action = Action(IDENTITY, epoch, restart=self.draw.random() >= self.exits)
        given = ReportAnswer(self.draw.random() >= self.refuses, self.draw.choice([0, 0, 1, 3]), 60.0, 30.0, action)
        self.permitted_until = self.now + 600.0 if given.permitted else self.now
        before = self.barrier.state
        self.act(self.barrier.on_answer(self.now, epoch, given), before)

    def end_rank(self, at: int, how: Failure | None) -> None:
        slot = self.slots[at]
        if slot.member.state != "running" or slot.code is not None:
            return
        slot.failed_at = None if how is None else self.now
        self.of_member(at, slot.member.on_rank_end(self.now, RankEnd(slot.member.epoch, 0, how)))


def walked(number: int) -> Walk:
    walk = Walk(number)
    for _ in range(STEPS):
        walk.step()
    return walk


@pytest.mark.parametrize("part", range(10))
def test_no_walk_breaks_a_promise(part: int) -> None:
    for number in range(part * WALKS // 10, (part + 1) * WALKS // 10):
        try:
            walked(number)
        except AssertionError as error:
            error.add_note(f"walk {number}")
            raise


def test_the_walks_see_what_matters() -> None:
    """Walks that never restart, or never give up, would show nothing."""
    walks = [walked(number) for number in range(100)]
    assert max(walk.barrier.epoch for walk in walks) >= 10
    states = {walk.barrier.state for walk in walks}
    assert {"exiting", "leaving", "broken", "finished"} <= states
    decisions = {each for walk in walks for made in walk.decided.values() for each in made}
    assert decisions == {"Restart", "Exit"}
    assert max(len(walk.rendezvous) for walk in walks) >= 4
