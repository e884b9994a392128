"""The TTL controller: it deletes finished Jobs when their `ttlSecondsAfterFinished` is over.

Modelled after pkg/controller/ttlafterfinished (Kubernetes 1.36). JobSet has the same rule for JobSets.
"""

from datetime import datetime, timedelta
from typing import Any

from recovery.ports import JOBS, Clock, Entropy, Propagation
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.request_limiter import Limiter

Key = tuple[str, str]
"""Namespace and name of a Job."""


def seconds_left(finished_at: str, ttl_seconds: int, now: datetime) -> float:
    """How long the finished object lives on. Zero or less: its time is over."""
    return (datetime.fromisoformat(finished_at) + timedelta(seconds=ttl_seconds) - now).total_seconds()


class JobTTL(ModelController[Key]):
    """Part of kube-controller-manager."""

    name = "ttl-after-finished-controller"

    def __init__(self, server: ApiServer, clock: Clock, entropy: Entropy, *, limiter: Limiter | None = None) -> None:
        """`limiter` None: the limits of a stock kube-controller-manager."""
        super().__init__(server, clock, entropy, limiter=limiter or Limiter(clock))
        server.subscribe(self._on_change, JOBS)
        for job in server.objects(JOBS):
            self._consider(job)

    def _on_change(self, change: ObjectChange) -> None:
        if change.type != "DELETED":
            self._consider(change.body)

    def _consider(self, job: Body) -> None:
        if "ttlSecondsAfterFinished" in job["spec"] and _end_of(job) is not None:
            self.enqueue((job["metadata"]["namespace"], job["metadata"]["name"]))

    async def sync(self, key: Key) -> None:
        namespace, name = key
        job = self.server.find(JOBS, name, namespace)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        ttl, ended = job["spec"].get("ttlSecondsAfterFinished"), _end_of(job)
        if ttl is None or ended is None:
            return
        left = seconds_left(ended["lastTransitionTime"], ttl, self.clock.now())
        if left > 0:
            self.enqueue_after(key, left)
            return
        await self.limiter.take()
        with self.server.acting(self.name):
            uid = job["metadata"]["uid"]
            self.server.delete(JOBS, name, namespace=namespace, uid=uid, propagation=Propagation.FOREGROUND)


def _end_of(job: Body) -> dict[str, Any] | None:
    """The condition by which the Job has ended. None: it has not."""
    conditions = job.get("status", {}).get("conditions", ())
    ends = (each for each in conditions if each["type"] in {"Complete", "Failed"} and each["status"] == "True")
    return next(ends, None)
