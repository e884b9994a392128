"""Whatever an object contains, it becomes a record or one typed error, and the other objects are read as before."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings

from recovery.core.decision.decide import decide
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.ledger_bounds import EARLIEST, LATEST
from recovery.core.policy.selection import applicable
from recovery.decoding import decoded
from recovery.kube.cluster_reader import read_fleet, read_job, with_fleet
from recovery.kube.projections.events import EventRecord, decode_event
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.nodes import decode_node, decode_renewal
from recovery.kube.projections.pods import decode_pod
from recovery.kube.projections.recovery import decode_config, decode_policy, decode_recovery_group
from recovery.kube.projections.workloads import decode_job, decode_job_set, decode_train_job
from recovery.kube.unready_groups import read_unready_groups
from recovery.ports import (
    EVENTS,
    JOB_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    TRAIN_JOBS,
    RefusedError,
    Resource,
    UndecodableError,
)
from tests.unit.core.driver import policy
from tests.unit.kube.fuzzing import WATCHED, Serving, intact, mutated
from tests.unit.kube.store_world import ALL, LLM, World
from tests.unit.kube.testing import START, bookmark

Decode = Callable[[msgspec.Raw], Any]
DECODERS: dict[str, Decode] = {
    "pods": decode_pod,
    "jobs": decode_job,
    "jobsets": decode_job_set,
    "trainjobs": decode_train_job,
    "nodes": decode_node,
    "recoverypolicies": decode_policy,
    "recoveryconfigs": decode_config,
    "recoverygroups": decode_recovery_group,
    "events": decode_event,
    "leases": decode_renewal,
}
NOW = START + timedelta(hours=1)


def dates_of(value: object) -> list[datetime]:
    match value:
        case datetime():
            return [value]
        case msgspec.Struct():
            return [date for name in value.__struct_fields__ for date in dates_of(getattr(value, name))]
        case tuple() | list():
            return [date for item in value for date in dates_of(item)]
        case dict():
            return [date for item in value.values() for date in dates_of(item)]
    return []


@settings(max_examples=800)
@given(mutated((*WATCHED, EVENTS, LEASES)))
def test_a_projection_makes_a_record_or_the_one_error(drawn: tuple[Resource, bytes]) -> None:
    resource, raw = drawn
    try:
        found = decoded(resource, DECODERS[resource.plural], raw)
    except UndecodableError:
        return
    assert resource in (EVENTS, LEASES) or isinstance(found, ObjectEntry)
    dates = dates_of(found.at if isinstance(found, EventRecord) else found)
    assert all(date.tzinfo is not None and EARLIEST <= date <= LATEST for date in dates)


def decided(snapshot: Snapshot) -> None:
    """Decide on these facts with and without an incident. A restrained group must get no actions."""
    for asked in (policy(), policy(grace_seconds=30)):
        opened = decide(snapshot, Ledger(), asked, NOW)
        again = decide(snapshot, opened.ledger, asked, NOW)
        assert not snapshot.undecodable or not (*opened.actions, *again.actions)


async def fed(resource: Resource, raw: bytes) -> None:
    """Feed the object to a controller's caches: in the first list, in the watch, and in a later list."""
    world = World()
    running = asyncio.create_task(world.store.run())
    for each in ALL:
        if each == resource:
            world.api.feeds[each.plural].put_nowait(b'{"type": "ADDED", "object": ' + raw + b"}")
        elif each in (TRAIN_JOBS, JOB_SETS, JOBS, PODS, NODES):
            world.api.feeds[each.plural].put_nowait(b'{"type": "ADDED", "object": ' + intact(each) + b"}")
    await world.end_lists(*ALL)
    feed = world.api.feeds[resource.plural]
    for type_ in (b"MODIFIED", b"DELETED", b"ADDED"):
        feed.put_nowait(b'{"type": "' + type_ + b'", "object": ' + raw + b"}")
        await world.settle()
        assert not running.done(), "no object ends the process"
        decided(world.llm)
        for workload in filter(None, (world.store.snapshot(key).workload for key in tuple(world.store.keys()))):
            applicable(world.store.policies("default"), workload)
    feed.put_nowait(bookmark(90_000))
    feed.put_nowait(b'{"type": "DELETED", "object": ' + intact(resource) + b"}")
    await world.settle()
    assert world.store.synced(), "and none keeps the caches from being current"
    assert sum(world.store.undecodable().values()) <= 1
    assert world.observed.restarts == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@settings(max_examples=150)
@given(mutated(WATCHED))
def test_the_caches_and_what_is_decided_on_them_survive_any_object(drawn: tuple[Resource, bytes]) -> None:
    asyncio.run(fed(*drawn))


async def read_once(resource: Resource, raw: bytes) -> None:
    api = Serving(resource, raw)
    fleet = await read_fleet(api, None)
    await read_unready_groups(api, None, fleet, tuple(fleet.workloads), NOW)
    reading = await read_job(api, LLM)
    decided(await with_fleet(api, reading.snapshot, NOW))


@settings(max_examples=150)
@given(mutated((*WATCHED, EVENTS, LEASES)))
def test_what_commands_read_once_survives_any_object(drawn: tuple[Resource, bytes]) -> None:
    with suppress(RefusedError):  # a RecoveryGroup that cannot be read, or names another workload than its name does
        asyncio.run(read_once(*drawn))
