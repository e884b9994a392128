"""Suspended jobs without a policy, for the test and the benchmark of what they cost the controller."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

from recovery import api_verbs
from recovery.ports import JOB_SETS, JOBS, TRAIN_JOBS, ApiClient, ConflictError, NotFoundError, Propagation, Resource
from tests.cluster.controller_record import RECONCILES, Samples, scrape
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Object, train_job

AT_ONCE = 32
KINDS = (TRAIN_JOBS, JOB_SETS, JOBS)


@asynccontextmanager
async def idle_jobs(api: ApiClient, namespace: str, count: int) -> AsyncIterator[None]:
    """Creates `count` suspended TrainJobs, each with its JobSet and its Job. After the block all of them are gone."""
    names = [f"idle-{number:03}" for number in range(count)]

    async def create(name: str) -> None:
        body = train_job(name, ranks=2)
        body["spec"]["suspend"] = True
        await api_verbs.create(api, TRAIN_JOBS, body, namespace=namespace)

    try:
        await _each(names, create)
        await _until_there_are(api, namespace, count)
        yield
    finally:
        for resource in KINDS:
            found = [item["metadata"]["name"] for item in await objects(api, resource, namespace)]
            await _each(found, partial(_remove, api, resource, namespace))
        await _until_there_are(api, namespace, 0)


async def objects(api: ApiClient, resource: Resource, namespace: str) -> list[Object]:
    return list(json.loads(await api_verbs.list_page(api, resource, namespace=namespace))["items"])


async def until_quiet(process: ControllerProcess) -> float:
    """Wait until the controller has nothing queued and has reconciled nothing for two seconds. Returns the number of
    all reconciles so far."""

    def work(samples: Samples) -> tuple[float, float]:
        return samples.sum("recovery_workqueue_depth"), samples.sum(RECONCILES)

    async with asyncio.timeout(GUARD_SECONDS):
        seen = work(await scrape(process))
        while True:
            await asyncio.sleep(2)
            now = work(await scrape(process))
            if now == seen and now[0] == 0:
                return now[1]
            seen = now


async def _remove(api: ApiClient, resource: Resource, namespace: str, name: str) -> None:
    try:
        await api_verbs.delete(api, resource, name, namespace=namespace, propagation=Propagation.BACKGROUND)
    except (NotFoundError, ConflictError):
        return


async def _each(names: Iterable[str], do: Callable[[str], Awaitable[None]]) -> None:
    """At most `AT_ONCE` at the same time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with slots:
            await do(name)

    await asyncio.gather(*map(one, names))


async def _until_there_are(api: ApiClient, namespace: str, count: int) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        for resource in KINDS:
            while len(await objects(api, resource, namespace)) != count:
                await asyncio.sleep(0.5)
