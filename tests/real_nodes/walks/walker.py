"""Walks pods in a cluster, real or modelled: creates them, performs each plan's acts, and keeps what they showed."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from recovery import api_verbs
from recovery.ports import PODS, ApiClient, Clock, NotFoundError
from tests.contract.scene import Object, ended, events_of
from tests.real_nodes.walks.history import PodHistory, Told, history_of, stands, statuses
from tests.real_nodes.walks.plan import Act, ActKind, Container, PodPlan

QUIET_SECONDS = 1.5
"""Nothing may change for this long before a pod that seems at rest counts as such. A kubelet looks each second."""
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class World:
    """What a walk needs from a cluster."""

    api: ApiClient
    clock: Clock
    namespace: str
    node: str
    kill: Callable[[Object, str], None]
    """Sends SIGKILL to the first process of that container of the pod."""


@dataclass
class PodStory:
    """What the watch has reported about one pod."""

    told: list[Told] = field(default_factory=list)

    @property
    def pod(self) -> Object:
        """The pod as it is, or as it was last seen."""
        return self.told[-1].event.object

    @property
    def gone(self) -> bool:
        return self.told[-1].event.type == "DELETED"


async def walk_all(world: World, plans: Sequence[PodPlan]) -> list[PodHistory]:
    """Walk all of them at the same time."""
    stories = {plan.name: PodStory() for plan in plans}
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow(world, stories))
        try:
            async with asyncio.TaskGroup() as walks:
                walked = [walks.create_task(_Walk(world, plan, stories[plan.name]).walk()) for plan in plans]
        finally:
            for plan in plans:
                with suppress(NotFoundError):
                    await api_verbs.delete(world.api, PODS, plan.name, namespace=world.namespace, grace_seconds=0)
            following.cancel()
    return [walk.result() for walk in walked]


async def _follow(world: World, stories: dict[str, PodStory]) -> None:
    lines = api_verbs.watch(world.api, PODS, namespace=world.namespace, send_initial_events=True, timeout_seconds=3600)
    async for event in events_of(lines):
        assert event.type != "ERROR", event.object
        if event.type != "BOOKMARK" and event.name in stories:
            stories[event.name].told.append(Told(world.clock.monotonic_seconds(), event))


class _Walk:
    def __init__(self, world: World, plan: PodPlan, story: PodStory) -> None:
        self._world = world
        self._plan = plan
        self._story = story
        self._stood: list[str] = []

    async def walk(self) -> PodHistory:
        world, plan = self._world, self._plan
        await api_verbs.create(
            world.api,
            PODS,
            {"apiVersion": "v1", "kind": "Pod", **plan.body(world.node)},
            namespace=world.namespace,
        )
        acts = []
        for act in plan.acts:
            if act.after_seconds is None:
                await self._rest()
            else:
                await world.clock.sleep(act.after_seconds)
            acts.append(await self._do(act))
        await self._rest()
        return history_of(self._story.told, self._stood, acts)

    async def _rest(self) -> None:
        """Wait until the pod has come to rest or is gone."""
        clock, story = self._world.clock, self._story
        deadline = clock.monotonic_seconds() + PATIENCE_SECONDS
        while clock.monotonic_seconds() < deadline:
            await clock.sleep(POLL_SECONDS)
            if not story.told:
                continue
            if story.gone:
                return
            quiet_seconds = clock.monotonic_seconds() - story.told[-1].seconds
            if quiet_seconds > QUIET_SECONDS and is_at_rest(self._plan, story.pod):
                self._stood.append(stands(story.pod))
                return
        self._stood.append(f"does not come to rest: {stands(story.pod)}")

    async def _do(self, act: Act) -> str:
        world, name = self._world, self._plan.name
        if self._story.gone:
            return f"{act}: it is gone"
        known = len(self._story.told)
        try:
            match act.kind:
                case ActKind.DELETE:
                    await api_verbs.delete(
                        world.api, PODS, name, namespace=world.namespace, grace_seconds=act.grace_seconds
                    )
                case ActKind.EVICT:
                    metadata = {"name": name, "namespace": world.namespace}
                    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
                    await api_verbs.create(
                        world.api, PODS, body, namespace=world.namespace, name=name, subresource="eviction"
                    )
                case ActKind.KILL:
                    if not self._runs(act.container):
                        return f"{act}: it does not run"
                    status = self._status(act.container)
                    world.kill(self._story.pod, act.container)
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        while self._status(act.container)["state"] == status["state"]:
                            await world.clock.sleep(POLL_SECONDS)
        except NotFoundError:
            return f"{act}: it is gone"
        if act.after_seconds is None:
            await self._tells_more(known)
        return str(act)

    def _runs(self, container: str) -> bool:
        return "running" in self._status(container)["state"]

    def _status(self, container: str) -> Object:
        """The status of that container. Its `startedAt` distinguishes one run from the next."""
        return next(each for each in statuses(self._story.pod) if each["name"] == container)

    async def _tells_more(self, known: int) -> None:
        """Wait until the watch reports more than the first `known` events, which came before the act."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self._story.told) == known:
                await self._world.clock.sleep(POLL_SECONDS)


def is_at_rest(plan: PodPlan, pod: Object) -> bool:
    """By the plan, nothing will change for some seconds: the pod runs, has ended, or waits in its back-off."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if ended(pod):
        return True
    found = {each["name"]: each for each in statuses(pod)}
    if len(found) < len(plan.everything):
        return False
    blocked = False
    for container in plan.everything:
        status = found[container.name]
        if not blocked and not _rests(plan, container, status):
            return False
        blocked = blocked or (container in plan.init_containers and _blocks(container, status))
    return not _is_ending(plan, found)


def _rests(plan: PodPlan, container: Container, status: Object) -> bool:
    if "running" in status["state"]:
        return container.script.lasts_seconds is None
    if "terminated" in status["state"]:
        return status["restartCount"] > 0 or not _restarts(plan, container, status)
    return bool(status.get("lastState"))


def _blocks(container: Container, status: Object) -> bool:
    """The init container keeps the containers after it waiting."""
    if container.native:
        return "running" not in status["state"] and not status["restartCount"]
    return bool(status["state"].get("terminated", {}).get("exitCode") != 0)


def _restarts(plan: PodPlan, container: Container, status: Object) -> bool:
    code = status["state"]["terminated"]["exitCode"]
    if container in plan.init_containers and not container.native and code == 0:
        return False
    return container.native or plan.restart_policy == "Always" or (plan.restart_policy == "OnFailure" and code != 0)


def _is_ending(plan: PodPlan, found: dict[str, Object]) -> bool:
    """No container will run again: all have ended and are not restarted, or an init container has failed like that."""

    def is_over(container: Container) -> bool:
        status = found[container.name]
        return "terminated" in status["state"] and not _restarts(plan, container, status)

    failed = [
        each
        for each in plan.init_containers
        if is_over(each) and found[each.name]["state"]["terminated"]["exitCode"] != 0
    ]
    return bool(failed) or all(map(is_over, plan.containers))
