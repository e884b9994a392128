"""Where walks are walked: clusters in memory, one for each, and one real control plane, on which many go on at once."""

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
"""Both worlds have these kubelets, so that a crash loop need not be waited for.

Nothing tells of a back-off before its end, so it has to be shorter than the quiet after which a cluster counts as
settled.
"""
REQUEST_SECONDS = ((0.002, 0.02), (0.05, 0.3), (0.2, 0.8))
"""The least and most that a request of a modelled controller takes: on an idle machine, on a busy and on an overloaded
one, where JobSet's one worker is so far behind that it misses states of a second and more.
"""
TOGETHER = 16
"""Walks on the real control plane at once. Each is walked twice, side by side."""
MOST_MODELS = 2 * len(REQUEST_SECONDS)
"""Modelled walks of one plan in which nothing happens at once: two at each pace. The first is mostly enough."""
MOST_MODELS_AT_ONCE = 24
"""Of one in which two things happen at once."""
LIMIT_SECONDS = 900.0
"""Of one walk."""


def walk_in_memory(plan: Walk, entropy_seed: int) -> History:
    """`entropy_seed` draws all delays: the first those of an idle machine, the next those of busier ones, in turn."""
    pace = REQUEST_SECONDS[entropy_seed % len(REQUEST_SECONDS)]
    settings = ClusterSettings(request_seconds=pace, kubelets=KUBELET)
    if not plan.stock_limits:
        settings = replace(settings, manager_requests_per_second=500.0, manager_burst=1000)

    async def reconcile(scene: Scene) -> History:
        return await walk(scene, plan, random.Random(entropy_seed))

    return run_in_virtual_time(in_memory(reconcile, settings, entropy_seed))


@dataclass(frozen=True)
class Outcome:
    """What came of one plan."""

    plan: Walk
    real: tuple[History, ...]
    """Two, or three where the model differs from the first two."""
    model: History
    """The first that does not differ from the real ones, else the one that does so latest."""
    comparison: Comparison


class RealWalks:
    """The walks on the real control plane, all of which have begun."""

    def __init__(self, tasks: dict[int, asyncio.Task[Outcome]]) -> None:
        self._tasks = tasks

    async def outcome(self, seed: int) -> Outcome:
        return await self._tasks[seed]

    @classmethod
    @asynccontextmanager
    async def running(cls, plans: Sequence[Walk]) -> AsyncIterator["RealWalks"]:
        # The modelled clusters go to a process of their own: here the kubelets of the real one have to keep pace.
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
    """Of one plan alone, on a control plane of its own; one after the other, because stock limits are shared."""
    async with real_stage("stock" if plan.stock_limits else "raised") as stage:
        return await _walk(stage, plan), await _walk(stage, plan)


async def _outcome(stage: Scene, plan: Walk, slots: asyncio.Semaphore, models: ProcessPoolExecutor) -> Outcome:
    async with slots, asyncio.TaskGroup() as tasks:
        walks = [tasks.create_task(_walk(stage, plan)) for _ in range(2)]
    real: tuple[History, ...] = walks[0].result(), walks[1].result()
    loop = asyncio.get_running_loop()
    model, comparison = await loop.run_in_executor(models, compare_with_models, plan, real)
    if comparison.differences:
        # Two real walks can lose the same race side by side. A difference counts once a third walk confirms it.
        async with slots:
            real = (*real, await _walk(stage, plan))
        model, comparison = await loop.run_in_executor(models, compare_with_models, plan, real)
    return Outcome(plan, real, model, comparison)


def compare_with_models(plan: Walk, real: Sequence[History]) -> tuple[History, Comparison]:
    """With as many modelled walks as it takes to meet one that does not differ, up to a limit."""
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
