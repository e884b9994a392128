"""The group that Trainer 2.3 and JobSet 0.12 make of a TrainJob and its runtime.

Every value keeps the place that it came from, so that a finding names the line to change, in whichever file it is.
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
    """One value that the job starts with, and what set it."""

    target: str
    """What the setting belongs to: `container node of ReplicatedJob node`, `JobSet`, `headless Service`."""
    name: str
    """`PET_NNODES`, `parallelism`, `numProcPerNode`."""
    value: str
    rule: str
    """What set it, in words: `spec.trainer.numNodes of the TrainJob`, `Trainer counts the nvidia.com/gpu limit`."""
    place: Place | None = None
    """The field that the value comes from. None: a default of Trainer, JobSet or Kubernetes."""


class Member(msgspec.Struct, frozen=True):
    """A ReplicatedJob that trains, with all changes of the TrainJob and its patches."""

    job: ReplicatedJob
    """It has the final templates, which include the TrainJob's image, command, env and resources."""
    pods: int
    """The number of pods: replicas times parallelism."""
    main: Container | None
    """The container that trains. Of several it is `node`, or else the first. If no rule selects one, it is the first
    container of the pod. None: the pod has no containers."""
    gpus_per_pod: int
    """Accelerators of all containers that train, counted as `processes` counts them."""

    @property
    def template(self) -> PodTemplate:
        return self.job.pods


class Launch(msgspec.Struct, frozen=True):
    """A group before it starts."""

    place: Place
    """The place of the object that is judged: the TrainJob, the JobSet, or the runtime by itself."""
    name: str
    """The name of that object. The pods are named after it."""
    job_set: JobSetSpec
    """The spec of the JobSet, or of the runtime with the TrainJob applied. Empty: the runtime is not known."""
    train_job: TrainJob | None = None
    """None: a JobSet, or a runtime by itself."""
    runtime: Runtime | None = None
    """None: a JobSet, or a TrainJob whose runtime is not known here."""
    members: tuple[Member, ...] = ()
    """The ReplicatedJobs that train, in their order, without initializers. Empty: the runtime is not known."""
    labels: Mapping[str, str] = {}
    """The labels of the object that is judged. One of them is Kueue's queue."""
    annotations: Mapping[str, str] = {}
    """The annotations of the object that is judged."""

    @property
    def nodes(self) -> int:
        """Pods of the whole group. 0: not known."""
        return sum(member.pods for member in self.members)

    @property
    def gpus(self) -> int:
        return sum(member.pods * member.gpus_per_pod for member in self.members)


def place_of_command(launch: Launch, member: Member) -> Place:
    """The place of the command of the member's main container, in the object that has it. A TrainJob's command goes to
    the container `node` of the ReplicatedJob that is marked as trainer."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    main = member.main
    if main is None:
        return member.template.place
    trains = member.job.ancestor == "trainer" and main.name == "node"
    if trains and trainer is not None and (trainer.command or trainer.args):
        return trainer.place / ("command" if trainer.command else "args")
    return main.place / ("command" if main.command or not main.args else "args")
