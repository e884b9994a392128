"""A cluster of plain objects behind `ports.ApiClient`, for commands that read once, and a stand-in for `connect`."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

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
    ApiRequest,
)
from tests.unit.fake_api import Object, ObjectsApi, sent

NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)
CREATED = "2026-11-02T08:00:00Z"


class StoppedClock:
    """`ports.Clock` that stays at NOW. A sleep returns at once."""

    def __init__(self) -> None:
        self.slept_seconds = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic_seconds(self) -> float:
        return self.slept_seconds

    async def sleep(self, seconds: float) -> None:
        self.slept_seconds += seconds


class Middle:
    """`ports.Entropy` that always draws the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class PlainCluster(ObjectsApi):
    """Objects for commands to read and patch. Access reviews deny what is in `denied`."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: dict[str, str] = {}
        """JSON that the server sends in place of a string: JSON that `json` cannot write."""
        self.patched: Callable[[Object], None] = lambda _: None
        """Called with every object right after it was patched. It stands in for what a controller would do."""
        self.put(NAMESPACES, *({"metadata": metadata(name, "", name)} for name in ("team-a", "team-b")))

    @property
    def patches(self) -> list[str]:
        """The patches, in order."""
        return [f"{patch.resource.kind} {patch.namespace}/{patch.name}" for patch in self.applied]

    async def answer(self, request: ApiRequest) -> bytes:
        if request.verb == "create":
            assert request.resource.plural == "selfsubjectaccessreviews", "commands create nothing else"
            return json.dumps({"status": {"allowed": self.allows(sent(request).body["spec"])}}).encode()
        text = (await super().answer(request)).decode()
        if request.verb == "patch":
            self.patched(self._named(request))
        for string, instead in self.raw.items():
            text = text.replace(json.dumps(string), instead)
        return text.encode()

    def allows(self, review: Object) -> bool:
        wanted = review["resourceAttributes"]
        target = f"{wanted['resource']}/{wanted['subresource']}" if wanted["subresource"] else wanted["resource"]
        return (wanted["verb"], target) not in self.denied

    def add_bare_job_set(self, name: str, *, namespace: str = "team-a") -> Object:
        found: Object = {"metadata": metadata(name, namespace, f"uid-{namespace}-{name}"), "spec": {}, "status": {}}
        self.put(JOB_SETS, found)
        return found

    # --- the objects in it -------------------------------------------------------------------------------------------

    def add_job(self, name: str, *, namespace: str = "team-a", ranks: int = 2, running: int | None = None) -> Object:
        """Add a TrainJob, its JobSet, Job, pods and nodes; each pod has 8 GPUs. Pods after `running` are Pending."""
        uid = f"uid-{namespace}-{name}"
        group = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        job: Object = {"metadata": metadata(name, namespace, uid), "spec": {}, "status": {}}
        self.put(TRAIN_JOBS, job)
        jobset = {
            "metadata": metadata(name, namespace, f"{uid}-js", owner=uid),
            "spec": {"replicatedJobs": [step(ranks)]},
        }
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
        """Make the pod Pending: the scheduler has found no node for it."""
        found = next(item for item in self.objects[PODS.plural] if item["metadata"]["name"] == pod)
        found["spec"].pop("nodeName", None)
        why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        found["status"] = {"phase": "Pending", "conditions": [why]}

    def goes_silent(self, node: str) -> None:
        """As the node controller does: the node's Ready is Unknown, that of its pods False, and Jobs count fewer."""
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
        """Add the node, or replace the one of that name."""
        condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "NodeStatusUnknown"}
        condition["lastTransitionTime"] = "2026-11-02T08:58:00Z"
        self.put(NODES, {"metadata": metadata(name, "", name), "status": {"conditions": [condition]}})


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


def lease(
    namespace: str = "recovery-system", *, holder: str = "pod-1", renewed_at: str | None = "2026-11-02T08:59:55Z"
) -> Object:
    """The Lease of the controllers' election, held by `holder`. `renewed_at` None: the Lease has no renewTime."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed_at}
    return {"metadata": metadata("recovery-controller", namespace, f"lease-{namespace}"), "spec": spec}


def step(ranks: int) -> Object:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    size = {"parallelism": ranks, "completions": ranks}
    return {"name": "node", "template": {"metadata": {"labels": labels}, "spec": size}}


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


Connect = Callable[..., AbstractAsyncContextManager[Connection]]


def connect_to(cluster: ApiClient) -> Connect:
    """A stand-in for `connection.connect`."""

    @asynccontextmanager
    async def connect(*_: object) -> AsyncIterator[Connection]:
        yield Connection(cluster, "https://plain", StoppedClock(), Middle())

    return connect
