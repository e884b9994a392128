"""The status of a Workload, and every change that Kueue 0.19.1 makes to it.

Sources: `pkg/workload/workload.go`, `pkg/workload/evict/evict.go`, `pkg/workload/admissionchecks.go`,
`pkg/controller/core/workload_controller.go`, and `generatePodsReadyCondition` in
`pkg/controller/jobframework/reconciler.go`. Admission checks and delayed topology requests are not modelled, so a
Workload is admitted when its quota is reserved.
"""

from datetime import datetime, timedelta
from typing import Any

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.trials.plan import KueueSettings

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
PODS_READY = "PodsReady"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
DEACTIVATION_TARGET = "DeactivationTarget"
FINISHED = "Finished"

WAIT_FOR_START = "WaitForStart"
WAIT_FOR_RECOVERY = "WaitForRecovery"
STARTED = "Started"
RECOVERED = "Recovered"
BY_PREEMPTION = "Preempted"
BY_PODS_READY_TIMEOUT = "PodsReadyTimeout"
LIMIT_EXCEEDED = "RequeuingLimitExceeded"
DEACTIVATED = "Deactivated"
BACKOFF_FINISHED = "BackoffFinished"


class WorkloadStatus:
    """A copy of a Workload's status. Each method is one update of Kueue, and `body` is what the update writes."""

    def __init__(self, workload: Body, now: datetime) -> None:
        status = workload.get("status") or {}
        self._now = now
        self._conditions: dict[str, Body] = {each["type"]: each for each in status.get("conditions", ())}
        self._requeue: Body | None = status.get("requeueState")
        self._admission: Body | None = status.get("admission")
        self._before = self.body()

    def body(self) -> dict[str, Any]:
        """The status as a merge patch."""
        return {
            "conditions": list(self._conditions.values()) or None,
            "requeueState": self._requeue,
            "admission": self._admission,
        }

    @property
    def changed(self) -> bool:
        return self.body() != self._before

    def is_true(self, type_: str) -> bool:
        return self._conditions.get(type_, {}).get("status") == "True"

    def reason(self, type_: str) -> str:
        """Empty: there is no such condition."""
        return str(self._conditions.get(type_, {}).get("reason", ""))

    def since(self, type_: str) -> datetime | None:
        """When the condition's status last changed, in whole seconds. None: there is no such condition."""
        found = self._conditions.get(type_)
        return None if found is None else datetime.fromisoformat(found["lastTransitionTime"])

    @property
    def requeues(self) -> int:
        """How often it was queued again because it was not ready in time. Only a deactivation sets it back to 0."""
        return int((self._requeue or {}).get("count", 0))

    @property
    def requeue_at(self) -> datetime | None:
        """None: no backoff is in force."""
        found = (self._requeue or {}).get("requeueAt")
        return None if found is None else datetime.fromisoformat(found)

    @property
    def wants_deactivation(self) -> bool:
        return self.is_true(DEACTIVATION_TARGET)

    def queued_since(self, workload: Body) -> datetime:
        """The order of the queue among equal priorities: by creation, or by the last eviction for a timeout."""
        evicted_at = self.since(EVICTED) if self.is_true(EVICTED) else None
        if evicted_at is not None and self.reason(EVICTED) == BY_PODS_READY_TIMEOUT:
            return evicted_at
        return datetime.fromisoformat(workload["metadata"]["creationTimestamp"])

    def reserve(self, cluster_queue: str) -> None:
        """The scheduler reserves quota (`SetQuotaReservation`), which admits a Workload without admission checks."""
        self._admission = {"clusterQueue": cluster_queue}
        self._set(QUOTA_RESERVED, True, QUOTA_RESERVED, f"Quota reserved in ClusterQueue {cluster_queue}")
        for type_ in (EVICTED, PREEMPTED):
            if self.is_true(type_):
                message = f"Previously: {self._conditions[type_]['message']}"
                self._set(type_, False, QUOTA_RESERVED, message)
        self._set(ADMITTED, True, ADMITTED, "The workload is admitted")

    def judge_readiness(self, ready: bool) -> None:
        """Sets PodsReady (`generatePodsReadyCondition`). `ready`: all Jobs are ready or have succeeded."""
        was, reason = self.is_true(PODS_READY), self.reason(PODS_READY)
        if self.is_true(ADMITTED) and ready:
            recovered = reason in {WAIT_FOR_RECOVERY, RECOVERED}
            message = "All pods reached readiness and the workload is running"
            self._set(PODS_READY, True, RECOVERED if recovered else STARTED, message)
        elif self.is_true(ADMITTED) and (was or reason == WAIT_FOR_RECOVERY):
            message = "At least one pod has failed, waiting for recovery"
            self._set(PODS_READY, False, WAIT_FOR_RECOVERY, message)
        else:
            self._set(PODS_READY, False, WAIT_FOR_START, "Not all pods are ready or succeeded")

    def late_at(self, settings: KueueSettings) -> datetime | None:
        """When the Workload will not have been ready in time (`admittedNotReadyWorkload`). None: no time runs."""
        if not self.is_true(ADMITTED) or self.is_true(EVICTED) or self.is_true(PODS_READY):
            return None
        if self.reason(PODS_READY) == WAIT_FOR_RECOVERY:
            since, seconds = self.since(PODS_READY), settings.recovery_seconds
        else:
            since, seconds = self.since(ADMITTED), settings.ready_seconds
        assert since is not None, "the condition is there"
        return since + timedelta(seconds=seconds)

    def time_out(self, settings: KueueSettings) -> None:
        """The Workload was not ready in time (`reconcileNotReadyTimeout`, `UpdateRequeueState`)."""
        if settings.backoff_limit is not None and self.requeues + 1 > settings.backoff_limit:
            message = "exceeding the maximum number of re-queuing retries"
            self._set(DEACTIVATION_TARGET, True, LIMIT_EXCEEDED, message)
            return
        seconds = min(settings.backoff_seconds * 2.0**self.requeues, settings.longest_backoff_seconds)
        requeue_at = timestamp(self._now + timedelta(seconds=seconds))
        self._requeue = {"count": self.requeues + 1, "requeueAt": requeue_at}
        self._evict(BY_PODS_READY_TIMEOUT, "Exceeded the PodsReady timeout")

    def preempt(self, why: str) -> None:
        """The scheduler needs the quota for another Workload (`IssuePreemptions`)."""
        self._set(PREEMPTED, True, "InClusterQueue", why)
        self._evict(BY_PREEMPTION, why)

    def deactivate(self) -> None:
        """`spec.active` is false: evicts the Workload if it is not, and forgets how often it was queued again."""
        target = self._conditions.pop(DEACTIVATION_TARGET, None)
        self._requeue = None
        if self.is_true(EVICTED):
            return
        cause = "" if target is None else f"DueTo{target['reason']}"
        message = "The workload is deactivated" + ("" if target is None else f" due to {target['message']}")
        self._evict(DEACTIVATED + cause, message)

    def release(self) -> None:
        """The evicted job has no active Job any more: frees its quota (step 6 of the job's reconciler)."""
        reason, message = self.reason(EVICTED), self._conditions[EVICTED]["message"]
        self._set(REQUEUED, reason == BY_PREEMPTION, reason, message)
        self._set(QUOTA_RESERVED, False, "Pending", message)
        self._admission = None
        self._set(ADMITTED, False, "NoReservation", "The workload has no reservation")

    def end_backoff(self) -> None:
        """`requeueAt` has passed: the Workload is in the queue again."""
        assert self._requeue is not None, "a backoff was in force"
        self._requeue = {"count": self.requeues, "requeueAt": None}
        if not self.is_true(REQUEUED) and self.reason(REQUEUED) == BY_PODS_READY_TIMEOUT:
            self._set(REQUEUED, True, BACKOFF_FINISHED, "The workload backoff was finished")

    def finish(self, succeeded: bool) -> None:
        """The job is Complete or Failed. Its quota is free from now on, although the reservation stays."""
        self._set(FINISHED, True, "Succeeded" if succeeded else "Failed", "Job finished")

    def _evict(self, reason: str, message: str) -> None:
        self._set(EVICTED, True, reason, message)

    def _set(self, type_: str, true: bool, reason: str, message: str) -> None:
        """As `SetStatusCondition`: the date changes with the status only."""
        status, before = ("True" if true else "False"), self._conditions.get(type_, {})
        kept = before.get("status") == status
        date = before["lastTransitionTime"] if kept else timestamp(self._now)
        condition = {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": date}
        self._conditions[type_] = condition
