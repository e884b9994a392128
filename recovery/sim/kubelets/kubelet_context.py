"""Shared parts of the kubelet model: its settings, its dependencies, and the machine under a pod."""

import asyncio
from dataclasses import dataclass, field

from recovery.ports import ApiClient, Clock, Entropy
from recovery.sim.kubelets.pod_faults import PodFaults
from recovery.sim.kubelets.processes import Workload
from recovery.sim.kubelets.retried_writes import Writes
from recovery.sim.timers import Timers


@dataclass(frozen=True, kw_only=True)
class KubeletSettings:
    """How fast kubelets are. Ranges are (shortest, longest)."""

    start_seconds: tuple[float, float] = (0.2, 1.0)
    """From the pod's binding until its first container runs."""
    ready_seconds: float = 0.0
    """Minimum time from running to ready. If there is a readiness probe, it must also succeed."""
    init_container_seconds: float | None = 0.2
    """How long each plain init container runs before it succeeds. None: the workload decides when and how it ends."""
    restart_seconds: float = 0.3
    """Time that every in-place restart takes, and the only delay of the first one."""
    back_off_seconds: float = 10.0
    """CrashLoopBackOff before the second restart. It doubles with each further restart."""
    longest_back_off_seconds: float = 300.0
    """Longest CrashLoopBackOff. If a container ran for more than twice this long, its backoff starts again from 0."""
    lease_seconds: float = 10.0
    """Time between two renewals of a node's Lease."""
    writes_leases: bool = True
    """False: only `Kubelets.renewed_seconds` reports renewals. Their writes are most of the cost of idle nodes."""
    node_status_seconds: float = 300.0
    """Time between two writes of a node's conditions."""
    writes_in_flight: int = 64
    """Limit of concurrent writes of all kubelets together."""


@dataclass(frozen=True)
class KubeletContext:
    """The dependencies of every part of the kubelet model."""

    api: ApiClient
    clock: Clock
    entropy: Entropy
    timers: Timers
    writes: Writes
    workload: Workload
    settings: KubeletSettings
    faults: PodFaults


@dataclass(frozen=True)
class Host:
    """The machine under a pod."""

    name: str
    ip: str
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while its kubelet reaches the API server."""
    powered: asyncio.Event = field(default_factory=asyncio.Event)
    runtime: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while its container runtime can create containers."""

    def __post_init__(self) -> None:
        self.runtime.set()


@dataclass(frozen=True)
class PodStart:
    """Values that are drawn or counted for a pod when its kubelet first sees it."""

    serial: int
    """Number of the pod among the pods of all kubelets."""
    ip: str
    seconds: float
    """Time until its first container runs."""
    ready_seconds: float
    """Minimum time from running to ready."""
