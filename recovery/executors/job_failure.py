"""Fails a training permanently, if its budget is exhausted or a rule matches, and policy and platform allow it.

It writes what JobSet itself writes when it gives up, so that TrainJob and users see nothing new (JobSet 0.12
`setJobSetFailedCondition`): JobSet deletes the Jobs of a JobSet with condition Failed and never restarts it.

Before that it removes `ttlSecondsAfterFinished`. Trainer 2.3 creates the JobSet of a failed TrainJob again once the old
one is gone, so a failed training whose JobSet expires would train again.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from recovery import api_verbs
from recovery.core.plan.actions import FailJobSet, JobRef
from recovery.decoding import decoded
from recovery.ports import JOB_SETS, JOBS, ApiClient, PatchKind, TestFailedError

REASON_PREFIX = "Recovery"
"""Prefix of our reason in the condition: RecoveryBudgetExhausted, RecoveryFailJobRule."""
_COMPLETED = "Completed"
_FAILED = "Failed"
_RESTARTING = "Restarting"
_MESSAGE_MAX = 32_768
"""`maxLength` of a condition's message in JobSet's CRD."""


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    ttl_seconds_after_finished: int | None = None


class _JobSet(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: dict[str, Any] = {}

    @property
    def ended(self) -> str:
        """Completed, Failed, or empty. JobSet sets it only when it has ended."""
        return str(self.status.get("terminalState", ""))


_decode = msgspec.json.Decoder(_JobSet).decode


async def fail_jobset(api: ApiClient, namespace: str, action: FailJobSet, now: datetime) -> None:
    """Fail the JobSet. A JobSet that has ended already stays as it is, which is success, but a failed one does not
    expire either.

    Raises ReadAgainError subclasses if it, or the child Job that is to fail it, is gone, was replaced, or changed.
    """
    found = decoded(JOB_SETS, _decode, await api_verbs.get(api, JOB_SETS, action.name, namespace=namespace))
    if found.metadata.uid != action.uid:
        raise TestFailedError(
            f"JobSet {namespace}/{action.name} is another one by now: uid {found.metadata.uid}, not {action.uid}"
        )
    if found.ended == _COMPLETED:
        return
    if found.spec.ttl_seconds_after_finished is not None:
        found = await _kept(api, namespace, action)
    if found.ended:
        return
    if action.job is not None:
        await _end_job(api, namespace, action.job)
    else:
        await _end_jobset(api, namespace, action, found, now)


async def _kept(api: ApiClient, namespace: str, action: FailJobSet) -> _JobSet:
    """The JobSet without its TTL. After a crash the next reconcile finds it so, and fails it."""
    body = [
        {"op": "test", "path": "/metadata/uid", "value": action.uid},
        {"op": "remove", "path": "/spec/ttlSecondsAfterFinished"},
    ]
    answer = await api_verbs.patch(api, JOB_SETS, action.name, body, kind=PatchKind.JSON, namespace=namespace)
    return decoded(JOB_SETS, _decode, answer)


async def _end_job(api: ApiClient, namespace: str, job: JobRef) -> None:
    """Give the Job a deadline that has passed: it fails with DeadlineExceeded, and its JobSet fails with it.

    It loses its own TTL as well: JobSet creates a Job again that is gone before JobSet has seen it fail.
    """
    body = [
        {"op": "test", "path": "/metadata/uid", "value": job.uid},
        {"op": "add", "path": "/spec/ttlSecondsAfterFinished", "value": None},
        {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
    ]
    await api_verbs.patch(api, JOBS, job.name, body, kind=PatchKind.JSON, namespace=namespace)


async def _end_jobset(api: ApiClient, namespace: str, action: FailJobSet, found: _JobSet, now: datetime) -> None:
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {
        "type": _FAILED,
        "status": "True",
        "reason": f"{REASON_PREFIX}{action.reason}",
        "message": action.message[:_MESSAGE_MAX],
        "lastTransitionTime": at,
    }
    kept = [_stopped(each, at) for each in found.status.get("conditions", ()) if each["type"] != _FAILED]
    status = {**found.status, "conditions": [*kept, ended], "terminalState": _FAILED}
    body = [
        {"op": "test", "path": "/metadata/uid", "value": action.uid},
        # The whole status is replaced: JobSet must not have written a restart or an end of its own meanwhile.
        {"op": "replace", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version},
        {"op": "add", "path": "/status", "value": status},
    ]
    await api_verbs.patch(
        api, JOB_SETS, action.name, body, kind=PatchKind.JSON, namespace=namespace, subresource="status"
    )


def _stopped(condition: dict[str, Any], at: str) -> dict[str, Any]:
    """The condition as JobSet leaves it: a failed JobSet is no longer restarting."""
    if condition["type"] != _RESTARTING or condition["status"] != "True":
        return condition
    failure = {"reason": "JobSetFailed", "message": "jobset failed", "lastTransitionTime": at}
    return {**condition, **failure, "status": "False"}
