"""The world in memory: `recovery.sim`. Each expectation has its own cluster, in virtual time."""

import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import TypeVar

from recovery.kube.client import KubeApiClient
from recovery.ports import ApiRequest, Clock
from recovery.sim.api.client import ModelClient
from recovery.sim.api.server import ApiServer
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.processes import Workload
from recovery.sim.runtimes import shipped_runtime
from recovery.sim.virtual_time import VirtualClock, run_in_virtual_time
from tests.contract.bodies import TRAINING_RUNTIMES
from tests.contract.expectations import Expectation
from tests.contract.scene import NAMESPACES, Scene, closing
from tests.contract.workload import KUBELET, NODES, ByImage

Answer = TypeVar("Answer")

TRAVEL_SECONDS = 0.002
LIMIT_SECONDS = 1200.0
"""For one expectation."""
RAISED_LIMITS = ClusterSettings(
    manager_requests_per_second=500.0, manager_burst=1000, kubelets=KUBELET, birth_settings=True
)
"""The same as in the real world."""
STOCK_LIMITS = ClusterSettings(kubelets=KUBELET, birth_settings=True)


class SimulatedWorld:
    def meets(self, expectation: Expectation) -> None:
        run_in_virtual_time(_meet(expectation))


class SimulatedControls:
    """`scene.WorldControls`."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def forget_history(self) -> None:
        self._cluster.server.compact()

    async def refuse_pods(self, scene: Scene, refused: bool) -> None:
        self._cluster.refuse_pods('admission webhook "pods.example.com" denied the request: no' if refused else None)


class Remote:
    """`ports.ApiClient`: requests take some time to reach the server in memory."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        self._client = ModelClient(server, "trainjob-recovery")
        self._clock = clock

    async def send(self, request: ApiRequest) -> bytes:
        await self._clock.sleep(TRAVEL_SECONDS)
        return await self._client.send(request)

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        await self._clock.sleep(TRAVEL_SECONDS)
        async with aclosing(self._client.watch(request)) as told:
            async for line in told:
                yield line


async def _meet(expectation: Expectation) -> None:
    settings = STOCK_LIMITS if expectation.stock_limits else RAISED_LIMITS

    async def play(scene: Scene) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await expectation.body(scene)

    await in_memory(play, settings)


async def in_memory(
    play: Callable[[Scene], Coroutine[None, None, Answer]],
    settings: ClusterSettings,
    seed: int = 1,
    workload: Callable[[Clock], Workload] = ByImage,
) -> Answer:
    """What `play` returns on a new cluster. `seed` decides every delay and order. Runs in virtual time."""
    clock, entropy = VirtualClock(), random.Random(seed)
    cluster = EmbeddedCluster(clock=clock, entropy=entropy, nodes=(), settings=settings)
    # Here the pods do what their images say, or what the workload does; they do not train.
    client = ModelClient(cluster.server, "kubelet")
    cluster.kubelets = Kubelets(client, clock, entropy, workload(clock), settings.kubelets)
    for node in NODES:
        cluster.kubelets.add_node(node)
    cluster.server.create(TRAINING_RUNTIMES, shipped_runtime())
    api = KubeApiClient(Remote(cluster.server, clock), clock=clock, entropy=entropy)
    scene = Scene(api, clock, cluster.kubelets, "contract", SimulatedControls(cluster))
    async with cluster.running():
        await cluster.kubelets.nodes_ready()
        await scene.create(NAMESPACES, {"metadata": {"name": scene.namespace}})
        playing = asyncio.create_task(_answer_of(scene, play))
        try:
            await asyncio.wait({playing})
        finally:
            playing.cancel()
    # Raised only here, so that it is raised as it is: the errors of a running cluster come in exception groups.
    return playing.result()


async def _answer_of(scene: Scene, play: Callable[[Scene], Coroutine[None, None, Answer]]) -> Answer:
    try:
        return await play(scene)
    finally:
        await closing(scene, told=sys.exc_info()[0] is not None)
