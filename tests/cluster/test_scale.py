"""Five hundred jobs that are nobody's business: what they cost is memory, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from recovery.ports import JOB_SETS, JOBS, TRAIN_JOBS, ApiClient, ConflictError, NotFoundError, Propagation, Resource
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController
from tests.cluster.controller_record import LOOKS, Samples, scrape
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Fleet, Object, train_job

JOBS_COUNT = 500
AT_ONCE = 32
KINDS = (TRAIN_JOBS, JOB_SETS, JOBS)
NOT_TRAINER = "kueue.x-k8s.io/multikueue"
"""The one other value of `spec.managedBy`: Trainer leaves such a TrainJob to somebody else."""


async def test_five_hundred_jobs_without_a_policy_cost_nothing_but_memory(
    namespace: str,
    fleet: Fleet,
    proxy: ApiProxy,
    controller: StartsController,
    record_property: Callable[[str, object], None],
) -> None:
    """Suspended by their users: a TrainJob, a JobSet and a Job each, and no pods, which would only be more of the
    same: pods are cached like these, and what reads or writes would follow from is the group.
    """
    async with controller() as process:
        before_bytes = resident_bytes(process)
        asked = len(proxy.requests)
        async with suspended_jobs(fleet.api, namespace):
            await quiet(process)
            looks = (await scrape(process)).sum(LOOKS)
            grown = (resident_bytes(process) - before_bytes) / 2**20
            record_property("resident_mb_for_500_jobs", round(grown, 1))
            print(f"{JOBS_COUNT} TrainJobs with their JobSets and Jobs: {grown:.1f} MB more, {looks:.0f} looks")

            assert looks >= JOBS_COUNT, "it has seen every one of them"
            assert for_the_jobs(proxy.requests[asked:]) == []
            assert grown < 100
        assert for_the_jobs(proxy.requests[asked:]) == []


def for_the_jobs(requests: Iterable[SeenRequest]) -> list[str]:
    """Neither about the Lease nor a watch that goes on where it stood: an API server that is busy ends some."""
    asked = (seen for seen in requests if seen.resource != "leases" and not goes_on(seen))
    return [f"{seen.method} {seen.path}?{seen.query}" for seen in asked]


def goes_on(seen: SeenRequest) -> bool:
    """It reads nothing that has been read before."""
    return seen.is_watch and "resourceVersion=" in seen.query and "sendInitialEvents" not in seen.query


def resident_bytes(process: ControllerProcess) -> int:
    """What the kernel says it holds in memory now."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kib) * 1024


async def quiet(process: ControllerProcess) -> None:
    """Until nothing is queued and, for two seconds, nothing was looked at."""

    def work(samples: Samples) -> tuple[float, float]:
        return samples.sum("recovery_workqueue_depth"), samples.sum(LOOKS)

    async with asyncio.timeout(GUARD_SECONDS):
        seen = work(await scrape(process))
        while True:
            await asyncio.sleep(2)
            now = work(await scrape(process))
            if now == seen and now[0] == 0:
                return
            seen = now


@asynccontextmanager
async def suspended_jobs(api: ApiClient, namespace: str) -> AsyncIterator[None]:
    """The jobs, each with its JobSet and its Job; afterwards they are gone.

    The JobSets are made here, as Trainer makes them: it would take half a minute, at its 50 requests a second.
    """
    names = [f"idle-{number:03}" for number in range(JOBS_COUNT)]

    async def create(name: str) -> None:
        body = train_job(name, ranks=2)
        body["spec"] |= {"suspend": True, "managedBy": NOT_TRAINER}
        made = json.loads(await api.create(TRAIN_JOBS, body, namespace=namespace))
        await api.create(JOB_SETS, job_set(name, owner=made["metadata"]["uid"]), namespace=namespace)

    try:
        await each(names, create)
        await until_there_are(api, namespace, JOBS_COUNT)
        yield
    finally:
        for resource in KINDS:
            found = await objects(api, resource, namespace)
            await each(found, partial(remove, api, resource, namespace))
        await until_there_are(api, namespace, 0)


def job_set(name: str, *, owner: str) -> Object:
    """What Trainer makes of the TrainJob with that UID, as far as anybody here reads it."""
    kind = {"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind}
    pod = {"restartPolicy": "OnFailure", "containers": [{"name": "node", "image": "trainer"}]}
    job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": {"spec": pod}}
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"name": name, "ownerReferences": [{**kind, "name": name, "uid": owner, "controller": True}]},
        "spec": {"suspend": True, "replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
    }


async def remove(api: ApiClient, resource: Resource, namespace: str, name: str) -> None:
    try:
        await api.delete(resource, name, namespace=namespace, propagation=Propagation.BACKGROUND)
    except (NotFoundError, ConflictError):
        return


async def each(names: Iterable[str], do: Callable[[str], Awaitable[None]]) -> None:
    """A few at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with slots:
            await do(name)

    await asyncio.gather(*map(one, names))


async def objects(api: ApiClient, resource: Resource, namespace: str) -> list[str]:
    return [item["metadata"]["name"] for item in json.loads(await api.list(resource, namespace=namespace))["items"]]


async def until_there_are(api: ApiClient, namespace: str, count: int) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        for resource in KINDS:
            while len(await objects(api, resource, namespace)) != count:
                await asyncio.sleep(0.5)
