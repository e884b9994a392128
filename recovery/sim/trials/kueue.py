"""A model of Kueue 0.19.1 for the TrainJobs that it manages.

Sources: `pkg/controller/jobframework/reconciler.go` (the steps of `ReconcileGenericJob`),
`pkg/controller/core/workload_controller.go`, `pkg/scheduler/preemption`, and
`pkg/controller/jobs/trainjob/trainjob_controller.go` (what it writes into `runtimePatches`, when a TrainJob is active,
when its pods are ready).

The model covers quota, priorities, preemption, `waitForPodsReady`, the backoff of requeues, deactivation, and the
admission of a job whose old pods still terminate. The quota is in GPUs of one flavor. Not modelled: cohorts, admission
checks, topology-aware scheduling, finalizers, and the webhooks.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.ports import TRAIN_JOBS, Clock, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.workloads import WORKLOADS
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.jobset_jobs import owner_reference
from recovery.sim.trials.actors import KUEUE, Actors
from recovery.sim.trials.kueue_workload import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED, WorkloadStatus
from recovery.sim.trials.manifests import runtime_of
from recovery.sim.trials.plan import JobPlan, KueueSettings

FLAVOR_LABEL = "example.com/accelerator"
FLAVOR = "h200"
"""Kueue's flavor asks for nodes with this label. All nodes of a trial have it."""
KUEUE_MANAGER = "kueue.x-k8s.io/manager"
"""The manager of Kueue's entry in `runtimePatches`."""
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
REACTS_IN_SECONDS = 0.04
"""From a change until a reconcile or a cycle of the scheduler has followed. Real Kueue admits an evicted job again
within 0.3 s, while its old pods still terminate."""
_ALL_JOBS = "all-jobs"
_OTHERS_PRIORITY = 1000
"""The priority of jobs that are not of the trial. Higher than that of any job of a plan."""
_GPU = "nvidia.com/gpu"

Key = tuple[str, str]
"""Namespace and name of a Workload."""


@dataclass(frozen=True)
class _Managed:
    """A TrainJob that Kueue manages."""

    plan: JobPlan
    uid: str
    quota_from: datetime
    """Earlier, the quota is in use by jobs that are not of the trial."""

    @property
    def workload(self) -> Key:
        return self.plan.namespace, f"trainjob-{self.plan.name}-{self.uid[:5]}"


class Kueue:
    """Call `begin` once, and `manage` for each TrainJob when it has been created."""

    def __init__(self, server: ApiServer, actors: Actors, clock: Clock, settings: KueueSettings) -> None:
        self._server = server
        self._actors = actors
        self._clock = clock
        self._settings = settings
        self._jobs: dict[str, _Managed] = {}
        """By UID."""
        self._own_quotas: dict[str, int] = {}
        """GPUs of each job's own ClusterQueue, by its name."""

    def begin(self) -> None:
        self._server.subscribe(self._job_changed, TRAIN_JOBS)
        self._server.subscribe(self._workload_changed, WORKLOADS)

    def manage(self, plan: JobPlan, uid: str, quota_from: datetime) -> None:
        """The TrainJob has been created, suspended."""
        self._jobs[uid] = _Managed(plan, uid, quota_from)
        self._own_quotas[_queue(plan)] = plan.pods * plan.gpus_per_pod
        self._actors.after(REACTS_IN_SECONDS, lambda: self._reconcile_job(uid))
        self._actors.after((quota_from - self._clock.now()).total_seconds(), self._schedule)

    def is_admitted(self, plan: JobPlan) -> bool:
        """The job exists, and holds quota."""
        for managed in self._jobs.values():
            workload = self._find(managed.workload)
            if managed.plan is plan and workload is not None and self._body(managed) is not None:
                status = self._status(workload)
                return status.is_true(ADMITTED) and not status.is_true(EVICTED) and not status.is_true(FINISHED)
        return False

    def contend(self, plan: JobPlan, name: str, seconds: float) -> None:
        """Another job, which is not of the trial, needs all of this job's quota for that time, and has priority."""
        self._create(plan, name, _OTHERS_PRIORITY, {})
        self._actors.after(seconds, lambda: self._withdraw(plan.namespace, name))

    # What changes lead to.

    def _job_changed(self, change: ObjectChange) -> None:
        uid = change.body["metadata"]["uid"]
        if uid not in self._jobs:
            return
        if change.type == "DELETED":
            del self._jobs[uid]
        else:
            self._actors.after(REACTS_IN_SECONDS, lambda: self._reconcile_job(uid))

    def _workload_changed(self, change: ObjectChange) -> None:
        metadata = change.body["metadata"]
        key = metadata["namespace"], metadata["name"]
        uid = metadata.get("labels", {}).get(JOB_UID_LABEL, "")
        self._actors.after(REACTS_IN_SECONDS, lambda: self._reconcile_workload(key))
        self._actors.after(REACTS_IN_SECONDS, lambda: self._reconcile_job(uid))
        self._actors.after(REACTS_IN_SECONDS, self._schedule)

    # The job's reconciler.

    def _reconcile_job(self, uid: str) -> None:
        managed = self._jobs.get(uid)
        body = self._body(managed) if managed is not None else None
        if managed is None or body is None:
            return
        workload = self._find(managed.workload)
        if workload is None:
            if not _is_active(body):
                self._create(managed.plan, managed.workload[1], managed.plan.priority, body)
            return
        status = self._status(workload)
        if status.is_true(FINISHED):
            return
        ended = _ended(body)
        if ended is not None:
            status.finish(ended == "Complete")
        else:
            status.judge_readiness(_are_ready(managed.plan, body))
        if status.changed:
            self._write(workload, status)
            return  # The change calls this again.
        suspended = bool(body["spec"].get("suspend"))
        if status.is_true(EVICTED):
            if self._stop(managed, body) and status.is_true(QUOTA_RESERVED):
                status.release()
                self._write(workload, status)
        elif suspended and status.is_true(ADMITTED):
            self._start(managed, body)
        elif not suspended and not status.is_true(ADMITTED):
            self._stop(managed, body)

    def _start(self, managed: _Managed, body: Body) -> None:
        if not _is_patched(body):
            self._merge(managed, {"runtimePatches": [self._patch(managed.plan)]})
        self._merge(managed, {"suspend": False})

    def _stop(self, managed: _Managed, body: Body) -> bool:
        """Suspends the job, and takes back where it may run once no Job is active. True: both is done."""
        if not body["spec"].get("suspend"):
            self._merge(managed, {"suspend": True})
            return False
        if _is_active(body):
            return False  # The change that shows no active Job calls this again.
        if _is_patched(body):
            self._merge(managed, {"runtimePatches": None})
        return True

    # The Workload's reconciler.

    def _reconcile_workload(self, key: Key) -> None:
        workload = self._find(key)
        if workload is None:
            return
        status, now = self._status(workload), self._clock.now()
        if status.is_true(FINISHED):
            return
        if not workload["spec"]["active"]:
            status.deactivate()
        elif status.wants_deactivation:
            self._patch_workload(workload, {"spec": {"active": False}})
        elif status.requeue_at is not None:
            if status.requeue_at > now:
                self._again_at(status.requeue_at, key)
            elif not status.is_true(QUOTA_RESERVED):
                status.end_backoff()
        else:
            late_at = status.late_at(self._settings)
            if late_at is not None and late_at > now:
                self._again_at(late_at, key)
            elif late_at is not None:
                status.time_out(self._settings)
        if status.changed:
            self._write(workload, status)

    def _again_at(self, moment: datetime, key: Key) -> None:
        self._actors.after((moment - self._clock.now()).total_seconds(), lambda: self._reconcile_workload(key))

    # The scheduler.

    def _schedule(self) -> None:
        """One cycle: the Workload of the highest priority comes first, then the one that has waited longest. It gets
        quota, or takes it from Workloads of lower priority, or waits while those behind it are tried."""
        waiting: list[tuple[int, datetime, Body]] = []
        for workload in self._server.objects(WORKLOADS):
            status = self._status(workload)
            if self._may_be_admitted(workload, status):
                waiting.append((-workload["spec"]["priority"], status.queued_since(workload), workload))
        for _, _, workload in sorted(waiting, key=lambda each: each[:2]):
            queue, needed = workload["spec"]["queueName"], _gpus(workload)
            holders = self._holders(queue)
            free = self._quota(queue) - sum(_gpus(each) for each in holders)
            if needed <= free:
                status = self._status(workload)
                status.reserve(queue)
                if JOB_UID_LABEL not in workload["metadata"].get("labels", {}):
                    status.judge_readiness(True)  # Its pods are not of the trial.
                self._write(workload, status)
            else:
                self._preempt(workload, holders, needed - free)

    def _preempt(self, workload: Body, holders: list[Body], missing: int) -> None:
        """Evicts as few Workloads of lower priority as free the missing GPUs (`CandidatesOrdering`)."""
        lower = [each for each in holders if each["spec"]["priority"] < workload["spec"]["priority"]]
        lower.sort(key=lambda each: self._status(each).since(QUOTA_RESERVED) or self._clock.now(), reverse=True)
        lower.sort(key=lambda each: (not self._status(each).is_true(EVICTED), each["spec"]["priority"]))
        if sum(map(_gpus, lower)) < missing:
            return
        for victim in lower:
            if missing <= 0:
                return
            missing -= _gpus(victim)
            status = self._status(victim)
            if not status.is_true(EVICTED):
                status.preempt(f"Preempted to accommodate a workload (UID: {workload['metadata']['uid']})")
                self._write(victim, status)

    def _may_be_admitted(self, workload: Body, status: WorkloadStatus) -> bool:
        """It is in the queue (`IsAdmissible`), and no backoff keeps it from the scheduler."""
        if not workload["spec"]["active"] or status.is_true(FINISHED) or status.is_true(QUOTA_RESERVED):
            return False
        managed = self._jobs.get(workload["metadata"].get("labels", {}).get(JOB_UID_LABEL, ""))
        if managed is not None and managed.quota_from > self._clock.now():
            return False
        return status.requeue_at is None or status.requeue_at <= self._clock.now()

    def _holders(self, queue: str) -> list[Body]:
        """The Workloads whose quota counts (`HasActiveQuotaReservation`)."""
        found = (each for each in self._server.objects(WORKLOADS) if each["spec"]["queueName"] == queue)
        reserved = ((each, self._status(each)) for each in found if each["spec"]["active"])
        return [each for each, status in reserved if status.is_true(QUOTA_RESERVED) and not status.is_true(FINISHED)]

    def _quota(self, queue: str) -> int:
        return self._settings.gpus if self._settings.gpus is not None else self._own_quotas[queue]

    # Objects.

    def _find(self, key: Key) -> Body | None:
        return self._server.find(WORKLOADS, key[1], key[0])

    def _status(self, workload: Body) -> WorkloadStatus:
        return WorkloadStatus(workload, self._clock.now())

    def _body(self, managed: _Managed) -> Body | None:
        """None: the TrainJob does not exist any more, or is being deleted."""
        body = self._server.find(TRAIN_JOBS, managed.plan.name, managed.plan.namespace)
        if body is None or body["metadata"]["uid"] != managed.uid or "deletionTimestamp" in body["metadata"]:
            return None
        return body

    def _create(self, plan: JobPlan, name: str, priority: int, owner: Body) -> None:
        metadata: Body = {"name": name, "namespace": plan.namespace}
        if owner:
            metadata["labels"] = {JOB_UID_LABEL: owner["metadata"]["uid"]}
            metadata["ownerReferences"] = [owner_reference(owner)]
        request = {"resources": {"requests": {_GPU: str(plan.gpus_per_pod)}}}
        pods = {"name": "main", "count": plan.pods, "template": {"spec": {"containers": [{"name": "main", **request}]}}}
        body: Body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": metadata,
            "spec": {
                "queueName": _queue(plan) if self._settings.gpus is None else _ALL_JOBS,
                "priority": priority,
                "podSets": [pods],
            },
        }
        self._actors.attempt(KUEUE, lambda: self._server.create(WORKLOADS, body, namespace=plan.namespace))

    def _withdraw(self, namespace: str, name: str) -> None:
        """The other job has ended."""
        workload = self._find((namespace, name))
        if workload is not None:
            self._actors.remove(KUEUE, WORKLOADS, workload)

    def _write(self, workload: Body, status: WorkloadStatus) -> None:
        self._patch_workload(workload, {"status": status.body()}, subresource="status")

    def _patch_workload(self, workload: Body, patch: dict[str, Any], subresource: str = "") -> None:
        metadata = workload["metadata"]
        self._actors.attempt(
            KUEUE,
            lambda: self._server.patch(
                WORKLOADS,
                metadata["name"],
                patch,
                kind=PatchKind.MERGE,
                namespace=metadata["namespace"],
                subresource=subresource,
            ),
        )

    def _merge(self, managed: _Managed, spec: Body) -> None:
        plan = managed.plan
        self._actors.merge(
            KUEUE, TRAIN_JOBS, plan.name, plan.namespace, {"metadata": {"uid": managed.uid}, "spec": spec}
        )

    def _patch(self, job: JobPlan) -> Body:
        """Kueue's entry in `runtimePatches`: where the pods may run."""
        pods = {"spec": {"nodeSelector": {FLAVOR_LABEL: FLAVOR}}}
        replicated = [{"name": name, "template": {"spec": {"template": pods}}} for name in _replicated_jobs(job)]
        return {
            "manager": KUEUE_MANAGER,
            "time": timestamp(self._clock.now()),
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}},
        }


def _queue(plan: JobPlan) -> str:
    return f"{plan.namespace}-{plan.name}"


def _gpus(workload: Body) -> int:
    (pods,) = workload["spec"]["podSets"]
    (container,) = pods["template"]["spec"]["containers"]
    return int(pods["count"]) * int(container["resources"]["requests"][_GPU])


def _replicated_jobs(job: JobPlan) -> list[str]:
    return [each["name"] for each in runtime_of(job)["spec"]["template"]["spec"]["replicatedJobs"]]


def _is_patched(body: Body) -> bool:
    return any(patch["manager"] == KUEUE_MANAGER for patch in body["spec"].get("runtimePatches") or ())


def _is_active(body: Body) -> bool:
    return any(bool(job["active"]) for job in body.get("status", {}).get("jobsStatus", ()))


def _are_ready(plan: JobPlan, body: Body) -> bool:
    """As many Jobs are ready or have succeeded as there are. All ReplicatedJobs of a trial have one replica."""
    counts = (int(job["ready"] + job["succeeded"]) for job in body.get("status", {}).get("jobsStatus", ()))
    return sum(counts) == len(_replicated_jobs(plan))


def _ended(body: Body) -> str | None:
    """How the job ended, as the type of a condition. None: it has not."""
    for condition in body.get("status", {}).get("conditions", ()):
        if condition["type"] in {"Complete", "Failed"} and condition["status"] == "True":
            return str(condition["type"])
    return None
