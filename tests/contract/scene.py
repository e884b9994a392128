"""Where an expectation meets a cluster, real or simulated: a separate namespace, and what can be done in it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from recovery import api_verbs
from recovery.ports import ApiClient, ApiError, Clock, PatchKind, Resource
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.node_run import NodeSpec

Object = dict[str, Any]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
INDEX = "batch.kubernetes.io/job-completion-index"
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 180.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True)
class Event:
    """One line of a watch."""

    type: str
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])

    @property
    def position(self) -> int:
        """Its place in the order of all changes to objects of all kinds."""
        return int(self.object["metadata"]["resourceVersion"])


@dataclass
class Story:
    """What a watch has reported, in order, without bookmarks."""

    events: list[Event] = field(default_factory=list)
    present: dict[str, Object] = field(default_factory=dict)
    """By UID, the objects that exist according to the watch."""

    def hear(self, event: Event) -> None:
        self.events.append(event)
        if event.type == "DELETED":
            self.present.pop(event.uid, None)
        else:
            self.present[event.uid] = event.object

    def named(self, name: str) -> Object | None:
        """The object with that name. None: there is none now."""
        return next((each for each in self.present.values() if each["metadata"]["name"] == name), None)

    def states(self, uid: str) -> list[Object]:
        """All states of one object."""
        return [event.object for event in self.events if event.uid == uid]

    def reports_of(self, uid: str, what: Callable[[Object], bool]) -> int:
        """Position of the first state of that object for which `what` is true."""
        return self.first(lambda event: event.uid == uid and what(event.object))

    def first(self, what: Callable[[Event], bool]) -> int:
        """Position of the first event for which `what` is true."""
        return min(event.position for event in self.events if what(event))

    def last(self, what: Callable[[Event], bool]) -> int:
        """Position of the last event for which `what` is true."""
        return max(event.position for event in self.events if what(event))

    def conditions_in_order(self, uid: str) -> list[tuple[str, str]]:
        """Type and reason of every condition of the object, in the order in which they first became true."""
        order: list[tuple[str, str]] = []
        for state in self.states(uid):
            for condition in state.get("status", {}).get("conditions", []):
                told = (condition["type"], condition.get("reason", ""))
                if condition["status"] == "True" and told not in order:
                    order.append(told)
        return order


class WorldControls(Protocol):
    """What each world does in its own way."""

    def forget_history(self) -> None:
        """Make the API server forget earlier revisions, where it has not done so by itself."""
        ...

    async def refuse_pods(self, scene: "Scene", refused: bool) -> None:
        """Refuse, or allow again, all new pods in the scene's namespace."""
        ...


@dataclass
class Scene:
    """One expectation in a cluster."""

    api: ApiClient
    clock: Clock
    kubelets: Kubelets
    namespace: str
    """The scene's own namespace, empty at the start."""
    world: "WorldControls"
    """Controls that differ between the worlds."""
    followers: list[asyncio.Task[None]] = field(default_factory=list)

    # Doing.

    async def create(self, resource: Resource, body: Object) -> Object:
        """Create the object in the scene's namespace, and return it as the server has it."""
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        namespace = self.namespace if resource.namespaced else None
        created: Object = json.loads(await api_verbs.create(self.api, resource, whole, namespace=namespace))
        return created

    async def read(self, resource: Resource, name: str) -> Object:
        namespace = self.namespace if resource.namespaced else None
        found: Object = json.loads(await api_verbs.get(self.api, resource, name, namespace=namespace))
        return found

    async def items(self, resource: Resource, *, label_selector: str = "", field_selector: str = "") -> list[Object]:
        body = await api_verbs.list_page(
            self.api, resource, namespace=self.namespace, label_selector=label_selector, field_selector=field_selector
        )
        return list(json.loads(body)["items"])

    async def patch(
        self, resource: Resource, name: str, body: object, kind: PatchKind = PatchKind.MERGE, subresource: str = ""
    ) -> Object:
        namespace = self.namespace if resource.namespaced else None
        answer = await api_verbs.patch(
            self.api, resource, name, body, kind=kind, namespace=namespace, subresource=subresource
        )
        changed: Object = json.loads(answer)
        return changed

    async def json_patch(
        self, resource: Resource, name: str, *operations: tuple[str, str, object], subresource: str = ""
    ) -> Object:
        """Operations are (op, path, value)."""
        body = [{"op": op, "path": path, "value": value} for op, path, value in operations]
        return await self.patch(resource, name, body, PatchKind.JSON, subresource)

    async def add_nodes(self, *names: str) -> None:
        """Add nodes for this scene, for pods that select them by `kubernetes.io/hostname`. No other pods go there."""
        for name in names:
            self.kubelets.add_node(NodeSpec(name=name, gpus=0, labels={"kubernetes.io/hostname": name}))
        await self.kubelets.nodes_ready()

    def exit(self, pod: Object, code: int) -> None:
        """End the pod's process."""
        self.kubelets.exit_container(pod["metadata"]["name"], code, namespace=self.namespace)

    # Reading.

    async def follow(self, resource: Resource) -> Story:
        """Watch all objects of that kind in the namespace, or in the cluster for kinds without a namespace."""
        story = Story()
        begun = asyncio.Event()
        self.followers.append(asyncio.create_task(self._follow(resource, story, begun)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await begun.wait()
        return story

    async def _follow(self, resource: Resource, story: Story, begun: asyncio.Event) -> None:
        namespace = self.namespace if resource.namespaced else None
        lines = api_verbs.watch(self.api, resource, namespace=namespace, send_initial_events=True, timeout_seconds=3600)
        async for event in events_of(lines):
            if event.type == "BOOKMARK":
                begun.set()
            else:
                assert event.type != "ERROR", event.object
                story.hear(event)

    async def until(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Poll until the condition holds. `what` names it in the error."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    for task in self.followers:
                        if task.done():
                            await task
                    await self.clock.sleep(POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"within {seconds:.0f} s this did not happen: {what}") from None

    async def pass_seconds(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def running(self, pods: Story, count: int) -> list[Object]:
        """Wait until exactly this many pods are ready, and return them by index."""
        await self.until(f"{count} pods are ready", lambda: len(ready(pods)) == count)
        return by_index(ready(pods))

    async def others_run(self, pods: Story, count: int, *lost: Object) -> list[Object]:
        """The same, but none of the pods may be one of the `lost`."""
        await self.until(
            f"{count} pods are ready that are others",
            lambda: len(ready(pods)) == count and not uids(ready(pods)) & uids(lost),
        )
        return by_index(ready(pods))

    async def has_condition(self, story: Story, name: str, type_: str, seconds: float = PATIENCE_SECONDS) -> Object:
        """Wait until the object with that name has that condition, and return the condition."""
        await self.until(
            f"{name} has the condition {type_}",
            lambda: condition(story.named(name) or {}, type_) is not None,
            seconds,
        )
        found = condition(story.named(name) or {}, type_)
        assert found is not None
        return found


async def events_of(lines: Any) -> AsyncIterator[Event]:
    async for line in lines:
        decoded = json.loads(line)
        yield Event(decoded["type"], decoded["object"])


async def closing(scene: Scene, *, told: bool) -> None:
    """Stop the scene's followers. A follower's error is raised, unless another failure is being reported (`told`)."""
    for task in scene.followers:
        task.cancel()
    for ended in await asyncio.gather(*scene.followers, return_exceptions=True):
        if isinstance(ended, Exception) and not told:
            raise ended


def refused(kind: type[ApiError]) -> AbstractContextManager["pytest.ExceptionInfo[ApiError]"]:
    """The request within the block must fail with exactly this error of the port."""
    return pytest.raises(kind, check=lambda error: type(error) is kind)


def answer(refusal: "pytest.ExceptionInfo[ApiError]") -> tuple[int | None, str]:
    """HTTP status and `Status.reason`."""
    return refusal.value.status, refusal.value.reason


def condition(body: Mapping[str, Any], type_: str) -> Object | None:
    """The condition of that type if its status is True. None: it is missing or not True."""
    conditions: Iterable[Object] = body.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == type_ and each["status"] == "True"), None)


def ready(pods: Story) -> list[Object]:
    """The pods that are ready and not being deleted."""
    return [pod for pod in pods.present.values() if condition(pod, "Ready") and not deleting(pod)]


def ended(pod: Object) -> bool:
    return bool(pod["status"].get("phase") in {"Failed", "Succeeded"})


def deleting(body: Object) -> bool:
    return "deletionTimestamp" in body["metadata"]


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][INDEX])


def by_index(pods: Iterable[Object]) -> list[Object]:
    return sorted(pods, key=lambda pod: int(pod["metadata"].get("annotations", {}).get(INDEX, "0")))


def uids(bodies: Iterable[Object]) -> set[str]:
    return {body["metadata"]["uid"] for body in bodies}


def uid(body: Object) -> str:
    return str(body["metadata"]["uid"])
