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


class AgentRendezvous(msgspec.Struct, frozen=True):
    """The rendezvous of an epoch, as the calls of `init_process_group` in its ranks show it."""

    epoch: int
    first_at: datetime
    """When the first rank arrived."""
    joined_at: datetime | None = None
    """When the last rank had joined. None: not yet, or the epoch ended before."""
    arrived_at: datetime | None = None
    """When the last rank had arrived. None: not yet, or not known."""


class AgentSteps(msgspec.Struct, frozen=True):
    """The training steps of the present epoch. They may be those of the optimizers, or what the script says."""

    lowest: int
    """Of all ranks."""
    highest: int
    at: datetime
    """When the last rank reached `lowest`."""
    first: int | None = None
    """The step that the epoch began with. None: not known."""
    absolute: bool = False
    """Steps count from the beginning of the training. False: from the start of the processes."""
    step_seconds: float | None = None
    """How long a step takes. None: not known."""

    @property
    def made_by_all(self) -> bool:
        """Every rank has made a step. In some programs, some ranks never make one."""
        return self.first is None or self.lowest > self.first


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
    meets: bool = False
    """The ranks show when they join: one has called `init_process_group` under this barrier. Where decisions read it,
    this report also says so for the whole group (`agent_view`)."""
    rendezvous: tuple[AgentRendezvous, ...] = ()
    """Of the latest epochs in which a rank arrived, newest last, at most 8."""
    arrived: int = 0
    """Slots of the present epoch all of whose ranks have arrived."""
    joined: int = 0
    """Slots of the present epoch all of whose ranks have joined."""
    waiting: tuple[int, ...] = ()
    """The slots that the present rendezvous waits for, at most 16: those that have not arrived. Have all arrived, those
    that have not joined."""
    waiting_count: int = 0
    steps: AgentSteps | None = None
    """None: no rank has reported a step of the present epoch."""
    followed: bool = False
    """The report knows a later epoch than the present one, which is shown because an incident is still about it."""

    @property
    def present_rendezvous(self) -> AgentRendezvous | None:
        """Of the present epoch. None: no rank of it has arrived yet, or no rank shows it."""
        return self.rendezvous_of(self.epoch) if self.meets else None

    def rendezvous_of(self, epoch: int) -> AgentRendezvous | None:
        """Of that epoch. None: no rank arrived in it, or it is not listed any more."""
        return next((each for each in reversed(self.rendezvous) if each.epoch == epoch), None)

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
