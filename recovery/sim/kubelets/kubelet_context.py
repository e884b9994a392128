"""What the parts of the kubelet model share: how fast it is, what it works with, the machine under a pod."""

import asyncio
from dataclasses import dataclass, field

from recovery.ports import ApiClient, Clock, Entropy
from recovery.sim.kubelets.pod_faults import PodFaults
from recovery.sim.kubelets.processes import Workload
from recovery.sim.kubelets.retried_writes import Writes
from recovery.sim.timers import Timers


@dataclass(frozen=True, kw_only=True)
class KubeletSettings:
    """How fast kubelets are. Ranges are (least, most)."""

    start_seconds: tuple[float, float] = (0.2, 1.0)
    """From the binding of a pod until its first container runs."""
    ready_seconds: float = 0.0
    """From running to ready, at least: a readiness probe has to succeed as well, where there is one."""
    init_container_seconds: float | None = 0.2
    """So long each plain init container runs, and succeeds. None: the workload decides about them, too."""
    restart_seconds: float = 0.3
    """Before the first restart in place."""
    back_off_seconds: float = 10.0
    """CrashLoopBackOff before the second restart; doubles with each further one."""
    longest_back_off_seconds: float = 300.0
    """A container that ran for more than twice this long starts again with `restart_seconds`."""
    lease_seconds: float = 10.0
    """Between two renewals of a node's Lease."""
    writes_leases: bool = True
    """False: only `Kubelets.renewed_seconds` reports renewals, which are otherwise most of what idle nodes cost."""
    node_status_seconds: float = 300.0
    """Between two writes of a node's conditions."""
    writes_in_flight: int = 64
    """Of all kubelets together."""


@dataclass(frozen=True)
class KubeletContext:
    """What every part of the kubelet model works with."""

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
    """Set while its container runtime makes containers."""

    def __post_init__(self) -> None:
        self.runtime.set()


@dataclass(frozen=True)
class PodStart:
    """What chance and order decide about a pod when its kubelet first sees it."""

    serial: int
    """Grows with every pod of all kubelets."""
    ip: str
    seconds: float
    """Until its first container runs."""
    ready_seconds: float
    """From running to ready, at least."""
