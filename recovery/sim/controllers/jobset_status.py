"""The status of a JobSet: counts, conditions, restarts and terminal state.

Source: jobset v0.12 `pkg/controllers/jobset_controller.go` (updateCondition, calculateReplicatedJobStatuses),
`pkg/constants/constants.go` for reasons and messages.
"""

from typing import Any

from recovery.sim.api.kinds.kind import Body
from recovery.sim.controllers.jobset_jobs import REPLICATED_JOB_NAME, Children

COMPLETED = "Completed"
FAILED = "Failed"
RESTARTING = "RestartingJobSet"
SUSPENDED = "Suspended"
STARTUP_IN_PROGRESS = "StartupPolicyInProgress"
STARTUP_COMPLETED = "StartupPolicyCompleted"
_EXCLUSIVE = {STARTUP_IN_PROGRESS: STARTUP_COMPLETED, STARTUP_COMPLETED: STARTUP_IN_PROGRESS}

Counts = dict[str, dict[str, int]]
"""By name of the ReplicatedJob: how many Jobs are ready, succeeded, failed, active and suspended."""


def count_jobs(jobset: Body, jobs: Children) -> Counts:
    """Count the Jobs. An active Job is ready if as many pods as run in parallel are ready or succeeded."""
    counts = {
        replicated["name"]: {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        for replicated in jobset["spec"].get("replicatedJobs", ())
    }
    for job in jobs.active:
        of_job = counts[_parent(job)]
        spec, status = job["spec"], job.get("status", {})
        pods = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
        of_job["ready"] += status.get("succeeded", 0) + status.get("ready", 0) >= pods
        of_job["active"] += status.get("active", 0) > 0
        of_job["suspended"] += bool(spec.get("suspend"))
    for job in jobs.successful:
        counts[_parent(job)]["succeeded"] += 1
    for job in jobs.failed:
        counts[_parent(job)]["failed"] += 1
    return counts


def _parent(job: Body) -> str:
    return str(job["metadata"]["labels"][REPLICATED_JOB_NAME])


class JobSetStatus:
    """The status during one sync of a JobSet. If it changed, it is written once, at the end."""

    def __init__(self, jobset: Body, now: str) -> None:
        """`now`: in the format of `metav1.Time`."""
        before = jobset.get("status", {})
        self.changed = False
        self.restarts: int = before.get("restarts", 0)
        self.restarts_counted: int = before.get("restartsCountTowardsMax", 0)
        self._terminal_state: str = before.get("terminalState", "")
        self._conditions: list[dict[str, Any]] = [*before.get("conditions", ())]
        self._replicated_jobs: list[dict[str, Any]] = before.get("replicatedJobsStatus", [])
        self._now = now

    def body(self) -> dict[str, Any]:
        """The status to write. `restarts` is always present, other empty fields are left out."""
        status: dict[str, Any] = {"restarts": self.restarts}
        if self._conditions:
            status["conditions"] = self._conditions
        if self.restarts_counted:
            status["restartsCountTowardsMax"] = self.restarts_counted
        if self._terminal_state:
            status["terminalState"] = self._terminal_state
        if self._replicated_jobs:
            status["replicatedJobsStatus"] = self._replicated_jobs
        return status

    def finished(self) -> bool:
        return any(each["type"] in {COMPLETED, FAILED} and each["status"] == "True" for each in self._conditions)

    def finished_at(self) -> str:
        """When it completed or failed. Only of a finished JobSet."""
        ends = (each for each in self._conditions if each["type"] in {COMPLETED, FAILED} and each["status"] == "True")
        return str(next(ends)["lastTransitionTime"])

    def count(self, counts: Counts) -> None:
        replicated_jobs = [{"name": name, **counts[name]} for name in sorted(counts, reverse=True)]
        if replicated_jobs != self._replicated_jobs:
            self._replicated_jobs = replicated_jobs
            self.changed = True

    def restart(self, reason: str, message: str, *, counts_towards_max: bool) -> None:
        """Start a new attempt. The next sync deletes the Jobs of earlier attempts."""
        self.restarts += 1
        self.restarts_counted += counts_towards_max
        self.changed = True
        self._set(RESTARTING, "True", reason, message)

    def jobs_ready(self) -> None:
        self._set(RESTARTING, "False", "JobsReady", "all jobs are ready")

    def complete(self) -> None:
        message = "jobset completed successfully"
        self._set(COMPLETED, "True", "AllJobsCompleted", message)
        self._set(RESTARTING, "False", "JobSetCompleted", message)
        self._terminal_state = COMPLETED

    def fail(self, reason: str, message: str) -> None:
        self._set(FAILED, "True", reason, message)
        self._set(RESTARTING, "False", "JobSetFailed", "jobset failed")
        self._terminal_state = FAILED

    def suspend(self) -> None:
        message = "jobset is suspended"
        self._set(SUSPENDED, "True", "SuspendedJobs", message)
        self._set(RESTARTING, "False", "JobSetSuspended", message)

    def resume(self) -> None:
        self._set(SUSPENDED, "False", "ResumeJobs", "jobset is resumed")

    def starting_in_order(self) -> None:
        message = "in order startup policy is in progress"
        self._set(STARTUP_IN_PROGRESS, "True", "InOrderStartupPolicyInProgress", message)

    def started_in_order(self) -> None:
        message = "in order startup policy has completed"
        self._set(STARTUP_COMPLETED, "True", "InOrderStartupPolicyCompleted", message)

    def _set(self, of_type: str, status: str, reason: str, message: str) -> None:
        """Set a condition. A missing one is added only if True. Its time is that of the last change of its status."""
        met = {"type": of_type, "status": status, "reason": reason, "message": message}
        found = False
        for number, each in enumerate(self._conditions):
            if each["type"] == of_type:
                found = True
                at = each["lastTransitionTime"] if each["status"] == status else self._now
                if each != {**met, "lastTransitionTime": at}:
                    self._conditions[number] = {**met, "lastTransitionTime": at}
                    self.changed = True
            elif _EXCLUSIVE.get(each["type"]) == of_type and each["status"] == status == "True":
                self._conditions[number] = {**each, "status": "False"}
                self.changed = True
        if not found and status == "True":
            self._conditions.append({**met, "lastTransitionTime": self._now})
            self.changed = True
