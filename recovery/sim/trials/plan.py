"""All that decides a trial, as data: the same plan gives the same trial, byte for byte."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from recovery.sim.trials.faults import TrialFault


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
    """As shipped, with an initializer before it."""
    NATIVE = "native"
    """As prepared, with a podFailurePolicy that fails the Job on exit code 42, and maxRestarts 1."""
    BARE_JOBSET = "bare-jobset"
    """A JobSet of the user's own, without a TrainJob."""


class Sidecar(StrEnum):
    """A container beside the one that trains."""

    HELPER = "helper"
    """Exits with 0 some seconds after its start."""
    BROKEN = "broken"
    """Its image cannot be pulled: it stays in ImagePullBackOff for as long as its pod exists."""
    SHIPPER = "shipper"
    """A log shipper: it runs until its pod is deleted, or until something kills it."""
    NATIVE = "native"
    """An init container with restartPolicy Always (KEP-753)."""


class Marking(StrEnum):
    """How a controller knows which container of a JobSet without a TrainJob trains."""

    ACCELERATORS = "accelerators"
    """It is the only one that asks for accelerators."""
    ANNOTATION = "annotation"
    """An annotation names it; no container asks for accelerators."""
    NOTHING = "nothing"
    """It cannot."""


class JobAdmission(StrEnum):
    """Who lets a job start."""

    AT_ONCE = "at-once"
    """It starts when it is created."""
    BY_USER = "by-user"
    """Its user creates it suspended, and resumes it later."""
    BY_KUEUE = "by-kueue"
    """Kueue keeps it suspended until there is quota, and undoes what others do to `spec.suspend`. TrainJobs only."""
    BY_KUEUE_WITHOUT_QUEUE = "by-kueue-without-queue"
    """The same under `manageJobsWithoutQueueName`: no label says so, only what Kueue writes when it admits the job."""


class JobPlan(msgspec.Struct, frozen=True):
    """One training job and the policy that selects it."""

    namespace: str
    name: str
    runtime: PlannedRuntime = PlannedRuntime.SHIPPED
    pods: int = 8
    gpus_per_pod: int = 8
    grace_seconds: int = 30
    """terminationGracePeriodSeconds."""
    total_steps: int | None = None
    """None: it trains until the trial ends."""
    reports_every_seconds: float | None = None
    """How often its training reports progress. None: it reports none. TrainJobs only."""
    policy: Mapping[str, Any] | None = {}
    """Spec of its RecoveryPolicy, less the selector. None: it has none."""
    sidecars: tuple[Sidecar, ...] = ()
    """In each of its pods."""
    marking: Marking = Marking.ACCELERATORS
    """Of a bare JobSet; in a TrainJob the name of the container says it."""
    admission: JobAdmission = JobAdmission.AT_ONCE
    admitted_after_seconds: float = 0.0
    """From its creation until it is first resumed, if it is created suspended."""
    deadline_seconds: int | None = None
    """`spec.activeDeadlineSeconds` of the TrainJob. None: it may take any time."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def under_kueue(self) -> bool:
        return self.admission in {JobAdmission.BY_KUEUE, JobAdmission.BY_KUEUE_WITHOUT_QUEUE}


class FaultRates(msgspec.Struct, frozen=True):
    """How often a fault is drawn, for each event that it could affect. 0: never."""

    process: float = 0.0
    """Per request of a controller process: it dies, freezes, …"""
    request: float = 0.0
    """Per request: it fails."""
    line: float = 0.0
    """Per line of a watch."""


class TrialPlan(msgspec.Struct, frozen=True):
    """A trial: `active_seconds` in which faults begin, then healing, in which everything returns and nothing breaks."""

    seed: int
    jobs: tuple[JobPlan, ...]
    faults: tuple[TrialFault, ...] = ()
    """Those that are given; those of processes, requests and watches happen when their key's moment comes."""
    rates: FaultRates = FaultRates()
    """Further ones are drawn from the seed while it runs. The plan of an outcome has all as `faults`, and no rates."""
    active_seconds: float = 5400.0
    healing_seconds: float = 3600.0
    replicas: int = 2
    """Controller processes that stand for election."""
    lease_seconds: int = 15
    config: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"allow": {"failJob": True}})
    """Spec of the RecoveryConfig."""
    spare_nodes: int = 2
    node_gpus: int = 8
    manager_requests_per_second: float = 20.0
    """Of each of kube-controller-manager's controllers (`--kube-api-qps`); large clusters give them more."""
    birth_settings: bool = False
    """The admission policy that applies settings at birth is installed."""
    manager_burst: int = 30
    """Requests that each of them may send at once. Fewer: the other Jobs of a busy cluster have used up the rest."""


RACK_NODES = 4
"""So many nodes share a rack."""


def rack_of(number: int) -> str:
    """The rack of the node of that number."""
    return f"rack-{number // RACK_NODES}"


def nodes_needed(jobs: Iterable[JobPlan], node_gpus: int) -> int:
    """Nodes that hold all pods of all jobs at once, the largest pods placed first."""
    free: list[int] = []
    sizes = Counter[int]()
    for job in jobs:
        sizes[job.gpus_per_pod] += job.pods
    for gpus in sorted(sizes, reverse=True):
        node = 0
        for _ in range(sizes[gpus]):
            while node < len(free) and free[node] < gpus:  # A node that has no room for this size gets none later.
                node += 1
            if node == len(free):
                free.append(node_gpus)
            free[node] -= gpus
    return len(free)
