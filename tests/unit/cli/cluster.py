"""A cluster of plain objects behind `ports.ApiClient`, for commands that read once, and a connection to it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from recovery.cli.connection import Connection
from recovery.cli.job_lookup import NAMESPACES
from recovery.ports import (
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiClient,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    PatchKind,
    Propagation,
    Resource,
)
from recovery.ports import TestFailedError as PatchTestFailedError

Object = dict[str, Any]
Objects = list[Object]
NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)
CREATED = "2026-11-02T08:00:00Z"


class StoppedClock:
    """`ports.Clock` at NOW. A sleep takes no time but its own."""

    def __init__(self) -> None:
        self.slept_seconds = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic_seconds(self) -> float:
        return self.slept_seconds

    async def sleep(self, seconds: float) -> None:
        self.slept_seconds += seconds


class Middle:
    """`ports.Entropy` without surprises."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class PlainCluster:
    """Lists, gets and patches what was put in; reviews access by what was denied. More is not for commands to do."""

    def __init__(self) -> None:
        self.objects: dict[str, Objects] = {}
        self.absent: set[str] = set()
        """Plurals of resources that are not installed."""
        self.denied: set[tuple[str, str]] = set()
        """Verb and plural, with `/subresource` if there is one."""
        self.raw: dict[str, str] = {}
        """JSON that is answered in place of a string: what `json` itself would not write."""
        self.page_size: int | None = None
        self.got: list[str] = []
        """Plurals of what was asked for one by one, in this order."""
        self.listed: list[str] = []
        """Plurals of what was listed, in this order, once for each page."""
        self.patches: list[str] = []
        """What was patched, in this order."""
        self.patched: Callable[[Object], None] = lambda _: None
        """Told of every object right after it was patched: what a controller would do about it."""
        self.put(NAMESPACES, *({"metadata": metadata(name, "", name)} for name in ("team-a", "team-b")))

    def put(self, resource: Resource, *objects: Object) -> None:
        self.objects.setdefault(resource.plural, []).extend(objects)

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        self.got.append(resource.plural)
        for item in self._items("get", resource, namespace):
            if item["metadata"]["name"] == name:
                return self._encoded(item)
        raise NotFoundError(f"get {resource.plural} {name}: not found")

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> bytes:
        items = self._items("list", resource, namespace)
        self.listed.append(resource.plural)
        label, values = _selected(label_selector)
        if label:
            items = [item for item in items if item["metadata"].get("labels", {}).get(label) in values]
        start = int(continue_token or 0)
        end = start + (self.page_size or len(items))
        token = str(end) if end < len(items) else ""
        metadata = {"resourceVersion": "9", "continue": token}
        return self._encoded({"kind": f"{resource.kind}List", "metadata": metadata, "items": items[start:end]})

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bytes:
        assert resource.plural == "selfsubjectaccessreviews", "commands create nothing else"
        assert isinstance(body, dict)
        wanted = body["spec"]["resourceAttributes"]
        target = f"{wanted['resource']}/{wanted['subresource']}" if wanted["subresource"] else wanted["resource"]
        return json.dumps({"status": {"allowed": (wanted["verb"], target) not in self.denied}}).encode()

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
    ) -> bytes:
        if ("patch", resource.plural) in self.denied:
            raise ForbiddenError(f"patch {resource.plural}: forbidden", status=403)
        for item in self._items("patch", resource, namespace):
            if item["metadata"]["name"] == name:
                self.patches.append(f"{resource.kind} {namespace}/{name}")
                if kind is PatchKind.MERGE:
                    _merge(item, json.loads(msgspec.json.encode(body)))
                else:
                    _apply(item, json.loads(msgspec.json.encode(body)))
                self.patched(item)
                return self._encoded(item)
        raise NotFoundError(f"patch {resource.plural} {name}: not found")

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> bytes:
        raise NotImplementedError

    def _encoded(self, body: Object) -> bytes:
        text = json.dumps(body)
        for string, instead in self.raw.items():
            text = text.replace(json.dumps(string), instead)
        return text.encode()

    def _items(self, verb: str, resource: Resource, namespace: str | None) -> Objects:
        if resource.plural in self.absent:
            raise NoSuchResourceError(f"{verb} {resource.plural}: 404 page not found", status=404)
        if (verb, resource.plural) in self.denied:
            raise ForbiddenError(f"{verb} {resource.plural}: forbidden", status=403)
        items = self.objects.get(resource.plural, [])
        return [item for item in items if namespace is None or item["metadata"].get("namespace") == namespace]

    def add_bare_job_set(self, name: str, *, namespace: str = "team-a") -> Object:
        found: Object = {"metadata": metadata(name, namespace, f"uid-{namespace}-{name}"), "spec": {}, "status": {}}
        self.put(JOB_SETS, found)
        return found

    # --- what stands in it -----------------------------------------------------------------------------------------

    def add_job(self, name: str, *, namespace: str = "team-a", ranks: int = 2, running: int | None = None) -> Object:
        """A TrainJob whose JobSet, Job, pods and nodes are there, with 8 GPUs a pod; the last pods are Pending."""
        uid = f"uid-{namespace}-{name}"
        group = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        job: Object = {"metadata": metadata(name, namespace, uid), "spec": {}, "status": {}}
        self.put(TRAIN_JOBS, job)
        jobset = {"metadata": metadata(name, namespace, f"{uid}-js", owner=uid), "spec": {"replicatedJobs": [step()]}}
        self.put(JOB_SETS, jobset)
        child = {
            "metadata": metadata(f"{name}-node-0", namespace, f"{uid}-j", owner=f"{uid}-js", labels=group),
            "spec": {"parallelism": ranks, "completions": ranks},
            "status": {"ready": ranks if running is None else running},
        }
        self.put(JOBS, child)
        for index in range(ranks):
            labels = {**group, "batch.kubernetes.io/job-completion-index": str(index)}
            pod_metadata = metadata(f"{name}-{index}", namespace, f"{uid}-p{index}", owner=f"{uid}-j", labels=labels)
            self.put(PODS, {"metadata": pod_metadata, **pod(running is None or index < running, node=f"gpu-{index}")})
            if not any(node["metadata"]["name"] == f"gpu-{index}" for node in self.objects.get(NODES.plural, [])):
                self.add_node(f"gpu-{index}", ready=True)
        return job

    def has_no_node(self, pod: str, message: str = "0/9 nodes are available: 9 Insufficient nvidia.com/gpu.") -> None:
        """The scheduler has found no place for the pod."""
        found = next(item for item in self.objects[PODS.plural] if item["metadata"]["name"] == pod)
        found["spec"].pop("nodeName", None)
        why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        found["status"] = {"phase": "Pending", "conditions": [why]}

    def goes_silent(self, node: str) -> None:
        """As the node controller tells of it: Ready of the node is Unknown, that of its pods False, and Jobs count."""
        self.add_node(node, ready=False)
        for item in self.objects[PODS.plural]:
            if item["spec"].get("nodeName") != node:
                continue
            [ready] = [each for each in item["status"]["conditions"] if each["type"] == "Ready"]
            ready["status"] = "False"
            owner = item["metadata"]["ownerReferences"][0]["uid"]
            [job] = [each for each in self.objects[JOBS.plural] if each["metadata"]["uid"] == owner]
            job["status"]["ready"] -= 1

    def add_policy(self, name: str = "default", *, namespace: str = "team-a", **spec: Any) -> None:
        self.put(RECOVERY_POLICIES, {"metadata": metadata(name, namespace, f"policy-{name}"), "spec": spec})

    def add_group(self, job: str, status: Object, *, namespace: str = "team-a") -> None:
        uid = f"uid-{namespace}-{job}"
        spec = {"workloadRef": {"kind": "TrainJob", "name": job, "uid": uid}, "group": job}
        self.put(
            RECOVERY_GROUPS,
            {"metadata": metadata(f"{job}-{uid}", namespace, f"rg-{uid}"), "spec": spec, "status": status},
        )

    def add_incident(self, job: str, spec: Object, *, namespace: str = "team-a") -> None:
        self.put(
            RECOVERY_INCIDENTS,
            {"metadata": metadata(f"{job}-{spec['id']}", namespace, spec["id"]), "spec": {"group": job, **spec}},
        )

    def add_node(self, name: str, *, ready: bool) -> None:
        """In place of the one of that name."""
        self.delete_node(name)
        condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "NodeStatusUnknown"}
        condition["lastTransitionTime"] = "2026-11-02T08:58:00Z"
        self.put(NODES, {"metadata": metadata(name, "", name), "status": {"conditions": [condition]}})

    def delete_node(self, name: str) -> None:
        nodes = self.objects.setdefault(NODES.plural, [])
        nodes[:] = [node for node in nodes if node["metadata"]["name"] != name]


def metadata(name: str, namespace: str, uid: str, *, owner: str = "", labels: dict[str, str] | None = None) -> Object:
    found: Object = {
        "name": name,
        "uid": uid,
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": CREATED,
        "labels": labels or {},
    }
    if namespace:
        found["namespace"] = namespace
    if owner:
        found["ownerReferences"] = [{"uid": owner, "name": "x", "controller": True}]
    return found


def step() -> Object:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    return {"name": "node", "template": {"metadata": {"labels": labels}}}


def pod(running: bool, *, node: str) -> Object:
    state = {"running": {"startedAt": CREATED}} if running else {"waiting": {"reason": "ImagePullBackOff"}}
    ready = {"type": "Ready", "status": "True" if running else "False", "lastTransitionTime": CREATED}
    return {
        "spec": {"nodeName": node, "containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
        "status": {
            "phase": "Running" if running else "Pending",
            "conditions": [ready],
            "containerStatuses": [{"name": "node", "state": state}],
        },
    }


def _selected(label_selector: str) -> tuple[str, frozenset[str]]:
    """`label=value` or `label in (one,other)`; a label alone selects all that a test puts in: no label is asked for."""
    label, _, listed = label_selector.partition(" in ")
    if listed:
        return label, frozenset(listed.strip("()").split(","))
    label, _, value = label_selector.partition("=")
    return (label, frozenset({value})) if value else ("", frozenset())


def _merge(into: Object, change: Object) -> None:
    """RFC 7396, with the API server's precondition on the UID."""
    assert change.get("metadata", {}).get("uid", into["metadata"]["uid"]) == into["metadata"]["uid"]
    _merge_plain(into, change)


def _merge_plain(into: Object, change: Object) -> None:
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge_plain(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _apply(to: Object, operations: Objects) -> None:
    """RFC 6902 on objects alone."""
    for operation in operations:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"][1:].split("/"))
        place = to
        for parent in parents:
            place = place[parent]
        if operation["op"] == "test" and place.get(last) != operation["value"]:
            raise PatchTestFailedError("the server rejected our request due to an error in our request", status=422)
        if operation["op"] in {"add", "replace"}:
            place[last] = operation["value"]
        if operation["op"] == "remove":
            del place[last]


Connect = Callable[..., AbstractAsyncContextManager[Connection]]


def connect_to(cluster: ApiClient) -> Connect:
    """A stand-in for `connection.connect`."""

    @asynccontextmanager
    async def connect(*_: object) -> AsyncIterator[Connection]:
        yield Connection(cluster, "https://plain", StoppedClock(), Middle())

    return connect
