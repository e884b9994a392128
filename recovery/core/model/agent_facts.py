"""What the agents of a group report, and what the controller answers.

The agent of slot 0 sends one report for its whole Job, with the full state each time. `recovery.rendezvous` checks who
sends it and turns ages into dates.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

AGENT_VOLUME = "recovery-agent"
"""The volume of a pod template that has the agent's files. The admission policy of the component adds it."""
AGENT_FOLDER = "/opt/recovery-agent"
"""Where the training container has them."""


class AgentState(StrEnum):
    """What the agents of a Job do."""

    GATHERING = "gathering"
    """The processes of the present epoch have started, or start, on some slots. Others have not said so yet."""
    RUNNING = "running"
    """Every slot has started its processes of the present epoch."""
    ASKING = "asking"
    """A process has ended. Its agent waits for a decision, and the other processes are left alone."""
    STOPPING = "stopping"
    """The processes of the ended epoch are stopped."""
    STARTING = "starting"
    """No process of the ended epoch is left, and those of the next one start."""
    LEAVING = "leaving"
    """A pod is asked to terminate."""
    BROKEN = "broken"
    """A container was restarted, so the agents do not belong together any more. Each goes on as torchrun would."""
    EXITING = "exiting"
    """The agents end with exit code 1."""
    FINISHED = "finished"
    """Every process has ended with exit code 0."""


class RestartedBy(StrEnum):
    """How the epoch after an ended one was begun."""

    ALONE = "Alone"
    """By the permission of an earlier answer."""
    ANSWER = "Answer"
    """By the answer to the report of the failure."""


class EndedEpoch(msgspec.Struct, frozen=True):
    """The first failure of an epoch. Everything in it is the tenant's word."""

    epoch: int
    slot: int
    rank: int
    exit_code: int | None
    """None: a signal ended the process."""
    signal: int | None
    """None: the process ended by itself."""
    ended_at: datetime
    message: str = ""
    """The last line of the traceback, at most 300 characters. Empty: there is none."""
    step: int | None = None
    """The training step of the process. None: not known."""
    pod: str = ""
    node: str = ""
    by: RestartedBy | None = None
    """None: the next epoch was not begun."""
    ran: bool = False
    """All slots had run the epoch when it ended. False: it ended while it was starting, so it belongs to the restart
    that began it."""


class AgentFacts(msgspec.Struct, frozen=True):
    """The latest report of a Job's agents."""

    job_uid: str
    pod_uid: str
    """The pod of slot 0, whose agent reports."""
    barrier: str
    """Identifies the barrier in that pod. The next process of slot 0's agent has another one, so no key of an epoch is
    used twice."""
    epoch: int
    state: AgentState
    state_since: datetime
    epoch_since: datetime
    """Since when all slots run the epoch, or when it began."""
    slots: int
    received_at: datetime
    sequence: int = 0
    """Rises with each report that this controller takes in."""
    missing: tuple[int, ...] = ()
    """Slots whose agents have no link to the barrier, at most 16."""
    missing_count: int = 0
    restarted: tuple[int, ...] = ()
    """Slots whose container was restarted since the barrier knows them, at most 16."""
    stuck: tuple[int, ...] = ()
    """Slots with a process that SIGKILL does not end, at most 16."""
    ended: tuple[EndedEpoch, ...] = ()
    """The epochs that have ended by a failure, newest last, at most 16."""

    def key_of(self, epoch: int) -> str:
        """Identifies an epoch among all epochs of all barriers."""
        return f"{self.barrier}/{epoch}"


class ProcessEnd(msgspec.Struct, frozen=True):
    """A process that ended in a container that goes on, as the pod of that container shows it."""

    epoch: str
    """The epoch that it ended (`AgentFacts.key_of`)."""
    rank: int
    code: int
    """Exit code, or 128 and the number of the signal, as for containers."""
    ended_at: datetime
    message: str = ""
    step: int | None = None
    began_at: datetime | None = None
    """None: not known."""
    by: RestartedBy | None = None
    """How the next epoch was begun. None: it was not."""


class ProcessesReported(msgspec.Struct, frozen=True):
    """What the agents report about the processes of one pod, whose container started before them."""

    ends: tuple[ProcessEnd, ...] = ()
    """The failures of its processes that ended an epoch, newest last."""
    spans: tuple[tuple[datetime, datetime | None], ...] = ()
    """When the processes of the latest two epochs began and ended. None: they run."""

    @property
    def running(self) -> bool:
        return bool(self.spans) and self.spans[-1][1] is None


class AgentOrder(StrEnum):
    """What the agents of an ended epoch do next."""

    RESTART = "Restart"
    EXIT = "Exit"


class AgentAction(msgspec.Struct, frozen=True):
    """What the agents do about an ended epoch."""

    barrier: str
    epoch: int
    do: AgentOrder


class AgentAnswer(msgspec.Struct, frozen=True):
    """The answer to a report. The default permits nothing: the agents do what torchrun does."""

    permitted: bool = False
    """A process that ends may be restarted in place, after a decision or by `alone`."""
    alone: int = 0
    """How many restarts the agents may begin without a decision, counted from the report that this answers."""
    in_place_seconds: float = 60.0
    """How long a restart in place may take."""
    every_seconds: float = 30.0
    """How often to report while nothing happens."""
    action: AgentAction | None = None
    """None: nothing is decided about the present epoch."""
