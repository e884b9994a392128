"""What a live read says about the fleet: nodes lost recently, and nodes where the group could run."""

import asyncio
import json
from datetime import timedelta

import pytest

from recovery.core.model.facts import FleetFacts
from recovery.kube.fleet_facts import LOST_FOR, rack_of
from recovery.kube.projections.nodes import decode_node
from recovery.ports import NODES, PODS
from tests.unit.kube.store_world import LLM, Body, World, job, listed, load, pod
from tests.unit.kube.testing import START, fixture

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def node(name: str, *, ready: str = "True", since_seconds: float = 0, labels: Body | None = None) -> Body:
    body = load("node")
    body["metadata"] |= {"name": name, "uid": f"uid-{name}", "labels": labels or {}}
    at = (START + timedelta(seconds=since_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body["status"]["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": at}]
    body["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    return body


async def fleet(world: World, *pods: Body) -> FleetFacts:
    world.api.objects |= {
        ("trainjobs", "llm"): fixture("trainjob"),
        ("jobsets", "llm"): fixture("jobset"),
        ("jobs", ""): listed("Job", job()),
        ("pods", ""): listed("Pod", *pods),
        ("events", ""): listed("Event"),
        ("nodes", "gpu-0001"): fixture("node"),
    }
    found = (await world.store.read_live(LLM)).fleet
    assert found is not None
    return found


def asks(pod: Body, **spec: object) -> Body:
    pod["spec"] |= spec
    return pod


async def lost(world: World) -> list[tuple[str, float, str]]:
    told = (await fleet(world, pod(0))).lost
    return [(each.name, (each.since - START).total_seconds(), each.rack) for each in told]


class TestLost:
    async def test_a_node_that_ceased_to_be_ready_and_one_that_disappeared(self, world: World) -> None:
        rack = {"topology.kubernetes.io/rack": "r1"}
        await world.tell(NODES, node("a", labels=rack), node("b"), node("c"))
        world.clock.seconds = 20
        await world.tell(NODES, node("b"), type_="DELETED")
        await world.tell(NODES, node("a", ready="Unknown", since_seconds=15, labels=rack))
        assert await lost(world) == [("a", 15, "r1"), ("b", 20, "")], "by time"
        assert (await fleet(world, pod(0))).nodes == 2

    async def test_the_loss_of_a_node_counts_after_the_node_is_back(self, world: World) -> None:
        """The losses that it caused may appear only now. A node that is lost again counts from then."""
        world.clock.seconds = 10
        await world.tell(NODES, node("a"), node("b"))
        await world.tell(NODES, node("a", ready="False"))
        await world.tell(NODES, node("b", ready="False", since_seconds=1))
        await world.tell(NODES, node("a", since_seconds=5))
        assert await lost(world) == [("a", 0, ""), ("b", 1, "")]
        await world.tell(NODES, node("a", ready="False", since_seconds=7))
        assert await lost(world) == [("b", 1, ""), ("a", 7, "")]
        world.clock.seconds = LOST_FOR.total_seconds() + 2
        await world.tell(NODES, node("c"))
        await world.tell(NODES, node("c"), type_="DELETED")
        assert list(world.store._fleet._lost._lost) == ["a", "c"], "nothing is left behind"

    async def test_after_a_quarter_of_an_hour_it_is_reported_no_more(self, world: World) -> None:
        await world.tell(NODES, node("a"), node("b"))
        await world.tell(NODES, node("a"), type_="DELETED")
        world.clock.seconds = LOST_FOR.total_seconds() - 1
        assert [name for name, _, _ in await lost(world)] == ["a"]
        world.clock.seconds += 1
        assert await lost(world) == []
        await world.tell(NODES, node("b"), type_="DELETED")
        assert list(world.store._fleet._lost._lost) == ["b"], "nothing is left behind"

    async def test_a_clock_that_is_ahead_is_no_loss_without_end(self, world: World) -> None:
        """Otherwise the loss would be part of every later storm, and would keep earlier losses from being forgotten."""
        await world.tell(NODES, node("a"), node("b"))
        world.clock.seconds = 20
        await world.tell(NODES, node("a", ready="False", since_seconds=86_400))
        assert await lost(world) == [("a", 20, "")]
        world.clock.seconds += LOST_FOR.total_seconds()
        assert await lost(world) == []
        await world.tell(NODES, node("b"), type_="DELETED")
        assert list(world.store._fleet._lost._lost) == ["b"], "nothing is left behind"

    async def test_a_node_that_goes_on_being_silent_is_lost_once(self, world: World) -> None:
        world.clock.seconds = 1
        await world.tell(NODES, node("a"))
        await world.tell(NODES, node("a", ready="Unknown", since_seconds=1))
        world.clock.seconds = 100
        await world.tell(NODES, node("a", ready="Unknown", since_seconds=1))
        await world.tell(NODES, node("a", ready="Unknown", since_seconds=1), type_="DELETED")
        assert await lost(world) == [("a", 1, "")]

    async def test_one_that_is_new_and_not_ready_yet_was_never_lost(self, world: World) -> None:
        """An autoscaler adds many nodes at once. That is no storm, even if they fail to come up."""
        await world.tell(NODES, node("new", ready="False"))
        await world.tell(NODES, node("new", ready="False"), type_="DELETED")
        assert await lost(world) == []

    async def test_one_that_was_not_ready_when_the_controller_began_counts_from_when_it_ceased(self) -> None:
        world = World()
        running = asyncio.create_task(world.store.run())
        await world.tell(NODES, node("late", ready="Unknown", since_seconds=-10))
        await world.tell(NODES, node("long ago", ready="Unknown", since_seconds=-3600))
        await world.end_lists(NODES)
        assert await lost(world) == [("late", -10, "")]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    @pytest.mark.parametrize(
        ("labels", "rack"),
        [
            ({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/rack": "r"}, "r"),
            ({"topology.k8s.aws/network-node-layer-3": "3", "topology.k8s.aws/network-node-layer-4": "4"}, "4"),
            ({"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"}, "s"),
            ({"topology.kubernetes.io/zone": "z", "cloud.google.com/gce-topology-block": "b"}, ""),
            ({"kubernetes.io/hostname": "h"}, ""),
        ],
    )
    def test_a_rack_is_the_smallest_thing_that_nodes_share_a_block_or_a_zone_is_none(
        self, labels: Body, rack: str
    ) -> None:
        body = node("a", labels=labels)
        assert rack_of(decode_node(json.dumps(body).encode()).value) == rack


class TestFeasible:
    async def test_only_nodes_that_would_take_its_pods(self, world: World) -> None:
        cordoned, tainted, evicting, soft, small = (node(each) for each in ("c", "t", "e", "soft", "small"))
        cordoned["spec"]["unschedulable"] = True
        tainted["spec"]["taints"] = [GPU_TAINT]
        evicting["spec"]["taints"] = [{"key": "x", "effect": "NoExecute"}]
        soft["spec"]["taints"] = [{"key": "x", "effect": "PreferNoSchedule"}]
        small["status"]["allocatable"] = {"nvidia.com/gpu": "4"}
        silent = node("silent", ready="Unknown")
        await world.tell(NODES, node("b"), node("a"), cordoned, tainted, evicting, soft, small, silent)
        assert (await fleet(world, pod(0))).feasible == ("a", "b", "soft")

    @pytest.mark.parametrize(
        ("toleration", "fits"),
        [
            ({"operator": "Exists"}, True),
            ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
            ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"}, True),
            ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
            ({"key": "nvidia.com/gpu", "value": "absent"}, False),
            ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"key": "amd.com/gpu", "operator": "Exists"}, False),
            ({"key": "nvidia.com/gpu", "operator": "Gt", "value": "present"}, False),
        ],
    )
    async def test_taints_that_it_tolerates(self, world: World, toleration: Body, fits: bool) -> None:
        tainted = node("a")
        tainted["spec"]["taints"] = [GPU_TAINT]
        await world.tell(NODES, tainted)
        found = await fleet(world, asks(pod(0), tolerations=[toleration]))
        assert found.feasible == (("a",) if fits else ())

    async def test_labels_that_it_selects(self, world: World) -> None:
        await world.tell(NODES, node("a", labels={"gpu": "h100", "x": "y"}), node("b", labels={"gpu": "a100"}))
        assert (await fleet(world, asks(pod(0), nodeSelector={"gpu": "h100"}))).feasible == ("a",)

    async def test_a_node_that_would_take_any_of_its_pods_is_feasible(self, world: World) -> None:
        """Exclusive placement binds the followers to the rack of their leader, but binds the leader to no rack."""
        await world.tell(NODES, node("a", labels={"rack": "1"}), node("b", labels={"rack": "2"}))
        leader, follower = pod(0), asks(pod(1), nodeSelector={"rack": "1"})
        assert (await fleet(world, follower)).feasible == ("a",)
        assert (await fleet(world, leader, follower)).feasible == ("a", "b")

    async def test_a_launcher_that_fits_anywhere_makes_no_place_for_its_workers(self, world: World) -> None:
        """Otherwise many CPU nodes for the launcher would allow a quarantine of the last node with accelerators."""
        cpu = node("cpu")
        cpu["status"]["allocatable"] = {}
        await world.tell(NODES, node("a"), cpu)
        launcher = asks(pod(1), containers=[{"name": "node"}])
        found = await fleet(world, pod(0), launcher)
        assert (found.feasible, found.with_accelerators, found.pods_per_node) == (("a", "cpu"), ("a",), 1)
        assert (await fleet(world, launcher)).with_accelerators is None

    async def test_pods_that_vanished_tell_where_it_could_run_as_well(self, world: World) -> None:
        await world.tell(NODES, node("a"))
        await world.tell(PODS, pod(0))
        assert (await fleet(world)).feasible == ("a",)

    async def test_how_many_of_its_pods_fit_on_the_smallest_of_them(self, world: World) -> None:
        large = node("b")
        large["status"]["allocatable"] = {"nvidia.com/gpu": "32"}
        await world.tell(NODES, large)
        assert (await fleet(world, pod(0))).pods_per_node == 4
        await world.tell(NODES, node("a"))
        assert (await fleet(world, pod(0))).pods_per_node == 1

    async def test_of_pods_without_gpus_as_many_as_share_one_now(self, world: World) -> None:
        pods = [asks(pod(index), containers=[{"name": "node"}]) for index in range(3)]
        await world.tell(NODES, node("gpu-0001"))
        assert (await fleet(world, *pods)).pods_per_node == 3
        del pods[0]["spec"]["nodeName"], pods[1]["spec"]["nodeName"]
        assert (await fleet(world, *pods)).pods_per_node == 1

    async def test_where_none_would_do_there_is_none(self, world: World) -> None:
        found = await fleet(world, pod(0))
        assert (found.nodes, found.feasible, found.pods_per_node) == (0, (), 1)
