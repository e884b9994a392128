"""The triggers: foreground deletion of a child Job or of a permanently failed JobSet, and the watchdog's touch."""

from recovery import api_verbs
from recovery.core.model.annotations import (
    OWN_BACKOFF_LIMIT_ANNOTATION,
    TORN_DOWN_BY_ANNOTATION,
    TOUCHED_ANNOTATION,
)
from recovery.core.plan.actions import (
    MAX_BACKOFF_LIMIT,
    ClaimJob,
    DeleteJob,
    DeleteJobSet,
    ExtendBackoffLimit,
    RaiseBackoffLimit,
    TouchJob,
)
from recovery.ports import (
    JOB_SETS,
    JOBS,
    ApiClient,
    NotFoundError,
    PatchKind,
    Propagation,
    RefusedError,
    Resource,
    TestFailedError,
)

AboutJobs = DeleteJob | ClaimJob | RaiseBackoffLimit | ExtendBackoffLimit | TouchJob | DeleteJobSet


async def carry_out(api: ApiClient, namespace: str, action: AboutJobs) -> None:
    """Carry out the action. Raises the errors of its function below."""
    match action:
        case DeleteJob():
            await delete_job(api, namespace, action)
        case ClaimJob():
            await claim_job(api, namespace, action)
        case RaiseBackoffLimit():
            await raise_backoff_limit(api, namespace, action)
        case ExtendBackoffLimit():
            await extend_backoff_limit(api, namespace, action)
        case TouchJob():
            await touch_job(api, namespace, action)
        case DeleteJobSet():
            await delete_jobset(api, namespace, action)


async def delete_job(api: ApiClient, namespace: str, action: DeleteJob) -> None:
    """Delete the Job in the foreground, if it is still the object and the version that the decision was made on.

    JobSet creates it again once it is gone. With another propagation policy, pods of both Jobs would run at once. A Job
    that is gone already is success. Raises ConflictError if it changed meanwhile: read and decide again at once.
    """
    await _delete(api, JOBS, namespace, action)


async def claim_job(api: ApiClient, namespace: str, action: ClaimJob) -> None:
    """Mark the Job, raise its backoffLimit, and let it replace only pods that have ended, if it is still the object and
    the version of the decision. (The API server lets `podReplacementPolicy` change.)

    If the API server refuses the change, the Job is deleted at once: a group that is not torn down is worse than a
    grace period that is too long. Raises ConflictError if the Job changed meanwhile. A Job that is gone needs no mark.
    """
    body = {
        "metadata": {
            "uid": action.uid,
            "resourceVersion": action.resource_version,
            "annotations": {TORN_DOWN_BY_ANNOTATION: action.attempt},
        },
        "spec": {"backoffLimit": action.backoff_limit, "podReplacementPolicy": "Failed"},
    }
    try:
        await api_verbs.patch(api, JOBS, action.name, body, kind=PatchKind.MERGE, namespace=namespace)
    except NotFoundError:
        return
    except RefusedError:
        await delete_job(api, namespace, DeleteJob(action.epoch, action.name, action.uid, action.resource_version))


async def delete_jobset(api: ApiClient, namespace: str, action: DeleteJobSet) -> None:
    """Delete the JobSet in the foreground, on the same conditions as a Job. Trainer creates it again once it is gone.

    Foreground here as well: a new JobSet cannot create its Jobs while the old ones, of the same names, exist.
    """
    await _delete(api, JOB_SETS, namespace, action)


async def _delete(api: ApiClient, resource: Resource, namespace: str, action: DeleteJob | DeleteJobSet) -> None:
    try:
        await api_verbs.delete(
            api,
            resource,
            action.name,
            namespace=namespace,
            uid=action.uid,
            resource_version=action.resource_version,
            propagation=Propagation.FOREGROUND,
        )
    except NotFoundError:
        return


async def raise_backoff_limit(api: ApiClient, namespace: str, action: RaiseBackoffLimit) -> None:
    """Raise the backoffLimit of the terminating Job with that UID. A Job that is gone or replaced does not need it."""
    body = [
        {"op": "test", "path": "/metadata/uid", "value": action.uid},
        {"op": "replace", "path": "/spec/backoffLimit", "value": MAX_BACKOFF_LIMIT},
    ]
    try:
        await api_verbs.patch(api, JOBS, action.name, body, kind=PatchKind.JSON, namespace=namespace)
    except (NotFoundError, TestFailedError, RefusedError):
        return  # it is a precaution: even if it is refused, the pods of the Job have to be deleted


async def extend_backoff_limit(api: ApiClient, namespace: str, action: ExtendBackoffLimit) -> None:
    """Raise the backoffLimit of a living Job, and keep its user's limit in an annotation.

    Raises ConflictError if the Job changed meanwhile. A Job that is gone, or that the API server does not let change,
    stays as it is: then its own limit counts, as it does without the controller.
    """
    body = {
        "metadata": {
            "uid": action.uid,
            "resourceVersion": action.resource_version,
            "annotations": {OWN_BACKOFF_LIMIT_ANNOTATION: str(action.own_limit)},
        },
        "spec": {"backoffLimit": action.backoff_limit},
    }
    try:
        await api_verbs.patch(api, JOBS, action.name, body, kind=PatchKind.MERGE, namespace=namespace)
    except (NotFoundError, RefusedError):
        return


async def touch_job(api: ApiClient, namespace: str, action: TouchJob) -> None:
    """Change an annotation of a Job that got no pods, so that the Job controller reconciles it again.

    Raises NotFoundError or TestFailedError if the Job is gone or was replaced.
    """
    # A JSON patch fails if the Job has no annotations. The UID ties this merge patch to the Job: the server refuses to
    # change a UID.
    body = {"metadata": {"uid": action.uid, "annotations": {TOUCHED_ANNOTATION: action.value}}}
    try:
        await api_verbs.patch(api, JOBS, action.name, body, kind=PatchKind.MERGE, namespace=namespace)
    except RefusedError as error:
        if "metadata.uid: Invalid value" in str(error):
            raise TestFailedError(str(error), status=error.status, reason=error.reason) from error
        raise
