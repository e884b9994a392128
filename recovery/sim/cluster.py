"""The embedded cluster: an API server, its controllers, kubelets and training, in one process.

Everything runs on one event loop, in virtual or in real time, and uses one server. The controllers call it directly.
Kubelets and training go through the API port, like every client outside the control plane.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from recovery.ports import JOBS, LEASES, Clock, Entropy, PatchKind
from recovery.sim.api.birth_settings import BirthSettingsPolicy
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.jobs import job_kind
from recovery.sim.api.kinds.jobsets import jobset_kind
from recovery.sim.api.kinds.pods import PodAdmission
from recovery.sim.api.kinds.recovery import recovery_kinds
from recovery.sim.api.kinds.trainjobs import trainer_kinds
from recovery.sim.api.kinds.workloads import workload_kind
from recovery.sim.api.metadata import micro_timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.controllers.garbage import GarbageCollector
from recovery.sim.controllers.job import JobController
from recovery.sim.controllers.job_ttl import JobTTL
from recovery.sim.controllers.jobset import JobSetController
from recovery.sim.controllers.node_lifecycle import GRACE_SECONDS, NodeLifecycle
from recovery.sim.controllers.pod_garbage import PodGarbage
from recovery.sim.controllers.request_limiter import Limiter
from recovery.sim.controllers.scheduler import Scheduler
from recovery.sim.controllers.taint_eviction import TaintEviction
from recovery.sim.controllers.trainer import TrainerController
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import LEASE_DURATION_SECONDS, LEASE_NAMESPACE, NodeDeath, NodeSpec
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.training.trace import Trace
from recovery.sim.training.training import TrainingWorld


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Settings of one cluster."""

    manager_requests_per_second: float = 20.0
    """The request limit of each of kube-controller-manager's controllers."""
    manager_burst: int = 30
    node_grace_seconds: float = GRACE_SECONDS
    """When a silent node counts as lost (--node-monitor-grace-period). Longer than the kubelets' `lease_seconds`."""
    request_seconds: tuple[float, float] = (0.0, 0.0)
    """The shortest and longest time that a controller's request takes to arrive."""
    kubelets: KubeletSettings = field(default_factory=KubeletSettings)
    birth_settings: bool = False
    """Install `manifests/components/birth-settings`."""


class EmbeddedCluster:
    """The cluster works inside the `running` context. Its nodes are those given and those added to `kubelets`."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        nodes: Sequence[NodeSpec],
        training: TrainingSettings | None = None,
        settings: ClusterSettings | None = None,
    ) -> None:
        settings = settings or ClusterSettings()
        self._clock = clock
        self._writes_leases = settings.kubelets.writes_leases
        self._admission = PodAdmission()
        kinds = (
            *core_kinds(self._admission),
            job_kind(),
            jobset_kind(),
            *trainer_kinds(),
            workload_kind(),
            *recovery_kinds(),
        )
        self.server = ApiServer(kinds, clock=clock, entropy=entropy)
        self.birth_settings = BirthSettingsPolicy(self.server, clock, installed=settings.birth_settings)
        if not settings.birth_settings:  # the permission for dry runs is part of the same component
            self.server.forbid_dry_runs(JOBS)
        client = ModelClient(self.server, "kubelet")
        self.world = TrainingWorld(client, clock, entropy, training)
        self.trace: Trace = self.world.trace
        self.kubelets = Kubelets(client, clock, entropy, self.world, settings.kubelets)
        for node in nodes:
            self.kubelets.add_node(node)
        self._tasks: asyncio.TaskGroup | None = None

        def limiter(per_second: float, burst: int) -> Limiter:
            seconds = settings.request_seconds
            return Limiter(clock, per_second=per_second, burst=burst, entropy=entropy, request_seconds=seconds)

        def manager(times: float = 1.0) -> Limiter:
            return limiter(settings.manager_requests_per_second * times, settings.manager_burst)

        server = self.server
        self._job = JobController(server, clock, entropy, limiter=manager())
        self._manager = (
            self._job,
            # Its client gets twice the rate (cmd/kube-controller-manager/app/core.go).
            GarbageCollector(server, clock, entropy, limiter=manager(2.0)),
            NodeLifecycle(
                server,
                clock,
                entropy,
                limiter=manager(),
                grace_seconds=settings.node_grace_seconds,
                renewed_seconds=self._renewed_seconds,
            ),
            TaintEviction(server, clock, entropy, limiter=manager()),
            PodGarbage(server, clock, entropy, limiter=manager()),
            JobTTL(server, clock, entropy, limiter=manager()),
        )
        # JobSet ships with 500 requests a second, and neither controller needs more.
        self._jobset = JobSetController(server, clock, entropy, limiter=limiter(500.0, 500))
        self._trainer = TrainerController(server, clock, entropy, limiter=limiter(500.0, 500))
        self._scheduler = Scheduler(server, clock, entropy, limiter=limiter(50.0, 100))

    def _renewed_seconds(self, node: str) -> float | None:
        """When the kubelet last renewed its unwritten Lease. None: Leases are written, or the node does not exist."""
        return None if self._writes_leases else self.kubelets.renewed_seconds(node)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the whole cluster inside the context. Raises a model's bug as an exception group."""
        async with asyncio.TaskGroup() as self._tasks:
            everything = [
                self._tasks.create_task(part.run())
                for part in (*self._manager, self._jobset, self._trainer, self._scheduler, self.kubelets)
            ]
            try:
                yield
            finally:
                for task in everything:
                    task.cancel()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` as part of the cluster: an exception in it ends the cluster."""
        assert self._tasks is not None, "the cluster works while running() does"
        self._tasks.create_task(work)

    # Node faults.

    def lose_node(self, name: str, how: NodeDeath) -> None:
        """The node's kubelet falls silent. Raises LookupError if there is no such node.

        Its Lease keeps the last renewal. If renewals are not written to the server, the last one is written now.
        """
        self.kubelets.kill_node(name, how)
        renewed_seconds = self._renewed_seconds(name)
        if renewed_seconds is None:
            return
        ago = timedelta(seconds=self._clock.monotonic_seconds() - renewed_seconds)
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_DURATION_SECONDS,
            "renewTime": micro_timestamp(self._clock.now() - ago),
        }
        with self.server.acting("kubelet"):
            if self.server.find(LEASES, name, LEASE_NAMESPACE) is None:
                about = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": name}}
                self.server.create(LEASES, {**about, "spec": spec}, namespace=LEASE_NAMESPACE)
            else:
                self.server.patch(LEASES, name, {"spec": spec}, kind=PatchKind.MERGE, namespace=LEASE_NAMESPACE)

    # Platform faults.

    def refuse_pods(self, why: str | None) -> None:
        """A webhook refuses all new pods with this message. None: it refuses no more."""
        self._admission.refusal = why

    def overlook_new_jobs(self, seconds: float) -> None:
        """The Job controller ignores Jobs created within this time, until something in them changes."""
        self._job.overlook_new_jobs(seconds)

    def stall_manager(self, stalled: bool) -> None:
        """kube-controller-manager starts no sync until a call with False."""
        for controller in self._manager:
            controller.stall(stalled)

    def stall_jobset(self, stalled: bool) -> None:
        self._jobset.stall(stalled)

    def stall_trainer(self, stalled: bool) -> None:
        self._trainer.stall(stalled)
