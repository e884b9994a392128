"""The member of one slot: says what its ranks do, and obeys the barrier. A pure machine.

Time comes in as seconds of any steady clock, and what to do goes out as effects. Without a barrier it does what
torchrun does.

States, and what leads from one to another:

| state    | what happens                                              | next state                               |
|----------|-----------------------------------------------------------|------------------------------------------|
| new      | begins                                                    | running, in epoch 1                      |
| running  | a rank fails, and a restart is permitted                  | failed (the other ranks are stopped)     |
|          | a rank fails otherwise                                    | ending                                   |
|          | every rank has exited with 0                              | done                                     |
| running, failed, done | `stop` of this epoch                         | stopping                                 |
| failed   | permission ends, `exit`, or 60 s are over                 | ending                                   |
| stopping | nothing of the epoch is left                              | stopped                                  |
|          | a process is stuck                                        | stuck                                    |
| stopped  | `start` of the next epoch                                 | running, in the next epoch               |
| stopping, stopped, stuck | `exit`, or the time for the restart is over | ending                                 |
| running, done | `exit`                                               | ending                                   |
| done     | `finished`, or nothing for 300 s                          | ended, with 0                            |
| all but ending, ended | a signal asks to terminate                   | ending                                   |
| ending   | the ranks are stopped                                     | ended, with 1                            |
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .messages import (
    Done,
    ExitAgent,
    Failed,
    Failure,
    Finished,
    FromBarrier,
    FromMember,
    Leaving,
    Permit,
    Proof,
    Start,
    Started,
    StopEpoch,
    Stopped,
    Welcome,
)
from .slot_progress import RankProgress, SlotProgress

DECISION_SECONDS = 60.0
"""How long a failed slot waits for a restart to begin."""
FINISH_SECONDS = 300.0
"""How long a slot that is done waits for the others, as torchrun does."""
UNBOUND_FINISH_SECONDS = 30.0
"""The same for a slot that no barrier has ever welcomed: there may be none."""
_AFTER_RESTART_SECONDS = 10.0
"""How much longer than the barrier a member waits for the end of a restart."""


@dataclass(frozen=True)
class RankEnd:
    """One rank has ended by itself."""

    epoch: int
    local_rank: int
    failure: Failure | None
    """None: it has exited with 0."""


@dataclass(frozen=True)
class StartRanks:
    epoch: int
    fork: bool


@dataclass(frozen=True)
class StopRanks:
    """Stop the ranks, then call `on_stopped`. A start that is under way is finished first."""

    signal_name: str = "SIGTERM"


@dataclass(frozen=True)
class BeginZygote:
    """Prepare the process that later epochs are forked from."""


@dataclass(frozen=True)
class ShowJoined:
    """Every rank of this slot has joined the others."""


@dataclass(frozen=True)
class Tell:
    """Send to the barrier. Without a link it is lost: the member says it again when it is welcomed."""

    message: FromMember


@dataclass(frozen=True)
class End:
    """End the agent with this exit code."""

    code: int


@dataclass(frozen=True)
class MemberSays:
    text: str


Effect = StartRanks | StopRanks | BeginZygote | ShowJoined | Tell | End | MemberSays


class AgentMember:
    def __init__(self, slots: int, local_ranks: int) -> None:
        self.state = "new"
        self.epoch = 1
        self.bound: str | None = None
        """The barrier that welcomed this member first. None: none has."""
        self._slots = slots
        self._local_ranks = local_ranks
        self._started = False
        self._progress = SlotProgress(1)
        self._succeeded: set[int] = set()
        self._failure: Failure | None = None
        """The first failure of the epoch. None: no rank has failed."""
        self._ranks_stopped = False
        """The ranks were stopped, and nothing of them is left."""
        self._stopping_ranks = False
        self._stuck = False
        self._wait_until = 0.0
        """When the present wait is over, in a state that has one."""
        self._permitted_until = 0.0
        self._in_place_seconds = 60.0
        self._has_zygote = False
        self._leaves = False
        self._exit_code = 1

    def begin(self) -> list[Effect]:
        """Epoch 1 starts at once, as with torchrun."""
        return self._run(1, fork=False)

    def proof(self, mac: str) -> Proof:
        """What a new link says about this member."""
        if self.state in ("stopped", "stuck"):
            state = "stopped"
        elif self.state == "done":
            state = "done"
        else:
            state = "running" if self._failure is None else "failed"
        return Proof(mac, self.bound, self.epoch, state)

    # ---- what the ranks do -------------------------------------------------------------------------------------------

    def on_started(self, now: float, epoch: int) -> list[Effect]:
        """The ranks of this epoch were started."""
        if epoch != self.epoch or self._started:
            return []
        self._started = True
        if self.state not in ("running", "done"):
            return []
        return [Tell(Started(epoch)), *self._zygote(now)]

    def on_start_failed(self, why: str) -> list[Effect]:
        return [MemberSays(f"the ranks cannot be started: {why}"), *self._end(1)]

    @property
    def meeting(self) -> bool:
        """The ranks run and have not all joined, so that a look at their progress may find that they have."""
        return self.state == "running" and not self._progress.joined

    def on_progress(self, now: float, epoch: int, ranks: Sequence[RankProgress]) -> list[Effect]:
        """What the ranks of this epoch show. Call it at least once a second."""
        if epoch != self.epoch or self.state not in ("running", "done"):
            return []
        joined_before = self._progress.joined
        effects: list[Effect] = [Tell(message) for message in self._progress.look(now, ranks)]
        if self._progress.joined and not joined_before:
            effects.append(ShowJoined())
        return effects

    def on_last_progress(self, now: float, epoch: int, ranks: Sequence[RankProgress]) -> list[Effect]:
        """What the ranks of this epoch have shown in the end. Call it when they are stopped, before `on_stopped`."""
        return [Tell(message) for message in self._progress.look_last(now, ranks)] if epoch == self.epoch else []

    def on_rank_end(self, now: float, end: RankEnd) -> list[Effect]:
        if end.epoch != self.epoch or self.state != "running":
            return []
        if end.failure is not None:
            return self._rank_failed(now, end.failure)
        self._succeeded.add(end.local_rank)
        if len(self._succeeded) < self._local_ranks:
            return []
        self.state = "done"
        self._wait_until = now + (UNBOUND_FINISH_SECONDS if self.bound is None else FINISH_SECONDS)
        if self._slots == 1:  # no other slot is waited for, but a barrier that is there hears of the end
            self._wait_until = now + 1.0 if self.bound is not None else now
        return [Tell(Done(self.epoch))]

    def _rank_failed(self, now: float, failure: Failure) -> list[Effect]:
        self._failure = failure
        failed = Tell(Failed(self.epoch, failure))
        if now >= self._permitted_until:
            return [failed, *self._end(1)]
        self.state, self._wait_until = "failed", now + DECISION_SECONDS
        return [failed, *self._stop_ranks()]

    def on_stopped(self, now: float, nothing_left: bool) -> list[Effect]:
        """What StopRanks asked for has ended."""
        self._stopping_ranks = False
        self._ranks_stopped, self._stuck = nothing_left, not nothing_left
        if self.state == "ending":
            return self._ended(self._exit_code)
        if self.state == "stopping":
            return self._say_stopped()
        return []

    def _say_stopped(self) -> list[Effect]:
        self.state = "stuck" if self._stuck else "stopped"
        return [Tell(Stopped(self.epoch, self._stuck))]

    # ---- what the barrier says ---------------------------------------------------------------------------------------

    def on_welcome(self, now: float, welcome: Welcome) -> list[Effect]:
        """A link is there. The barrier hears again what it may have missed."""
        effects: list[Effect] = []
        if self.bound is None:
            self.bound = welcome.barrier
            if self.state == "done" and self._slots > 1:
                self._wait_until += FINISH_SECONDS - UNBOUND_FINISH_SECONDS
        if self._started or self.state == "done":
            effects.append(Tell(Started(self.epoch)))
        effects += [Tell(message) for message in self._progress.again(now)]
        if self._failure is not None:
            effects.append(Tell(Failed(self.epoch, self._failure)))
        if self.state in ("stopped", "stuck"):
            effects.append(Tell(Stopped(self.epoch, self._stuck)))
        if self.state == "done":
            effects.append(Tell(Done(self.epoch)))
        if self._leaves:
            effects.append(Tell(Leaving()))
        permit = Permit(welcome.permitted, welcome.permitted_seconds, welcome.in_place_seconds)
        return effects + self._on_permit(now, permit)

    def on_message(self, now: float, message: FromBarrier) -> list[Effect]:
        if isinstance(message, Permit):
            return self._on_permit(now, message)
        if isinstance(message, StopEpoch):
            return self._on_stop(now, message.epoch)
        if isinstance(message, Start):
            return self._on_start(message.epoch)
        if isinstance(message, ExitAgent):
            return [] if self.state in ("ending", "ended") else [MemberSays("the barrier says to exit"), *self._end(1)]
        if isinstance(message, Finished) and self.state == "done":
            return self._ended(0)
        return []

    def _on_permit(self, now: float, permit: Permit) -> list[Effect]:
        self._permitted_until = now + permit.permitted_seconds if permit.permitted else now
        self._in_place_seconds = permit.in_place_seconds
        if self.state == "failed" and not permit.permitted:
            return [MemberSays("a restart in place is not permitted any more"), *self._end(1)]
        return self._zygote(now)

    def _zygote(self, now: float) -> list[Effect]:
        """It waits for the ranks, because they matter more."""
        if self._has_zygote or self.state != "running" or not self._started or now >= self._permitted_until:
            return []
        self._has_zygote = True
        return [BeginZygote()]

    def _on_stop(self, now: float, epoch: int) -> list[Effect]:
        if epoch != self.epoch:
            return []
        if self.state in ("stopped", "stuck"):
            return [Tell(Stopped(self.epoch, self._stuck))]
        if self.state not in ("running", "failed", "done"):
            return []
        self.state, self._wait_until = "stopping", now + self._in_place_seconds + _AFTER_RESTART_SECONDS
        if self._ranks_stopped or self._stuck:
            return self._say_stopped()
        return self._stop_ranks()

    def _on_start(self, epoch: int) -> list[Effect]:
        if epoch != self.epoch + 1 or self.state != "stopped":
            return []
        return self._run(epoch, fork=True)

    # ---- time and signals --------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        """Call it at least once a second."""
        if now < self._wait_until:
            return []
        if self.state == "failed":
            return [MemberSays(f"no restart has begun within {DECISION_SECONDS:.0f} s"), *self._end(1)]
        if self.state in ("stopping", "stopped", "stuck"):
            return [MemberSays("the restart in place takes too long"), *self._end(1)]
        if self.state == "done":
            if self._slots == 1:
                return self._ended(0)
            return [MemberSays("does not wait any longer for the other slots"), *self._goodbye(), *self._ended(0)]
        return []

    def on_signal(self, name: str) -> list[Effect]:
        """The container is asked to terminate: torchrun passes the signal on, and exits with 1."""
        if self.state in ("ending", "ended"):
            return []
        return [MemberSays(f"got {name}"), *self._end(1, name)]

    # ---- what the member does ----------------------------------------------------------------------------------------

    def _run(self, epoch: int, fork: bool) -> list[Effect]:
        self.state, self.epoch = "running", epoch
        self._progress = SlotProgress(epoch, self._progress.highest)
        self._started = self._ranks_stopped = self._stuck = False
        self._succeeded = set()
        self._failure = None
        return [StartRanks(epoch, fork)]

    def _stop_ranks(self, signal_name: str = "SIGTERM") -> list[Effect]:
        if self._stopping_ranks:
            return []
        self._stopping_ranks = True
        return [StopRanks(signal_name)]

    def _goodbye(self) -> list[Effect]:
        self._leaves = True
        return [Tell(Leaving())]

    def _end(self, code: int, signal_name: str = "SIGTERM") -> list[Effect]:
        """Stop what is left, then end."""
        effects = self._goodbye()
        self.state, self._exit_code = "ending", code
        if self._ranks_stopped or self._stuck:
            return effects + self._ended(code)
        return effects + self._stop_ranks(signal_name)

    def _ended(self, code: int) -> list[Effect]:
        self.state = "ended"
        return [End(code)]
