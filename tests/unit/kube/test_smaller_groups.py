"""What a group learns that runs with fewer nodes than it should: where there is room, and when there may be."""

import asyncio
import json
from typing import Any

import pytest

from recovery.core.model.annotations import SPARE_LABEL
from recovery.core.model.facts import GroupKey, Room
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.kube.node_uses import IN_FLIGHT_MAX, NODES_LOOKED_AT_MAX
from recovery.ports import (
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_GROUPS,
    TRAIN_JOBS,
    ApiError,
    ApiRequest,
    ForbiddenError,
    TryLaterError,
)
from tests.unit.kube.store_world import LLM, WORKLOAD_UID, Body, World, job, ledger, listed, load, pod
from tests.unit.kube.test_fleet_facts import node
from tests.unit.kube.test_pending_groups import unplaced
from tests.unit.kube.testing import fixture

BEFORE = "2026-11-21T09:00:00Z"
ELASTIC = {"nodes": 2, "wantedNodes": 4, "since": "2026-11-21T09:00:00Z"}


def smaller(**status: Any) -> Body:
    """The ledger of llm, which has two of its four nodes."""
    body = ledger(WORKLOAD_UID)
    body["status"] = {"schemaVersion": SCHEMA_VERSION, "elastic": ELASTIC} | status
    return body


def others_pod(name: str, *, gpus: int = 8, phase: str = "Running") -> Body:
    """A pod of no group. The API server lists it only for a query about the pods of its node."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    metadata = {"name": name, "namespace": "serving", "uid": name, "resourceVersion": "7"}
    metadata |= {"creationTimestamp": "2026-11-21T09:00:00Z"}
    spec = {"nodeName": "any", "containers": [{"name": "server", "resources": resources}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


class Nodes:
    """The pods on each node, as the API server lists them. Those of llm are on `n0` and `n1`."""

    def __init__(self, world: World) -> None:
        self.pods: dict[str, list[Body] | ApiError] = {}
        self.asked: list[str] = []
        self.in_flight = self.most_in_flight = 0
        self._answer = world.api.answer
        world.api.objects |= {
            ("trainjobs", "llm"): fixture("trainjob"),
            ("jobsets", "llm"): fixture("jobset"),
            ("jobs", ""): listed("Job", job()),
            ("pods", ""): listed("Pod", *members()),
            ("events", ""): listed("Event"),
        }

    async def answer(self, request: ApiRequest) -> bytes:
        selector = request.parameter("fieldSelector")
        if request.resource != PODS or not selector:
            return await self._answer(request)
        name, *ended = selector.removeprefix("spec.nodeName=").split(",")
        assert (request.namespace, ended) == (None, ["status.phase!=Succeeded", "status.phase!=Failed"])
        self.asked.append(name)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        for _ in range(3):
            await asyncio.sleep(0)
        self.in_flight -= 1
        found = self.pods.get(name, [])
        if isinstance(found, ApiError):
            raise found
        return listed("Pod", *found)


def members() -> list[Body]:
    """llm's two pods, on a node each."""
    pods = [pod(0), pod(1)]
    for number, each in enumerate(pods):
        each["spec"]["nodeName"] = f"n{number}"
    return pods


@pytest.fixture
async def nodes(world: World, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """llm runs on n0 and n1. n2 and n3 are free."""
    nodes = Nodes(world)
    monkeypatch.setattr(world.api, "answer", nodes.answer)
    await world.tell(NODES, *(node(f"n{number}") for number in range(4)))
    await world.tell(PODS, *members())
    return nodes


def cached(world: World) -> Room | None:
    fleet = world.llm.fleet
    assert fleet is not None
    return fleet.room


async def live(world: World) -> Room | None:
    fleet = (await world.store.read_live(LLM)).fleet
    assert fleet is not None
    return fleet.room


BOTH = Room(2, ("n2", "n3"))


class TestFromTheCache:
    async def test_a_smaller_group_is_told_where_there_is_room(self, world: World, nodes: Nodes) -> None:
        assert world.llm.fleet is None
        await world.tell(RECOVERY_GROUPS, smaller())
        assert cached(world) == BOTH
        fleet = world.llm.fleet
        assert fleet is not None
        assert (fleet.nodes, fleet.feasible, fleet.waiting) == (4, ("n0", "n1", "n2", "n3"), ())
        assert nodes.asked == []

    @pytest.mark.parametrize(
        "status",
        [
            {"elastic": None},
            {"schemaVersion": SCHEMA_VERSION + 1},
            {"incident": json.loads(fixture("recoverygroup-resuming"))["status"]["incident"], "phase": "Resuming"},
        ],
    )
    async def test_no_other_is_and_none_in_an_incident(
        self, world: World, nodes: Nodes, status: dict[str, Any]
    ) -> None:
        """An incident is decided on live facts."""
        await world.tell(RECOVERY_GROUPS, smaller(**status))
        found = world.store.ledger_object(LLM, WORKLOAD_UID)
        assert found is not None
        assert (found.ledger.incident is not None) == ("incident" in status), "the ledger is one that can be read"
        assert world.llm.fleet is None
        assert await live(world) == BOTH
        assert nodes.asked == []

    async def test_nor_is_another_job_of_that_name(self, world: World, nodes: Nodes) -> None:
        body = ledger("earlier")
        body["status"] = smaller()["status"]
        await world.tell(RECOVERY_GROUPS, body)
        assert world.llm.fleet is None

    async def test_pods_that_come_and_go_take_room_and_leave_it(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        another = pod(0, name="another", jobset_name="another")
        another["spec"]["nodeName"] = "n2"
        await world.tell(PODS, another)
        assert cached(world) == Room(1, ("n3",))
        another["status"]["phase"] = "Failed"
        await world.tell(PODS, another)
        assert cached(world) == BOTH
        another["metadata"] |= {"name": "follows", "uid": "follows"}
        another["status"]["phase"] = "Running"
        await world.tell(PODS, another)
        assert cached(world) == Room(1, ("n3",))
        await world.tell(PODS, another, type_="DELETED")
        assert cached(world) == BOTH
        assert world.store._objects.in_use.by_node() == {"n0": 8, "n1": 8}

    async def test_a_group_that_waits_keeps_what_it_needs(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        waiting = {"name": "other", "uid": "other"}
        for resource, body in (("trainjobs", load("trainjob")), ("jobsets", load("jobset"))):
            body["metadata"] |= waiting
            if resource == "jobsets":
                body["metadata"]["ownerReferences"][0]["uid"] = "other"
            world.version += 1
            body["metadata"]["resourceVersion"] = str(world.version)
            world.api.feeds[resource].put_nowait(json.dumps({"type": "ADDED", "object": body}).encode())
        theirs = job(name="other-node-0", uid="theirs", members=1)
        theirs["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "other"
        world.version += 1
        theirs["metadata"]["resourceVersion"] = str(world.version)
        world.api.feeds["jobs"].put_nowait(json.dumps({"type": "ADDED", "object": theirs}).encode())
        waits = unplaced(0, jobset_name="other")
        waits["metadata"] |= {"name": "other-0", "uid": "other-0"}
        waits["metadata"]["ownerReferences"][0]["uid"] = "theirs"
        await world.tell(PODS, waits)
        assert cached(world) == Room(1, ("n3",), reserved=1)

    async def test_while_it_is_not_known_who_waits_there_is_no_answer(
        self, world: World, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        monkeypatch.setattr("recovery.kube.pending_groups.WaitingGroups.besides", lambda *_: None)
        assert cached(world) is None
        monkeypatch.undo()


class TestLive:
    async def test_pods_that_no_informer_knows_fill_a_node(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        nodes.pods["n2"] = [others_pod("server")]
        nodes.pods["n3"] = [others_pod("waits", gpus=0)]
        assert await live(world) == Room(1, ("n3",))
        assert nodes.asked == ["n2", "n3"], "not those that its own pods fill"

    async def test_what_they_hold_is_remembered_so_that_the_cache_tells_the_same(
        self, world: World, nodes: Nodes
    ) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        nodes.pods["n2"] = [others_pod("server")]
        await live(world)
        assert cached(world) == Room(1, ("n3",))
        await live(world)
        assert nodes.asked == ["n2", "n3", "n3"], "nor is it asked again"
        world.clock.seconds += 300
        assert cached(world) == BOTH

    async def test_a_pod_of_a_group_that_the_watch_has_not_told_of_yet(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        another = pod(0, name="another", jobset_name="another")
        another["spec"]["nodeName"] = "n2"
        nodes.pods["n2"] = [another]
        assert await live(world) == Room(1, ("n3",))
        assert cached(world) == BOTH, "the watch is about to tell of it, and of its end"

    @pytest.mark.parametrize("refused", [ForbiddenError("cannot list pods"), TryLaterError("busy")])
    async def test_a_node_that_cannot_be_looked_at_counts_as_full(
        self, world: World, nodes: Nodes, refused: ApiError
    ) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        nodes.pods["n2"] = refused
        assert await live(world) == Room(1, ("n3",))

    async def test_one_with_a_pod_that_cannot_be_read_as_well(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        broken = others_pod("broken")
        broken["spec"]["containers"] = "none"
        nodes.pods["n3"] = [broken]
        assert await live(world) == Room(1, ("n2",))

    async def test_few_are_asked_about_and_few_at_a_time(self, world: World, nodes: Nodes) -> None:
        """The nodes with the most room come first. The others follow once these are known to be full."""
        large = node("large")
        large["status"]["allocatable"] = {"nvidia.com/gpu": "16"}
        many = [node(f"m{number:02}") for number in range(NODES_LOOKED_AT_MAX)]
        await world.tell(NODES, *many, large)
        await world.tell(RECOVERY_GROUPS, smaller())
        nodes.pods = {f"n{number}": [others_pod(f"on-{number}")] for number in (2, 3)}
        found = await live(world)
        assert found is not None
        assert (len(nodes.asked), nodes.asked[0]) == (NODES_LOOKED_AT_MAX, "large")
        assert 1 < nodes.most_in_flight <= IN_FLIGHT_MAX
        assert set(found.nodes) == {*nodes.asked} - {*nodes.pods}
        first = {*nodes.asked}
        nodes.asked.clear()
        await live(world)
        assert {*nodes.asked} - first, "those that were full make place for others"

    async def test_the_room_for_a_larger_group_names_the_spare_nodes(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        await world.tell(NODES, node("n3", labels={SPARE_LABEL: "yes"}))
        assert await live(world) == Room(2, ("n2", "n3"), ("n3",))

    async def test_where_there_is_no_room_nothing_is_asked(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        await world.tell(NODES, *(node(f"n{number}", ready="False") for number in (2, 3)))
        assert await live(world) == Room(0)
        assert nodes.asked == []

    async def test_a_node_that_goes_while_it_is_looked_at_makes_no_room(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        reading = asyncio.create_task(world.store.read_live(LLM))
        while not nodes.in_flight:
            await asyncio.sleep(0)
        await world.tell(NODES, node("n2"), type_="DELETED")
        fleet = (await reading).fleet
        assert fleet is not None
        assert fleet.room == Room(1, ("n3",))


class Several:
    """Two groups that look for the same nodes."""

    OTHER = GroupKey("default", "other")

    @pytest.fixture(autouse=True)
    async def other(self, world: World, nodes: Nodes) -> None:
        """Another group with two of its four nodes, on n4 and n5."""
        await world.tell(NODES, node("n4"), node("n5"))
        train_job, jobset = load("trainjob"), load("jobset")
        train_job["metadata"] |= {"name": "other", "uid": "other"}
        jobset["metadata"] |= {"name": "other", "uid": "others"}
        jobset["metadata"]["ownerReferences"][0] |= {"name": "other", "uid": "other"}
        theirs = job(name="other-node-0", uid="theirs")
        theirs["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "other"
        theirs["metadata"]["ownerReferences"][0] |= {"name": "other", "uid": "others"}
        await world.tell(TRAIN_JOBS, load("trainjob"), train_job)
        await world.tell(JOB_SETS, load("jobset"), jobset)
        await world.tell(JOBS, job(), theirs)
        await world.tell(PODS, *self.pods())
        body = ledger("other")
        body["metadata"]["name"] = "other-other"
        body["spec"] |= {"workloadRef": {"kind": "TrainJob", "name": "other", "uid": "other"}, "group": "other"}
        body["status"] = smaller()["status"]
        await world.tell(RECOVERY_GROUPS, body)

    def pods(self) -> list[Body]:
        pods = [pod(number, name=f"other-{number}", job_uid="theirs", jobset_name="other") for number in range(2)]
        for number, each in enumerate(pods):
            each["spec"]["nodeName"] = f"n{number + 4}"
        return pods

    def seen_by_other(self, world: World) -> Room | None:
        fleet = world.store.snapshot(self.OTHER).fleet
        assert fleet is not None
        return fleet.room


class TestOfSeveral(Several):
    """Each of these groups would restart for the same nodes."""

    async def test_what_one_may_be_about_to_take_the_others_do_not_count_on(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        assert self.seen_by_other(world) == BOTH
        assert await live(world) == BOTH
        assert self.seen_by_other(world) == Room(0, reserved=2)
        assert cached(world) == BOTH, "it may use it itself"
        world.clock.seconds += 30
        assert self.seen_by_other(world) == BOTH, "it has not"

    async def test_no_more_of_it_than_it_lacks(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller(elastic=ELASTIC | {"wantedNodes": 3}))
        await live(world)
        assert self.seen_by_other(world) == Room(1, ("n3",), reserved=1)

    async def test_while_it_is_taken_down_to_grow_its_ledger_tells_what_it_will_take(
        self, world: World, nodes: Nodes
    ) -> None:
        opened = json.loads(fixture("recoverygroup-resuming"))["status"]["incident"]
        growing = smaller(incident=opened, phase="Resuming", elastic=ELASTIC | {"nodes": 4})
        await world.tell(RECOVERY_GROUPS, growing)
        assert self.seen_by_other(world) == BOTH
        leaving = members()[0]
        leaving["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
        await world.tell(PODS, leaving)
        assert self.seen_by_other(world) == Room(0, reserved=2)


class TestReleasedGroups(Several):
    """Two groups of two members each were released. Three nodes are free."""

    async def release(self, world: World, *, llm: Body, other: Body, other_waits_until: str = BEFORE) -> None:
        await world.tell(PODS, *members(), type_="DELETED")
        world.api.objects["pods", ""] = listed("Pod")
        await world.tell(PODS, *self.pods(), type_="DELETED")
        await world.tell(NODES, *(node(f"n{number}", ready="False") for number in (0, 1, 2)))
        incident = json.loads(fixture("recoverygroup-resuming"))["status"]["incident"]
        for name, uid, released, until in (
            ("llm", WORKLOAD_UID, llm, BEFORE),
            ("other", "other", other, other_waits_until),
        ):
            body = ledger(uid, name=name)
            body["spec"] |= {"workloadRef": {"kind": "TrainJob", "name": name, "uid": uid}, "group": name}
            waits = {"released": {"since": BEFORE} | released, "suspension": {"until": until, "forRoom": True}}
            waits |= {"step": {"type": "Restarting"}}
            body["status"] = {"schemaVersion": SCHEMA_VERSION, "phase": "Backoff", "incident": incident | waits}
            await world.tell(RECOVERY_GROUPS, body)

    @pytest.mark.parametrize(
        ("ours", "theirs", "first"),
        [
            ({"priority": 1}, {}, True),
            ({}, {"priority": 1}, False),
            ({"since": "2026-11-21T08:00:00Z"}, {}, True),
            ({}, {"since": "2026-11-21T08:00:00Z"}, False),
            ({"since": "2026-11-21T08:00:00Z"}, {"priority": 1}, False),
        ],
    )
    async def test_the_first_in_turn_gets_the_room(
        self, ours: Body, theirs: Body, first: bool, world: World, nodes: Nodes
    ) -> None:
        await self.release(world, llm=ours, other=theirs)
        world.notified.clear()
        room = await live(world)
        assert room is not None
        assert room.pods == (3 if first else 1)
        assert world.notified == ({} if first else {"default/other": 1}), "who comes first asks at once"

    async def test_a_group_that_has_to_wait_longer_keeps_no_room(self, world: World, nodes: Nodes) -> None:
        await self.release(world, llm={}, other={"priority": 1}, other_waits_until="2036-11-21T09:00:00Z")
        room = await live(world)
        assert room is not None
        assert room.pods == 3

    async def test_a_group_with_an_object_that_cannot_be_read_keeps_no_room(self, world: World, nodes: Nodes) -> None:
        await self.release(world, llm={}, other={"priority": 1})
        broken = job(name="other-node-0", uid="theirs", members=2)
        broken["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "other"
        broken["metadata"]["ownerReferences"][0] |= {"name": "other", "uid": "others"}
        broken["spec"]["parallelism"] = "many"
        await world.tell(JOBS, broken)
        room = await live(world)
        assert room is not None
        assert room.pods == 3

    async def test_a_group_that_does_not_fit_keeps_no_room(self, world: World, nodes: Nodes) -> None:
        theirs = job(name="other-node-0", uid="theirs", members=4)
        theirs["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "other"
        theirs["metadata"]["ownerReferences"][0] |= {"name": "other", "uid": "others"}
        await world.tell(JOBS, theirs)
        await self.release(world, llm={}, other={"priority": 1})
        room = await live(world)
        assert room is not None
        assert room.pods == 3


class TestNews:
    async def test_a_node_that_comes_back_is_told_to_those_alone_who_look_for_room(
        self, world: World, nodes: Nodes
    ) -> None:
        assert await world.tell(NODES, node("n2", ready="False")) == {}
        await world.tell(RECOVERY_GROUPS, smaller())
        assert await world.tell(NODES, node("n2")) == {"default/llm": 1}
        assert await world.tell(NODES, node("n3"), type_="DELETED") == {"default/llm": 1}

    async def test_news_that_decide_nothing_are_no_news(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        news = node("n2")
        news["status"]["conditions"].append({"type": "GpuUnhealthy", "status": "True"})
        assert await world.tell(NODES, news) == {}

    async def test_accelerators_that_become_free_are_told_once_however_many(self, world: World, nodes: Nodes) -> None:
        others = [pod(number, name=f"other-{number}", jobset_name="other") for number in range(20)]
        for each in others:
            each["spec"]["nodeName"] = "n2"
        await world.tell(PODS, *others)
        await world.tell(RECOVERY_GROUPS, smaller())
        for each in others:
            each["status"]["phase"] = "Failed"
        world.clock.slept.clear()
        told = await world.tell(PODS, *others)
        assert told["default/other"] == 20
        # A pause of one second follows each time, and this test's clock does not wait.
        assert 1 <= told["default/llm"] <= 1 + len(world.clock.slept)
        assert {*world.clock.slept} == {1.0}

    async def test_events_before_the_pause_is_over_are_told_together(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        over = asyncio.Event()
        sleep = world.clock.sleep

        async def paused(seconds: float) -> None:
            await over.wait()
            await sleep(seconds)

        world.clock.sleep = paused  # type: ignore[method-assign]
        assert await world.tell(NODES, node("n2", ready="False")) == {"default/llm": 1}
        for ready in ("True", "False", "True"):
            assert await world.tell(NODES, node("n2", ready=ready)) == {}
        over.set()
        await world.settle()
        assert world.notified == {"default/llm": 1}
        await world.settle()
        assert world.notified == {"default/llm": 1}, "and nothing is told without a reason"

    async def test_without_a_smaller_group_no_one_wakes(self, world: World, nodes: Nodes) -> None:
        """Constant work for each event: a look at an empty collection."""
        await world.tell(RECOVERY_GROUPS, smaller())
        await world.tell(RECOVERY_GROUPS, smaller(elastic=None))
        world.clock.slept.clear()
        await world.tell(NODES, *(node(f"n{number}", ready="False") for number in range(4)))
        await world.tell(PODS, *members(), type_="DELETED")
        assert world.clock.slept == []
        assert not world.store._room_news._changed.is_set()

    async def test_groups_whose_ledger_is_gone_leave_nothing(self, world: World, nodes: Nodes) -> None:
        await world.tell(RECOVERY_GROUPS, smaller())
        assert list(world.store._ledgers.seeking()) == [LLM]
        await world.tell(RECOVERY_GROUPS, smaller(), type_="DELETED")
        assert list(world.store._ledgers.seeking()) == []
