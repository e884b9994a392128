"""Which pods are force-deleted, when, and what is written to their status first."""

from typing import Any

from recovery.ports import NODES
from recovery.sim.controllers.pod_garbage import PodGarbage
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.node_world import NodeWorld, running

OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


def lose(world: NodeWorld, node: str) -> None:
    world.say(node, Ready="Unknown")


@virtual_time
async def test_pods_of_a_node_that_is_gone_are_deleted_after_a_quarantine_of_two_passes() -> None:
    async with running(PodGarbage) as world:
        world.add_node("node-0")
        world.add_pod("p", bound_to="node-0", phase="Running")
        await world.until_second(25)
        world.server.delete(NODES, "node-0")
        await world.until_second(79)
        assert not world.gone("p")
        await world.until_second(81)
        assert world.gone("p")
        last = world.last_state("p")
        assert last["status"]["phase"] == "Failed"
        (target,) = last["status"]["conditions"]
        assert (target["type"], target["reason"]) == ("DisruptionTarget", "DeletionByPodGC")
        assert target["message"] == "PodGC: node no longer exists"
        assert {change.actor for change in world.changes if change.before is not None and change.body is last} == {
            "pod-garbage-collector"
        }


@virtual_time
async def test_a_node_that_comes_back_under_its_name_in_time_keeps_its_pods() -> None:
    async with running(PodGarbage) as world:
        world.add_node("node-0")
        world.add_pod("p", bound_to="node-0", phase="Running")
        world.server.delete(NODES, "node-0")
        await world.until_second(50)
        world.add_node("node-0")
        await world.until_second(300)
        assert not world.gone("p")
        world.server.delete(NODES, "node-0")
        await world.until_second(350)
        assert not world.gone("p")
        await world.until_second(361)
        assert world.gone("p")


@virtual_time
async def test_a_finished_pod_of_a_node_that_is_gone_goes_as_it_was() -> None:
    async with running(PodGarbage) as world:
        world.add_pod("p", bound_to="node-0", phase="Succeeded")
        await world.until_second(100)
        assert world.gone("p")
        assert world.last_state("p")["status"]["phase"] == "Succeeded"


@virtual_time
async def test_pods_that_terminate_on_a_node_out_of_service_are_deleted_in_the_next_pass() -> None:
    async with running(PodGarbage) as world:
        world.add_node("node-0")
        for name in ("terminating", "running"):
            world.add_pod(name, bound_to="node-0", phase="Running")
        lose(world, "node-0")
        world.delete_pod("terminating", grace_seconds=30)
        await world.until_second(1000)
        assert not world.gone("terminating")
        world.set_taints("node-0", OUT_OF_SERVICE)
        await world.until_second(1021)
        assert world.gone("terminating")
        last = world.last_state("terminating")["status"]
        assert (last["phase"], last.get("conditions")) == ("Failed", None)
        assert not world.gone("running")
        world.delete_pod("running", grace_seconds=30)
        await world.until_second(1041)
        assert world.gone("running")


@virtual_time
async def test_a_node_out_of_service_that_is_ready_keeps_its_pods() -> None:
    async with running(PodGarbage) as world:
        world.add_node("node-0", taints=(OUT_OF_SERVICE,))
        world.add_pod("p", bound_to="node-0", phase="Running")
        world.delete_pod("p", grace_seconds=30)
        await world.until_second(300)
        assert not world.gone("p")


@virtual_time
async def test_a_pod_that_terminates_unbound_fails_and_then_waits_for_its_finalizers_only() -> None:
    async with running(PodGarbage) as world:
        world.add_pod("p", finalizers=("batch.kubernetes.io/job-tracking",))
        world.delete_pod("p")
        await world.until_second(21)
        assert world.pod("p")["status"]["phase"] == "Failed"
        made = len(world.changes)
        await world.until_second(7200)
        assert len(world.changes) == made


@virtual_time
async def test_a_name_used_again_meanwhile_is_left_alone() -> None:
    async with running(PodGarbage) as world:
        world.add_pod("p", bound_to="gone-node", phase="Running")
        await world.until_second(30)
        world.delete_pod("p", grace_seconds=0)
        world.add_node("node-0")
        world.add_pod("p", bound_to="node-0", phase="Running")
        await world.until_second(300)
        assert world.pod("p")["status"]["phase"] == "Running"


@virtual_time
async def test_deletions_are_limited_to_20_requests_a_second_with_a_burst_of_30() -> None:
    async with running(PodGarbage) as world:
        for index in range(40):
            world.add_pod(f"p-{index}", bound_to="gone-node", phase="Running")

        def gone() -> int:
            return sum(world.gone(f"p-{index}") for index in range(40))

        seen: dict[Any, int] = {}
        for second in (59.9, 60.2, 62, 63):
            await world.until_second(second)
            seen[second] = gone()
        assert seen[59.9] == 0
        assert 15 <= seen[60.2] <= 20
        assert seen[60.2] < seen[62] < 40
        assert seen[63] == 40


@virtual_time
async def test_what_was_there_before_the_collector_is_collected_too() -> None:
    async with running() as world:
        world.add_pod("orphan", bound_to="gone-node", phase="Running")
        world.add_pod("unbound", finalizers=("keep",))
        world.delete_pod("unbound")
        async with running(lambda _, clock, entropy: PodGarbage(world.server, clock, entropy)):
            await world.until_second(100)
        assert world.gone("orphan")
        assert world.pod("unbound")["status"]["phase"] == "Failed"
