"""Suspends a workload and marks it as ours, and resumes it only while it still has that mark.

A user always wins. A user who suspends or resumes the workload, or removes our annotation, changes what these patches
test. They are then refused, and the reconcile reads again and decides on what the user wants.
"""

from datetime import UTC, datetime

import msgspec

from recovery import api_verbs
from recovery.core.model.annotations import RESUME_AT_ANNOTATION, SUSPENDED_BY_ANNOTATION
from recovery.core.model.facts import WorkloadFacts
from recovery.core.plan.actions import ResumeWorkload, SuspendWorkload
from recovery.decoding import AnnotatedObjectVersion, decoded
from recovery.ports import ApiClient, NotFoundError, PatchKind, TestFailedError
from recovery.workloads import resource_of

NEVER = "never"
"""Value of `resume-at` while the time is not known yet."""


class _Spec(msgspec.Struct):
    suspend: bool | None = None


class _Workload(msgspec.Struct):
    metadata: AnnotatedObjectVersion
    spec: _Spec


_decode = msgspec.json.Decoder(_Workload).decode


async def suspend(api: ApiClient, namespace: str, workload: WorkloadFacts, action: SuspendWorkload) -> None:
    """Suspend the workload and name the incident in its annotations, all in one write.

    A workload that this incident has already suspended is success. Raises ReadAgainError subclasses if the workload is
    gone, was replaced, was suspended or marked by another client, or changes between our read and our write.
    """
    resource = resource_of(workload)
    found = decoded(resource, _decode, await api_verbs.get(api, resource, workload.name, namespace=namespace))
    meta = found.metadata
    title = f"{resource.kind} {namespace}/{workload.name}"
    if meta.uid != action.workload_uid:
        raise TestFailedError(f"{title} is another one by now: uid {meta.uid}, not {action.workload_uid}")
    mark = (meta.annotations or {}).get(SUSPENDED_BY_ANNOTATION)
    suspended = found.spec.suspend is True
    if mark == action.incident_id and suspended:
        return
    if mark is not None:
        state = "still suspended" if suspended else "resumed in between"
        raise TestFailedError(f"{title} carries {SUSPENDED_BY_ANNOTATION}: {mark} already, and is {state}")
    if suspended:
        raise TestFailedError(f"{title} was suspended by others")
    ours = {SUSPENDED_BY_ANNOTATION: action.incident_id, RESUME_AT_ANNOTATION: _moment(action.resume_at)}
    added: list[dict[str, object]]
    if meta.annotations is None:
        added = [{"op": "add", "path": "/metadata/annotations", "value": ours}]
    else:
        added = [{"op": "add", "path": _path(name), "value": value} for name, value in ours.items()]
    body = [
        {"op": "test", "path": "/metadata/uid", "value": action.workload_uid},
        # An absent field cannot be tested. With the resourceVersion in it, the patch is refused with 409 if anything
        # was written since the read.
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        *added,
        {"op": "add", "path": "/spec/suspend", "value": True},
    ]
    await api_verbs.patch(api, resource, workload.name, body, kind=PatchKind.JSON, namespace=namespace)


async def resume(api: ApiClient, namespace: str, workload: WorkloadFacts, action: ResumeWorkload) -> None:
    """Remove our annotations, and end the suspension if it is still in force.

    A workload that is gone is success. Raises TestFailedError if the annotations are not those that were decided on:
    another client has taken over the suspension, or its incident has suspended the workload a second time.
    """
    same_end: list[dict[str, object]] = []
    if action.resume_at:
        same_end.append({"op": "test", "path": _path(RESUME_AT_ANNOTATION), "value": action.resume_at})
    body: list[dict[str, object]] = [
        {"op": "test", "path": "/metadata/uid", "value": action.workload_uid},
        {"op": "test", "path": _path(SUSPENDED_BY_ANNOTATION), "value": action.suspended_by},
        *same_end,
        {"op": "remove", "path": _path(SUSPENDED_BY_ANNOTATION)},
        # Added first: another client may have removed only this annotation, and an absent one cannot be removed.
        {"op": "add", "path": _path(RESUME_AT_ANNOTATION), "value": ""},
        {"op": "remove", "path": _path(RESUME_AT_ANNOTATION)},
    ]
    if action.suspended:
        body.append({"op": "add", "path": "/spec/suspend", "value": False})
    try:
        await api_verbs.patch(api, resource_of(workload), workload.name, body, kind=PatchKind.JSON, namespace=namespace)
    except NotFoundError:
        return


def _moment(at: datetime | None) -> str:
    return NEVER if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _path(annotation: str) -> str:
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"
