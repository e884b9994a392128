"""JobSet, Trainer and the garbage collector on an embedded server; the tests play the Job controller by hand."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from recovery.ports import JOB_SETS, JOBS, TRAIN_JOBS, PatchKind, Propagation
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.jobs import job_kind
from recovery.sim.api.kinds.jobsets import jobset_kind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import trainer_kinds
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.garbage import GarbageCollector
from recovery.sim.controllers.jobset import JobSetController
from recovery.sim.controllers.request_limiter import UNLIMITED, Limiter
from recovery.sim.controllers.trainer import TrainerController
from recovery.sim.virtual_time import VirtualClock

NAMESPACE = "team-a"
QUIET_SECONDS = 1.0
"""Longer than the models need for all that follows from one change."""


@dataclass
class Scene:
    server: ApiServer
    clock: VirtualClock
    jobsets: JobSetController
    trainer: TrainerController
    garbage: GarbageCollector
    changes: list[ObjectChange]
    """All changes so far."""

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["Scene"]:
        clock, entropy = VirtualClock(), random.Random(7)
        kinds = (*core_kinds(), job_kind(), jobset_kind(), *trainer_kinds())
        server = ApiServer(kinds, clock=clock, entropy=entropy)
        garbage = GarbageCollector(server, clock, entropy, limiter=Limiter(clock, per_second=UNLIMITED))
        models = (JobSetController(server, clock, entropy), TrainerController(server, clock, entropy), garbage)
        changes: list[ObjectChange] = []
        server.subscribe(changes.append)
        tasks = [asyncio.create_task(model.run()) for model in models]
        try:
            yield cls(server, clock, *models, changes)
            assert not any(task.done() for task in tasks), "a model has ended"
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def quiet(self, seconds: float = QUIET_SECONDS) -> None:
        await asyncio.sleep(seconds)

    async def create(self, body: Body) -> None:
        """Create the object, and wait for what follows."""
        self.server.create(self.server.resource_of(body), body, namespace=NAMESPACE)
        await self.quiet()

    def jobset(self, name: str = "llm") -> Body:
        return self.server.get(JOB_SETS, name, namespace=NAMESPACE)

    def trainjob(self, name: str = "llm") -> Body:
        return self.server.get(TRAIN_JOBS, name, namespace=NAMESPACE)

    def job(self, name: str) -> Body:
        return self.server.get(JOBS, name, namespace=NAMESPACE)

    def jobs(self) -> list[str]:
        """The names of the Jobs, in the order of their creation."""
        return [job["metadata"]["name"] for job in self.server.objects(JOBS)]

    def attempts(self) -> dict[str, str]:
        """The restart-attempt of each Job."""
        label = "jobset.sigs.k8s.io/restart-attempt"
        return {job["metadata"]["name"]: job["metadata"]["labels"][label] for job in self.server.objects(JOBS)}

    def uids(self) -> dict[str, str]:
        return {job["metadata"]["name"]: job["metadata"]["uid"] for job in self.server.objects(JOBS)}

    def counts(self, replicated: str, jobset: str = "llm") -> dict[str, int]:
        """The JobSet's counts of the Jobs of one ReplicatedJob, without zeros."""
        for each in self.jobset(jobset)["status"]["replicatedJobsStatus"]:
            if each["name"] == replicated:
                return {key: value for key, value in each.items() if key != "name" and value}
        raise AssertionError(f"nothing is said of {replicated}")

    async def patch_jobset(self, patch: Body, *, subresource: str = "") -> None:
        self.server.patch(JOB_SETS, "llm", patch, kind=PatchKind.MERGE, namespace=NAMESPACE, subresource=subresource)
        await self.quiet()

    async def patch_trainjob(self, spec: Body) -> None:
        self.server.patch(TRAIN_JOBS, "llm", {"spec": spec}, kind=PatchKind.MERGE, namespace=NAMESPACE)
        await self.quiet()

    async def play(self, job: str, **status: Any) -> None:
        """Write that status of a Job, as the Job controller would, and wait for what follows."""
        self.server.patch(
            JOBS, job, {"status": status}, kind=PatchKind.MERGE, namespace=NAMESPACE, subresource="status"
        )
        await self.quiet()

    async def fail(self, job: str, reason: str = "BackoffLimitExceeded", message: str = "gave up") -> None:
        await self.end(job, "FailureTarget", "Failed", reason=reason, message=message)

    async def complete(self, job: str) -> None:
        await self.end(job, "SuccessCriteriaMet", "Complete")

    async def end(self, job: str, *types: str, reason: str = "", message: str = "") -> None:
        at = f"{self.clock.now().isoformat()[:19]}Z"
        met = [
            {"type": each, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
            for each in types
        ]
        began = self.job(job).get("status", {}).get("startTime", at)
        await self.play(job, conditions=met, active=0, ready=0, startTime=began)

    async def delete_job(self, name: str) -> None:
        """Delete the Job in the foreground, as our own controller does."""
        self.server.delete(JOBS, name, namespace=NAMESPACE, propagation=Propagation.FOREGROUND)
        await self.quiet()

    async def delete_jobset(self, name: str = "llm") -> None:
        self.server.delete(JOB_SETS, name, namespace=NAMESPACE, propagation=Propagation.FOREGROUND)
        await self.quiet()


def conditions(body: Body) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    found = body.get("status", {}).get("conditions", ())
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def met(body: Body) -> list[str]:
    """The conditions that are True."""
    return [kind for kind, (status, _) in conditions(body).items() if status == "True"]


def jobset(*replicated_jobs: Body, name: str = "llm", **spec: Any) -> Body:
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [*replicated_jobs] or [replicated("node")], **spec},
    }


def replicated(name: str, *, pods: int = 2, replicas: int = 1, after: Sequence[tuple[str, str]] = ()) -> Body:
    """`after`: names and required statuses of the ReplicatedJobs that it depends on."""
    body: Body = {
        "name": name,
        "replicas": replicas,
        "template": {
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "template": {"spec": {"containers": [{"name": "node", "image": "train"}]}},
            }
        },
    }
    if after:
        body["dependsOn"] = [{"name": name, "status": status} for name, status in after]
    return body


def rule(action: str, *reasons: str, patterns: Sequence[str] = (), targets: Sequence[str] = ()) -> Body:
    wanted = {
        "action": action,
        "onJobFailureReasons": [*reasons],
        "onJobFailureMessagePatterns": [*patterns],
        "targetReplicatedJobs": [*targets],
    }
    return {key: value for key, value in wanted.items() if value}


def trainjob(runtime: str = "torch-distributed", *, name: str = "llm", nodes: int = 4, **spec: Any) -> Body:
    gpus = {"nvidia.com/gpu": 8}
    return {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": TRAIN_JOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": runtime},
            "trainer": {"numNodes": nodes, "resourcesPerNode": {"requests": gpus, "limits": gpus}},
            **spec,
        },
    }
