"""The cluster of the demo, its one job and its failures. They are the same with the controller and without it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum

from recovery.controller.leadership import Elector
from recovery.kube.client import KubeApiClient
from recovery.manager import Manager
from recovery.ports import PODS, Clock, Entropy
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.kind import Body
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.demo.objects import NAMESPACE, TRAINING, Restarter, objects
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeDeath, NodeSpec
from recovery.sim.training.rounds import Round
from recovery.telemetry.observer import Telemetry

RANKS = 128
GPUS_PER_RANK = 8
SPARES = 1
"""Nodes beyond those that the job needs. They replace the node that is lost."""
MANAGER_REQUESTS_PER_SECOND = 1000
NODE_GRACE_SECONDS = 5.0
KUBELET = KubeletSettings(lease_seconds=1.0, writes_leases=False)
"""The node grace is shorter than in a stock cluster, so the kubelets must renew more often in the same proportion."""
LEADER_LEASE_SECONDS = 15
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


class StageFailure(StrEnum):
    """What the job has to recover from, in this order."""

    POD_DELETED = "a pod is deleted"
    RANKS_EXIT = "ranks exit with code 1"
    NODE_SILENT = "a node falls silent"


class Stage:
    """Works within the context of `running`."""

    def __init__(self, clock: Clock, entropy: Entropy, restarter: Restarter, *, ranks: int = RANKS) -> None:
        self.ranks = ranks
        self.gpus = ranks * GPUS_PER_RANK
        self._clock = clock
        self._entropy = entropy
        self._restarter = restarter
        self.cluster = EmbeddedCluster(
            clock=clock,
            entropy=entropy,
            nodes=[NodeSpec(name=f"node-{number}", gpus=GPUS_PER_RANK) for number in range(ranks + SPARES)],
            settings=ClusterSettings(
                manager_requests_per_second=MANAGER_REQUESTS_PER_SECOND,
                manager_burst=MANAGER_REQUESTS_PER_SECOND,
                node_grace_seconds=NODE_GRACE_SECONDS,
                kubelets=KUBELET,
            ),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the cluster, and the controller if that restarts the job. Raises, as an exception group, what fails."""
        stop = asyncio.Event()
        async with self.cluster.running():
            if self._restarter is Restarter.CONTROLLER:
                self.cluster.start(self._controller().run(stop))
            try:
                yield
            finally:
                stop.set()

    def _controller(self) -> Manager:
        clock, entropy = self._clock, self._entropy
        client = KubeApiClient(ModelClient(self.cluster.server, "recovery"), clock=clock, entropy=entropy)
        elector = Elector(
            api=client,
            clock=clock,
            entropy=entropy,
            namespace="recovery-system",
            identity="demo",
            lease_seconds=LEADER_LEASE_SECONDS,
        )
        telemetry = Telemetry(clock=clock, version="demo")
        return Manager(client, clock=clock, entropy=entropy, telemetry=telemetry, leadership=elector)

    async def set_up(self) -> None:
        """Applies the objects of the job's user and of the platform's SRE."""
        # If the nodes still had their initial taint, the scheduler's backoff would delay the first pods.
        await self.cluster.kubelets.nodes_ready()
        with self.cluster.server.acting("user"):
            for resource, body in objects(self.ranks, GPUS_PER_RANK, self._restarter):
                self.cluster.server.create(resource, body, namespace=body["metadata"].get("namespace"))

    def about(self, failure: StageFailure) -> str:
        """What is about to happen, in words."""
        first, *others = self._struck(failure)
        match failure:
            case StageFailure.POD_DELETED:
                return f"kubectl delete pod {self._pod(first)['metadata']['name']} (rank {first})"
            case StageFailure.RANKS_EXIT:
                return f"{1 + len(others)} ranks exit at once with exit code 1"
            case StageFailure.NODE_SILENT:
                return f"{self._node(first)} (rank {first}) loses power: it is silent, and its pod stays as it was"

    def strike(self, failure: StageFailure) -> None:
        struck = self._struck(failure)
        match failure:
            case StageFailure.POD_DELETED:
                with self.cluster.server.acting("user"):
                    self.cluster.server.delete(PODS, self._pod(struck[0])["metadata"]["name"], namespace=NAMESPACE)
            case StageFailure.RANKS_EXIT:
                self.exit(struck)
            case StageFailure.NODE_SILENT:
                self.cluster.lose_node(self._node(struck[0]), NodeDeath.POWER_LOSS)

    def exit(self, ranks: Sequence[int]) -> None:
        """Makes these ranks exit with code 1, at the same moment."""
        names = [self._pod(index)["metadata"]["name"] for index in ranks]
        self.cluster.kubelets.exit_all(names, 1, namespace=NAMESPACE)

    def rounds(self) -> list[Round]:
        """The rounds in which all ranks have met, oldest first."""
        return self.cluster.world.rounds(TRAINING)

    def pods(self) -> list[Body]:
        """The pods of the job that are not being deleted."""
        pods = self.cluster.server.objects(PODS, NAMESPACE)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def _struck(self, failure: StageFailure) -> Sequence[int]:
        match failure:
            case StageFailure.POD_DELETED:
                return (self.ranks // 3,)
            case StageFailure.RANKS_EXIT:
                return range(min(8, self.ranks // 2))
            case StageFailure.NODE_SILENT:
                return (self.ranks // 2,)

    def _pod(self, index: int) -> Body:
        return next(pod for pod in self.pods() if pod["metadata"]["labels"][INDEX_LABEL] == str(index))

    def _node(self, index: int) -> str:
        return str(self._pod(index)["spec"]["nodeName"])
