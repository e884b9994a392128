"""Faults of a whole job and of its sidecars: resizes, deleted Jobs and JobSets, Kueue evictions, killed sidecars."""

from collections.abc import Callable

from recovery.ports import JOB_SETS, JOBS, Propagation
from recovery.scenario.failure_sign import Sign
from recovery.sim.api.kinds.kind import Body
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.trials.actors import USER, Actors
from recovery.sim.trials.failure_signs import LEFT
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.job_admission import Admissions
from recovery.sim.trials.manifests import resized_job
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.trial_log import TrialLog


class WorkloadFaults:
    """Injects these faults. `pods_of` finds the pods that a fault names."""

    def __init__(
        self,
        plan: TrialPlan,
        cluster: EmbeddedCluster,
        log: TrialLog,
        actors: Actors,
        admissions: Admissions,
        pods_of: Callable[[TrialFault], list[Body]],
    ) -> None:
        self._jobs = {str(job): job for job in plan.jobs}
        self._cluster = cluster
        self._log = log
        self._actors = actors
        self._admissions = admissions
        self._pods_of = pods_of
        self.acts: dict[FaultKind, Callable[[TrialFault], None]] = {
            FaultKind.SIDECAR_KILL: self._kill_sidecars,
            FaultKind.USER_RESIZE: self._resize,
            FaultKind.USER_DELETE_JOB: self._delete_job,
            FaultKind.USER_DELETE_JOBSET: self._delete_jobset,
            FaultKind.KUEUE_EVICT: self._evict,
        }

    def _kill_sidecars(self, fault: TrialFault) -> None:
        left = LEFT[Sign.HOST_OOM]
        pods = {pod["metadata"]["name"]: pod for pod in self._pods_of(fault)}
        struck = self._cluster.kubelets.exit_all(
            pods,
            left.code or 0,
            left.reason,
            left.message,
            namespace=self._jobs[fault.job].namespace,
            container=fault.container,
        )
        if struck:
            uids = tuple(pods[name]["metadata"]["uid"] for name in struck)
            words = f"{fault.job}: container {fault.container} was killed for want of memory in {', '.join(struck)}"
            self._log.applied(fault, words, pod_uids=uids, lasting=False)

    def _job_that_trains(self, fault: TrialFault) -> Body | None:
        """None: it does not exist, or is being deleted."""
        job = self._jobs[fault.job]
        body = self._actors.server.find(JOBS, resized_job(job), job.namespace)
        return None if body is None or "deletionTimestamp" in body["metadata"] else body

    def _delete_job(self, fault: TrialFault) -> None:
        body = self._job_that_trains(fault)
        if body is None:
            return
        words = f"a user deletes Job {body['metadata']['name']} of {body['spec']['parallelism']} pods"
        self._log.applied(fault, words, lasting=False)
        self._actors.remove(USER, JOBS, body, propagation=Propagation.FOREGROUND)

    def _delete_jobset(self, fault: TrialFault) -> None:
        job = self._jobs[fault.job]
        body = self._actors.server.find(JOB_SETS, job.name, job.namespace)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return
        self._log.applied(fault, f"a user deletes JobSet {job.name}, and Trainer makes it again", lasting=False)
        self._actors.remove(USER, JOB_SETS, body, propagation=Propagation.BACKGROUND)

    def _resize(self, fault: TrialFault) -> None:
        job, body = self._jobs[fault.job], self._job_that_trains(fault)
        if body is None:
            return
        name = body["metadata"]["name"]
        now = body["spec"]["parallelism"]
        wanted = max(1, now + fault.pods_more)
        if wanted == now:
            return
        self._log.applied(fault, f"a user changes the size of Job {name} from {now} to {wanted} pods", lasting=False)
        size = {"parallelism": wanted, "completions": wanted}
        uid = body["metadata"]["uid"]
        self._actors.merge(USER, JOBS, name, job.namespace, {"metadata": {"uid": uid}, "spec": size})

    def _evict(self, fault: TrialFault) -> None:
        self._admissions.evict(self._jobs[fault.job], fault)
