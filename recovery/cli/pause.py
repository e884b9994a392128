"""`recovery pause` keeps the controller from acting on a job. `recovery resume` ends a pause or a suspension.

Both write only to the workload, so they need neither a controller nor the CRDs of this project. Run `resume --all`
after the controller has been removed: nothing else resumes the jobs that it suspended.
"""

from collections.abc import Sequence

from recovery import api_verbs
from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import Connection, chosen_namespace, connect, error_words, execute
from recovery.cli.exit_codes import print_error
from recovery.cli.job_lookup import find, title_of
from recovery.cli.several_jobs import for_each_job
from recovery.core.incident.preconditions import paused
from recovery.core.model.annotations import PAUSED_ANNOTATION, SUSPENDED_BY_ANNOTATION
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.plan.actions import ResumeWorkload
from recovery.core.plan.suspension import in_force, marked_by
from recovery.executors.suspension import resume as release
from recovery.kube.cluster_reader import read_workloads
from recovery.ports import ApiError, NotFoundError, PatchKind, ReadAgainError
from recovery.workloads import resource_of

_TRIES_MAX = 3
"""Several, because a running controller may resume a job at the same moment as a person."""


def pause(server: ServerOptions, namespace: str | None, jobs: Sequence[str], reason: str | None) -> None:
    """Annotate the jobs. `reason` None: no reason is given, and one that is there already stays."""

    async def one(connection: Connection, key: GroupKey) -> str:
        workload = await find(connection.client, key)
        title = title_of(key, workload)
        if paused(workload) and reason in {None, workload.annotations[PAUSED_ANNOTATION]}:
            return f"{title} is paused already{_why(workload)}"
        await _annotate(connection, key, workload, reason or "true")
        return (
            f"{title} is paused: the group is not restarted until `recovery resume {key.name}`; a rank that is lost "
            "meanwhile counts then"
        )

    execute(for_each_job(server, namespace, jobs, one))


def resume(server: ServerOptions, namespace: str | None, jobs: Sequence[str]) -> None:
    """Remove the pause and our own suspension from the named jobs."""

    async def one(connection: Connection, key: GroupKey) -> str:
        workload = await _released(connection, key)
        title = title_of(key, workload)
        done = [f"the suspension by incident {marked_by(workload)} is released"] if in_force(workload) else []
        if PAUSED_ANNOTATION in workload.annotations:
            await _annotate(connection, key, workload, None)
            done.insert(0, "it is not paused any more")
        if done:
            return f"{title}: {', '.join(done)}"
        if workload.suspended:
            return f"{title} is not paused, and it was not suspended by the controller: left as it is"
        return f"{title} is neither paused nor suspended"

    execute(for_each_job(server, namespace, jobs, one))


def resume_all(server: ServerOptions, namespace: str | None, *, all_namespaces: bool) -> None:
    """Release every suspension of ours in the namespace, or everywhere. Jobs that people have paused stay paused."""
    execute(_resume_all(server, namespace, all_namespaces=all_namespaces))


async def _resume_all(server: ServerOptions, namespace: str | None, *, all_namespaces: bool) -> int:
    async with connect(server) as connection:
        where = None if all_namespaces else await chosen_namespace(server, namespace)
        workloads, unreadable = await read_workloads(connection.client, where)
        for line in unreadable:
            print_error(line)
        failed = bool(unreadable)
        marked = sorted((key, workload) for key, workload in workloads.items() if marked_by(workload) is not None)
        for key, workload in marked:
            failed |= not await _release_one(connection, key, workload)
    if not marked:
        print(
            f"nothing {'in the cluster' if where is None else f'in namespace {where}'} is suspended by the controller"
        )
    return int(failed)


async def _release_one(connection: Connection, key: GroupKey, workload: WorkloadFacts) -> bool:
    """Release one job. False: this failed, and the error was printed."""
    title = title_of(key, workload)
    try:
        await _released(connection, key)
    except NotFoundError:
        return True
    except ApiError as error:
        print_error(f"{title}: {error_words(error)}")
        return False
    print(f"{title}: the suspension by incident {marked_by(workload)} is released")
    return True


async def _released(connection: Connection, key: GroupKey) -> WorkloadFacts:
    """Release our suspension, if there is one. Returns the workload as it was before. Raises as `find`."""
    for left in reversed(range(_TRIES_MAX)):
        workload = await find(connection.client, key)
        mark = workload.annotations.get(SUSPENDED_BY_ANNOTATION)
        if mark is None:
            return workload
        action = ResumeWorkload(workload.uid, mark, suspended=workload.suspended)
        try:
            await release(connection.client, key.namespace, workload, action)
        except ReadAgainError:
            if not left:
                raise
        else:
            return workload
    raise AssertionError("the last try returns or raises")


async def _annotate(connection: Connection, key: GroupKey, workload: WorkloadFacts, value: str | None) -> None:
    """Set the pause annotation, or remove it (None). The UID ensures that a new job of the same name is not changed."""
    body = {"metadata": {"uid": workload.uid, "annotations": {PAUSED_ANNOTATION: value}}}
    await api_verbs.patch(
        connection.client, resource_of(workload), key.name, body, kind=PatchKind.MERGE, namespace=key.namespace
    )


def _why(workload: WorkloadFacts) -> str:
    reason = workload.annotations[PAUSED_ANNOTATION]
    return "" if reason == "true" else f": {reason}"
