"""What becomes of a job: the group as Trainer 2.3 and JobSet 0.12 make it of the TrainJob and its runtime.

Every value keeps the place that it came from, so that a finding names the line to change, whichever file it is in.
"""

from collections.abc import Mapping

import msgspec

from recovery.launch.places import Place
from recovery.launch.views import (
    Container,
    JobSetSpec,
    PodTemplate,
    ReplicatedJob,
    Runtime,
    TrainJob,
)


class Setting(msgspec.Struct, frozen=True):
    """One value with which the job starts, and why it is that."""

    target: str
    """Whose it is: `container node of ReplicatedJob node`, `JobSet`, `headless Service`."""
    name: str
    """`PET_NNODES`, `parallelism`, `numProcPerNode`."""
    value: str
    rule: str
    """What set it, in words: `spec.trainer.numNodes of the TrainJob`, `Trainer counts the nvidia.com/gpu limit`."""
    place: Place | None = None
    """The field that it follows from. None: a default of Trainer, JobSet or Kubernetes."""


class Member(msgspec.Struct, frozen=True):
    """A ReplicatedJob that trains, with all that the TrainJob and its patches change in it."""

    job: ReplicatedJob
    """Its templates as they will be: the TrainJob's image, command, env and resources are in."""
    pods: int
    """How many there will be: replicas times parallelism."""
    main: Container | None
    """The container that trains, of several `node`, else the first. Where no rule selects one, the first of the pod.
    None: it has none."""
    gpus_per_pod: int
    """Accelerators of all containers that train, counted as `processes` counts them."""

    @property
    def template(self) -> PodTemplate:
        return self.job.pods


class Launch(msgspec.Struct, frozen=True):
    """A group before it starts."""

    place: Place
    """Of the object that is judged: the TrainJob, the JobSet, or the runtime by itself."""
    name: str
    """Of that object; pods will be named after it."""
    job_set: JobSetSpec
    """Of the runtime with the TrainJob applied, or of the JobSet. Without a known runtime: empty."""
    train_job: TrainJob | None = None
    """None: a JobSet, or a runtime by itself."""
    runtime: Runtime | None = None
    """None: a JobSet, or a TrainJob whose runtime is not known here."""
    members: tuple[Member, ...] = ()
    """Those that train, in their order; initializers are none. Empty: the runtime is not known."""
    labels: Mapping[str, str] = {}
    """Of the object that is judged: the queue of Kueue is one."""
    annotations: Mapping[str, str] = {}
    """Of the object that is judged."""

    @property
    def nodes(self) -> int:
        """Pods of the whole group; 0: not known."""
        return sum(member.pods for member in self.members)

    @property
    def gpus(self) -> int:
        return sum(member.pods * member.gpus_per_pod for member in self.members)


def place_of_command(launch: Launch, member: Member) -> Place:
    """Of the command of its main container, in whichever object it is written: what a TrainJob says goes to the
    container `node` of the ReplicatedJob that is marked as trainer."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    main = member.main
    if main is None:
        return member.template.place
    trains = member.job.ancestor == "trainer" and main.name == "node"
    if trains and trainer is not None and (trainer.command or trainer.args):
        return trainer.place / ("command" if trainer.command else "args")
    return main.place / ("command" if main.command or not main.args else "args")
