"""What tests do to a training, and the states that they wait for."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime

from recovery import api_verbs
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.ports import JOBS, NODES, PODS, RECOVERY_INCIDENTS, TRAIN_JOBS, ConflictError, PatchKind, Resource
from tests.cluster.patience import GUARD_SECONDS, LONG_SECONDS
from tests.cluster.scene import Fleet, Job, Object, until

PAUSED = "recovery.trainjob.dev/paused"
INDEX = "batch.kubernetes.io/job-completion-index"


async def lose(job: Job, rank: int, *, grace_seconds: int | None = None) -> str:
    """Delete the pod of that rank as `kubectl delete pod` does; returns its name. A hung rank uses its whole grace."""
    pod = await job.pod_of_rank(rank)
    await api_verbs.delete(job.fleet.api, PODS, pod, namespace=job.namespace, grace_seconds=grace_seconds)
    return pod


async def evict(job: Job, rank: int) -> str:
    """Evict the pod of that rank as `kubectl drain` does; returns its name."""
    pod = await job.pod_of_rank(rank)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": job.namespace}}
    await api_verbs.create(job.fleet.api, PODS, eviction, namespace=job.namespace, name=pod, subresource="eviction")
    return pod


async def exit_rank(job: Job, rank: int, code: int) -> str:
    """End the process of that rank; returns the name of its pod."""
    pod = await job.pod_of_rank(rank)
    job.fleet.kubelets.exit_container(pod, code, namespace=job.namespace)
    return pod


async def exit_ranks(job: Job, ranks: Iterable[int], code: int) -> None:
    """End the processes of these ranks at one moment: no controller acts between two of the exits."""
    pods = [await job.pod_of_rank(rank) for rank in ranks]
    for pod in pods:
        job.fleet.kubelets.exit_container(pod, code, namespace=job.namespace)


@contextmanager
def no_restarts(job: Job) -> Iterator[None]:
    """No kubelet restarts a container of the job that ends inside the block.

    A running pod counts towards the backoffLimit of its Job by its restarts, not by its exits. So the controller sees
    the exits, and the Job does not fail before the controller acts.
    """
    job.fleet.kubelets.delay_restart(f"{job.child}-", LONG_SECONDS, namespace=job.namespace)
    try:
        yield
    finally:
        job.fleet.kubelets.delay_restart(f"{job.child}-", 0.0, namespace=job.namespace)


@asynccontextmanager
async def no_room(fleet: Fleet, *, but_on: int = 0) -> AsyncIterator[None]:
    """No new pod gets a node inside the block: all nodes but `but_on` are tainted.

    They are not cordoned, because a pod that is deleted from a cordoned node counts as drained.
    """
    names = [node["metadata"]["name"] for node in json.loads(await api_verbs.list_page(fleet.api, NODES))["items"]][
        but_on:
    ]
    try:
        for name in names:
            await _taint(fleet, name, [{"key": _NO_ROOM, "effect": "NoSchedule"}])
        yield
    finally:
        for name in names:
            await _taint(fleet, name, [])


_NO_ROOM = "tests.recovery.trainjob.dev/no-room"


async def set_room(fleet: Fleet, nodes: Iterable[str], *, room: bool) -> None:
    """Let these nodes take new pods, or none."""
    for name in nodes:
        await _taint(fleet, name, [] if room else [{"key": _NO_ROOM, "effect": "NoSchedule"}])


async def _taint(fleet: Fleet, node: str, ours: list[Object]) -> None:
    """Replace our taints with these. Taints of others stay, even those that change between read and patch."""
    while True:
        found = json.loads(await api_verbs.get(fleet.api, NODES, node))
        taints = [taint for taint in found["spec"].get("taints", []) if taint["key"] != _NO_ROOM] + ours
        change = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": {"taints": taints}}
        with suppress(ConflictError):
            await api_verbs.patch(fleet.api, NODES, node, change, kind=PatchKind.MERGE)
            return


async def succeed_once_replaced(job: Job, rank: int) -> None:
    """The replacement of a lost pod finds the last checkpoint, has nothing left to do, and exits with 0."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not [pod for pod in await running_pods(job) if pod["metadata"]["annotations"][INDEX] == str(rank)]:
            await asyncio.sleep(0.05)
    await exit_rank(job, rank, 0)


@asynccontextmanager
async def object_kept(job: Job, pod: str) -> AsyncIterator[None]:
    """A foreign finalizer keeps the Pod object inside the block, whatever happens to its containers."""
    finalizer = "tests.recovery.trainjob.dev/kept"
    added = [{"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}]
    await api_verbs.patch(job.fleet.api, PODS, pod, added, kind=PatchKind.JSON, namespace=job.namespace)
    try:
        yield
    finally:
        await _without_finalizer(job, pod, finalizer)


async def _without_finalizer(job: Job, pod: str, finalizer: str) -> None:
    """Remove it from an unchanged list only, because the Job controller removes its own finalizer at the same time."""
    while True:
        (kept,) = [item["metadata"] for item in await job.pods() if item["metadata"]["name"] == pod]
        left = [name for name in kept["finalizers"] if name != finalizer]
        change = {"metadata": {"resourceVersion": kept["resourceVersion"], "finalizers": left}}
        with suppress(ConflictError):
            await api_verbs.patch(job.fleet.api, PODS, pod, change, kind=PatchKind.MERGE, namespace=job.namespace)
            return


async def edit(job: Job, change: Object, *, resource: Resource = TRAIN_JOBS) -> None:
    """Merge-patch the TrainJob, the JobSet of its name, or its child Job."""
    name = job.child if resource == JOBS else job.name
    await api_verbs.patch(job.fleet.api, resource, name, change, kind=PatchKind.MERGE, namespace=job.namespace)


async def annotate(job: Job, annotation: str, value: str | None, *, resource: Resource = TRAIN_JOBS) -> None:
    """`value` None removes the annotation."""
    await edit(job, {"metadata": {"annotations": {annotation: value}}}, resource=resource)


async def running_pods(job: Job) -> list[Object]:
    """The Running pods that are not being deleted."""
    pods = [pod for pod in await job.pods() if pod["status"]["phase"] == "Running"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


async def until_rounds(job: Job, count: int) -> None:
    """Wait until all ranks have met for the `count`th time."""
    await until(f"round {count} of {job.training}", lambda: len(job.fleet.world.rounds(job.training)) >= count)


async def until_condition(job: Job, resource: Resource, type_: str) -> None:
    """Wait until the TrainJob, or the JobSet of its name, has that condition."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            [found] = [item for item in await job.items(resource) if item["metadata"]["name"] == job.name]
            conditions = found.get("status", {}).get("conditions", [])
            if any(each["type"] == type_ and each["status"] == "True" for each in conditions):
                return
            await asyncio.sleep(0.1)


async def until_said(job: Job, words: str) -> Object:
    """Wait until the ledger's message contains these words; returns the ledger."""
    ledger: Object = {}
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            while words not in (ledger := await job.ledger()).get("message", ""):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{words!r} was not said: {json.dumps(ledger, indent=1)}") from None
    return ledger


async def until_reason(job: Job, reason: Reason) -> Object:
    """Wait until the ledger's incident has this reason; returns the ledger."""
    ledger: Object = {}
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            while (ledger := await job.ledger()).get("incident", {}).get("reason") != reason:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{reason} was not given: {json.dumps(ledger, indent=1)}") from None
    return ledger


async def until_standing(job: Job, standing: Standing) -> Object:
    """Wait until the ledger has no open incident and this standing; returns the ledger."""
    ledger: Object = {}
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            while (ledger := await job.ledger()).get("standing") != standing or "incident" in ledger:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{job.training} is not {standing}: {json.dumps(ledger, indent=1)}") from None
    return ledger


async def until_replaced(job: Job) -> None:
    """Wait until all pods of the job are Running and Ready, and none is being deleted."""
    async with asyncio.timeout(GUARD_SECONDS):
        while len([pod for pod in await running_pods(job) if is_ready(pod)]) < job.ranks:
            await asyncio.sleep(0.05)


def is_ready(pod: Object) -> bool:
    return any((each["type"], each["status"]) == ("Ready", "True") for each in pod["status"].get("conditions", []))


async def second_is_over() -> None:
    """Wait for the next second. API times have whole seconds, so events of one second cannot be put in order."""
    await asyncio.sleep(1.01 - time.time() % 1)


async def report_progress(job: Job, percentage: int, at: datetime | None = None) -> datetime:
    """The training reports progress, dated now unless `at` says otherwise. Returns the date as the API keeps it."""
    told = (at or datetime.now(UTC)).replace(microsecond=0)
    status = {"progressPercentage": percentage, "lastUpdatedTime": told.strftime("%Y-%m-%dT%H:%M:%SZ")}
    answer = await api_verbs.patch(
        job.fleet.api,
        TRAIN_JOBS,
        job.name,
        {"status": {"trainerStatus": status}},
        kind=PatchKind.MERGE,
        namespace=job.namespace,
        subresource="status",
    )
    assert json.loads(answer)["status"]["trainerStatus"] == status, "the CRD keeps it though the gate is off"
    return told


async def incidents_of(job: Job) -> list[Object]:
    """The specs of the job's RecoveryIncidents, oldest first."""
    specs: list[Object] = [item["spec"] for item in await job.items(RECOVERY_INCIDENTS)]
    mine = [spec for spec in specs if spec["workloadRef"]["name"] == job.name]
    return sorted(mine, key=lambda spec: int(spec["number"]))
