"""The worlds of the walks: a cluster in memory for each, and one real control plane that many share at once."""

import asyncio
import multiprocessing
import random
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from recovery.sim.cluster import ClusterSettings
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.virtual_time import run_in_virtual_time
from tests.cluster.controlplane.build import provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.contract.real import RealControls, stage_on
from tests.contract.scene import NAMESPACES, Scene, closing
from tests.contract.simulated import in_memory
from tests.walks.comparison import Comparison, best
from tests.walks.draw import expected_seconds
from tests.walks.history import History
from tests.walks.plan import Walk
from tests.walks.walker import walk

KUBELET = KubeletSettings(
    start_seconds=(0.05, 0.3), restart_seconds=0.3, back_off_seconds=1.0, longest_back_off_seconds=1.0
)
"""The kubelets of both worlds have these settings, so that a walk need not wait for a crash loop.

Nothing shows a back-off before its end, so it has to be shorter than the quiet time after which a cluster counts as
settled.
"""
REQUEST_SECONDS = ((0.002, 0.02), (0.05, 0.3), (0.2, 0.8))
"""The least and most that a request of a modelled controller takes, in seconds: on an idle, a busy and an overloaded
machine. On the last, JobSet's only worker is so far behind that it misses states of a second and more.
"""
TOGETHER = 16
"""Walks on the real control plane at the same time. Each plan is walked twice, side by side."""
MOST_MODELS = 2 * len(REQUEST_SECONDS)
"""Modelled walks of one plan in which nothing happens at once: two at each pace. Usually the first is enough."""
MOST_MODELS_AT_ONCE = 24
"""The same for a plan in which two things happen at once."""
LIMIT_SECONDS = 900.0
"""For one walk."""


def walk_in_memory(plan: Walk, entropy_seed: int) -> History:
    """`entropy_seed` draws all delays: in turn those of an idle, a busy and an overloaded machine."""
    pace = REQUEST_SECONDS[entropy_seed % len(REQUEST_SECONDS)]
    settings = ClusterSettings(request_seconds=pace, kubelets=KUBELET)
    if not plan.stock_limits:
        settings = replace(settings, manager_requests_per_second=500.0, manager_burst=1000)

    async def reconcile(scene: Scene) -> History:
        return await walk(scene, plan, random.Random(entropy_seed))

    return run_in_virtual_time(in_memory(reconcile, settings, entropy_seed))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one plan."""

    plan: Walk
    real: tuple[History, ...]
    """Two, or three if the model differs from the first two."""
    model: History
    """The first model that does not differ from the real ones, else the one that differs latest."""
    comparison: Comparison


class RealWalks:
    """The walks on the real control plane, which have all started."""

    def __init__(self, tasks: dict[int, asyncio.Task[Outcome]]) -> None:
        self._tasks = tasks

    async def outcome(self, seed: int) -> Outcome:
        return await self._tasks[seed]

    @classmethod
    @asynccontextmanager
    async def running(cls, plans: Sequence[Walk]) -> AsyncIterator["RealWalks"]:
        # The modelled clusters run in another process: in this one, the kubelets of the real cluster have to keep pace.
        with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as models:
            async with real_stage("raised") as stage:
                slots = asyncio.Semaphore(TOGETHER)
                longest_first = sorted(plans, key=lambda plan: expected_seconds(plan.steps), reverse=True)
                tasks = {plan.seed: asyncio.create_task(_outcome(stage, plan, slots, models)) for plan in longest_first}
                try:
                    yield cls(tasks)
                finally:
                    for task in tasks.values():
                        task.cancel()
                    await asyncio.gather(*tasks.values(), return_exceptions=True)


@asynccontextmanager
async def real_stage(limits: Literal["raised", "stock"]) -> AsyncIterator[Scene]:
    """A real control plane with kubelets and without nodes."""
    async with (
        ControlPlane.start(ControlPlaneSettings(request_limits=limits), provide()) as control_plane,
        stage_on(control_plane, KUBELET, nodes=()) as stage,
    ):
        yield stage


async def real_histories(plan: Walk) -> tuple[History, History]:
    """Histories of one plan on a new control plane. The walks run one after the other, as they share stock limits."""
    async with real_stage("stock" if plan.stock_limits else "raised") as stage:
        return await _walk(stage, plan), await _walk(stage, plan)


async def _outcome(stage: Scene, plan: Walk, slots: asyncio.Semaphore, models: ProcessPoolExecutor) -> Outcome:
    async with slots, asyncio.TaskGroup() as tasks:
        walks = [tasks.create_task(_walk(stage, plan)) for _ in range(2)]
    real: tuple[History, ...] = walks[0].result(), walks[1].result()
    loop = asyncio.get_running_loop()
    model, comparison = await loop.run_in_executor(models, compare_with_models, plan, real)
    if comparison.differences:
        # Two real walks can lose the same race side by side. A difference counts only after a third walk confirms it.
        async with slots:
            real = (*real, await _walk(stage, plan))
        model, comparison = await loop.run_in_executor(models, compare_with_models, plan, real)
    return Outcome(plan, real, model, comparison)


def compare_with_models(plan: Walk, real: Sequence[History]) -> tuple[History, Comparison]:
    """With as many modelled walks as it takes to find one that does not differ, up to a limit."""
    most = MOST_MODELS_AT_ONCE if any(len(step.acts) > 1 for step in plan.steps) else MOST_MODELS
    return best(real, (walk_in_memory(plan, entropy_seed) for entropy_seed in range(most)))


async def _walk(stage: Scene, plan: Walk) -> History:
    scene = Scene(stage.api, stage.clock, stage.kubelets, f"walk-{plan.seed}-{secrets.token_hex(3)}", RealControls())
    await scene.create(NAMESPACES, {"metadata": {"name": scene.namespace}})
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await walk(scene, plan)
    finally:
        await closing(scene, told=sys.exc_info()[0] is not None)
