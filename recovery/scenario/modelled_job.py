"""What a modelled job can be like: the words of a scenario's `jobs`."""

from enum import StrEnum


class PlannedRuntime(StrEnum):
    """What the pods of a job are like."""

    SHIPPED = "shipped"
    """Trainer's own torch runtime: OnFailure, backoffLimit 6, no failurePolicy."""
    PREPARED = "prepared"
    """Like policies/runtime-prepared.yaml: restartPolicy Never, backoffLimit 1000, lost nodes tolerated for 30 s."""
    JOINED = "joined"
    """Like policies/runtime-joined-probe.yaml: as prepared, and Ready means that the rank has joined."""
    SEVERAL_JOBS = "several-jobs"
    """A launcher and nodes: a group of two Jobs."""
    INITIALIZED = "initialized"
    """As shipped, with an initializer that runs first."""
    NATIVE = "native"
    """As prepared, with a podFailurePolicy that fails the Job on exit code 42, and maxRestarts 1."""
    UNLIMITED = "unlimited"
    """As native, but any exit code of its own fails the Job with its first pod, and then its JobSet restarts the group
    without a limit. Other failed Jobs count for maxRestarts 1."""
    BARE_JOBSET = "bare-jobset"
    """A JobSet of the user's own, without a TrainJob."""


class TrainingKind(StrEnum):
    """What the loss of a rank means to the others."""

    REQUIRED = "required"
    """They hang, as in a collective of NCCL."""
    SELF_HEALING = "self-healing"
    """They wait in a new rendezvous, as under torchrun with restarts, and meet the rank that replaces the lost one."""
    INDEPENDENT = "independent"
    """Nothing: no rank waits for another."""
    LAUNCHER = "launcher"
    """As in MPI: the program ends with its launcher, which ends when it loses a worker. Workers only serve."""


class Sidecar(StrEnum):
    """A container beside the one that trains."""

    HELPER = "helper"
    """Exits with 0 some seconds after its start."""
    BROKEN = "broken"
    """Its image cannot be pulled, so it stays in ImagePullBackOff for as long as its pod exists."""
    SHIPPER = "shipper"
    """A log shipper, which runs until its pod is deleted or something kills it."""
    NATIVE = "native"
    """An init container with restartPolicy Always (KEP-753)."""


class Marking(StrEnum):
    """How a controller knows which container of a JobSet without a TrainJob trains."""

    ACCELERATORS = "accelerators"
    """It is the only container that requests accelerators."""
    ANNOTATION = "annotation"
    """An annotation names it. No container requests accelerators."""
    NOTHING = "nothing"
    """Nothing shows it."""


class PodFailures(StrEnum):
    """What the podFailurePolicy of the Jobs says. Where there is one, a Job replaces a pod only when it has ended."""

    NONE = "none"
    """There is no such policy, unless the runtime is `native` or `unlimited`."""
    IGNORE = "ignore"
    """Ignore for the condition DisruptionTarget, and for the exit code of SIGTERM."""
    FAIL_INDEX = "fail-index"
    """FailIndex for exit code 42, and two retries for each index."""


class JobAdmission(StrEnum):
    """Who starts a job."""

    AT_ONCE = "at-once"
    """It starts when it is created."""
    BY_USER = "by-user"
    """Its user creates it suspended, and resumes it later."""
    BY_KUEUE = "by-kueue"
    """Kueue keeps it suspended until there is quota, and undoes what others do to `spec.suspend`. TrainJobs only."""
    BY_KUEUE_WITHOUT_QUEUE = "by-kueue-without-queue"
    """As by-kueue, under `manageJobsWithoutQueueName`: no label shows it, only what Kueue writes on admission."""
