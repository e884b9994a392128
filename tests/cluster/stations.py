"""Brings a training to a chosen phase of its recovery and keeps it there while a test interferes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from recovery.core.model.annotations import TORN_DOWN_BY_ANNOTATION
from tests.cluster.acts import lose, no_room, object_kept, second_is_over
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.patience import GUARD_SECONDS, LONG_SECONDS
from tests.cluster.scene import Job

POLICY: dict[str, Any] = {"teardown": {"graceSeconds": 4}, "backoff": {"initial": "0s"}}
"""With it the old pods of a hung group take a while to end, and attempts follow each other without a backoff."""
WAITING: dict[str, Any] = {"backoff": {"initial": "300s"}}
"""For the phase Backoff: a backoff that is longer than any test waits."""
PASSING: dict[str, Any] = {"teardown": {"graceSeconds": 1}, "backoff": {"initial": "60s"}}
"""Instead of WAITING, for tests in which the backoff ends by itself. It is long enough to be seen before: the teardown
counts towards it, and hung pods of a suspended Job may use their own 30 s of grace."""
EXHAUSTED: dict[str, Any] = {"budget": {"limit": 0}}

PHASES = ("Decided", "TearingDown", "Backoff", "Scheduling", "Starting", "Rendezvous", "Held")


def policy_for(phase: str) -> dict[str, Any]:
    """The policy spec with which `in_phase` can bring a group to that phase."""
    return {**POLICY, **{"Backoff": WAITING, "Held": EXHAUSTED}.get(phase, {})}


def is_trigger(seen: SeenRequest) -> bool:
    return (seen.method, seen.resource) == ("DELETE", "jobs")


def has_triggered(seen: SeenRequest) -> bool:
    """A trigger that was carried out. A trigger is refused if the Job has just changed, and is then sent again."""
    return is_trigger(seen) and seen.status == 200


def takes_down(seen: SeenRequest) -> bool:
    """The trigger, or the claim that precedes it where pods are deleted before their Job. The first one commits."""
    claims = (seen.method, seen.resource) == ("PATCH", "jobs") and TORN_DOWN_BY_ANNOTATION.encode() in seen.body
    return claims or is_trigger(seen)


def says(phase: str) -> Callable[[SeenRequest], bool]:
    """Matches the write that puts that phase into the ledger."""

    def says_so(seen: SeenRequest) -> bool:
        if (seen.method, seen.resource) != ("PATCH", "recoverygroups/status"):
            return False
        return any(part["path"] == "/status" and part["value"].get("phase") == phase for part in json.loads(seen.body))

    return says_so


@asynccontextmanager
async def in_phase(phase: str, job: Job, proxy: ApiProxy) -> AsyncIterator[None]:
    """The group has lost a member and is in that phase. After the block nothing keeps it there."""
    ways: dict[str, Callable[[Job, ApiProxy], AbstractAsyncContextManager[None]]] = {
        "Decided": _decided,
        "TearingDown": _torn_down,
        "Backoff": _in_backoff,
        "Scheduling": _scheduling,
        "Starting": _starting,
        "Rendezvous": _joining,
        "Held": _held,
    }
    async with ways[phase](job, proxy):
        yield


@asynccontextmanager
async def _decided(job: Job, proxy: ApiProxy) -> AsyncIterator[None]:
    hold = proxy.hold(takes_down)
    await lose(job, 1)
    async with asyncio.timeout(GUARD_SECONDS):
        await hold.wait()
    await job.reaches("Decided")
    try:
        yield
    finally:
        hold.release()


@asynccontextmanager
async def _torn_down(job: Job, _: ApiProxy) -> AsyncIterator[None]:
    async with object_kept(job, await job.pod_of_rank(0)):
        await lose(job, 1)
        await job.reaches("TearingDown")
        yield


@asynccontextmanager
async def _in_backoff(job: Job, _: ApiProxy) -> AsyncIterator[None]:
    await lose(job, 1)
    await job.closed_incidents(1)
    await job.trains(past=job.fleet.world.step_of(job.training))
    await second_is_over()
    await lose(job, 1)
    await job.reaches("Backoff")
    yield


@asynccontextmanager
async def _scheduling(job: Job, _: ApiProxy) -> AsyncIterator[None]:
    async with no_room(job.fleet):
        await lose(job, 1)
        await job.reaches("Scheduling")
        yield


@asynccontextmanager
async def _starting(job: Job, _: ApiProxy) -> AsyncIterator[None]:
    prefix = f"{job.child}-0-"
    job.fleet.kubelets.delay_start(prefix, LONG_SECONDS, namespace=job.namespace)
    await lose(job, 1)
    await job.reaches("Starting")
    yield
    job.fleet.kubelets.delay_start(prefix, 0.0, namespace=job.namespace)


@asynccontextmanager
async def _joining(job: Job, _: ApiProxy) -> AsyncIterator[None]:
    prefix = f"{job.child}-0-"
    job.fleet.kubelets.delay_ready(prefix, LONG_SECONDS, namespace=job.namespace)
    await lose(job, 1)
    await job.reaches("Rendezvous")
    yield
    job.fleet.kubelets.delay_ready(prefix, 0.0, namespace=job.namespace)


@asynccontextmanager
async def _held(job: Job, _: ApiProxy) -> AsyncIterator[None]:
    """Hung ranks stay as they are, and the replacement of the lost rank finds no node."""
    async with no_room(job.fleet):
        await lose(job, 1)
        await job.reaches("Held")
        yield
