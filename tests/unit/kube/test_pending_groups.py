"""The groups that wait for nodes: which they are, what they need, and what it costs to know."""

import json
from typing import Any

import pytest

from recovery.core.model.facts import GroupKey, WaitingGroup
from recovery.kube.pending_groups import PodsToPlace
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS
from tests.unit.kube.store_world import LLM, Body, World, bare, job, listed, load, pod, replicated
from tests.unit.kube.test_fleet_facts import asks, node
from tests.unit.kube.testing import fixture

MINE = GroupKey("default", "mine")


async def waiting(world: World) -> tuple[WaitingGroup, ...]:
    """The waiting groups that a decision about another group, `mine`, sees."""
    world.api.objects |= {("pods", ""): listed("Pod"), ("jobs", ""): listed("Job"), ("events", ""): listed("Event")}
    for plural in ("trainjobs", "jobsets"):
        body = load(plural.removesuffix("s"))
        body["metadata"] |= {"name": "mine", "uid": f"{plural}-mine"}
        world.api.objects[plural, "mine"] = json.dumps(body).encode()
    fleet = (await world.store.read_live(MINE)).fleet
    assert fleet is not None
    assert fleet.waiting is not None
    return fleet.waiting


def unplaced(index: int, **labels: str) -> Body:
    body = pod(index, state="pod_pending", **labels)
    body["spec"].pop("nodeName", None)
    return body


def placed(index: int) -> Body:
    return pod(index)


def leaving(index: int) -> Body:
    return pod(index, state="pod_deleting")


async def tell_llm(world: World, *pods: Body, members: int = 2, **changes: Body) -> None:
    """Send the group llm with these pods, and the nodes n0 to n4."""
    await world.tell(NODES, *(node(f"n{number}") for number in range(5)))
    await world.tell(TRAIN_JOBS, changes.get("train_job", load("trainjob")))
    await world.tell(JOB_SETS, changes.get("jobset", load("jobset")))
    await world.tell(JOBS, changes.get("job", job(members=members)))
    await world.tell(PODS, *pods)


def failed_and_leaving(index: int) -> Body:
    body = pod(index, state="pod_failed_disrupted")
    body["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    return body


def changed(body: Body, section: str, **fields: Any) -> Body:
    body.setdefault(section, {}).update(fields)
    return body


ALL = ("n0", "n1", "n2", "n3", "n4")


class TestWho:
    async def test_a_group_with_a_pod_that_has_no_node(self, world: World) -> None:
        await tell_llm(world, placed(0), unplaced(1))
        assert await waiting(world) == (WaitingGroup(LLM, 2, ALL, frozenset({"gpu-0001"})),), (
            "its member that has a node counts as well"
        )

    async def test_a_group_with_a_pod_that_is_on_its_way_out(self, world: World) -> None:
        await tell_llm(world, placed(0), leaving(1))
        assert [(each.key, each.needed) for each in await waiting(world)] == [(LLM, 2)]

    async def test_a_group_that_is_whole_does_not_wait(self, world: World) -> None:
        await tell_llm(world, placed(0), placed(1))
        assert await waiting(world) == ()

    async def test_the_group_that_is_decided_about_is_not_among_the_others(self, world: World) -> None:
        await tell_llm(world, unplaced(0), unplaced(1))
        world.api.objects |= {
            ("trainjobs", "llm"): fixture("trainjob"),
            ("jobsets", "llm"): fixture("jobset"),
            ("jobs", ""): listed("Job", job()),
            ("pods", ""): listed("Pod", unplaced(0), unplaced(1)),
        }
        fleet = (await world.store.read_live(LLM)).fleet
        assert fleet is not None
        assert fleet.waiting == ()

    async def test_a_job_set_that_nothing_controls_is_a_group_too(self, world: World) -> None:
        await tell_llm(world, unplaced(0), unplaced(1))
        await world.tell(TRAIN_JOBS, load("trainjob"), type_="DELETED")
        await world.tell(JOB_SETS, bare())
        assert [each.key for each in await waiting(world)] == [LLM]

    async def test_pods_of_no_workload_are_no_group(self, world: World) -> None:
        await tell_llm(world, unplaced(0), unplaced(1))
        await world.tell(TRAIN_JOBS, load("trainjob"), type_="DELETED")
        assert await waiting(world) == ()

    async def test_nor_are_those_of_a_job_set_of_someone_else(self, world: World) -> None:
        await tell_llm(world, unplaced(0), unplaced(1), jobset=bare())
        assert await waiting(world) == ()

    async def test_initializers_wait_for_no_node_of_the_group(self, world: World) -> None:
        name = "dataset-initializer"
        await tell_llm(world, unplaced(0, replicatedjob_name=name))
        await world.tell(JOBS, job(name=f"llm-{name}-0", uid="first", replicated_job=name, members=1))
        assert await waiting(world) == ()

    @pytest.mark.parametrize(
        "changes",
        [
            {"train_job": changed(load("trainjob"), "spec", suspend=True)},
            {"jobset": changed(load("jobset"), "spec", suspend=True)},
            {"job": changed(job(), "spec", suspend=True)},
            {"train_job": changed(load("trainjob"), "status", conditions=[{"type": "Complete", "status": "True"}])},
            {"train_job": changed(load("trainjob"), "status", conditions=[{"type": "Failed", "status": "True"}])},
            {"jobset": changed(load("jobset"), "status", terminalState="Failed")},
            {"job": changed(job(), "status", conditions=[{"type": "SuccessCriteriaMet", "status": "True"}])},
            {"train_job": changed(load("trainjob"), "metadata", deletionTimestamp="2026-11-21T10:00:00Z")},
            {"jobset": changed(load("jobset"), "metadata", deletionTimestamp="2026-11-21T10:00:00Z")},
        ],
    )
    async def test_what_is_suspended_finished_or_deleted_waits_for_nothing(
        self, world: World, changes: dict[str, Body]
    ) -> None:
        await tell_llm(world, unplaced(0), unplaced(1), members=2, **changes)
        assert await waiting(world) == ()


class TestWhat:
    async def test_it_needs_as_many_nodes_as_its_members_fill(self, world: World) -> None:
        large = [node(f"n{number}") for number in range(5)]
        for each in large:
            each["status"]["allocatable"] = {"nvidia.com/gpu": "16"}
        await tell_llm(world, unplaced(0), members=5)
        await world.tell(NODES, *large)
        assert [each.needed for each in await waiting(world)] == [3], "two of its pods share a node, five need three"

    async def test_a_launcher_that_fits_anywhere_makes_no_place_for_its_workers(self, world: World) -> None:
        cpu = node("cpu")
        cpu["status"]["allocatable"] = {}
        await world.tell(NODES, cpu)
        await tell_llm(world, unplaced(0), asks(unplaced(1), containers=[{"name": "node"}]))
        [group] = await waiting(world)
        assert group.feasible == ("n0", "n1", "n2", "n3", "n4")

    async def test_only_nodes_that_take_its_pods_are_feasible(self, world: World) -> None:
        h100 = {"key": "gpu", "operator": "In", "values": ["h100"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [h100]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        await tell_llm(world, asks(unplaced(0), affinity=affinity), members=1)
        await world.tell(NODES, node("n1", labels={"gpu": "h100"}), node("n2", labels={"gpu": "a100"}))
        assert [each.feasible for each in await waiting(world)] == [("n1",)]

    async def test_one_that_waits_for_more_nodes_than_there_are_is_not_told_of(self, world: World) -> None:
        """Otherwise anyone could keep all nodes from quarantine by asking for more nodes than the cluster has."""
        await tell_llm(world, unplaced(0), members=6)
        assert await waiting(world) == ()

    async def test_but_one_that_would_run_if_all_nodes_were_well_is(self, world: World) -> None:
        await tell_llm(world, unplaced(0), members=5)
        await world.tell(NODES, node("n3", ready="False"))
        assert [(each.needed, each.feasible) for each in await waiting(world)] == [(5, ("n0", "n1", "n2", "n4"))]

    async def test_only_the_replicated_jobs_whose_pods_wait_count(self, world: World) -> None:
        jobset = load("jobset")
        jobset["spec"]["replicatedJobs"] = replicated("node", "worker")
        await tell_llm(world, unplaced(0, replicatedjob_name="worker"), members=3, jobset=jobset)
        await world.tell(JOBS, job(name="llm-worker-0", uid="w", replicated_job="worker", members=1))
        assert [each.needed for each in await waiting(world)] == [1]


class TestIndex:
    async def test_of_many_pods_alike_there_is_one_entry_and_none_once_all_have_their_places(
        self, world: World
    ) -> None:
        await world.tell(PODS, *(unplaced(index) for index in range(40)))
        [(key, asking)] = world.store._objects.to_place.groups()
        assert (key, len(asking)) == (LLM, 1)
        await world.tell(PODS, *(placed(index) for index in range(39)))
        assert [key for key, _ in world.store._objects.to_place.groups()] == [LLM]
        await world.tell(PODS, unplaced(39), type_="DELETED")
        assert world.store._objects.to_place._counts == {}, "nothing is left behind"

    @pytest.mark.parametrize(
        ("then", "waits"),
        [(placed(0), False), (leaving(0), True), (failed_and_leaving(0), False), (unplaced(0), True)],
    )
    async def test_a_pod_that_changes(self, world: World, then: Body, waits: bool) -> None:
        await world.tell(PODS, unplaced(0))
        await world.tell(PODS, then)
        assert bool(world.store._objects.to_place._counts) is waits

    async def test_a_pod_event_asks_nothing_about_nodes_or_other_pods(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Constant work for each event: it touches only the counts of the pod's old and new demand."""
        await tell_llm(world, *(unplaced(index) for index in range(20)))
        touched: list[int] = []
        told = PodsToPlace.changed

        def counting(index: PodsToPlace, *args: Any) -> None:
            before = sum(len(counts) for counts in index._counts.values())
            told(index, *args)
            touched.append(abs(sum(len(counts) for counts in index._counts.values()) - before))

        monkeypatch.setattr(PodsToPlace, "changed", counting)
        monkeypatch.setattr("recovery.kube.capacity.Capacity.room", None)
        await world.tell(PODS, *(placed(index) for index in range(20)))
        assert len(touched) == 20, "one change for each event"
        assert sum(touched) == 1, "the last pod that is placed takes the one entry with it"
