"""Walks a plan in a cluster, real or modelled, and keeps its history."""

import asyncio
import random
from dataclasses import replace

from recovery.ports import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS, NotFoundError, RefusedError
from recovery.sim.api.kinds.trainjobs import TRAINING_RUNTIMES
from recovery.sim.kubelets.node_run import NodeSpec
from tests.contract.scene import Object, Scene
from tests.walks.acting import Actor
from tests.walks.bodies import ABSENT_IMAGE, RUNTIME, job_set, nodes_of, runtime, train_job
from tests.walks.history import History, Section, Stories, appeared, states
from tests.walks.plan import Walk
from tests.walks.settling import is_final, unsettled

QUIET_SECONDS = 2.0
"""Nothing may change for this long before the cluster counts as settled. The Job controller reacts after 1 s."""
PATIENCE_SECONDS = 45.0
"""How long the walk waits for what is under way. The third failure of a Job's pods is replaced after 40 s."""
LONGEST_SECONDS = 180.0
"""For one step, in any case."""
LATE_SECONDS = 2.0
"""A step with a fixed time is given up if the cluster has settled this much later."""
POLL_SECONDS = 0.1
STEPS_AFTER_THE_END = 2
"""The steps that still run after the workload has ended: they must have no effect."""


async def walk(scene: Scene, plan: Walk, dice: random.Random | None = None) -> History:
    """Walks in the scene's namespace, on two nodes that are created for it and deleted with it.

    `dice` draws which of two acts at once comes first. None: the real world decides.
    """
    nodes = nodes_of(scene.namespace)
    scene.kubelets.withhold_image(ABSENT_IMAGE)
    for name in nodes:
        scene.kubelets.add_node(NodeSpec(name=name, gpus=0))
    try:
        for name in nodes:
            await _joined(scene, name)
        stories = Stories(*[await scene.follow(kind) for kind in (TRAIN_JOBS, JOB_SETS, JOBS, PODS)])
        workloads = TRAIN_JOBS if plan.workload.kind == TRAIN_JOBS.kind else JOB_SETS
        return await Walker(scene, plan, stories, Actor(scene, stories, workloads, nodes, dice)).walk()
    finally:
        for name in nodes:
            await scene.kubelets.remove_node(name)


async def _joined(scene: Scene, name: str) -> None:
    """Wait until the node exists and pods may go onto it."""
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                if not (await scene.read(NODES, name))["spec"].get("taints"):
                    return
            except NotFoundError:
                pass
            await scene.clock.sleep(POLL_SECONDS)


class Walker:
    """One walk in one namespace."""

    def __init__(self, scene: Scene, plan: Walk, stories: Stories, actor: Actor) -> None:
        self._scene = scene
        self._plan = plan
        self._stories = stories
        self._actor = actor

    async def walk(self) -> History:
        clock = self._scene.clock
        history = History()
        begin = self._stories.lengths()
        await self._create()
        began_seconds = clock.monotonic_seconds()
        history.sections.append(await self._section("created", [], begin))
        steps_left = STEPS_AFTER_THE_END
        for number, step in enumerate(self._plan.steps, start=1):
            steps_left -= self._ended()
            if steps_left < 0:
                break
            begin = self._stories.lengths()
            wait_seconds = began_seconds + step.not_before_seconds - clock.monotonic_seconds()
            if step.not_before_seconds and wait_seconds < -LATE_SECONDS:
                # The deadline may have passed in another step than in a faster cluster.
                history.sections.pop()
                return replace(history, too_slow=True)
            await clock.sleep(max(0.0, wait_seconds))
            acts = await self._actor.do(step)
            history.sections.append(await self._section(f"{number}: {step}", acts, begin))
        return history

    async def _section(self, step: str, acts: list[str], begin: list[int]) -> Section:
        still = await self._settle()
        told = appeared(self._stories, begin, self._stories.lengths(), self._scene.namespace)
        return Section(step, acts, told, states(self._stories), still)

    def _ended(self) -> bool:
        """Whether the whole workload has ended, or is gone."""
        workloads = [*self._stories.train_jobs.present.values(), *self._stories.job_sets.present.values()]
        return all(map(is_final, workloads))

    async def _create(self) -> None:
        scene, plan = self._scene, self._plan.workload
        if plan.kind == JOB_SETS.kind:
            await scene.create(JOB_SETS, job_set(plan, scene.namespace))
            return
        await scene.create(TRAINING_RUNTIMES, runtime(plan, scene.namespace))
        async with asyncio.timeout(LONGEST_SECONDS):
            while True:
                try:
                    await scene.create(TRAIN_JOBS, train_job(plan))
                except RefusedError as error:
                    # Trainer's webhook reads runtimes from a cache, which sees a new one a moment later.
                    if RUNTIME not in str(error):
                        raise
                    await scene.clock.sleep(POLL_SECONDS)
                else:
                    return

    async def _settle(self) -> str:
        """Wait until nothing changes and nothing is under way. Returns what still is when the patience runs out."""
        clock = self._scene.clock
        began_seconds = quiet_since_seconds = clock.monotonic_seconds()
        known = self._stories.lengths()
        while True:
            await clock.sleep(POLL_SECONDS)
            now = clock.monotonic_seconds()
            if self._stories.lengths() != known:
                known, quiet_since_seconds = self._stories.lengths(), now
            quiet_seconds = now - quiet_since_seconds
            if now - began_seconds > LONGEST_SECONDS:
                return "it never became quiet"
            if quiet_seconds < QUIET_SECONDS:
                continue
            if not await self._told_all():
                continue
            still = unsettled(self._stories, self._actor.tainted, self._actor.silent)
            if not still or quiet_seconds > PATIENCE_SECONDS:
                return still

    async def _told_all(self) -> bool:
        """Whether the watches have reported everything that the server has by now."""
        kinds = zip((TRAIN_JOBS, JOB_SETS, JOBS, PODS), self._stories.all(), strict=True)
        for kind, story in kinds:
            there = {_version(body) for body in await self._scene.items(kind)}
            if there != {_version(body) for body in story.present.values()}:
                return False
        return True


def _version(body: Object) -> tuple[str, str]:
    return body["metadata"]["uid"], body["metadata"]["resourceVersion"]
