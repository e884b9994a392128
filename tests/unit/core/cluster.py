"""The least of a platform that answers: Job controller, JobSet, scheduler and kubelets in one, a second at a time.

Coarse on purpose; the real rules live in `recovery.sim` and on the real control plane. Here it only has to go on.
"""

import msgspec

from recovery.core.facts import JobFacts, PodFacts
from recovery.core.plan import Action, DeleteJob, DeletePods, RaiseBackoffLimit, TouchJob
from tests.unit.core.world import World, at

GRACE_SECONDS = 2
"""How long a deleted pod takes to be gone."""


class Cluster:
    """A world that goes on by itself."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.refused: list[DeleteJob] = []
        """Triggers whose Job had changed meanwhile: 409."""

    def do(self, action: Action, seconds: float) -> None:
        """Carry out one deed, as far as its preconditions hold."""
        match action:
            case DeleteJob():
                job = self._job(action.uid)
                if job is None or job.deleting_since is not None:
                    return
                if job.resource_version != action.resource_version:
                    self.refused.append(action)
                    return
                self._change_job(job.uid, deleting_since=at(seconds).replace(microsecond=0))
            case DeletePods():
                uids = {pod.uid for pod in action.pods}
                self._delete_pods([pod for pod in self.world.pods if pod.uid in uids], seconds)
            case RaiseBackoffLimit():
                self._change_job(action.uid, backoff_limit=2**31 - 1)
            case TouchJob():
                self._change_job(action.uid, touched=action.value)
            case _:
                pass

    def tick(self, seconds: float) -> None:
        """What the platform does within a second."""
        if self.world.workload is None or self.world.workload.suspended or self.world.jobset is None:
            return
        self._remove_deleted(seconds)
        self._judge_the_job(seconds)
        if self._over():
            return
        self._recreate(seconds)
        self._replace(seconds)
        self._start(seconds)

    def _over(self) -> bool:
        return self.world.jobset is None or bool(self.world.jobset.terminal_state)

    # --- the parts -------------------------------------------------------------------------------------------------

    def _job(self, uid: str) -> JobFacts | None:
        return next((job for job in self.world.jobs if job.uid == uid), None)

    def _change_job(self, uid: str, **changes: object) -> None:
        version = {"resource_version": str(int(self.world.job.resource_version) + 1)} if self.world.jobs else {}
        jobs = tuple(
            msgspec.structs.replace(job, **{**version, **changes}) if job.uid == uid else job for job in self.world.jobs
        )
        self.world = msgspec.structs.replace(self.world, jobs=jobs)

    def _change_pods(self, uids: set[str], **changes: object) -> None:
        pods = tuple(msgspec.structs.replace(pod, **changes) if pod.uid in uids else pod for pod in self.world.pods)
        self.world = msgspec.structs.replace(self.world, pods=pods)

    def _delete_pods(self, pods: list[PodFacts], seconds: float) -> None:
        uids = {pod.uid for pod in pods if pod.deleting_since is None and pod.gone_at is None}
        self._change_pods(uids, deleting_since=at(seconds).replace(microsecond=0), deletion_grace_seconds=30)

    def _remove_deleted(self, seconds: float) -> None:
        gone = {
            pod.uid
            for pod in self.world.pods
            if pod.gone_at is None
            and pod.deleting_since is not None
            and (at(seconds) - pod.deleting_since).total_seconds() >= GRACE_SECONDS
        }
        self._change_pods(gone, gone_at=at(seconds), ready=False)

    def _judge_the_job(self, seconds: float) -> None:
        for job in self.world.jobs:
            if job.deleting_since is not None:
                self._delete_pods([pod for pod in self.world.pods if pod.job_uid == job.uid], seconds)
        job, jobset = self.world.job, self.world.jobset
        if job.deleting_since is not None or jobset is None:
            return
        if job.condition("Failed") is not None:
            policy = jobset.failure_policy
            if policy is not None and jobset.restarts_counted < policy.max_restarts:
                self.world = self.world.restarted_by_jobset().job_deleted(seconds)
            elif not jobset.terminal_state:
                self.world = self.world.jobset_failed(seconds)
        elif job.condition("FailureTarget") is not None:
            self.world = self.world.job_failing("BackoffLimitExceeded", seconds, finally_=True)
        elif job.failed > job.backoff_limit:
            self.world = self.world.job_failing("BackoffLimitExceeded", seconds)

    def _recreate(self, seconds: float) -> None:
        for job in self.world.jobs:
            left = [pod for pod in self.world.pods if pod.job_uid == job.uid and pod.gone_at is None]
            finished = [pod for pod in left if pod.phase == "Failed"]
            if job.deleting_since is not None and len(left) == len(finished):
                self.world = self.world.job_gone().job_created(seconds).pods_created(seconds)

    def _replace(self, seconds: float) -> None:
        job = self.world.job
        if job.deleting_since is not None or job.condition("FailureTarget") is not None:
            return
        for index in range(job.parallelism):
            pod = self.world.find(index)
            if pod is None or pod.gone_at is not None or pod.phase == "Failed":
                self.world = self.world.replaced(index, seconds)

    def _start(self, seconds: float) -> None:
        job = self.world.job
        if job.deleting_since is not None:
            return
        for index in range(job.parallelism):
            pod = self.world.find(index)
            if (
                pod is None
                or pod.deleting_since is not None
                or pod.gone_at is not None
                or pod.phase in {"Failed", "Succeeded"}
            ):
                continue
            if not pod.node:
                self.world = self.world.scheduled(index)
            elif not pod.containers:
                self.world = self.world.started(index, seconds)
            elif pod.containers[0].exit is not None:
                self.world = self.world.container_back(index, seconds)
            elif not pod.ready:
                self.world = self.world.pod_ready(index, seconds)
