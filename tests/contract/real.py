"""The world of real programs: etcd, kube-apiserver, the controllers as shipped; only the kubelets are modelled.

All selected expectations start together, the slow ones at once and the others a few at a time, so that one can work
while another waits. Those about stock request limits have their own control plane and run there one after the other:
its controllers share one request budget, and anything that runs beside them would use it up.
"""

import asyncio
import random
import re
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Literal

from recovery import api_verbs
from recovery.controller.clock import SystemClock
from recovery.kube.client import KubeApiClient
from recovery.kube.http import HttpTransport
from recovery.kube.session import open_session
from recovery.ports import Resource
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from tests.cluster.controlplane.build import provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import install, install_component
from tests.contract.expectations import Expectation
from tests.contract.scene import NAMESPACES, Scene, closing
from tests.contract.workload import KUBELET, NODES, ByImage

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
TOGETHER = 6
"""Expectations that run at the same time, besides the slow ones: two cores serve the tests and the control plane."""
LIMIT_SECONDS = 240.0
"""For one expectation, counted from its own start."""


class RealWorld:
    """The expectations run on an event loop of their own, which runs only while a test waits for one."""

    def __init__(self, runner: asyncio.Runner, results: dict[str, asyncio.Task[None]]) -> None:
        self._runner = runner
        self._results = results

    @classmethod
    @contextmanager
    def running(cls, expectations: Sequence[Expectation]) -> Iterator["RealWorld"]:
        """`expectations`: all that it will be asked to meet."""
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            results = runner.run(_begin(stack, expectations))
            try:
                yield cls(runner, results)
            finally:
                runner.run(stack.aclose())

    def meets(self, expectation: Expectation) -> None:
        self._runner.run(_outcome(self._results[expectation.key]))


async def _outcome(task: asyncio.Task[None]) -> None:
    await task


async def _begin(stack: AsyncExitStack, expectations: Sequence[Expectation]) -> dict[str, asyncio.Task[None]]:
    results: dict[str, asyncio.Task[None]] = {}
    raised = [each for each in expectations if not each.stock_limits]
    stock = [each for each in expectations if each.stock_limits]
    if raised:
        results |= await stack.enter_async_context(_running(raised, "raised", TOGETHER))
    if stock:
        results |= await stack.enter_async_context(_running(stock, "stock", 1))
    return results


@asynccontextmanager
async def _running(
    expectations: Sequence[Expectation], limits: Literal["raised", "stock"], together: int
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Run `begun` on a new control plane."""
    async with ControlPlane.start(ControlPlaneSettings(request_limits=limits), provide()) as control_plane:
        await install(control_plane)
        await install_component(control_plane, "birth-settings")
        async with stage_on(control_plane) as stage, begun(stage, expectations, together) as tasks:
            yield tasks


@asynccontextmanager
async def begun(
    stage: Scene, expectations: Sequence[Expectation], together: int
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """The tasks that check the expectations, by key. At most `together` run at once, besides the slow ones."""
    slots = asyncio.Semaphore(together)
    ordered = sorted(expectations, key=lambda expectation: not expectation.slow)
    tasks = {each.key: asyncio.create_task(_meet(stage, each, slots)) for each in ordered}
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


@asynccontextmanager
async def stage_on(
    control_plane: ControlPlane, kubelet: KubeletSettings = KUBELET, nodes: Sequence[NodeSpec] = NODES
) -> AsyncIterator[Scene]:
    """A scene without a namespace: the parts that all scenes share."""
    clock, entropy = SystemClock(), random.Random(1)
    async with open_session(kubeconfig=str(control_plane.kubeconfig)) as session:
        api = KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=entropy)
        kubelets = Kubelets(api, clock, entropy, ByImage(clock), kubelet)
        for node in nodes:
            kubelets.add_node(node)
        playing = asyncio.create_task(kubelets.run())
        try:
            async with asyncio.timeout(60):
                await kubelets.nodes_ready()
            yield Scene(api, clock, kubelets, "", RealControls())
            assert not playing.done(), "the kubelets have ended before the tests; what ended them follows"
        finally:
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing


class RealControls:
    """`scene.WorldControls`."""

    def forget_history(self) -> None:
        """Nothing to do: the server's history of our own kinds begins when they are installed, after revision 1."""

    async def refuse_pods(self, scene: Scene, refused: bool) -> None:
        if refused:
            await scene.create(QUOTAS, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
        else:
            await api_verbs.delete(scene.api, QUOTAS, "none", namespace=scene.namespace)


async def _meet(stage: Scene, expectation: Expectation, slots: asyncio.Semaphore) -> None:
    if expectation.slow:
        await _meet_now(stage, expectation)
        return
    async with slots:
        await _meet_now(stage, expectation)


async def _meet_now(stage: Scene, expectation: Expectation) -> None:
    readable = re.sub(r"[^a-z0-9]+", "-", expectation.name.removeprefix("test_"))[:40].strip("-")
    namespace = f"{readable}-{secrets.token_hex(3)}"
    scene = Scene(stage.api, stage.clock, stage.kubelets, namespace, stage.world)
    await scene.create(NAMESPACES, {"metadata": {"name": namespace}})
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            await expectation.body(scene)
    finally:
        # A failed expectation is reported as such. The error of a follower is raised only if there is no other failure.
        await closing(scene, told=sys.exc_info()[0] is not None)
