"""A training of 16 nodes loses a rack of four, and has no other room. It continues with twelve, and grows back."""

import asyncio

import pytest

from recovery import api_verbs
from recovery.ports import JOBS, Propagation
from tests.cluster import elastic
from tests.cluster.acts import exit_rank, incidents_of, lose, set_room, succeed_once_replaced, until_said
from tests.cluster.api_proxy import ApiProxy, Matches, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.elastic import (
    AVOID_43,
    ELASTIC,
    ELASTIC_FOR_LONG,
    PREPARED,
    RACK,
    actions,
    labelled,
    room_for,
    runs_with,
    settings,
    shrunk,
    take_away,
)
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, until

pytestmark = pytest.mark.usefixtures("no_complaints", "component")


def dry_runs(proxy: ApiProxy) -> list[SeenRequest]:
    return proxy.writes(lambda seen: (seen.method, seen.resource) == ("POST", "jobs"))


@pytest.mark.central
async def test_a_rack_is_lost_and_comes_back(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    asked = (await job.get("trainjob", job.name))["spec"]["trainer"]["resourcesPerNode"]["limits"]
    assert asked == {"nvidia.com/gpu": 8}, "an integer: Trainer refuses each change of such a TrainJob's runtimePatches"
    world = fleet.world
    async with room_for(fleet, job), controller():
        rack = await shrunk(job)
        smaller = await elastic.child(job)
        assert smaller is not None
        [incident] = await incidents_of(job)
        assert actions(incident) == ["RecreateGroup", "Shrink"]
        assert (incident["outcome"], incident["ranks"]) == ("Recovered", 12)
        assert (await settings(job))["nodes"] == 12
        assert await labelled(job)
        assert await elastic.nodes_said(job) == {"12"}
        state = (await job.ledger())["elastic"]
        assert (state["nodes"], state["wantedNodes"]) == (12, 16)
        await job.trains(past=world.step_of(job.training))
        await set_room(fleet, rack, room=True)
        await runs_with(job, 16, since_uid=smaller["metadata"]["uid"])
        await job.closed_incidents(2)
        await job.trains(past=world.step_of(job.training))
    ledger = await job.ledger()
    assert "elastic" not in ledger
    assert "birthSettings" not in ledger
    await elastic.until_unlabelled(job)
    [_, growth] = await incidents_of(job)
    assert (growth["class"], actions(growth), growth.get("charged", False)) == ("Growth", ["Grow"], False)
    assert ledger["totals"]["charged"] == 1
    assert ledger["totals"]["gainedGpuSeconds"] == pytest.approx(ledger["totals"]["reducedSeconds"] * 96, abs=1)
    assert dry_runs(proxy), "the settings were tried before the restart"
    assert all("dryRun=All" in seen.query for seen in dry_runs(proxy))
    assert world.trace.overlaps(job.training) == []


async def test_room_that_comes_and_goes_is_not_used(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    """`growBackAfter` counts from when the room came last."""
    job = await training(runtime=PREPARED, **ELASTIC_FOR_LONG)
    seen: list[str] = []
    async with room_for(fleet, job), controller():
        rack = await shrunk(job)
        uid = await job.child_uid()
        for _ in range(3):
            await set_room(fleet, rack, room=True)
            seen.append(await elastic.until_room_is(True, job))
            await set_room(fleet, rack, room=False)
            await elastic.until_room_is(False, job)
        assert await job.child_uid() == uid
        assert len((await job.ledger())["history"]) == 1
    assert sorted(set(seen)) == seen, "it counts again each time"


async def test_whoever_restarts_a_smaller_group_gets_the_same_size(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    """Its user deletes the child Job. JobSet makes the next one without a controller: the API server's policy acts."""
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job):
        async with controller():
            await shrunk(job)
        uid = await job.child_uid()
        await api_verbs.delete(
            fleet.api, JOBS, job.child, namespace=job.namespace, propagation=Propagation.FOREGROUND, grace_seconds=1
        )
        await runs_with(job, 12, since_uid=uid)
        async with controller():
            await until("it has been reconciled", lambda: fleet.world.step_of(job.training) > 0)
            assert (await job.ledger())["elastic"]["nodes"] == 12


async def test_a_member_that_is_lost_meanwhile_brings_the_smaller_group_back(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job), controller():
        await shrunk(job)
        uid = await job.child_uid()
        await lose(job, 3, grace_seconds=1)
        await runs_with(job, 12, since_uid=uid)
        await job.closed_incidents(2)
        assert actions((await incidents_of(job))[-1]) == ["RecreateGroup"]


@pytest.mark.central
async def test_a_users_own_size_is_the_one_that_it_comes_back_with(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job), controller():
        await elastic.resize_child(job, 10)
        async with asyncio.timeout(GUARD_SECONDS):
            while len(await job.pods()) > 10:
                await asyncio.sleep(0.2)
        uid = await job.child_uid()
        await lose(job, 3, grace_seconds=1)
        await runs_with(job, 10, since_uid=uid)
        await job.closed_incidents(1)
        assert "elastic" not in await job.ledger()


async def test_below_the_smallest_size_it_waits_and_says_so(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job), controller():
        uid = await job.child_uid()
        gone = await take_away(job, range(6, 16))
        said = await until_said(job, "the smallest allowed size is 8")
        assert said["phase"] == "Scheduling"
        await set_room(fleet, gone[:3], room=True)
        await runs_with(job, 9, since_uid=uid)
        await job.closed_incidents(1)


async def test_without_the_component_the_group_waits_for_all_of_its_nodes(
    training: StartsTraining, controller: StartsController, fleet: Fleet, installed: ControlPlane
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    await elastic.remove_component(installed)
    try:
        async with room_for(fleet, job), controller():
            rack = await take_away(job, RACK)
            await until_said(job, "settings, so they are withdrawn")
            ledger = await job.ledger()
            assert "birthSettings" not in ledger
            assert ledger["incident"]["attempts"][-1]["action"] == "RecreateGroup"
            await set_room(fleet, rack, room=True)
            [closed] = await job.closed_incidents(1)
        assert closed["outcome"] == "Recovered"
    finally:
        await elastic.add_component(installed)


async def test_where_job_set_gives_jobs_their_size_back_the_group_waits_for_all_of_its_nodes(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, fleet: Fleet, installed: ControlPlane
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    async with installed.jobset_with(ElasticJobSet=True), room_for(fleet, job), controller():
        rack = await take_away(job, RACK)
        await until_said(job, "feature gate ElasticJobSet")
        assert "birthSettings" not in await job.ledger()
        deleted = [seen for seen in proxy.writes() if (seen.method, seen.resource) == ("DELETE", "jobs")]
        assert [seen.status for seen in deleted if seen.status == 200] == [200], "only the first restart"
        await set_room(fleet, rack, room=True)
        [closed] = await job.closed_incidents(1)
    assert (closed["outcome"], closed["attempts"]) == ("Recovered", 1)


async def test_a_smaller_group_whose_size_job_set_gives_back_is_whole_again(
    training: StartsTraining, controller: StartsController, fleet: Fleet, installed: ControlPlane
) -> None:
    """Someone enables the feature gate in the meantime. Torchrun refuses a rank beyond its number of nodes."""
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job), controller():
        rack = await shrunk(job)
        async with installed.jobset_with(ElasticJobSet=True):
            await set_room(fleet, rack, room=True)
            async with asyncio.timeout(GUARD_SECONDS):
                while ((await elastic.child(job)) or {"status": {}})["status"].get("ready") != 16:
                    await asyncio.sleep(0.1)
                while "elastic" in await job.ledger():
                    await asyncio.sleep(0.1)
            assert "birthSettings" not in await job.ledger()
            larger = await job.child_uid()
            await exit_rank(job, 15, 1)
            await runs_with(job, 16, since_uid=larger)


async def test_settings_that_make_the_job_invalid_are_withdrawn_before_anything_is_deleted(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, fleet: Fleet, installed: ControlPlane
) -> None:
    """A foreign admission policy requires 16 pods of every Job."""
    job = await training(runtime=PREPARED, **ELASTIC)
    async with elastic.only_sixteen(installed, job.namespace), room_for(fleet, job), controller():
        rack = await take_away(job, RACK)
        await until_said(job, "the API server refuses the Job with its new settings")
        deleted = [seen for seen in proxy.writes() if (seen.method, seen.resource) == ("DELETE", "jobs")]
        assert [seen.status for seen in deleted if seen.status == 200] == [200], "only the first restart"
        await set_room(fleet, rack, room=True)
        [closed] = await job.closed_incidents(1)
    assert closed["outcome"] == "Recovered"
    assert "birthSettings" not in await job.ledger()


async def test_settings_of_a_deleted_job_of_the_same_name_do_not_apply(
    training: StartsTraining, fleet: Fleet, installed: ControlPlane
) -> None:
    del installed
    job = await training(runtime=PREPARED, with_policy=False)
    uid = await job.child_uid()
    async with elastic.stale_group(job):
        await api_verbs.delete(
            fleet.api, JOBS, job.child, namespace=job.namespace, propagation=Propagation.FOREGROUND, grace_seconds=1
        )
        await runs_with(job, 16, since_uid=uid)


async def test_a_group_with_a_rank_that_has_succeeded_keeps_its_size(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    async with room_for(fleet, job), controller():
        uid = await job.child_uid()
        rack = await take_away(job, RACK)
        async with asyncio.timeout(GUARD_SECONDS):
            while (found := await elastic.child(job)) is None or found["metadata"]["uid"] == uid:
                await asyncio.sleep(0.1)
        await succeed_once_replaced(job, 0)
        await until_said(job, "pods of Job llm-node-0 have succeeded")
        await set_room(fleet, rack, room=True)


def proposes(seen: SeenRequest) -> bool:
    """The write that enters the settings into the ledger, before any decision that uses them."""
    ledger = (seen.method, seen.resource) == ("PATCH", "recoverygroups/status")
    return ledger and b'"nodes":12' in seen.body and b'"Shrink"' not in seen.body


def labels(seen: SeenRequest) -> bool:
    return (seen.method, seen.resource) == ("PATCH", "recoverygroups")


def tries(seen: SeenRequest) -> bool:
    return (seen.method, seen.resource) == ("POST", "jobs")


def enters_the_attempt(seen: SeenRequest) -> bool:
    return (seen.method, seen.resource) == ("PATCH", "recoverygroups/status") and b'"action":"Shrink"' in seen.body


@pytest.mark.central
@pytest.mark.parametrize(
    ("write", "after"),
    [(proposes, True), (labels, True), (tries, False), (enters_the_attempt, False), (enters_the_attempt, True)],
    ids=["settings-entered", "labelled", "before-the-dry-run", "before-the-attempt", "attempt-entered"],
)
async def test_a_controller_that_ends_at_a_write_of_the_shrink(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, fleet: Fleet, write: Matches, after: bool
) -> None:
    job = await training(runtime=PREPARED, **ELASTIC)
    uid = await job.child_uid()
    async with room_for(fleet, job):
        async with controller() as first:
            hold = proxy.hold(write, after=after)
            await take_away(job, RACK)
            await hold.wait()
            await first.kill()
            hold.withdraw()
        async with controller():
            await runs_with(job, 12, since_uid=uid)
            await job.closed_incidents(1)
    [incident] = await incidents_of(job)
    assert actions(incident) == ["RecreateGroup", "Shrink"]
    assert (await job.ledger())["totals"]["restarts"] == 2


@pytest.mark.central
async def test_a_suspect_node_is_avoided_by_its_group_alone(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, rules=[AVOID_43])
    suspect = await elastic.node_of_rank(job, 5)
    uid = await job.child_uid()
    async with controller():
        await exit_rank(job, 5, 43)
        await runs_with(job, 16, since_uid=uid)
        await job.closed_incidents(1)
    [incident] = await incidents_of(job)
    assert actions(incident) == ["AvoidNode"]
    assert suspect not in {pod["spec"]["nodeName"] for pod in await job.pods()}
    assert [each["node"] for each in (await job.ledger())["avoided"]] == [suspect]
    assert await elastic.takes_pods(fleet, suspect), "nobody else is kept off it"


async def test_a_node_that_the_group_needs_is_not_avoided(
    training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, rules=[AVOID_43])
    uid = await job.child_uid()
    async with room_for(fleet, job), controller():
        await exit_rank(job, 5, 43)
        await runs_with(job, 16, since_uid=uid)
        await job.closed_incidents(1)
    [incident] = await incidents_of(job)
    assert actions(incident) == ["RecreateGroup"]
    assert [each["reason"] for each in incident["alternatives"]] == ["NodeNotAvoided"]
