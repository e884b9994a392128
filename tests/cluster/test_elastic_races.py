"""What others do while a group shrinks, runs smaller or waits to grow: suspend it, resize it, end it, keep its pods."""

import asyncio

import pytest
import yaml

from recovery import api_verbs
from recovery.core.model.annotations import SPARE_LABEL, TORN_DOWN_BY_ANNOTATION
from recovery.core.model.reason import Reason
from recovery.ports import NODES, PatchKind
from tests.cluster import elastic
from tests.cluster.acts import edit, exit_rank, incidents_of, object_kept, set_room, until_reason
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import MakesRuntime, StartsController, StartsTraining
from tests.cluster.elastic import (
    ELASTIC,
    ELASTIC_FOR_LONG,
    PREPARED,
    RACK,
    actions,
    room_for,
    runs_with,
    settings,
    shrunk,
    take_away,
)
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Fleet, Job, Object
from tests.cluster.stations import has_triggered

pytestmark = pytest.mark.usefixtures("no_complaints", "component")


async def test_a_user_suspends_a_group_that_shrinks(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    """Its pods have been deleted, but its Job has not. It stays suspended for as long as its user wants, and then
    starts with the nodes that there are. With its old Job, whose pods all count as failures, it would wait minutes."""
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job), controller():
        await take_away(job, RACK)
        async with asyncio.timeout(GUARD_SECONDS):
            while not (await _torn_down_by(job)).endswith("-2"):
                await asyncio.sleep(0.02)
            await edit(job, {"spec": {"suspend": True}})
            while await job.pods():
                await asyncio.sleep(0.1)
        epoch = (await job.ledger())["epoch"]
        await asyncio.sleep(3)
        assert not await job.pods()
        assert (await job.ledger())["epoch"] == epoch, "nothing is restarted that its user has suspended"
        await edit(job, {"spec": {"suspend": False}})
        await runs_with(job, 12)
        await job.closed_incidents(1)
        assert (await settings(job))["nodes"] == 12
        assert (await job.ledger())["elastic"]["nodes"] == 12
    assert fleet.world.trace.overlaps(job.training) == []


async def _torn_down_by(job: Job) -> str:
    """The attempt that has begun to tear the group down. Empty: none."""
    child = await elastic.child(job)
    found: dict[str, str] = child["metadata"].get("annotations", {}) if child is not None else {}
    return found.get(TORN_DOWN_BY_ANNOTATION, "")


async def test_a_users_size_ends_the_wait_for_room(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job), controller():
        rack = await shrunk(job)
        uid = await job.child_uid()
        await elastic.resize_child(job, 10)
        async with asyncio.timeout(GUARD_SECONDS):
            while "elastic" in await job.ledger():
                await asyncio.sleep(0.1)
        await set_room(fleet, rack, room=True)
        await asyncio.sleep(8)  # longer than growBackAfter
        child = await elastic.child(job)
        assert child is not None
        assert (child["metadata"]["uid"], child["spec"]["parallelism"]) == (uid, 10)
        assert (await settings(job))["nodes"] == 10, "whoever restarts it, it comes back with that size"


async def test_a_smaller_group_that_could_grow_ends_instead(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC_FOR_LONG)
    async with room_for(fleet, job), controller():
        rack = await shrunk(job)
        await set_room(fleet, rack, room=True)
        await elastic.until_room_is(True, job)
        for rank in range(12):
            await exit_rank(job, rank, 0)
        async with asyncio.timeout(GUARD_SECONDS):
            while "Complete" not in await _true_conditions(job):
                await asyncio.sleep(0.1)
            while "elastic" in (ledger := await job.ledger()) or "birthSettings" in ledger:
                await asyncio.sleep(0.1)
        assert [actions(incident) for incident in await incidents_of(job)] == [["RecreateGroup", "Shrink"]]
        assert "incident" not in await job.ledger()
        await elastic.until_unlabelled(job)
        assert ledger["totals"]["reducedSeconds"] > 0


async def _true_conditions(job: Job) -> set[str]:
    found = await job.get("trainjob", job.name)
    return {each["type"] for each in found["status"].get("conditions", []) if each["status"] == "True"}


async def test_spares_that_are_added_make_it_whole(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    used = {pod["spec"]["nodeName"] for pod in await job.pods()}
    spares = [name for name in fleet.nodes if name not in used][: len(RACK)]
    async with room_for(fleet, job), controller():
        await shrunk(job)
        uid = await job.child_uid()
        await _label(fleet, spares, "true")
        try:
            await set_room(fleet, spares, room=True)
            await runs_with(job, 16, since_uid=uid)
            await job.closed_incidents(2)
        finally:
            await _label(fleet, spares, None)
        assert {pod["spec"]["nodeName"] for pod in await job.pods()} >= set(spares)
        growth = (await incidents_of(job))[-1]
        assert (growth["class"], actions(growth)) == ("Growth", ["Grow"])


async def test_a_gang_with_a_size_of_its_own_waits_for_all_of_its_nodes(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, fleet: Fleet, runtime: MakesRuntime
) -> None:
    """Trainer adds this label for the scheduler plugin coscheduling, whose PodGroup requires all 16 pods."""
    job = await training(runtime=await runtime(_coscheduled()), **ELASTIC)
    async with room_for(fleet, job), controller():
        rack = await take_away(job, RACK)
        await until_reason(job, Reason.SIZE_FIXED)
        await asyncio.sleep(3)  # after shrinkAfter
        ledger = await job.ledger()
        assert (ledger["phase"], ledger["reason"]) == ("Scheduling", Reason.SIZE_FIXED)
        assert len(proxy.writes(has_triggered)) == 1, "the first restart"
        await set_room(fleet, rack, room=True)
        await runs_with(job, 16)
        await job.closed_incidents(1)
    [incident] = await incidents_of(job)
    assert (incident["outcome"], actions(incident)) == ("Recovered", ["RecreateGroup"])


def _coscheduled() -> Object:
    spec: Object = yaml.safe_load((REPOSITORY / "policies" / "runtime-prepared.yaml").read_text())["spec"]
    for replicated in spec["template"]["spec"]["replicatedJobs"]:
        replicated["template"]["spec"]["template"]["metadata"] = {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}}
    return spec


async def test_no_smaller_group_starts_beside_a_pod_that_does_not_go(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    """A foreign finalizer keeps a pod of the shrinking group."""
    job = await training(runtime=PREPARED, **ELASTIC)
    whole = await job.child_uid()
    async with room_for(fleet, job), controller():
        await take_away(job, RACK)
        waiting = await until_replaced(job, whole)
        kept = await job.pod_of_rank(0)
        async with object_kept(job, kept):
            async with asyncio.timeout(GUARD_SECONDS):
                while len(await job.pods()) > 1:
                    await asyncio.sleep(0.1)
            for _ in range(30):
                assert [pod["metadata"]["name"] for pod in await job.pods()] == [kept]
                await asyncio.sleep(0.1)
            ledger = await job.ledger()
            assert (ledger["phase"], actions(ledger["incident"])) == ("TearingDown", ["RecreateGroup", "Shrink"])
        await runs_with(job, 12, since_uid=waiting)
        await job.closed_incidents(1)
    assert fleet.world.trace.overlaps(job.training) == []


async def until_replaced(job: Job, uid: str) -> str:
    """Wait until a new Job in place of that one has an active pod; returns the new UID."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            found = await elastic.child(job)
            if found is not None and found["metadata"]["uid"] != uid and found["status"].get("active"):
                return str(found["metadata"]["uid"])
            await asyncio.sleep(0.05)


async def _label(fleet: Fleet, nodes: list[str], value: str | None) -> None:
    for name in nodes:
        change = {"metadata": {"labels": {SPARE_LABEL: value}}}
        await api_verbs.patch(fleet.api, NODES, name, change, kind=PatchKind.MERGE)
