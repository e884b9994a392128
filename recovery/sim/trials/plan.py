"""The plan of a trial, as data. The same plan gives the same trial, byte for byte."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, Sidecar, TrainingKind
from recovery.sim.trials.faults import TrialFault


class Saves(msgspec.Struct, frozen=True):
    """What a rank that trains does on SIGTERM: it trains on while it saves a checkpoint, and exits with `code`."""

    seconds: float
    code: int


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
    training: TrainingKind = TrainingKind.REQUIRED
    """What the loss of a rank means to the others. Launcher: only of the runtime `several-jobs`."""
    saves: Saves | None = None
    """None: a rank that gets SIGTERM exits at once."""
    pod_failures: PodFailures = PodFailures.NONE
    """Only of runtimes whose pods are never restarted, and whose podFailurePolicy is not their own."""
    reports_every_seconds: float | None = None
    """How often its training reports progress. None: it does not. TrainJobs only."""
    policy: Mapping[str, Any] | None = {}
    """Spec of its RecoveryPolicy without the selector. None: it has no policy."""
    sidecars: tuple[Sidecar, ...] = ()
    """Sidecars in each of its pods."""
    marking: Marking = Marking.ACCELERATORS
    """Only for a bare JobSet. In a TrainJob the name of the container shows which one trains."""
    admission: JobAdmission = JobAdmission.AT_ONCE
    admitted_after_seconds: float = 0.0
    """From its creation until it is first resumed, if it is created suspended."""
    deadline_seconds: int | None = None
    """`spec.activeDeadlineSeconds` of the TrainJob. None: it has no deadline."""
    ttl_seconds: int | None = None
    """`spec.ttlSecondsAfterFinished` of its JobSet. None: the JobSet stays."""
    priority: int = 0
    """The priority of its Workload, if Kueue starts it."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def never_restarts(self) -> bool:
        """Its pods have restartPolicy Never, and no podFailurePolicy of the runtime."""
        return self.runtime not in {
            PlannedRuntime.SHIPPED,
            PlannedRuntime.INITIALIZED,
            PlannedRuntime.NATIVE,
            PlannedRuntime.UNLIMITED,
        }

    @property
    def under_kueue(self) -> bool:
        return self.admission in {JobAdmission.BY_KUEUE, JobAdmission.BY_KUEUE_WITHOUT_QUEUE}


class KueueSettings(msgspec.Struct, frozen=True):
    """The configuration of Kueue. The defaults are those of Kueue 0.19, where waitForPodsReady is on."""

    ready_seconds: float = 1800.0
    """`timeout`: from the admission until all Jobs have to be ready."""
    recovery_seconds: float = 1800.0
    """`recoveryTimeout`: from the moment when a Job is no longer ready until all are ready again."""
    backoff_seconds: float = 60.0
    """`backoffBaseSeconds`: how long the first job that was not ready in time waits. It doubles each time."""
    longest_backoff_seconds: float = 3600.0
    """`backoffMaxSeconds`."""
    backoff_limit: int | None = None
    """`backoffLimitCount`: after so many times the Workload is deactivated. None: never."""
    gpus: int | None = None
    """The quota of the one ClusterQueue of all jobs. None: each job has a ClusterQueue of its own size."""


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
    """The given faults. Those of processes, requests and watches happen at the event that their key names."""
    rates: FaultRates = FaultRates()
    """More faults are drawn from the seed during the trial. An outcome's plan lists all in `faults`, without rates."""
    active_seconds: float = 5400.0
    healing_seconds: float = 3600.0
    replicas: int = 2
    """Controller processes that stand for election."""
    lease_seconds: int = 15
    installations: int = 1
    """In how many namespaces the replicas stand for election, by turns. Each has a Lease, and so a leader."""
    config: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"allow": {"failJob": True}})
    """Spec of the RecoveryConfig."""
    spare_nodes: int = 2
    node_gpus: int = 8
    manager_requests_per_second: float = 20.0
    """The limit of each controller in kube-controller-manager (`--kube-api-qps`). Large clusters set it higher."""
    birth_settings: bool = False
    """The admission policy that applies settings at birth is installed."""
    drills: bool = False
    """Controllers watch RecoveryDrills. Without it, the events of other plans keep their numbers."""
    kueue: KueueSettings = KueueSettings()
    cleans_after_seconds: float | None = None
    """A client deletes each failed pod so many seconds after it has failed. None: no client does."""
    manager_burst: int = 30
    """The burst of each of them. A low value stands for a busy cluster, where other Jobs have used up the rest."""


RACK_NODES = 4
"""How many nodes share a rack."""


def rack_of(number: int) -> str:
    return f"rack-{number // RACK_NODES}"


def nodes_needed(jobs: Iterable[JobPlan], node_gpus: int) -> int:
    """How many nodes hold all pods of all jobs at once, if the largest pods are placed first."""
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
