"""A store, a cluster whose watches a test feeds, and the objects of one group."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from recovery.core.model.facts import GroupKey, Snapshot
from recovery.kube.group_store import KubeGroupStore
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_DRILLS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiRequest,
    Resource,
)
from tests.unit.kube.testing import FakeClock, Middle, Observed, ScriptedApi, bookmark, event, fixture

LLM = GroupKey("default", "llm")
WORKLOAD_UID = "1a93898b-ffca-4ca8-9e18-ad099985668f"
JOB_UID = "88fa8d43-97ac-40cc-91e9-2a692a749c32"
LEDGER_NAME = f"llm-{WORKLOAD_UID}"
LAID_DOWN = (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS)
ALL = (TRAIN_JOBS, JOB_SETS, JOBS, PODS, NODES, *LAID_DOWN, RECOVERY_GROUPS, RECOVERY_DRILLS)

Body = dict[str, Any]


class FedApi(ScriptedApi):
    """Watches that a test feeds through one queue for each resource."""

    def __init__(self) -> None:
        super().__init__()
        self.feeds: dict[str, asyncio.Queue[bytes | Exception]] = {each.plural: asyncio.Queue() for each in ALL}
        self.selectors: dict[str, str] = {}

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        plural = request.resource.plural
        self.selectors[plural] = request.parameter("labelSelector")
        while True:
            line = await self.feeds[plural].get()
            if isinstance(line, Exception):
                raise line
            yield line


class World:
    """A store, the cluster that it sees, and its notifications."""

    def __init__(self, *, train_jobs: bool = True) -> None:
        self.api = FedApi()
        self.clock = FakeClock()
        self.observed = Observed()
        self.store = KubeGroupStore(
            self.api, clock=self.clock, entropy=Middle(), observer=self.observed, train_jobs=train_jobs
        )
        self.notified: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        """The notifications of changes that may be a loss."""
        self.store.subscribe(self._changed)
        self.version = 1000

    def _changed(self, key: GroupKey, *, loss: bool) -> None:
        self.notified[str(key)] += 1
        self.losses[str(key)] += loss

    async def settle(self) -> None:
        while any(not feed.empty() for feed in self.api.feeds.values()):
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)

    async def tell(self, resource: Resource, *bodies: Body, type_: str = "MODIFIED") -> Counter[str]:
        """Send objects through a watch, each newer than all before; returns the groups that were notified."""
        self.notified.clear()
        self.losses.clear()
        for body in bodies:
            self.version += 1
            body["metadata"]["resourceVersion"] = str(self.version)
            self.api.feeds[resource.plural].put_nowait(event(type_, body))
        await self.settle()
        return self.notified

    async def end_lists(self, *resources: Resource) -> None:
        for resource in resources:
            self.api.feeds[resource.plural].put_nowait(bookmark(self.version, initial_events_end=True))
        await self.settle()

    @property
    def llm(self) -> Snapshot:
        return self.store.snapshot(LLM)


def load(name: str) -> Body:
    body: Body = json.loads(fixture(name))
    return body


def pod(index: int, *, state: str = "pod_running", name: str = "", job_uid: str = JOB_UID, **labels: str) -> Body:
    body = load(state)
    metadata = body["metadata"]
    metadata["name"] = name or f"llm-node-0-{index}"
    metadata["uid"] = f"uid-{metadata['name']}"
    metadata["ownerReferences"][0]["uid"] = job_uid
    metadata["labels"]["batch.kubernetes.io/job-completion-index"] = str(index)
    metadata["labels"] |= {f"jobset.sigs.k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return body


def job(*, name: str = "llm-node-0", uid: str = JOB_UID, replicated_job: str = "node", members: int = 2) -> Body:
    body = load("job")
    body["metadata"] |= {"name": name, "uid": uid}
    body["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = replicated_job
    body["spec"] |= {"parallelism": members, "completions": members}
    return body


def bare(*, uid: str = "bare") -> Body:
    """The JobSet llm without a TrainJob, as a user creates it."""
    body = load("jobset")
    body["metadata"]["uid"] = uid
    body["metadata"]["labels"] = {"team": "b"}
    del body["metadata"]["ownerReferences"]
    return body


def replicated(*names: str, replicas: int = 1, after: str = "") -> list[Body]:
    """ReplicatedJobs. The last one waits until `after` is Complete."""
    jobs: list[Body] = [{"name": name, "replicas": replicas} for name in names]
    if after:
        jobs[-1]["dependsOn"] = [{"name": after, "status": "Complete"}]
    return jobs


def cluster_policy(name: str = "everywhere") -> Body:
    body = load("recoverypolicy")
    body["metadata"] |= {"name": name, "uid": name}
    del body["metadata"]["namespace"]
    return body


def config(**spec: object) -> Body:
    metadata = {"name": "default", "uid": "c-1", "generation": 1, "creationTimestamp": "2026-11-21T09:00:00Z"}
    return {"metadata": metadata, "spec": spec}


def listed(kind: str, *items: Body) -> bytes:
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "5000"}, "items": items}).encode()


def ledger(uid: str, *, name: str = "llm") -> Body:
    """The RecoveryGroup of an earlier workload of that name."""
    body = load("recoverygroup")
    body["metadata"] |= {"name": f"{name}-{uid}", "uid": f"group-{uid}"}
    body["spec"]["workloadRef"] |= {"name": name, "uid": uid}
    return body


def names(snapshot: Snapshot) -> list[str]:
    return [each.name for each in snapshot.pods]
