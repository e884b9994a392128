"""What members and the barrier say to each other, and what the controller answers. Data only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """How the rank that failed first has ended. It is the tenant's word."""

    rank: int
    exit_code: int | None
    """None: a signal ended the process."""
    signal: int | None
    """None: the process ended by itself."""
    message: str
    """At most 300 characters. Empty: there is none."""
    step: int | None
    """None: not known."""
    pod: str
    node: str


# ---- the handshake ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    slot: int
    inc: str
    """Identifies the process of the agent: a restarted container has another one."""
    nonce: str


@dataclass(frozen=True)
class Challenge:
    nonce: str
    mac: str


@dataclass(frozen=True)
class Proof:
    mac: str
    bound: str | None
    """The barrier that welcomed this member first. None: none has."""
    epoch: int
    state: str
    """running, failed, stopped or done."""


@dataclass(frozen=True)
class Welcome:
    barrier: str
    epoch: int
    permitted: bool
    permitted_seconds: float
    """How long the permission holds from now."""
    in_place_seconds: float


# ---- a member to the barrier -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The ranks of this epoch run."""

    epoch: int


@dataclass(frozen=True)
class Arrived:
    """Every rank of this slot has called `init_process_group` in this epoch."""

    epoch: int
    age: float
    """Seconds since the first of them did."""


@dataclass(frozen=True)
class Joined:
    """That call has returned in every rank of this slot."""

    epoch: int
    age: float
    """Seconds since it did in the last of them."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The training steps that the ranks of this slot have made in this epoch."""

    epoch: int
    lowest: int
    highest: int
    first: int
    """The step before the first one of the epoch. A rank that has made none yet has reached this one."""
    absolute: bool
    """They count from the beginning of the training. Otherwise from the start of the ranks."""
    age: float
    """Seconds since every rank has reached `lowest`."""
    step_seconds: float | None
    """How long a step has taken lately. None: not known."""


@dataclass(frozen=True)
class Failed:
    """A rank of this epoch has failed."""

    epoch: int
    ended: Failure


@dataclass(frozen=True)
class Stopped:
    """The ranks of this epoch are stopped."""

    epoch: int
    stuck: bool
    """A process is left that SIGKILL does not end. Otherwise nothing is left."""


@dataclass(frozen=True)
class Done:
    """Every rank of this epoch has exited with 0."""

    epoch: int


@dataclass(frozen=True)
class Leaving:
    """This agent ends. It takes part in no restart."""


@dataclass(frozen=True)
class Beat:
    """The other side is there. Both sides send it."""


# ---- the barrier to a member -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Permit:
    permitted: bool
    permitted_seconds: float
    in_place_seconds: float


@dataclass(frozen=True)
class StopEpoch:
    epoch: int


@dataclass(frozen=True)
class Start:
    epoch: int


@dataclass(frozen=True)
class ExitAgent:
    """End as torchrun does after a failure."""


@dataclass(frozen=True)
class Finished:
    """Every slot is done."""


FromMember = Started | Arrived | Joined | Steps | Failed | Stopped | Done | Leaving | Beat
FromBarrier = Permit | StopEpoch | Start | ExitAgent | Finished | Beat
Message = Hello | Challenge | Proof | Welcome | FromMember | FromBarrier


# ---- the controller's answer to a report -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Action:
    """What to do about an epoch that has ended."""

    barrier: str
    epoch: int
    restart: bool
    """Otherwise all agents exit."""


@dataclass(frozen=True)
class ReportAnswer:
    permitted: bool
    alone: int
    """How many restarts may begin without a decision, counted from the report that this answers."""
    in_place_seconds: float
    every_seconds: float
    action: Action | None
    """None: nothing is decided about the present epoch."""
