"""A barrier and members as tests talk to them: facts in, effects out."""

from recovery.agent._trainjob_recovery import barrier as b
from recovery.agent._trainjob_recovery.barrier import Barrier
from recovery.agent._trainjob_recovery.messages import (
    Action,
    Beat,
    ExitAgent,
    Failed,
    Failure,
    FromMember,
    Proof,
    ReportAnswer,
    Started,
    Stopped,
)

IDENTITY = "b" * 16


def failure(rank: int = 0, message: str = "ValueError: x") -> Failure:
    return Failure(rank, 1, None, message, None, "pod", "node")


def answer(*, permitted: bool = True, alone: int = 0, action: Action | None = None) -> ReportAnswer:
    return ReportAnswer(permitted, alone, 60.0, 30.0, action)


def restart(epoch: int, barrier: str = IDENTITY) -> ReportAnswer:
    return answer(action=Action(barrier, epoch, restart=True))


class Group:
    """A barrier whose slots have links. The link of slot 3 is 103, until it dials again."""

    def __init__(self, slots: int, *, permitted: bool = True, alone: int = 0, started: bool = True) -> None:
        self.barrier = Barrier(IDENTITY, slots, 0.0)
        self.now = 0.0
        for slot in range(slots):
            self.join(slot)
        if started:
            for slot in range(slots):
                self.say(slot, Started(1))
        if permitted or alone:
            self.answer(answer(permitted=permitted, alone=alone))

    def join(
        self,
        slot: int,
        *,
        link: int | None = None,
        inc: str | None = None,
        bound: str | None = None,
        epoch: int = 1,
        state: str = "running",
    ) -> list[b.Effect]:
        number = 100 + slot if link is None else link
        proof = Proof("", bound, epoch, state)
        return self.barrier.on_joined(self.now, number, slot, inc or f"first{slot}", proof)

    def say(self, slot: int, message: FromMember) -> list[b.Effect]:
        return self.barrier.on_message(self.now, 100 + slot, message)

    def fail(self, slot: int) -> list[b.Effect]:
        return self.say(slot, Failed(self.barrier.epoch, failure(slot)))

    def answer(self, given: ReportAnswer, report_epoch: int | None = None) -> list[b.Effect]:
        return self.barrier.on_answer(self.now, report_epoch or self.barrier.epoch, given)

    def later(self, seconds: float) -> list[b.Effect]:
        """Time passes, and every linked slot is heard."""
        self.now += seconds
        for slot in range(self.barrier.slots):
            self.say(slot, Beat())
        return self.barrier.tick(self.now)

    def stop_all(self) -> list[b.Effect]:
        epoch = self.barrier.epoch
        return [e for slot in range(self.barrier.slots) for e in self.say(slot, Stopped(epoch, stuck=False))]

    def start_all(self) -> list[b.Effect]:
        epoch = self.barrier.epoch
        return [e for slot in range(self.barrier.slots) for e in self.say(slot, Started(epoch))]

    @property
    def report(self) -> dict[str, object]:
        return self.barrier.report(self.now)

    @property
    def ended(self) -> list[tuple[object, object, object]]:
        """Epoch, slot and `by` of each ended epoch in the report."""
        found = self.report["ended"]
        assert isinstance(found, list)
        return [(each["epoch"], each["slot"], each["by"]) for each in found]


def told(effects: list[b.Effect], message: object) -> list[int]:
    """The links to which this message is sent."""
    return [each.link for each in effects if isinstance(each, b.Send) and each.message == message]


def told_to_exit(effects: list[b.Effect]) -> list[int]:
    return told(effects, ExitAgent())
