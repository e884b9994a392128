"""A Job and its pods at the start of one sync, and the Job's new status.

Nothing here writes. Source: `syncJob`, `trackJobStatusAndRemoveFinalizers` in `pkg/controller/job/job_controller.go` of
Kubernetes 1.36; KEP-2307 (how pods are counted), KEP-3850 (backoffLimitPerIndex), KEP-3939 (podReplacementPolicy).

Each pod is counted exactly once: its UID is added to `status.uncountedTerminatedPods`, then its finalizer is removed,
then the UID is dropped and a counter is raised. A controller that crashes in between continues from the written status.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import moment_of, timestamp
from recovery.sim.controllers import success_policy
from recovery.sim.controllers.job_indexes import format_indexes, parse_indexes
from recovery.sim.controllers.job_pods import (
    active,
    all_failures_of_index,
    condition,
    failed,
    failures_of_index,
    finished_at,
    index_of,
    phase,
    ready,
    restart_count,
    terminating,
    tracked,
)
from recovery.sim.controllers.pod_failure_policy import Handling, handling

MOST_UNCOUNTED = 500
"""How many UIDs a status holds at most. The next sync counts the remaining pods."""


def condition_is(job: Body, kind: str, status: str = "True") -> bool:
    found = condition(job, kind)
    return found is not None and found["status"] == status


def finished(job: Body) -> bool:
    """The Job is Complete or Failed: its controller is done with it."""
    return condition_is(job, "Complete") or condition_is(job, "Failed")


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the Job ends. The interim condition is set while pods still terminate, the final one when none is left."""

    interim: str
    """SuccessCriteriaMet or FailureTarget."""
    reason: str
    message: str

    @property
    def final(self) -> str:
        return "Failed" if self.fails else "Complete"

    @property
    def fails(self) -> bool:
        return self.interim == "FailureTarget"


COMPLETED = Ending("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
_TOO_MANY_FAILURES = Ending("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_TOO_LATE = Ending("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
_TOO_MANY_INDEXES = Ending(
    "FailureTarget", "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
)
_INDEXES_FAILED = Ending("FailureTarget", "FailedIndexes", "Job has failed indexes")


class JobSync:
    """One sync's view. It has the pods as they were at its start: the next sync sees what happens to them meanwhile."""

    def __init__(self, job: Body, pods: Iterable[Body], now: datetime) -> None:
        self.job = job
        self.spec: Body = job["spec"]
        self.now = now
        self.pods = list(pods)
        self.active_pods = [pod for pod in self.pods if active(pod)]
        self.active = len(self.active_pods)
        self.ready = sum(ready(pod) for pod in self.active_pods)
        self.terminating = sum(terminating(pod) for pod in self.pods)
        self.ending: Ending | None = None
        self._ending_since = now
        """When `ending` was determined: the time of the interim condition."""
        status: Body = job.get("status", {})
        self.start_time: str | None = status.get("startTime")
        self.conditions: list[Body] = list(status.get("conditions", ()))
        self._completion_time: str | None = status.get("completionTime")
        self._counted_failed: int = status.get("failed", 0)
        self._counted_succeeded: int = status.get("succeeded", 0)
        uncounted: Body = status.get("uncountedTerminatedPods", {})
        self._uncounted_failed: list[str] = list(uncounted.get("failed", ()))
        self._uncounted_succeeded: list[str] = list(uncounted.get("succeeded", ()))
        self._tracked = {pod["metadata"]["uid"] for pod in self.pods if tracked(pod)}
        self._capped = False
        """There are more pods to count than one status holds."""
        self._known_succeeded_indexes = (
            parse_indexes(status.get("completedIndexes", ""), self.completions or 0) if self.indexed else set()
        )
        ended = [pod for pod in self.pods if phase(pod) == "Succeeded"]
        self.newly_succeeded = [pod for pod in ended if self._new(pod, self._uncounted_succeeded)]
        self.newly_failed = [pod for pod in self.pods if self.failed(pod) and self._new(pod, self._uncounted_failed)]
        if self.start_time is None and not self.suspended:
            self.start_time = timestamp(now)

    # The spec.

    @property
    def indexed(self) -> bool:
        return bool(self.spec.get("completionMode") == "Indexed")

    @property
    def completions(self) -> int | None:
        """None: one success is enough."""
        completions: int | None = self.spec.get("completions")
        return completions

    @property
    def parallelism(self) -> int:
        return int(self.spec["parallelism"])

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def limit_per_index(self) -> int | None:
        limit: int | None = self.spec.get("backoffLimitPerIndex")
        return limit

    @property
    def replaces_failed_only(self) -> bool:
        """A pod that is being deleted is replaced only when it is Failed or gone."""
        return self.spec.get("podReplacementPolicy") == "Failed" or self.spec.get("podFailurePolicy") is not None

    # The pods.

    def failed(self, pod: Body) -> bool:
        return failed(pod, replaces_failed_only=self.replaces_failed_only)

    def handling(self, pod: Body) -> Handling:
        return handling(self.spec.get("podFailurePolicy"), pod)

    def _valid_index(self, pod: Body) -> bool:
        index = index_of(pod)
        return index is not None and index < (self.completions or 0)

    def _to_count(self, pod: Body) -> bool:
        return tracked(pod) and (not self.indexed or self._valid_index(pod))

    def _new(self, pod: Body, uncounted: list[str]) -> bool:
        """No sync has recorded the pod in the status yet."""
        return self._to_count(pod) and pod["metadata"]["uid"] not in uncounted

    @cached_property
    def succeeded_indexes(self) -> set[int]:
        new = (index_of(pod) for pod in self.newly_succeeded)
        return self._known_succeeded_indexes.union(index for index in new if index is not None)

    @cached_property
    def failed_indexes(self) -> set[int] | None:
        """None: the Job has no backoffLimitPerIndex."""
        if self.limit_per_index is None:
            return None
        known = parse_indexes(self.job.get("status", {}).get("failedIndexes") or "", self.completions or 0)
        new = (index_of(pod) for pod in self.pods if tracked(pod) and self._valid_index(pod) and self._ends_index(pod))
        return known.union(index for index in new if index is not None)

    def _ends_index(self, pod: Body) -> bool:
        if not self.failed(pod):
            return False
        rule = self.handling(pod)
        return rule.action == "FailIndex" or (rule.counts and failures_of_index(pod) >= (self.limit_per_index or 0))

    @cached_property
    def waiting_for_successor(self) -> dict[int, Body]:
        """The last failed pod of each index that still needs a replacement. The successor takes over its counts."""
        if self.limit_per_index is None:
            return {}
        taken = {index_of(pod) for pod in self.active_pods} | self.succeeded_indexes | (self.failed_indexes or set())
        waiting: dict[int, Body] = {}
        for pod in self.pods:
            index = index_of(pod)
            if index is None or index in taken or not (self._to_count(pod) and self.failed(pod)):
                continue
            other = waiting.get(index)
            if other is None or _later(pod, other):
                waiting[index] = pod
        return waiting

    @property
    def succeeded(self) -> int:
        if self.indexed:
            return len(self.succeeded_indexes)
        return self._counted_succeeded + len(self.newly_succeeded) + len(self._uncounted_succeeded)

    @property
    def failures(self) -> int:
        """Failures that count towards backoffLimit, without in-place container restarts."""
        new = sum(self.handling(pod).counts for pod in self.newly_failed)
        return self._counted_failed + new + len(self._uncounted_failed)

    def let_end(self, pods: Iterable[Body]) -> None:
        """Note that these active pods were just deleted."""
        for pod in pods:
            self.active -= 1
            self.terminating += 1
            self.ready -= ready(pod)

    # The ending.

    def judge(self) -> Ending | None:
        """Why the Job must end. None: it continues. An earlier sync's decision stands, and failure precedes success."""
        for interim in ("SuccessCriteriaMet", "FailureTarget"):
            said = condition(self.job, interim)
            if said is not None and said["status"] == "True":
                return Ending(interim, said["reason"], said["message"])
        return self._failed_by_policy() or self._failed_by_limit() or self._failed_by_indexes() or self._succeeded()

    def _failed_by_policy(self) -> Ending | None:
        for pod in self.pods:
            message = self.handling(pod).message if self.failed(pod) else None
            if message is not None:
                return Ending("FailureTarget", "PodFailurePolicy", message)
        return None

    def _failed_by_limit(self) -> Ending | None:
        limit = self.spec["backoffLimit"]
        if self.failures > limit or self._restarted_too_often(limit):
            return _TOO_MANY_FAILURES
        left_seconds = self.deadline_seconds()
        return _TOO_LATE if left_seconds is not None and left_seconds <= 0 else None

    def _restarted_too_often(self, limit: int) -> bool:
        """Only container restarts in Running and Pending pods count. A limit of 0 or 1 allows none."""
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(restart_count(pod) for pod in self.pods if phase(pod) in {"Running", "Pending"})
        return restarts >= max(limit, 1)

    def deadline_seconds(self) -> float | None:
        """How long until the Job exceeds its activeDeadlineSeconds. None: no deadline applies."""
        allowed = self.spec.get("activeDeadlineSeconds")
        if allowed is None or self.start_time is None or self.suspended:
            return None
        return (moment_of(self.start_time) + timedelta(seconds=allowed) - self.now).total_seconds()

    def _failed_by_indexes(self) -> Ending | None:
        if not self.failed_indexes:
            return None
        most = self.spec.get("maxFailedIndexes")
        if most is not None and len(self.failed_indexes) > most:
            return _TOO_MANY_INDEXES
        over = len(self.failed_indexes) + len(self.succeeded_indexes)
        return _INDEXES_FAILED if over >= (self.completions or 0) else None

    def _succeeded(self) -> Ending | None:
        if not self.indexed:
            return None
        message = success_policy.met(self.spec.get("successPolicy"), self.completions or 0, self.succeeded_indexes)
        return None if message is None else Ending("SuccessCriteriaMet", "SuccessPolicy", message)

    def complete(self) -> bool:
        """Enough pods have succeeded, and none is active."""
        return self.succeeded >= (1 if self.completions is None else self.completions) and self.active == 0

    # The status.

    def count(self) -> list[Body]:
        """Record finished pods in the status. Returns the pods that may lose their finalizer once it is written."""
        released: list[Body] = []
        for pod in sorted(self.pods, key=lambda pod: index_of(pod) or 0) if self.indexed else self.pods:
            if not tracked(pod) or not self._may_go(pod):
                continue
            released.append(pod)
            self._count_one(pod)
            if len(self._uncounted_failed) + len(self._uncounted_succeeded) >= MOST_UNCOUNTED:
                self._capped = True
                break
        return released

    def _may_go(self, pod: Body) -> bool:
        if "deletionTimestamp" in self.job["metadata"] or self.ending is not None or phase(pod) == "Succeeded":
            return True
        index = index_of(pod)
        waits = index is not None and self.waiting_for_successor.get(index) is pod
        return self.failed(pod) and not waits

    def _count_one(self, pod: Body) -> None:
        """Record one pod. When the Job fails, a pod that has not finished counts as failed."""
        uid = pod["metadata"]["uid"]
        if uid in self._uncounted_failed:
            return
        if phase(pod) == "Succeeded":
            if not self.indexed and uid not in self._uncounted_succeeded:
                self._uncounted_succeeded.append(uid)
        elif (self.failed(pod) or self._fails) and self._to_count(pod) and self.handling(pod).counts:
            self._uncounted_failed.append(uid)

    @property
    def _fails(self) -> bool:
        return self.ending is not None and self.ending.fails

    def settle(self, released: Iterable[str] = ()) -> None:
        """Count the pods whose finalizer is gone. `released`: UIDs of pods that have just lost it."""
        self._tracked.difference_update(released)
        failed_left = [uid for uid in self._uncounted_failed if uid in self._tracked]
        succeeded_left = [uid for uid in self._uncounted_succeeded if uid in self._tracked]
        self._counted_failed += len(self._uncounted_failed) - len(failed_left)
        self._counted_succeeded += len(self._uncounted_succeeded) - len(succeeded_left)
        self._uncounted_failed, self._uncounted_succeeded = failed_left, succeeded_left

    def complete_at(self, moment: datetime) -> None:
        """End the Job as complete. This is known only after the sync has created and deleted pods."""
        self.ending, self._ending_since = COMPLETED, moment

    def announce(self) -> None:
        """Set the interim condition if the Job ends."""
        ending = self.ending
        if ending is not None and not condition_is(self.job, ending.interim):
            self.set_condition(ending.interim, "True", ending.reason, ending.message, self._ending_since)

    def finish(self, counted_at: datetime, moment: datetime) -> bool:
        """Set the final condition, unless pods are still uncounted or terminating. True: it was set.

        `counted_at`: when the Job's pods were counted. `moment`: when their finalizers were gone as well.
        """
        uncounted = self._capped or self._uncounted_failed or self._uncounted_succeeded
        if self.ending is None or uncounted or self.terminating > 0:
            return False
        self.set_condition(self.ending.final, "True", self.ending.reason, self.ending.message, moment)
        if not self.ending.fails:
            self._completion_time = timestamp(counted_at)
        return True

    def set_condition(self, kind: str, status: str, reason: str, message: str, moment: datetime) -> bool:
        """Set the condition. Returns whether anything changed: a missing condition is not added with status False.

        `moment` is the time of the step that sets the condition, not the start of the sync. At stock request limits a
        sync of many pods takes seconds, which matters where the times of pods and conditions are compared.
        """
        said = {"type": kind, "status": status, "reason": reason, "message": message}
        at = timestamp(moment)
        for place, condition_ in enumerate(self.conditions):
            if condition_["type"] == kind:
                if all(condition_[key] == value for key, value in said.items()):
                    return False
                self.conditions[place] = {**said, "lastProbeTime": at, "lastTransitionTime": at}
                return True
        if status == "False":
            return False
        self.conditions.append({**said, "lastProbeTime": at, "lastTransitionTime": at})
        return True

    def status(self) -> Body:
        """The Job's new status. A counter of 0 is left out where the API leaves it out."""
        uncounted = {"failed": self._uncounted_failed, "succeeded": self._uncounted_succeeded}
        said: Body = {
            "active": self.active or None,
            "completedIndexes": (format_indexes(self.succeeded_indexes) or None) if self.indexed else None,
            "completionTime": self._completion_time,
            "conditions": list(self.conditions) or None,  # a copy: the server keeps it, and the list may still grow
            "failed": self._counted_failed or None,
            "failedIndexes": None if self.failed_indexes is None else format_indexes(self.failed_indexes),
            "ready": self.ready,
            "startTime": self.start_time,
            "succeeded": (len(self.succeeded_indexes) if self.indexed else self._counted_succeeded) or None,
            "terminating": self.terminating,
            "uncountedTerminatedPods": {key: list(uids) for key, uids in uncounted.items() if uids},
        }
        return {key: value for key, value in said.items() if value is not None}


def _later(pod: Body, other: Body) -> bool:
    return all_failures_of_index(other) <= all_failures_of_index(pod) and finished_at(pod) >= finished_at(other)
