"""The barrier of a job: decides when all slots stop, and when the next epoch starts. A pure machine.

It runs in the agent of slot 0. Time comes in as seconds of any steady clock, and what to do goes out as effects.

States, and what leads from one to another:

| state                        | what happens                                            | next state                |
|------------------------------|---------------------------------------------------------|---------------------------|
| gathering                    | every slot has started                                  | running                   |
| running                      | a rank fails, one may be left alone, no slot is missing | stopping                  |
| gathering, running, starting | a rank fails, restarts are permitted otherwise          | asking                    |
| gathering, running, starting | a rank fails, restarts are not permitted                | exiting (A)               |
| asking                       | the answer says Restart                                 | stopping                  |
| asking                       | the answer says Exit                                    | exiting (B)               |
| asking                       | permission ends, or no decision comes within 55 s       | exiting (A)               |
| stopping                     | every slot has stopped                                  | starting, the next epoch  |
| stopping                     | a process is stuck, or the restart takes too long       | exiting (B)               |
| starting                     | every slot has started                                  | running                   |
| starting                     | the restart takes too long                              | exiting (B)               |
| any of these                 | a slot leaves                                           | leaving (A)               |
| any of these, leaving        | a container was restarted                               | broken (A)                |
| all but exiting and stopping | every slot is done                                      | finished                  |

(A): the slots that wait for the next epoch are told to exit. The others go on as with torchrun.
(B): all slots are told to exit.
No state follows exiting and finished.
"""

from dataclasses import dataclass, replace

from .job_progress import JobProgress
from .messages import (
    Arrived,
    Beat,
    Done,
    ExitAgent,
    Failed,
    Failure,
    Finished,
    FromBarrier,
    FromMember,
    Joined,
    Leaving,
    Permit,
    Proof,
    ReportAnswer,
    Start,
    Started,
    Steps,
    StopEpoch,
    Stopped,
    Welcome,
)
from .slots import Slots
from .wire import failure_fields

PERMISSION_SECONDS = 600.0
"""How long an answer's permission holds."""
LOST_AFTER_SECONDS = 15.0
"""A link on which nothing was heard for so long is lost."""
ASKING_SECONDS = 55.0
"""How long a decision may take. A failed member waits a little longer, so that the decision still finds it."""
_PERMIT_AGAIN_SECONDS = 10.0
_LISTED = 16
"""How many slots, or ended epochs, a report lists."""

_IN_PLACE = ("gathering", "running", "asking", "stopping", "starting")
_RUNS = ("gathering", "running", "starting")


@dataclass(frozen=True)
class Send:
    link: int
    message: FromBarrier | Welcome


@dataclass(frozen=True)
class Close:
    """Close a link without an answer."""

    link: int


@dataclass(frozen=True)
class ReportNow:
    """What the controller should know at once has changed."""


@dataclass(frozen=True)
class BarrierSays:
    text: str


Effect = Send | Close | ReportNow | BarrierSays


@dataclass(slots=True)
class _Slot:
    inc: str
    link: int | None
    """None: the link is lost."""
    heard_at: float


@dataclass(frozen=True)
class _Ended:
    epoch: int
    slot: int
    failure: Failure
    at: float
    by: str | None = None
    """How the next epoch was begun: Alone or Answer. None: it was not."""
    ran: bool = False
    """Every slot had started the epoch when it ended."""


class _Progress:
    """Which slots have said what about the present epoch."""

    def __init__(self, slots: int) -> None:
        self.started = Slots(slots)
        self.failed = Slots(slots)
        self.stopped = Slots(slots)
        self.done = Slots(slots)


class Barrier:
    def __init__(self, identity: str, slots: int, now: float) -> None:
        self.identity = identity
        self.slots = slots
        self.epoch = 1
        self.state = "gathering"
        self._state_at = now
        self._epoch_at = now
        self._of_epoch = _Progress(self.slots)
        self._progress = JobProgress(slots)
        self._members: dict[int, _Slot] = {}
        self._slot_of_link: dict[int, int] = {}
        self._leaving: set[int] = set()
        self._restarted: set[int] = set()
        self._stuck: set[int] = set()
        self._ended: list[_Ended] = []
        self._answer: ReportAnswer | None = None
        self._answered_at = now
        self._answered_epoch = 1
        """The epoch of the report that the last answer is for."""
        self._permits_said_at: float | None = None
        """None: no member was told of a permission yet."""
        self._said = Permit(False, 0.0, 60.0)
        self._restart_until = now
        """When the time for the present restart is over."""
        self._all_exit = False

    # ---- what happens to links ---------------------------------------------------------------------------------------

    def on_joined(self, now: float, link: int, slot: int, inc: str, proof: Proof) -> list[Effect]:
        """A member has proved that it knows the key."""
        old = self._members.get(slot)
        if not 0 <= slot < self.slots or self._contradicts(proof):
            return [Close(link)]
        if old is not None and old.inc != inc and old.link is not None and now - old.heard_at < LOST_AFTER_SECONDS:
            return [BarrierSays(f"refuses a second agent of slot {slot}"), Close(link)]
        effects: list[Effect] = []
        if old is not None and old.link is not None:
            del self._slot_of_link[old.link]
            effects.append(Close(old.link))
        self._members[slot] = _Slot(inc, link, now)
        self._slot_of_link[link] = slot
        permit = self._permit(now)
        effects.append(
            Send(
                link,
                Welcome(self.identity, self.epoch, permit.permitted, permit.permitted_seconds, permit.in_place_seconds),
            )
        )
        if proof.bound not in (None, self.identity):
            return effects + self._container_restarted(now, 0)
        if old is not None and old.inc != inc:
            return effects + self._container_restarted(now, slot)
        return effects + self._catch_up(link, proof)

    def _contradicts(self, proof: Proof) -> bool:
        """A member of this barrier is in its present epoch, or has stopped the one before. A new one is in epoch 1."""
        if proof.bound is None:
            return proof.epoch != 1
        if proof.bound != self.identity or proof.epoch == self.epoch:
            return False
        return proof.epoch != self.epoch - 1 or proof.state != "stopped"

    def _catch_up(self, link: int, proof: Proof) -> list[Effect]:
        """Repeat what was said while the link was lost."""
        if self.state == "finished":
            return [Send(link, Finished())]
        if self.state == "exiting" and self._all_exit:
            return [Send(link, ExitAgent())]
        if self.state == "stopping":
            return [Send(link, StopEpoch(self.epoch))]
        if proof.epoch == self.epoch - 1:
            return [Send(link, Start(self.epoch))]
        return []

    def on_lost(self, link: int) -> list[Effect]:
        slot = self._slot_of_link.pop(link, None)
        if slot is not None:
            self._members[slot].link = None
        return []

    # ---- what members say --------------------------------------------------------------------------------------------

    def on_message(self, now: float, link: int, message: FromMember) -> list[Effect]:
        slot = self._slot_of_link.get(link)
        if slot is None:
            return []
        self._members[slot].heard_at = now
        if isinstance(message, Beat):
            return []
        if isinstance(message, Leaving):
            return self._slot_leaves(now, slot)
        return self._slot_says(now, slot, message) if message.epoch == self.epoch else []

    def _slot_says(
        self, now: float, slot: int, message: Started | Arrived | Joined | Steps | Failed | Stopped | Done
    ) -> list[Effect]:
        if isinstance(message, Started):
            return self._slot_started(now, slot)
        if isinstance(message, Arrived | Joined | Steps):
            return self._slot_shows(now, slot, message)
        if isinstance(message, Failed):
            return self._slot_failed(now, slot, message.ended)
        if isinstance(message, Stopped):
            return self._slot_stopped(now, slot, message.stuck)
        return self._slot_done(now, slot)

    def _slot_started(self, now: float, slot: int) -> list[Effect]:
        self._of_epoch.started.add(slot)
        if self.state not in ("gathering", "starting") or len(self._of_epoch.started) < self.slots:
            return []
        self._epoch_at = now
        return self._become("running", now)

    def _slot_shows(self, now: float, slot: int, message: Arrived | Joined | Steps) -> list[Effect]:
        if isinstance(message, Arrived):
            news = self._progress.on_arrived(now, slot, message.age)
        elif isinstance(message, Joined):
            news = self._progress.on_joined(now, slot, message.age)
        else:
            news = self._progress.on_steps(now, slot, message)
        return [ReportNow()] if news else []

    def _slot_failed(self, now: float, slot: int, failure: Failure) -> list[Effect]:
        if slot in self._of_epoch.failed:
            return self._exit_of(slot) if self.state in ("exiting", "leaving", "broken") else []
        self._of_epoch.failed.add(slot)
        first = not self._ended or self._ended[-1].epoch != self.epoch
        effects: list[Effect] = []
        if first:
            self._ended = [*self._ended, _Ended(self.epoch, slot, failure, now, ran=self.state == "running")][-_LISTED:]
            effects += [BarrierSays(f"rank {failure.rank} of slot {slot} failed in epoch {self.epoch}"), ReportNow()]
        if self.state in ("exiting", "leaving", "broken"):
            return effects + self._exit_of(slot)
        if self.state not in _RUNS:
            return effects
        if not self._permitted(now):
            return effects + self._exit_as_torchrun(now, "a restart in place is not permitted")
        if self.state == "running" and self._alone_left() > 0 and not self._missing():
            return effects + self._restart(now, "Alone")
        return effects + self._become("asking", now)

    def _slot_stopped(self, now: float, slot: int, stuck: bool) -> list[Effect]:
        if stuck:
            self._stuck.add(slot)
            effects: list[Effect] = [BarrierSays(f"a process of slot {slot} does not end"), ReportNow()]
            return effects + (self._exit_all(now) if self.state == "stopping" else [])
        self._of_epoch.stopped.add(slot)
        if self.state != "stopping" or len(self._of_epoch.stopped) < self.slots:
            return []
        self.epoch += 1
        self._epoch_at = now
        self._of_epoch = _Progress(self.slots)
        self._progress.begin(self.epoch)
        return [*self._become("starting", now), *self._to_all(Start(self.epoch))]

    def _slot_done(self, now: float, slot: int) -> list[Effect]:
        self._of_epoch.done.add(slot)
        if len(self._of_epoch.done) < self.slots or self.state in ("exiting", "finished", "stopping"):
            return []
        return [*self._become("finished", now), *self._to_all(Finished())]

    def _slot_leaves(self, now: float, slot: int) -> list[Effect]:
        self._leaving.add(slot)
        if self.state not in _IN_PLACE:
            return []
        return self._end_in_place("leaving", now, f"slot {slot} leaves")

    def _container_restarted(self, now: float, slot: int) -> list[Effect]:
        new = slot not in self._restarted
        self._restarted.add(slot)
        if self.state in _IN_PLACE or self.state == "leaving":
            return self._end_in_place("broken", now, f"the container of slot {slot} was restarted")
        return [ReportNow()] if new else []

    # ---- time and answers --------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        """Call it about once a second."""
        effects: list[Effect] = []
        for member in self._members.values():
            if member.link is not None and now - member.heard_at >= LOST_AFTER_SECONDS:
                effects.append(Close(member.link))
                del self._slot_of_link[member.link]
                member.link = None
        if self.state == "asking":
            if not self._permitted(now):
                return effects + self._exit_as_torchrun(now, "the permission is too old")
            if now - self._state_at >= ASKING_SECONDS:
                return effects + self._exit_as_torchrun(now, "no decision came in time")
        if self.state in ("stopping", "starting") and now >= self._restart_until:
            return [*effects, BarrierSays("the restart in place takes too long"), *self._exit_all(now)]
        return effects + self._say_permit(now)

    def on_answer(self, now: float, report_epoch: int, answer: ReportAnswer) -> list[Effect]:
        """`report_epoch` is the epoch in the report that this answers."""
        self._answer, self._answered_at, self._answered_epoch = answer, now, report_epoch
        effects = self._say_permit(now)
        if self.state != "asking":
            return effects
        if not answer.permitted:
            return effects + self._exit_as_torchrun(now, "a restart in place is not permitted any more")
        action = answer.action
        if action is None or (action.barrier, action.epoch) != (self.identity, self.epoch):
            return effects
        if action.restart:
            return effects + self._restart(now, "Answer")
        return [*effects, BarrierSays("the controller lets all agents exit"), *self._exit_all(now)]

    def _permitted(self, now: float) -> bool:
        return self._answer is not None and self._answer.permitted and now - self._answered_at < PERMISSION_SECONDS

    def _alone_left(self) -> int:
        """Restarts that the answered report could not know of count against the permission."""
        used = sum(ended.by is not None and ended.epoch >= self._answered_epoch for ended in self._ended)
        return self._answer.alone - used if self._answer else 0

    def _permit(self, now: float) -> Permit:
        """What members are told. Nothing is permitted once the group is not for in place any more."""
        in_place_seconds = self._answer.in_place_seconds if self._answer else 60.0
        if self.state not in _IN_PLACE or not self._permitted(now):
            return Permit(False, 0.0, in_place_seconds)
        return Permit(True, PERMISSION_SECONDS - (now - self._answered_at), in_place_seconds)

    def _say_permit(self, now: float) -> list[Effect]:
        """Tell all members if it changes, or if a later answer has prolonged what they know."""
        permit = self._permit(now)
        changed = (permit.permitted, permit.in_place_seconds) != (self._said.permitted, self._said.in_place_seconds)
        since = self._answered_at if self._permits_said_at is None else self._permits_said_at
        if not changed and (not permit.permitted or self._answered_at < since + _PERMIT_AGAIN_SECONDS):
            return []
        self._said, self._permits_said_at = permit, now
        return self._to_all(permit)

    # ---- what the barrier does ---------------------------------------------------------------------------------------

    def _restart(self, now: float, by: str) -> list[Effect]:
        assert self._answer is not None, "a restart follows a permission"
        self._ended[-1] = replace(self._ended[-1], by=by)
        self._restart_until = now + self._answer.in_place_seconds
        said = "by the permission of an earlier answer" if by == "Alone" else "by the controller's decision"
        return [
            BarrierSays(f"restarts all ranks in place after epoch {self.epoch}, {said}"),
            *self._become("stopping", now),
            *self._to_all(StopEpoch(self.epoch)),
        ]

    def _exit_all(self, now: float) -> list[Effect]:
        self._all_exit = True
        return [*self._become("exiting", now), *self._to_all(ExitAgent())]

    def _exit_as_torchrun(self, now: float, why: str) -> list[Effect]:
        """Slots that failed exit. The others go on, as torchrun leaves them."""
        return [BarrierSays(f"lets the failed slots exit: {why}"), *self._end_waiting("exiting", now)]

    def _end_in_place(self, state: str, now: float, why: str) -> list[Effect]:
        return [BarrierSays(f"restarts nothing in place from now on: {why}"), *self._end_waiting(state, now)]

    def _end_waiting(self, state: str, now: float) -> list[Effect]:
        """Leave restarts in place. Slots that wait for the next epoch exit; where all were stopped, that is all."""
        waiting = range(self.slots) if self.state == "stopping" else list(self._of_epoch.failed)
        effects = self._become(state, now)
        for slot in waiting:
            effects += self._exit_of(slot)
        return effects + self._say_permit(now)

    def _exit_of(self, slot: int) -> list[Effect]:
        member = self._members.get(slot)
        return [] if member is None or member.link is None else [Send(member.link, ExitAgent())]

    def _become(self, state: str, now: float) -> list[Effect]:
        self.state, self._state_at = state, now
        return [ReportNow()]

    def _to_all(self, message: FromBarrier) -> list[Effect]:
        return [Send(link, message) for link in self._slot_of_link]

    def _missing(self) -> list[int]:
        linked = set(self._slot_of_link.values())
        return [slot for slot in range(self.slots) if slot not in linked]

    @property
    def meeting(self) -> bool:
        """Ranks wait for others in the present epoch, and more of them may come."""
        return self.state in _RUNS and self._progress.lasts

    def report(self, now: float) -> dict[str, object]:
        """What the controller is told: the full state, with ages and not dates."""
        missing = self._missing()
        return {
            "v": 1,
            "barrier": self.identity,
            "epoch": self.epoch,
            "state": self.state,
            "stateAgeSeconds": round(now - self._state_at, 3),
            "epochAgeSeconds": round(now - self._epoch_at, 3),
            "slots": self.slots,
            "missing": missing[:_LISTED],
            "missingCount": len(missing),
            "restarted": sorted(self._restarted)[:_LISTED],
            "stuck": sorted(self._stuck)[:_LISTED],
            "ended": [
                {
                    "epoch": ended.epoch,
                    "slot": ended.slot,
                    **failure_fields(ended.failure),
                    "ageSeconds": round(now - ended.at, 3),
                    "by": ended.by,
                    "ran": ended.ran,
                }
                for ended in self._ended
            ],
            **self._progress.fields(now),
        }
