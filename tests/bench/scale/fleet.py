"""The objects of the fleet, and the streams of those who watch them."""

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    Resource,
)
from tests.bench.scale.templates import Object, pod_template, template

NAMESPACES = 20
PODS_PER_NODE = 10

encode = msgspec.json.Encoder().encode
Key = tuple[str, str]
"""Namespace and name."""


def stamp(at: datetime | None = None) -> str:
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True)
class Node:
    """A machine with a kubelet."""

    name: str
    uid: str
    version: int
    beat: str
    since: str
    ready: str = "True"
    taints: list[Object] = field(default_factory=list)


@dataclass(slots=True)
class Pod:
    """A rank of a group."""

    name: str
    uid: str
    version: int
    job: "Job"
    index: int
    node: str
    state: str
    created: str
    since: str
    deletion: str = ""
    """Empty: it is not being deleted."""
    deletion_at: str = ""
    grace: int = 0


@dataclass(slots=True)
class Job:
    """One incarnation of a group."""

    group: "Group"
    uid: str
    places: dict[str, str]
    """Values that all of its pods have."""
    pods: dict[str, Pod] = field(default_factory=dict)
    rendered: dict[tuple[str, str], Any] = field(default_factory=dict)
    synced_at: float = 0.0
    """When its status was last written."""


@dataclass(slots=True)
class Group:
    """A TrainJob with its JobSet and, between two incarnations None, its Job."""

    namespace: str
    name: str
    size: int
    trainjob_uid: str = field(default_factory=new_uid)
    jobset_uid: str = field(default_factory=new_uid)
    job: Job | None = None

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def job_key(self) -> Key:
        return self.namespace, f"{self.name}-node-0"

    def lives(self) -> Job:
        assert self.job is not None, f"{self.name} has no Job at the moment"
        return self.job


class Fleet:
    """All objects. Pods and nodes are rendered when they are sent; all others are kept as they are."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        """`sizes`: how many groups of how many pods. Ten pods share a node."""
        self._version = 1_000_000
        self._watchers: dict[str, list[Callable[[bytes], None]]] = defaultdict(list)
        self.objects: dict[str, dict[Key, Object]] = defaultdict(dict)
        self.pods: dict[Key, Pod] = {}
        self.groups: dict[Key, Group] = {}
        self.created = stamp(datetime.now(UTC) - timedelta(hours=2))
        count = sum(groups * pods for groups, pods in sizes)
        names = [f"gpu-{number:05}" for number in range(max(20, -(-count // PODS_PER_NODE)))]
        self.nodes = {name: Node(name, new_uid(), self.next(), self.created, self.created) for name in names}
        self.node_names = names
        placed = 0
        for groups, pods in sizes:
            for _ in range(groups):
                number = len(self.groups)
                group = Group(f"team-{number % NAMESPACES:02}", f"train-{number:04}-{pods}", pods)
                self.groups[group.key] = group
                self._put_new(TRAIN_JOBS, group.key, "trainjob", self._places(group))
                self._put_new(JOB_SETS, group.key, "jobset", self._places(group))
                job = self.add_job(group, self.created)
                self.set_job_status(group, active=pods, ready=pods)
                for index in range(pods):
                    self.add_pod(job, index, names[placed // PODS_PER_NODE], "running", self.created)
                    placed += 1
        self._add_policies()

    def next(self) -> int:
        """The next resourceVersion."""
        self._version += 1
        return self._version

    @property
    def version(self) -> int:
        return self._version

    def _places(self, group: Group) -> dict[str, str]:
        return {
            "NAMESPACE": group.namespace,
            "GROUP": group.name,
            "JOB": group.job_key[1],
            "SIZE": str(group.size),
            "TRAINJOB_UID": group.trainjob_uid,
            "JOBSET_UID": group.jobset_uid,
            "CREATED": self.created,
        }

    def _put_new(self, resource: Resource, key: Key, shape: str, places: dict[str, str]) -> None:
        places = {**places, "VERSION": str(self.next())}
        self.objects[resource.plural][key] = json.loads(template(shape).filled(places))

    def _add_policies(self) -> None:
        spec: Object = {
            "mode": "Enforce",
            "restart": "RecreateGroupOnPodRestart",
            "budget": {"limit": 20, "onExhausted": "Hold", "window": "24h"},
            "backoff": {"factor": 2, "initial": "0s", "max": "2m", "resetAfter": "1h"},
            "teardown": {"fencing": {"assumeDeadAfter": "0s", "mode": "AssumeDead"}, "graceSeconds": 5},
        }
        enforced = {"status": {"enforcedSince": self.created, "enforcedGeneration": 1}}
        self._put_own(CLUSTER_RECOVERY_POLICIES, "", "all", {"spec": spec, **enforced})
        self._put_own(RECOVERY_CONFIGS, "", "default", {"spec": {"allow": {"cordon": True, "assumeDead": True}}})
        for number in range(NAMESPACES):  # each team has one of its own, for jobs with its label
            own = {**spec, "selector": {"matchLabels": {"team": "special"}}}
            self._put_own(RECOVERY_POLICIES, f"team-{number:02}", "special", {"spec": own, **enforced})

    def _put_own(self, resource: Resource, namespace: str, name: str, content: Object) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **content}
        self.objects[resource.plural][(namespace, name)] = self.born(namespace, body)

    def born(self, namespace: str, body: Object) -> Object:
        """The object with what the server adds to its metadata."""
        added: Object = {
            "uid": new_uid(),
            "resourceVersion": str(self.next()),
            "creationTimestamp": stamp(),
            "generation": 1,
        }
        if namespace:
            added["namespace"] = namespace
        return {**body, "metadata": {**body["metadata"], **added}}

    # Jobs and pods.

    def add_job(self, group: Group, created: str) -> Job:
        uid = new_uid()
        places = {**self._places(group), "JOB_UID": uid, "CREATED": created}
        self._put_new(JOBS, group.job_key, "job", places)
        del places["CREATED"]
        group.job = Job(group, uid, places)
        return group.job

    def set_job_status(self, group: Group, *, active: int, ready: int) -> None:
        """Write the status of the Job. Notifies no watch."""
        job = self.objects[JOBS.plural][group.job_key]
        started = job["metadata"]["creationTimestamp"]
        counts = {"active": active, "ready": ready, "terminating": 0, "uncountedTerminatedPods": {}}
        job["status"] = {**counts, "startTime": started}

    def add_pod(self, job: Job, index: int, node: str, state: str, created: str) -> Pod:
        uid = new_uid()
        name = f"{job.group.job_key[1]}-{index}-{uid[:5]}"
        pod = Pod(name, uid, self.next(), job, index, node, state, created, created)
        job.pods[name] = self.pods[(job.group.namespace, name)] = pod
        return pod

    def remove_pod(self, pod: Pod) -> bool:
        """Remove it from all indexes. Returns whether it was there."""
        self.pods.pop((pod.job.group.namespace, pod.name), None)
        return pod.job.pods.pop(pod.name, None) is not None

    # What the server sends.

    def pod_bytes(self, pod: Pod) -> bytes:
        form = (pod.state, pod.deletion)
        rendered = pod.job.rendered.get(form)
        if rendered is None:
            rendered = pod.job.rendered[form] = pod_template(*form).partly(pod.job.places)
        places = {
            "NAME": pod.name,
            "UID": pod.uid,
            "VERSION": str(pod.version),
            "INDEX": str(pod.index),
            "NODE": pod.node,
            "CREATED": pod.created,
            "SINCE": pod.since,
            "DELETION": pod.deletion_at,
            "GRACE": str(pod.grace),
        }
        body: bytes = rendered.filled(places)
        return body

    def node_bytes(self, node: Node) -> bytes:
        places = {
            "NAME": node.name,
            "UID": node.uid,
            "VERSION": str(node.version),
            "BEAT": node.beat,
            "CREATED": self.created,
            "SINCE": node.since,
            "READY": node.ready,
            "REASON": "KubeletReady" if node.ready == "True" else "NodeStatusUnknown",
            "TAINTS": json.dumps(node.taints),
        }
        return template("node").filled(places)

    def rendered(self, plural: str, namespace: str = "") -> Iterator[bytes]:
        """All objects of a resource, as JSON. An empty namespace means all."""
        if plural == PODS.plural:
            found = list(self.pods.values())
            yield from (
                self.pod_bytes(each) for each in found if not namespace or each.job.group.namespace == namespace
            )
        elif plural == NODES.plural:
            yield from (self.node_bytes(each) for each in list(self.nodes.values()))
        else:
            items = list(self.objects[plural].items())
            yield from (encode(each) for (where, _), each in items if not namespace or where == namespace)

    # Watches.

    def watch(self, plural: str, send: Callable[[bytes], None]) -> Callable[[], None]:
        """Call `send` with each line. Returns how to end that."""
        self._watchers[plural].append(send)
        return lambda: self._watchers[plural].remove(send)

    def pod_changed(self, pod: Pod, event: str = "MODIFIED") -> None:
        pod.version = self.next()
        self._emit(PODS.plural, event, self.pod_bytes(pod))

    def node_changed(self, node: Node) -> None:
        node.version = self.next()
        self._emit(NODES.plural, "MODIFIED", self.node_bytes(node))

    def changed(self, plural: str, key: Key, event: str = "MODIFIED") -> Object:
        """One of the other objects has changed. Returns it with its new version."""
        body = self.objects[plural][key]
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.next())}}
        if event == "DELETED":
            del self.objects[plural][key]
        else:
            self.objects[plural][key] = body
        self._emit(plural, event, encode(body))
        return body

    def _emit(self, plural: str, event: str, body: bytes) -> None:
        line = b'{"type":"%s","object":%s}\n' % (event.encode(), body)
        for send in self._watchers[plural]:
            send(line)
