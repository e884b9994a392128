"""The least of a platform that answers: Trainer, JobSet, Job controller, scheduler and kubelets, a second at a time.

Coarse on purpose; the real rules live in `recovery.sim` and on the real control plane. Here it only has to go on.
"""

import msgspec

from recovery.core.model.facts import JobFacts, PodFacts
from recovery.core.plan.actions import (
    Action,
    ClaimJob,
    DeleteJob,
    DeleteJobSet,
    DeletePods,
    FailJobSet,
    ForceDeletePods,
    RaiseBackoffLimit,
    ResumeWorkload,
    SuspendWorkload,
    TouchJob,
)
from recovery.core.plan.suspension import marked_by
from tests.unit.core.world import World, at, whole

GRACE_SECONDS = 2
"""How long a deleted pod takes to be gone."""


class Cluster:
    """A world that goes on by itself."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.refused: list[DeleteJob | ClaimJob] = []
        """Those whose Job had changed meanwhile: 409."""
        self.jobsets = 1
        """How many there have been."""
        assert world.jobset is not None
        self.first_jobset = world.jobset
        self.forced: list[PodFacts] = []
        """Pods that were force-deleted, as they were."""
        self.runs = 0
        """How often a suspended Job was resumed."""

    def do(self, action: Action, seconds: float) -> None:
        """Carry out one action, as far as its preconditions hold."""
        match action:
            case DeleteJob():
                job = self._job(action.uid)
                if job is None or job.deleting_since is not None:
                    return
                if job.resource_version != action.resource_version:
                    self.refused.append(action)
                    return
                self._change_job(job.uid, deleting_since=at(seconds).replace(microsecond=0))
            case ClaimJob():
                job = self._job(action.uid)
                if job is None or job.resource_version != action.resource_version:
                    self.refused.append(action)
                    return
                self._change_job(job.uid, torn_down_by=action.attempt, backoff_limit=action.backoff_limit)
            case DeletePods():
                uids = {pod.uid for pod in action.pods}
                self._delete_pods([pod for pod in self.world.pods if pod.uid in uids], seconds)
            case ForceDeletePods():
                uids = {pod.uid for pod in action.pods}
                self.forced += [pod for pod in self.world.pods if pod.uid in uids and pod.gone_at is None]
                self._change_pods(uids, gone_at=at(seconds), ready=False)
            case RaiseBackoffLimit():
                self._change_job(action.uid, backoff_limit=2**31 - 1)
            case TouchJob():
                self._change_job(action.uid, touched=action.value)
            case SuspendWorkload() | ResumeWorkload():
                self._set_suspension(action)
            case DeleteJobSet() | FailJobSet():
                self._end_jobset(action, seconds)
            case _:
                pass

    def _set_suspension(self, action: SuspendWorkload | ResumeWorkload) -> None:
        """As `executors.suspension` does it: only where nobody else has had a hand in it."""
        workload = self.world.workload
        if workload is None or workload.uid != action.workload_uid:
            return
        match action:
            case SuspendWorkload(incident_id=incident_id) if not workload.suspended and marked_by(workload) is None:
                self.world = self.world.suspended_by(incident_id)
            case ResumeWorkload(suspended_by=mark, suspended=suspended) if marked_by(workload) == mark:
                still = workload.suspended and not suspended
                self.world = self.world.released().with_workload(suspended=still)

    def _end_jobset(self, action: DeleteJobSet | FailJobSet, seconds: float) -> None:
        jobset = self.world.jobset
        if jobset is None or jobset.uid != action.uid or jobset.deleting_since is not None:
            return
        if isinstance(action, DeleteJobSet):
            self.world = self.world.with_jobset(deleting_since=whole(seconds))
        elif not jobset.terminal_state:
            self.world = self.world.jobset_failed(seconds, action.message)

    def tick(self, seconds: float) -> None:
        """What the platform does within a second."""
        if self.world.workload is None:
            return
        self._remove_deleted(seconds)
        self._make_jobset(seconds)
        if self.world.jobs:
            self._judge_the_job(seconds)
        if self._over():
            return
        self._recreate(seconds)
        self._carry_on_the_suspension(seconds)
        if self.world.job.suspended:
            return
        self._replace(seconds)
        self._start(seconds)

    def _over(self) -> bool:
        jobset = self.world.jobset
        return jobset is None or bool(jobset.terminal_state) or jobset.deleting_since is not None

    def _make_jobset(self, seconds: float) -> None:
        """Sees a deleted JobSet out with its Jobs; then Trainer makes another, suspended like its TrainJob."""
        world, workload, jobset = self.world, self.world.workload, self.world.jobset
        assert workload is not None
        if jobset is not None and jobset.deleting_since is not None:
            left = [pod for pod in world.pods if pod.gone_at is None and pod.phase != "Failed"]
            if world.jobs and left:
                self.world = world if world.job.deleting_since is not None else world.job_deleted(seconds)
                return
            world = world.job_gone() if world.jobs else world
            self.world = msgspec.structs.replace(world, jobset=None)
        elif jobset is None and workload.deleting_since is None:
            self.jobsets += 1
            template = msgspec.structs.replace(world.job_template, jobset_uid=f"jobset-{self.jobsets}")
            made = msgspec.structs.replace(
                self.first_jobset,
                uid=template.jobset_uid,
                resource_version=f"{self.jobsets}000",
                created_at=whole(seconds),
                suspended=workload.suspended,
            )
            recreated = msgspec.structs.replace(world, jobset=made, job_template=template).job_created(seconds)
            self.world = recreated.with_job(suspended=True) if workload.suspended else recreated.pods_created(seconds)

    def _carry_on_the_suspension(self, seconds: float) -> None:
        """From the TrainJob to its JobSet, and in the next second from there to the Job and its pods."""
        workload, jobset, job = self.world.workload, self.world.jobset, self.world.job
        assert workload is not None
        assert jobset is not None
        if job.suspended != jobset.suspended and job.deleting_since is None:
            if jobset.suspended:
                self.world = self.world.with_job(suspended=True)
            else:
                self.world = self.world.unsuspended(seconds)
                self._number_pods()
        if self.world.job.suspended:
            self._delete_pods([pod for pod in self.world.pods if pod.job_uid == job.uid], seconds)
        if jobset.suspended != workload.suspended:
            self.world = self.world.with_jobset(suspended=workload.suspended)

    def _number_pods(self) -> None:
        """Gives the pods of a Job that was resumed UIDs that no earlier ones have."""
        self.runs += 1
        old, new = self.world.pods[: -self.world.job.parallelism], self.world.pods[-self.world.job.parallelism :]
        renamed = (
            msgspec.structs.replace(pod, uid=f"{pod.uid}r{self.runs}", name=f"{pod.name}r{self.runs}") for pod in new
        )
        self.world = msgspec.structs.replace(self.world, pods=(*old, *renamed))

    def answers(self, node: str) -> bool:
        """Its kubelet carries out what it is told."""
        return node not in self.world.nodes or self.world.nodes[node].reachable

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
            and self.answers(pod.node)
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
                made = self.world.job_gone().job_created(seconds)
                suspended = self.world.jobset is not None and self.world.jobset.suspended
                self.world = made.with_job(suspended=True) if suspended else made.pods_created(seconds)

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
                free = next(name for name in (f"gpu-{index}", f"spare-{index}") if self.answers(name))
                self.world = self.world.scheduled(index).with_pod(index, node=free)
            elif not self.answers(pod.node):
                continue
            elif not pod.containers:
                self.world = self.world.started(index, seconds)
            elif pod.containers[0].exit is not None:
                self.world = self.world.container_back(index, seconds)
            elif not pod.ready:
                self.world = self.world.pod_ready(index, seconds)
