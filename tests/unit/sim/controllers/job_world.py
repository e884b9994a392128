"""A server, the Job controller and optionally the garbage collector, in virtual time. Tests play the kubelets."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from recovery.ports import EVENTS, JOBS, PODS, PatchKind
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.jobs import job_kind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.pods import PodAdmission
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.controllers.garbage import GarbageCollector
from recovery.sim.controllers.job import JobController
from recovery.sim.controllers.request_limiter import UNLIMITED, Limiter
from recovery.sim.virtual_time import VirtualClock

NAMESPACE = "team"


class JobWorld:
    def __init__(self, per_second: float) -> None:
        self.clock = VirtualClock()
        self.admission = PodAdmission()
        entropy = random.Random(5)
        self.server = ApiServer([*core_kinds(self.admission), job_kind()], clock=self.clock, entropy=entropy)
        limiters = [Limiter(self.clock, per_second=per_second * times) for times in (1, 2)]
        self.controller = JobController(self.server, self.clock, entropy, limiter=limiters[0])
        self.collector = GarbageCollector(self.server, self.clock, entropy, limiter=limiters[1])

    async def pass_seconds(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # Jobs.

    def create(self, name: str = "train", **spec: Any) -> Body:
        return self.server.create(JOBS, job(name, **spec))

    def job(self, name: str = "train") -> Body:
        found = self.server.find(JOBS, name, NAMESPACE)
        assert found, f"there is no Job {name}"
        return found

    def status(self, name: str = "train") -> Body:
        status: Body = self.job(name).get("status", {})
        return status

    def patch(self, name: str = "train", **spec: Any) -> Body:
        return self.server.patch(JOBS, name, {"spec": spec}, kind=PatchKind.MERGE, namespace=NAMESPACE)

    def set_job_status(self, name: str = "train", **status: Any) -> None:
        """Write the Job's status as another client does."""
        patch = {"status": status}
        self.server.patch(JOBS, name, patch, kind=PatchKind.MERGE, namespace=NAMESPACE, subresource="status")

    def conditions(self, name: str = "train") -> dict[str, str]:
        """Type and reason of the True conditions, in the order in which they were added."""
        said = self.status(name).get("conditions", ())
        return {each["type"]: each["reason"] for each in said if each["status"] == "True"}

    def message(self, kind: str, name: str = "train") -> str:
        return next(str(each["message"]) for each in self.status(name)["conditions"] if each["type"] == kind)

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.server.objects(EVENTS) if event["reason"] == reason]

    # Pods.

    def pods(self) -> list[Body]:
        return list(self.server.objects(PODS, NAMESPACE))

    def pod(self, index: int) -> Body:
        """The youngest pod that has the index and is not being deleted."""
        found = [pod for pod in self.pods() if index_of(pod) == index and "deletionTimestamp" not in pod["metadata"]]
        assert found, f"there is no pod of index {index}"
        return found[-1]

    def indexes(self) -> list[int]:
        return sorted(index_of(pod) for pod in self.pods())

    def set_status(self, pod: Body, status: Body) -> None:
        name = pod["metadata"]["name"]
        self.server.patch(
            PODS, name, {"status": status}, kind=PatchKind.MERGE, namespace=NAMESPACE, subresource="status"
        )

    def run(self, *pods: Body, restarts: int = 0) -> None:
        """Make the pods bound, running and ready, after so many restarts in place."""
        at = timestamp(self.clock.now())
        for pod in pods or self.pods():
            if not pod["spec"].get("nodeName"):
                target = {"target": {"kind": "Node", "name": "node-0"}}
                self.server.create(
                    PODS, target, namespace=NAMESPACE, name=pod["metadata"]["name"], subresource="binding"
                )
            container = {"name": "node", "restartCount": restarts, "state": {"running": {"startedAt": at}}}
            readiness = {"type": "Ready", "status": "True", "lastTransitionTime": at}
            self.set_status(pod, {"phase": "Running", "conditions": [readiness], "containerStatuses": [container]})

    def end(self, pod: Body, code: int, *conditions: Body) -> None:
        """Let all containers of the pod end, without a restart."""
        at = timestamp(self.clock.now())
        ended = {"exitCode": code, "finishedAt": at}
        readiness = {"type": "Ready", "status": "False", "lastTransitionTime": at}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [readiness, *conditions],
            "containerStatuses": [{"name": "node", "restartCount": 0, "state": {"terminated": ended}}],
        }
        self.set_status(pod, status)

    def delete(self, *pods: Body) -> None:
        """Delete the pods as another client does, with their own grace."""
        for pod in pods:
            self.server.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)

    def let_die(self, *pods: Body) -> None:
        """Send the kubelet's last delete of pods that are being deleted: their processes have ended."""
        for pod in pods or self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self.server.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE, grace_seconds=0)


@asynccontextmanager
async def job_world(*, per_second: float = UNLIMITED, collects: bool = False) -> AsyncIterator[JobWorld]:
    """`per_second`: requests of the Job controller. `collects`: add a collector, which may send twice as many."""
    world = JobWorld(per_second)
    running = [asyncio.ensure_future(world.controller.run())]
    if collects:
        running.append(asyncio.ensure_future(world.collector.run()))
    await asyncio.sleep(0)
    try:
        yield world
    finally:
        for task in running:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task


def job(name: str, *, indexed: bool = True, pods: int = 2, restart_policy: str = "Never", **spec: Any) -> Body:
    """`spec`: further fields of the Job's spec."""
    template = {
        "metadata": {"labels": {"team": "blue"}},
        "spec": {
            "restartPolicy": restart_policy,
            "initContainers": [{"name": "prepare", "image": "init:1"}],
            "containers": [{"name": "node", "image": "train:1", "env": [{"name": "LR", "value": "1e-4"}]}],
        },
    }
    mode = "Indexed" if indexed else "NonIndexed"
    counts = {"parallelism": pods, "completions": pods, "completionMode": mode}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {**counts, "template": template, **spec},
    }


def index_of(pod: Body) -> int:
    return int(pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index", -1))
