"""Objects that cannot be read, in the caches and in a live read: which group each of them restrains."""

import json
from typing import Any

import pytest

from recovery.core.model.facts import GroupKey, Snapshot
from recovery.ports import (
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ForbiddenError,
    NotFoundError,
    Resource,
    UndecodableError,
)
from tests.unit.kube.store_world import ALL, LLM, Body, World, config, job, listed, load, names, pod
from tests.unit.kube.testing import fixture

BROKEN: dict[str, dict[str, Any]] = {
    "trainjobs": {"spec": {"suspend": "no"}},
    "jobsets": {"status": {"restarts": "many"}},
    "jobs": {"status": {"active": "all"}},
    "pods": {"status": {"phase": 3}},
    "nodes": {"spec": {"unschedulable": "perhaps"}},
}
GOOD = {"trainjobs": load("trainjob"), "jobsets": load("jobset"), "jobs": job(), "pods": pod(0), "nodes": load("node")}
OF_A_GROUP = (TRAIN_JOBS, JOB_SETS, JOBS, PODS)


def good(resource: Resource) -> Body:
    body: Body = json.loads(json.dumps(GOOD[resource.plural]))
    return body


def broken(resource: Resource) -> Body:
    """The object with one field of another type."""
    body = good(resource)
    for part, change in BROKEN[resource.plural].items():
        body[part] = body.get(part, {}) | change
    return body


def sentences(snapshot: Snapshot) -> list[str]:
    return [each.sentence for each in snapshot.undecodable]


@pytest.fixture
async def seen(world: World) -> World:
    """The store has read all objects of the group."""
    await world.tell(PODS, pod(0), pod(1))
    await world.tell(NODES, load("node"))
    return world


class TestCache:
    @pytest.mark.parametrize("resource", OF_A_GROUP, ids=lambda each: each.plural)
    async def test_the_group_is_told_and_knows_the_object_and_the_field(self, seen: World, resource: Resource) -> None:
        before = seen.llm
        notified = await seen.tell(resource, broken(resource))
        assert notified == {"default/llm": notified["default/llm"]}
        assert notified["default/llm"] >= 1
        ((kind, problem),) = ((each.kind, each.problem) for each in seen.llm.undecodable)
        assert kind == resource.kind
        field = next(iter(next(iter(BROKEN[resource.plural].values()))))
        assert problem.endswith(f".{field}`")
        now = seen.llm
        assert (now.workload, now.jobset, now.jobs, now.pods) == (
            before.workload,
            before.jobset,
            before.jobs,
            before.pods,
        )
        assert seen.store.undecodable()[resource.plural] == 1

    @pytest.mark.parametrize("resource", OF_A_GROUP, ids=lambda each: each.plural)
    async def test_it_is_over_when_the_object_can_be_read_or_is_gone(self, seen: World, resource: Resource) -> None:
        for type_, body in (("MODIFIED", good(resource)), ("DELETED", broken(resource))):
            await seen.tell(resource, broken(resource))
            assert len(seen.llm.undecodable) == 1
            assert (await seen.tell(resource, body, type_=type_))["default/llm"] >= 1
            assert not seen.llm.undecodable
            assert seen.store.undecodable()[resource.plural] == 0

    async def test_a_pod_that_was_never_read_is_no_member_and_restrains_its_group(self, world: World) -> None:
        assert (await world.tell(PODS, broken(PODS))) == {"default/llm": 1}
        assert names(world.llm) == []
        assert sentences(world.llm) == [
            "Pod default/llm-node-0-0 cannot be read: Expected `str`, got `int` - at `$.status.phase`"
        ]

    async def test_other_groups_are_not_told(self, seen: World) -> None:
        await seen.tell(PODS, broken(PODS))
        assert seen.store.snapshot(GroupKey("default", "another")).undecodable == ()
        assert seen.store.snapshot(GroupKey("elsewhere", "llm")).undecodable == ()

    async def test_one_that_belongs_to_no_one_is_counted_and_restrains_no_one(self, seen: World) -> None:
        lost = broken(PODS)
        lost["metadata"] |= {"name": "stray", "uid": "stray", "labels": None}
        assert await seen.tell(PODS, lost, type_="ADDED") == {}
        assert seen.llm.undecodable == ()
        assert seen.store.undecodable()["pods"] == 1

    async def test_one_whose_labels_cannot_be_read_any_more_belongs_where_it_did(self, seen: World) -> None:
        lost = broken(PODS)
        lost["metadata"]["labels"] = None
        assert await seen.tell(PODS, lost) == {"default/llm": 1}
        assert [each.name for each in seen.llm.undecodable] == ["llm-node-0-0"]
        assert await seen.tell(PODS, good(PODS)) == {"default/llm": 1}
        assert seen.llm.undecodable == ()

    async def test_several_are_named_in_order(self, seen: World) -> None:
        second = broken(PODS)
        second["metadata"] |= {"name": "llm-node-0-1", "uid": "uid-llm-node-0-1"}
        await seen.tell(PODS, second, broken(PODS))
        await seen.tell(JOBS, broken(JOBS))
        assert [(each.kind, each.name) for each in seen.llm.undecodable] == [
            ("Job", "llm-node-0"),
            ("Pod", "llm-node-0-0"),
            ("Pod", "llm-node-0-1"),
        ]

    async def test_all_are_counted_by_resource(self, seen: World) -> None:
        assert seen.store.undecodable() == {resource.plural: 0 for resource in ALL}
        policy = load("recoverypolicy")
        policy["spec"]["mode"] = "Automatic"
        damaged = load("recoverygroup")
        damaged["status"]["phase"] = "Levitating"
        await seen.tell(RECOVERY_POLICIES, policy)
        await seen.tell(RECOVERY_GROUPS, damaged)
        await seen.tell(RECOVERY_CONFIGS, config(paused="perhaps"))
        await seen.tell(NODES, broken(NODES))
        counts = {resource: count for resource, count in seen.store.undecodable().items() if count}
        assert counts == {"recoverypolicies": 1, "recoverygroups": 1, "recoveryconfigs": 1, "nodes": 1}


class TestLedgers:
    async def test_one_that_does_not_say_whose_it_is_is_given_by_its_metadata(self, seen: World) -> None:
        nameless = load("recoverygroup")
        del nameless["spec"]["workloadRef"]
        await seen.tell(RECOVERY_GROUPS, nameless)
        [found] = seen.store.unidentified_ledgers()
        assert (found.namespace, found.name) == (nameless["metadata"]["namespace"], nameless["metadata"]["name"])
        assert "workloadRef" in found.problem
        await seen.tell(RECOVERY_GROUPS, load("recoverygroup"))
        assert seen.store.unidentified_ledgers() == ()

    async def test_one_whose_status_alone_is_damaged_says_whose_it_is(self, seen: World) -> None:
        damaged = load("recoverygroup")
        damaged["status"]["phase"] = "Levitating"
        await seen.tell(RECOVERY_GROUPS, damaged)
        assert seen.store.unidentified_ledgers() == ()
        assert [each.readable for each in seen.store.ledger_objects()] == [False]


class TestNodes:
    """A node that cannot be read restrains no group. Nothing is known about it."""

    async def test_it_is_neither_there_nor_gone(self, seen: World) -> None:
        assert set(seen.llm.nodes) == {"gpu-0001"}
        assert await seen.tell(NODES, broken(NODES)) == {"default/llm": 1}
        snapshot = seen.llm
        assert (dict(snapshot.nodes), snapshot.gone_nodes, snapshot.undecodable) == ({}, frozenset(), ())
        assert set(seen.store.nodes()) == {"gpu-0001"}, "as it was last, for those who look at all nodes"

    async def test_nor_is_one_that_was_never_read(self, world: World) -> None:
        await world.tell(PODS, pod(0))
        assert world.llm.gone_nodes == {"gpu-0001"}
        await world.tell(NODES, broken(NODES))
        assert world.llm.gone_nodes == frozenset()

    async def test_what_was_known_of_it_proves_no_one_dead(self, seen: World) -> None:
        """Its taint may be gone, and its pods may run."""
        out_of_service = load("node")
        out_of_service["spec"]["taints"] = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
        await seen.tell(NODES, out_of_service)
        await seen.tell(NODES, broken(NODES))
        serve(seen)
        seen.api.objects["nodes", "gpu-0001"] = json.dumps(broken(NODES)).encode()
        for snapshot in (seen.llm, await seen.store.read_live(LLM)):
            assert (dict(snapshot.nodes), snapshot.gone_nodes) == ({}, frozenset())

    async def test_a_live_reading_that_can_read_it_knows_it(self, seen: World) -> None:
        await seen.tell(NODES, broken(NODES))
        serve(seen)
        assert set((await seen.store.read_live(LLM)).nodes) == {"gpu-0001"}

    async def test_by_itself_it_is_an_error_with_its_name(self, seen: World) -> None:
        seen.api.objects["nodes", "gpu-0001"] = json.dumps(broken(NODES)).encode()
        with pytest.raises(UndecodableError, match=r"Node gpu-0001 cannot be read: .*unschedulable"):
            await seen.store.read_node_live("gpu-0001")

    async def test_a_lease_that_cannot_be_read_leaves_its_node_unknown(self, world: World) -> None:
        serve(world)
        silent = load("node")
        silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        world.api.objects["nodes", "gpu-0001"] = json.dumps(silent).encode()
        world.api.objects["leases", "gpu-0001"] = b'{"spec": {"renewTime": "yesterday"}}'
        snapshot = await world.store.read_live(LLM)
        assert (dict(snapshot.nodes), snapshot.gone_nodes) == ({}, frozenset())


def serve(world: World, *changed: Resource) -> None:
    """Serve the group of two pods from the API server, with the objects of these resources broken."""
    bodies = {each: broken(each) if each in changed else good(each) for each in OF_A_GROUP}
    world.api.objects |= {
        ("trainjobs", "llm"): json.dumps(bodies[TRAIN_JOBS]).encode(),
        ("jobsets", "llm"): json.dumps(bodies[JOB_SETS]).encode(),
        ("jobs", ""): listed("Job", bodies[JOBS]),
        ("pods", ""): listed("Pod", bodies[PODS], pod(1)),
        ("nodes", "gpu-0001"): fixture("node"),
    }


class TestLive:
    @pytest.mark.parametrize("resource", OF_A_GROUP, ids=lambda each: each.plural)
    async def test_it_is_named_and_its_last_readable_state_is_there(self, seen: World, resource: Resource) -> None:
        serve(seen)
        before = await seen.store.read_live(LLM)
        serve(seen, resource)
        live = await seen.store.read_live(LLM)
        assert [each.kind for each in live.undecodable] == [resource.kind]
        assert live.workload is not None
        assert (live.jobset is None, len(live.jobs), len(live.pods)) == (False, 1, 2)
        assert [each.gone_at for each in live.pods] == [None, None], "it is no pod that vanished"
        assert names(live) == names(before)

    @pytest.mark.parametrize("resource", OF_A_GROUP, ids=lambda each: each.plural)
    async def test_without_one_it_is_not_among_the_facts(self, resource: Resource) -> None:
        world = World()
        serve(world, resource)
        live = await world.store.read_live(LLM)
        assert [each.kind for each in live.undecodable] == [resource.kind]
        assert (live.workload is None) == (resource is TRAIN_JOBS)
        assert (live.jobset is None) == (resource in (JOB_SETS,))

    async def test_an_object_of_the_same_name_that_was_recreated_has_no_state(self, seen: World) -> None:
        serve(seen, PODS)
        recreated = broken(PODS)
        recreated["metadata"]["uid"] = "another"
        seen.api.objects["pods", ""] = listed("Pod", recreated, pod(1))
        live = await seen.store.read_live(LLM)
        assert [(each.name, each.gone_at is None) for each in live.pods] == [
            ("llm-node-0-0", False),
            ("llm-node-0-1", True),
        ]

    async def test_an_event_that_cannot_be_read_says_nothing(self, world: World) -> None:
        serve(world)
        world.api.objects["pods", ""] = listed("Pod")
        told = {"message": "exceeded quota", "lastTimestamp": "2026-11-21T09:00:00Z"}
        newer = {"message": "no", "lastTimestamp": "2026-11-21T09:00:01"}
        world.api.objects["events", ""] = listed("Event", told, newer)
        assert [each.failed_create for each in (await world.store.read_live(LLM)).jobs] == ["exceeded quota"]
        world.api.objects["events", ""] = ForbiddenError("no")
        assert [each.failed_create for each in (await world.store.read_live(LLM)).jobs] == [""]

    async def test_a_ledger_is_an_error_with_its_name(self, world: World) -> None:
        body = load("recoverygroup")
        body["spec"] = {"workloadRef": 1}
        world.api.objects["recoverygroups", body["metadata"]["name"]] = json.dumps(body).encode()
        with pytest.raises(
            UndecodableError, match=r"RecoveryGroup default/llm-.* cannot be read: .*\$\.spec\.workloadRef"
        ):
            await world.store.read_ledger_live(LLM, body["metadata"]["name"].removeprefix("llm-"))
        world.api.objects["recoverygroups", "llm-x"] = NotFoundError("none")
        assert await world.store.read_ledger_live(LLM, "x") is None
