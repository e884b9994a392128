"""Finds the job that a user named. If there is none, the error is one line, with names that may have been meant."""

import asyncio
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TypeVar

import msgspec

from recovery import api_verbs
from recovery.cli.connection import CommandError
from recovery.core.model.facts import GroupKey, UndecodableObject, WorkloadFacts
from recovery.decoding import decoded
from recovery.kube.cluster_reader import read_workloads
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.workloads import decode_job_set, decode_train_job
from recovery.ports import (
    JOB_SETS,
    TRAIN_JOBS,
    ApiClient,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    Resource,
)

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_SUGGESTIONS_MAX = 3

T = TypeVar("T")


def title_of(key: GroupKey, workload: WorkloadFacts) -> str:
    """`TrainJob team-a/llm`: how every line names a job."""
    return f"{workload.kind} {key}"


async def find(client: ApiClient, key: GroupKey) -> WorkloadFacts:
    """The TrainJob of that name, else the JobSet that nothing controls. Raises ApiError, or CommandError for no such
    job.

    Reads only these two, because the CRDs of this project may be gone already.
    """
    train_job, jobset = await asyncio.gather(
        _object(client, TRAIN_JOBS, key, decode_train_job), _object(client, JOB_SETS, key, decode_job_set)
    )
    found = train_job or (jobset.workload if jobset is not None else None)
    if found is None:
        raise await absence(client, key)
    return found


async def absence(client: ApiClient, key: GroupKey, undecodable: Sequence[UndecodableObject] = ()) -> CommandError:
    """The error for a job that does not exist. It names the namespace if that is missing, and suggests similar names.

    `undecodable`: objects of the group that cannot be read. The job itself may be one.
    """
    for each in undecodable:
        if each.kind in (TRAIN_JOBS.kind, JOB_SETS.kind):
            return CommandError(f"{each.sentence}; nothing is done about this job until it can be read")
    if await namespace_is_missing(client, key.namespace):
        return CommandError(f"there is no namespace {key.namespace!r}")
    try:
        workloads, _ = await read_workloads(client, key.namespace)
    except ForbiddenError:
        workloads = {}
    near = get_close_matches(key.name, [other.name for other in workloads], n=_SUGGESTIONS_MAX)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return CommandError(f"there is no TrainJob or JobSet {key.name!r} in namespace {key.namespace!r}{meant}")


async def namespace_is_missing(client: ApiClient, namespace: str) -> bool:
    """Whether the namespace does not exist. False if the user may not read namespaces."""
    try:
        await api_verbs.get(client, NAMESPACES, namespace)
    except NotFoundError:
        return True
    except ForbiddenError:
        return False
    return False


async def _object(
    client: ApiClient, resource: Resource, key: GroupKey, decode: Callable[[msgspec.Raw], ObjectEntry[T]]
) -> T | None:
    try:
        return decoded(resource, decode, await api_verbs.get(client, resource, key.name, namespace=key.namespace)).value
    except NotFoundError:
        return None
    except NoSuchResourceError:
        if resource is TRAIN_JOBS:  # a cluster without Trainer
            return None
        raise
