"""A walk as data: one small job, and the steps that happen to it.

A plan contains nothing that a cluster makes up: no pod names, no UIDs. A step refers to a pod or a Job by a number from
0 to 1: its place among those that exist at that moment, in the order of their roles. So one plan can be walked in any
cluster, and in equal clusters it does the same.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class ContainerKind(StrEnum):
    """What a container of the drawn job does."""

    TRAINER = "trainer"
    """Runs until it receives SIGTERM."""
    HELPER = "helper"
    """Exits 0 soon after its start."""
    SHIPPER = "shipper"
    """A sidecar among the ordinary containers. It runs until it receives SIGTERM."""
    NATIVE = "native sidecar"
    """An init container with restartPolicy Always."""
    DEAF = "deaf native sidecar"
    """The same, but it ignores SIGTERM."""
    ABSENT = "absent"
    """Its image does not exist, so it never starts."""


NATIVE_KINDS = frozenset({ContainerKind.NATIVE, ContainerKind.DEAF})


@dataclass(frozen=True)
class Container:
    name: str
    kind: ContainerKind
    restart_codes: tuple[int, ...] = ()
    """Exit codes for which its restartPolicyRules restart it. Otherwise it never restarts. Empty: no own policy."""


@dataclass(frozen=True)
class JobPlan:
    """One ReplicatedJob. Fields that are None are left out of the manifest."""

    name: str
    containers: tuple[Container, ...]
    pods: int
    """Parallelism."""
    completions: int | None = None
    """None: as many as pods."""
    replicas: int = 1
    restart_policy: str = "Never"
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    failure_rules: tuple[Json, ...] = ()
    """Rules of its podFailurePolicy. Empty: it has none."""
    replacement_policy: str | None = None
    success_indexes: str | None = None
    """Success indexes of its successPolicy."""
    deadline_seconds: int | None = None
    depends_on: tuple[str, str] | None = None
    """Name of an earlier ReplicatedJob and the status that it has to reach."""


@dataclass(frozen=True)
class WorkloadPlan:
    """What the user creates."""

    kind: str
    """TrainJob, with a runtime of its own, or JobSet."""
    jobs: tuple[JobPlan, ...]
    suspended: bool = False
    deadline_seconds: int | None = None
    """activeDeadlineSeconds of the TrainJob."""
    failure_policy: Json | None = None
    success_policy: Json | None = None
    in_order: bool = False
    """startupPolicy InOrder."""


class ActKind(StrEnum):
    """What can happen to the job."""

    SUSPEND = "suspend"
    RESUME = "resume"
    EXIT = "exit"
    FINISH = "all trainers of a Job exit 0"
    DELETE_POD = "delete a pod"
    EVICT = "evict a pod"
    TAINT = "taint a node"
    UNTAINT = "untaint the nodes"
    REBOOT = "a node loses power and is back at once"
    LOSE_NODE = "a node falls silent"
    RECOVER_NODES = "the silent nodes are back"
    RESIZE = "resize a Job"
    RESTART_JOB_SET = "restart the JobSet"
    DELETE_JOB = "delete a Job"
    DELETE_JOB_SET = "delete the JobSet"
    EXPIRE = "a Job's deadline passes"
    REST = "nothing"


@dataclass(frozen=True)
class Act:
    kind: ActKind
    place: float = 0.0
    """Which of the possible targets: 0 is the first, just below 1 the last."""
    value: int = 0
    """The exit code, the new number of pods of a Job, or which of its two forms an act has."""
    container: str = ""
    """For EXIT."""

    def __str__(self) -> str:
        match self.kind:
            case ActKind.EXIT:
                return f"container {self.container} of pod {self.place:.2f} exits with {self.value}"
            case ActKind.RESIZE:
                return f"resize Job {self.place:.2f} to {self.value} pods"
            case ActKind.DELETE_JOB:
                return f"delete Job {self.place:.2f} in the {'background' if self.value else 'foreground'}"
            case ActKind.LOSE_NODE:
                return f"node {self.place:.2f} {'loses power' if self.value else 'is cut off'} and stays silent"
            case ActKind.DELETE_POD:
                return f"delete pod {self.place:.2f}{' without grace' if self.value else ''}"
            case ActKind.EVICT | ActKind.TAINT | ActKind.REBOOT | ActKind.EXPIRE | ActKind.FINISH:
                return f"{self.kind} ({self.place:.2f})"
            case _:
                return str(self.kind)


@dataclass(frozen=True)
class Step:
    acts: tuple[Act, ...]
    """One act, or two at once."""
    not_before_seconds: float = 0.0
    """Seconds after the start of the walk. Only deadlines need it: other steps begin when the cluster has settled."""

    def __str__(self) -> str:
        told = " and ".join(str(act) for act in self.acts)
        return f"{told}, {self.not_before_seconds:g} s after the start" if self.not_before_seconds else told


@dataclass(frozen=True)
class Walk:
    seed: int
    workload: WorkloadPlan
    steps: tuple[Step, ...]
    stock_limits: bool = False
    """The controller-manager sends 20 requests a second, as shipped. Else 500, so that walks can share it."""

    def lines(self) -> list[str]:
        """The job and the steps, for readers of a report."""
        workload = self.workload
        told = [f"{workload.kind}{', suspended at birth' if workload.suspended else ''}"]
        if workload.deadline_seconds is not None:
            told.append(f"  activeDeadlineSeconds {workload.deadline_seconds}")
        told += [f"  {name} {policy}" for name, policy in _policies(workload)]
        told += [f"  {_told(job)}" for job in workload.jobs]
        return [*told, *(f"step {number}: {step}" for number, step in enumerate(self.steps, start=1))]


def _policies(workload: WorkloadPlan) -> list[tuple[str, object]]:
    policies = (("failurePolicy", workload.failure_policy), ("successPolicy", workload.success_policy))
    found: list[tuple[str, object]] = [(name, policy) for name, policy in policies if policy is not None]
    return [*found, ("startupPolicy", "InOrder")] if workload.in_order else found


def _told(job: JobPlan) -> str:
    containers = ", ".join(
        f"{each.name} ({each.kind}{f', restarts on {each.restart_codes}' if each.restart_codes else ''})"
        for each in job.containers
    )
    fields = {
        "completions": job.completions,
        "backoffLimit": job.backoff_limit,
        "backoffLimitPerIndex": job.backoff_limit_per_index,
        "maxFailedIndexes": job.max_failed_indexes,
        "podFailurePolicy": list(job.failure_rules) or None,
        "podReplacementPolicy": job.replacement_policy,
        "succeededIndexes": job.success_indexes,
        "activeDeadlineSeconds": job.deadline_seconds,
        "dependsOn": job.depends_on,
    }
    more = "".join(f", {name} {value}" for name, value in fields.items() if value is not None)
    return f"{job.name}: {job.replicas} x {job.pods} pods, {job.restart_policy}{more}; {containers}"
