"""The Job controller: it creates pods for Jobs and counts how they end.

Source: `pkg/controller/job/job_controller.go` of Kubernetes 1.36. Left out: adoption and release of pods by labels,
managedBy, Workloads. `job_ttl` deletes finished Jobs. It needs the same requests as the real one: one for each pod that
it creates or deletes, each finalizer, each status and each Event.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Literal, NamedTuple, TypeVar

from recovery.ports import JOBS, PODS, Clock, Entropy, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.controller import CONFLICTS, ModelController
from recovery.sim.controllers.job_backoff import JobBackoff
from recovery.sim.controllers.job_events import JobEvents
from recovery.sim.controllers.job_pods import (
    TRACKING_FINALIZER,
    all_failures_of_index,
    controller_of,
    deleting,
    failures_of_index,
    finished_at,
    index_of,
    make_pod,
    terminating,
    to_remove,
    tracked,
)
from recovery.sim.controllers.job_status import JobSync, finished
from recovery.sim.controllers.request_limiter import Limiter

T = TypeVar("T")

BATCH_SECONDS = 1.0
"""Changes of pods and of a Job's status are collected for this time and synced together (`syncJobBatchPeriod`)."""
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
MOST_PODS_PER_SYNC = 500


class JobKey(NamedTuple):
    """A Job to sync, or a pod that no Job will count, so that its finalizer must be removed."""

    kind: Literal["Job", "Pod"]
    namespace: str
    name: str


class PodsRefusedError(Exception):
    """The server refused some pods of a sync. The sync is retried with exponential backoff."""


class JobController(ModelController[JobKey]):
    """It subscribes on creation and syncs while `run` is running."""

    name = "job-controller"

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        entropy: Entropy,
        *,
        limiter: Limiter,
        delay_seconds: tuple[float, float] = (0.001, 0.02),
        workers: int = 5,
    ) -> None:
        super().__init__(server, clock, entropy, limiter=limiter, delay_seconds=delay_seconds, workers=workers)
        self._events = JobEvents(server, clock, limiter, self.name)
        self._backoffs: dict[JobKey, JobBackoff] = {}
        self._due: dict[JobKey, asyncio.TimerHandle] = {}
        self._refusals: dict[JobKey, int] = {}
        self._overlooking_until_seconds = 0.0
        self._overlooked: set[str] = set()
        """UIDs of the Jobs that are not synced until they change."""
        server.subscribe(self._job_changed, JOBS)
        server.subscribe(self._pod_changed, PODS)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            await super().run()

    def overlook_new_jobs(self, seconds: float) -> None:
        """Jobs created within that time get no pods until something in them changes (k/k 131917)."""
        self._overlooking_until_seconds = self.clock.monotonic_seconds() + seconds

    # Changes.

    def _job_changed(self, change: ObjectChange) -> None:
        job, metadata = change.body, change.body["metadata"]
        key = JobKey("Job", metadata["namespace"], metadata["name"])
        if change.before is None:
            if self.clock.monotonic_seconds() < self._overlooking_until_seconds:
                self._overlooked.add(metadata["uid"])
            else:
                self.enqueue(key)
            return
        self._overlooked.discard(metadata["uid"])
        if change.type == "DELETED" or finished(job):
            self._leave(key, job)
        elif _asked_for_more(change.before, job):
            self.enqueue(key)
        else:
            self._sync_within(key, BATCH_SECONDS)

    def _leave(self, key: JobKey, job: Body) -> None:
        """Forget a finished or deleted Job, and remove the finalizers of its pods."""
        self._backoffs.pop(key, None)
        for pod in self._pods_of(job):
            if tracked(pod):
                self.enqueue(_orphan(pod))

    def _pod_changed(self, change: ObjectChange) -> None:
        pod = change.body
        gone = change.type == "DELETED"
        owner = controller_of(pod)
        if owner is None:
            if tracked(pod) and not gone:
                self.enqueue(_orphan(pod))
            return
        job = self._job_of(pod, owner)
        if (gone or deleting(pod)) and (job is None or finished(job)):
            if tracked(pod) and not gone and owner["kind"] == "Job":
                self.enqueue(_orphan(pod))
        elif job is not None:
            self._sync_within(JobKey("Job", job["metadata"]["namespace"], job["metadata"]["name"]), BATCH_SECONDS)

    def _job_of(self, pod: Body, owner: Body) -> Body | None:
        """The owning Job. None: it is gone, or another Job has its name by now."""
        if owner["kind"] != "Job":
            return None
        job = self.server.find(JOBS, owner["name"], pod["metadata"]["namespace"])
        return job if job is not None and job["metadata"]["uid"] == owner["uid"] else None

    def _sync_within(self, key: JobKey, seconds: float) -> None:
        """Sync the key after that time, or at an earlier time already set, as in client-go's delaying queue."""
        loop = asyncio.get_running_loop()
        due = self._due.get(key)
        if due is not None:
            if due.when() <= loop.time() + seconds:
                return
            due.cancel()
        self._due[key] = loop.call_later(seconds, self._sync_due, key)

    def _sync_due(self, key: JobKey) -> None:
        del self._due[key]
        self.enqueue(key)

    # The sync.

    async def sync(self, key: JobKey) -> None:
        try:
            if key.kind == "Pod":
                await self._let_go(key)
            else:
                await self._sync_job(key)
        except (PodsRefusedError, StatusError) as error:
            if isinstance(error, StatusError) and error.code not in CONFLICTS:
                raise
            refusals = self._refusals[key] = self._refusals.get(key, 0) + 1
            seconds = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(refusals - 1, 10))
            self._sync_within(key, seconds)
        else:
            self._refusals.pop(key, None)

    async def _let_go(self, key: JobKey) -> None:
        pod = self.server.find(PODS, key.name, key.namespace)
        if pod is None:
            return
        owner = controller_of(pod)
        if owner is not None:
            job = self._job_of(pod, owner)
            if owner["kind"] != "Job" or (job is not None and not finished(job)):
                return
        await self._release(pod)

    async def _sync_job(self, key: JobKey) -> None:
        job = self.server.find(JOBS, key.name, key.namespace)
        if job is None or finished(job) or job["metadata"]["uid"] in self._overlooked:
            return
        sync = JobSync(job, self._pods_of(job), self.clock.now())
        backoff = self._backoffs.get(key, JobBackoff()).after(sync.newly_succeeded, sync.newly_failed)
        sync.ending = sync.judge()
        deadline_seconds = sync.deadline_seconds()
        if sync.ending is None and deadline_seconds is not None:
            self._sync_within(key, deadline_seconds)
        accepted = True
        if sync.ending is not None:
            await self._delete_active(sync)
        else:
            accepted = deleting(job) or await self._manage(key, sync, backoff)
            if sync.complete():
                sync.complete_at(self.clock.now())
            elif not deleting(job):
                self._say_whether_suspended(sync)
        await self._track(key, sync, backoff)
        if not accepted:
            raise PodsRefusedError

    def _pods_of(self, job: Body) -> list[Body]:
        uid = job["metadata"]["uid"]
        owned = (body for body in self.server.dependants(uid) if body["kind"] == "Pod")
        return [pod for pod in owned if (controller_of(pod) or {}).get("uid") == uid]

    async def _delete_active(self, sync: JobSync) -> None:
        """Delete all active pods, because the Job ends. They keep their finalizers until the status counts them."""
        await _all(self._delete(sync, pod) for pod in sync.active_pods)
        sync.let_end(sync.active_pods)

    def _say_whether_suspended(self, sync: JobSync) -> None:
        """Set Suspended after pods were created or deleted: on a resume it is newer than every pod of that sync."""
        now = self.clock.now()
        if sync.suspended:
            if sync.set_condition("Suspended", "True", "JobSuspended", "Job suspended", now):
                self._events.note(sync.job, "Suspended", "Job suspended")
                sync.start_time = None
        elif sync.set_condition("Suspended", "False", "JobResumed", "Job resumed", now):
            self._events.note(sync.job, "Resumed", "Job resumed")
            sync.start_time = timestamp(now)

    # Creating and deleting pods.

    async def _manage(self, key: JobKey, sync: JobSync, backoff: JobBackoff) -> bool:
        """Create or delete pods, never both in one sync. False: some new pods were refused."""
        wanted = self._wanted(sync)
        completions = sync.completions if sync.indexed else None
        surplus = to_remove(sync.active_pods, max(0, sync.active - wanted), completions)
        if surplus:
            await self._delete_surplus(sync, surplus if sync.suspended else surplus[:MOST_PODS_PER_SYNC])
            return True
        waited_for = sync.terminating if sync.replaces_failed_only else 0
        missing = min(wanted - waited_for - sync.active, MOST_PODS_PER_SYNC)
        if sync.suspended or missing <= 0:
            return True
        indexes: list[int | None] = [None] * missing
        wait_seconds = 0.0
        if sync.indexed:
            indexes = list(_pending_indexes(sync)[:missing])
        if sync.limit_per_index is None:
            wait_seconds = backoff.remaining_seconds(sync.now)
        else:
            waits = [(_backoff_of(sync, index).remaining_seconds(sync.now), index) for index in indexes]
            indexes = [index for seconds, index in waits if seconds == 0]
            wait_seconds = 0.0 if indexes or not waits else min(seconds for seconds, _ in waits)
        if wait_seconds > 0:
            self._sync_within(key, max(wait_seconds, BATCH_SECONDS))
            return True
        return await self._create(sync, indexes)

    def _wanted(self, sync: JobSync) -> int:
        if sync.suspended:
            return 0
        if sync.completions is None:
            return sync.active if sync.succeeded > 0 else sync.parallelism
        return max(0, min(sync.completions - sync.succeeded, sync.parallelism))

    async def _delete_surplus(self, sync: JobSync, pods: list[Body]) -> None:
        """Delete pods after removing their finalizers, so that they do not count as failed."""
        await _all(self._release_and_delete(sync, pod) for pod in pods)
        sync.let_end(pods)

    async def _create(self, sync: JobSync, indexes: list[int | None]) -> bool:
        """Create pods in batches of 1, 2, 4, ..., so that few requests are wasted if all are refused."""
        size = 1
        while indexes:
            batch, indexes = indexes[:size], indexes[size:]
            created = await _all(self._create_one(sync, index) for index in batch)
            sync.active += sum(created)
            if not all(created):
                return False
            size *= 2
        return True

    # Counting pods.

    async def _track(self, key: JobKey, sync: JobSync, backoff: JobBackoff) -> None:
        """Record the finished pods, then remove their finalizers, then count them. A crash in between loses nothing."""
        sync.settle()
        to_release = sync.count()
        sync.announce()
        counted_at = self.clock.now()
        if await self._write(sync):
            self._backoffs[key] = backoff
        await _all(self._release(pod) for pod in to_release)
        sync.settle(pod["metadata"]["uid"] for pod in to_release)
        ended = sync.finish(counted_at, self.clock.now())
        await self._write(sync)
        if ended and sync.ending is not None:
            if sync.ending.fails:
                self._events.warn(sync.job, sync.ending.reason, sync.ending.message)
            else:
                self._events.note(sync.job, "Completed", "Job completed")

    async def _write(self, sync: JobSync) -> bool:
        """Write the status. False: it has not changed."""
        status = sync.status()
        if status == sync.job.get("status"):
            return False
        await self.limiter.take()
        with self.server.acting(self.name):
            body = {**sync.job, "status": status}
            sync.job = self.server.replace(
                JOBS, body, namespace=sync.job["metadata"]["namespace"], subresource="status"
            )
        return True

    # Single requests.

    async def _create_one(self, sync: JobSync, index: int | None) -> bool:
        """Create a pod. False: it was refused."""
        pod = make_pod(sync.job, index, _failures(sync, index))
        await self.limiter.take()
        try:
            with self.server.acting(self.name):
                made = self.server.create(PODS, pod, namespace=sync.job["metadata"]["namespace"])
        except StatusError as error:
            self._events.warn(sync.job, "FailedCreate", f"Error creating: {error.message}")
            return False
        self._events.note(sync.job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return True

    async def _delete(self, sync: JobSync, pod: Body) -> None:
        metadata = pod["metadata"]
        await self.limiter.take()
        if self._latest(pod) is not None:
            with self.server.acting(self.name):
                self.server.delete(PODS, metadata["name"], namespace=metadata["namespace"])
            self._events.note(sync.job, "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    async def _release_and_delete(self, sync: JobSync, pod: Body) -> None:
        await self._release(pod)
        await self._delete(sync, pod)

    async def _release(self, pod: Body) -> None:
        """Remove the pod's finalizer."""
        if not tracked(pod):
            return
        metadata = pod["metadata"]
        await self.limiter.take()
        latest = self._latest(pod)
        if latest is not None:
            held = latest["metadata"].get("finalizers", ())
            left = {"metadata": {"finalizers": [each for each in held if each != TRACKING_FINALIZER]}}
            with self.server.acting(self.name):
                self.server.patch(PODS, metadata["name"], left, kind=PatchKind.MERGE, namespace=metadata["namespace"])

    def _latest(self, pod: Body) -> Body | None:
        """The pod's current state, or None if it is gone."""
        metadata = pod["metadata"]
        latest = self.server.find(PODS, metadata["name"], metadata["namespace"])
        return latest if latest is not None and latest["metadata"]["uid"] == metadata["uid"] else None


async def _all(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Send the requests concurrently. The limiter lets them through in this order."""
    async with asyncio.TaskGroup() as tasks:
        sent = [tasks.create_task(request) for request in requests]
    return [task.result() for task in sent]


def _orphan(pod: Body) -> JobKey:
    return JobKey("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])


def _asked_for_more(before: Body, after: Body) -> bool:
    """The spec has changed, or a delete was requested. Both are synced without delay."""
    return bool(before["metadata"].get("generation") != after["metadata"].get("generation"))


def _pending_indexes(sync: JobSync) -> list[int]:
    """The indexes that have no pod and have neither succeeded nor failed, lowest first."""
    taken = sync.succeeded_indexes | (sync.failed_indexes or set())
    held = [*sync.active_pods, *(filter(terminating, sync.pods) if sync.replaces_failed_only else ())]
    taken.update(index for index in map(index_of, held) if index is not None)
    return [index for index in range(sync.completions or 0) if index not in taken]


def _backoff_of(sync: JobSync, index: int | None) -> JobBackoff:
    """The backoff of one index, for a Job with backoffLimitPerIndex."""
    last = sync.waiting_for_successor.get(index) if index is not None else None
    return JobBackoff() if last is None else JobBackoff(all_failures_of_index(last) + 1, finished_at(last))


def _failures(sync: JobSync, index: int | None) -> tuple[int, int] | None:
    """The numbers of counted and of ignored failures that the index's new pod records about its predecessors."""
    if index is None or sync.limit_per_index is None:
        return None
    last = sync.waiting_for_successor.get(index)
    if last is None:
        return 0, 0
    counted, every = failures_of_index(last), all_failures_of_index(last)
    ignored = every - counted
    return (counted + 1, ignored) if sync.handling(last).counts else (counted, ignored + 1)
