"""Starts the jobs that are created suspended: their users do it, or the model of Kueue."""

from datetime import timedelta

from recovery.ports import Clock
from recovery.scenario.modelled_job import JobAdmission
from recovery.sim.api.server import ApiServer
from recovery.sim.trials.actors import USER, Actors
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.kueue import Kueue
from recovery.sim.trials.manifests import workload_of
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.trial_log import TrialLog


class Admissions:
    """Starts each job of a plan that is created suspended, including a job that its user recreates."""

    def __init__(self, server: ApiServer, actors: Actors, clock: Clock, log: TrialLog, kueue: Kueue) -> None:
        self._server = server
        self._actors = actors
        self._clock = clock
        self._log = log
        self._kueue = kueue

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
        self._kueue.manage(job, uid, self._clock.now() + timedelta(seconds=job.admitted_after_seconds))

    def evict(self, job: JobPlan, fault: TrialFault) -> None:
        """Kueue needs the job's quota for another job for `fault.seconds`."""
        if self._kueue.is_admitted(job):
            self._log.applied(fault, f"Kueue evicts {job} for another job, which ends after {fault.seconds:g} s")
            self._kueue.contend(job, f"another-{fault.key.number}", fault.seconds)
