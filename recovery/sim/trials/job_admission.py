"""Starts the jobs that are created suspended: their users do it, or a model of Kueue.

Sources for Kueue 0.19: `pkg/controller/jobframework/reconciler.go` (steps 7 and 8: `spec.suspend` follows from whether
the Workload is admitted, no matter who set it), `pkg/controller/jobs/trainjob/trainjob_controller.go` (what it writes
into `runtimePatches`). The model covers admission, eviction and the next admission. It has one flavor with enough quota
for all, so a job waits only as long as its plan says. Not modelled: quotas, priorities, cohorts, `waitForPodsReady`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.ports import TRAIN_JOBS, Clock
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.actors import KUEUE, USER, Actors
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.manifests import runtime_of, workload_of
from recovery.sim.trials.plan import JobAdmission, JobPlan
from recovery.sim.trials.trial_log import TrialLog

FLAVOR_LABEL = "example.com/accelerator"
FLAVOR = "h200"
"""Kueue's flavor asks for nodes with this label. All nodes of a trial have it."""
KUEUE_MANAGER = "kueue.x-k8s.io/manager"
"""The manager of Kueue's entry in `runtimePatches`."""
REACTS_IN_SECONDS = 0.2


@dataclass
class _Workload:
    """What Kueue knows of one TrainJob."""

    plan: JobPlan
    uid: str
    admitted: bool = False
    readmitted_at: datetime | None = None
    """When the job may start again after an eviction. None: it is not being evicted."""


class Admissions:
    """Starts each job of a plan that is created suspended, including a job that its user recreates."""

    def __init__(self, server: ApiServer, actors: Actors, clock: Clock, log: TrialLog) -> None:
        self._server = server
        self._actors = actors
        self._clock = clock
        self._log = log
        self._workloads: dict[str, _Workload] = {}
        """The workloads that Kueue manages, by UID."""

    def begin(self) -> None:
        """Kueue watches its TrainJobs from now on. Call it once."""
        self._server.subscribe(self._changed, TRAIN_JOBS)

    def created(self, job: JobPlan) -> None:
        """The job's workload has just been created."""
        resource, _ = workload_of(job)
        body = self._server.find(resource, job.name, job.namespace)
        if body is None or job.admission is JobAdmission.AT_ONCE:
            return
        uid = body["metadata"]["uid"]
        if job.admission is JobAdmission.BY_USER:
            resumed = {"metadata": {"uid": uid}, "spec": {"suspend": False}}
            self._actors.after(
                job.admitted_after_seconds,
                lambda: self._actors.merge(USER, resource, job.name, job.namespace, resumed),
            )
            return
        self._workloads[uid] = _Workload(job, uid)
        self._actors.after(job.admitted_after_seconds, lambda: self._admit(uid))

    def evict(self, job: JobPlan, fault: TrialFault) -> None:
        """Kueue needs the job's quota for another job. It admits the job again after `fault.seconds`."""
        found = next((each for each in self._workloads.values() if each.plan is job), None)
        if found is None or not found.admitted or self._body(found) is None:
            return
        self._log.applied(fault, f"Kueue evicts {job}, and admits it again after {fault.seconds:g} s")
        found.admitted = False
        found.readmitted_at = self._clock.now() + timedelta(seconds=fault.seconds)
        self._reconcile(found.uid)

    # Kueue.

    def _changed(self, change: ObjectChange) -> None:
        uid = change.body["metadata"]["uid"]
        if uid not in self._workloads:
            return
        if change.type == "DELETED":
            del self._workloads[uid]
        else:
            self._actors.after(REACTS_IN_SECONDS, lambda: self._reconcile(uid))

    def _body(self, workload: _Workload) -> Body | None:
        """None: the TrainJob does not exist any more, or is being deleted."""
        body = self._server.find(TRAIN_JOBS, workload.plan.name, workload.plan.namespace)
        if body is None or body["metadata"]["uid"] != workload.uid or "deletionTimestamp" in body["metadata"]:
            return None
        return body

    def _admit(self, uid: str) -> None:
        if uid in self._workloads:
            self._workloads[uid].admitted = True
            self._workloads[uid].readmitted_at = None
            self._reconcile(uid)

    def _reconcile(self, uid: str) -> None:
        """Sets `spec.suspend` to match the admission, no matter who has changed it."""
        workload = self._workloads.get(uid)
        body = self._body(workload) if workload is not None else None
        if workload is None or body is None or _finished(body):
            return
        suspended = bool(body["spec"].get("suspend"))
        if workload.admitted and suspended:
            if not _is_patched(body):
                self._merge(workload, {"runtimePatches": [self._patch(workload.plan)]})
            self._merge(workload, {"suspend": False})
        elif not workload.admitted and not suspended:
            self._merge(workload, {"suspend": True})
        elif workload.readmitted_at is not None:
            self._let_go(workload, body)

    def _let_go(self, workload: _Workload, body: Body) -> None:
        """Removes Kueue's entry from an evicted job once no Job is active, and schedules the next admission."""
        if any(job["active"] for job in body.get("status", {}).get("jobsStatus", ())):
            return  # The change that shows no active Job calls this again.
        if _is_patched(body):
            self._merge(workload, {"runtimePatches": None})
        assert workload.readmitted_at is not None, "it was evicted"
        left_seconds = (workload.readmitted_at - self._clock.now()).total_seconds()
        workload.readmitted_at = None
        self._actors.after(max(REACTS_IN_SECONDS, left_seconds), lambda: self._admit(workload.uid))

    def _merge(self, workload: _Workload, spec: Body) -> None:
        plan = workload.plan
        self._actors.merge(
            KUEUE, TRAIN_JOBS, plan.name, plan.namespace, {"metadata": {"uid": workload.uid}, "spec": spec}
        )

    def _patch(self, job: JobPlan) -> Body:
        """Kueue's entry in `runtimePatches`: where the pods may run."""
        pods = {"spec": {"nodeSelector": {FLAVOR_LABEL: FLAVOR}}}
        names = [each["name"] for each in runtime_of(job)["spec"]["template"]["spec"]["replicatedJobs"]]
        replicated = [{"name": name, "template": {"spec": {"template": pods}}} for name in names]
        return {
            "manager": KUEUE_MANAGER,
            "time": timestamp(self._clock.now()),
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}},
        }


def _is_patched(body: Body) -> bool:
    return any(patch["manager"] == KUEUE_MANAGER for patch in body["spec"].get("runtimePatches") or ())


def _finished(body: Body) -> bool:
    conditions = body.get("status", {}).get("conditions", ())
    return any(each["type"] in {"Complete", "Failed"} and each["status"] == "True" for each in conditions)
