"""Where pods are placed, what is reported of those that fit nowhere, and when they are tried again."""

from typing import Any

import pytest

from recovery.ports import NODES, PODS, PatchKind
from recovery.sim.api.kinds.kind import ServedKind
from recovery.sim.controllers.node_fit import amounts_of, thousandths
from recovery.sim.controllers.scheduler import Scheduler
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.node_world import GPUS, NAMESPACE, NodeWorld, running

SOON = 0.5
"""Seconds that the scheduler needs at most for a few pods."""


def affinity(operator: str, *values: str) -> dict[str, Any]:
    """A required affinity to nodes by their label `pool`."""
    term = {"matchExpressions": [{"key": "pool", "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def why_not(world: NodeWorld, name: str) -> str:
    scheduled = world.condition(name, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    return str(scheduled["message"])


@virtual_time
async def test_a_pod_is_bound_to_a_node_that_has_what_it_asks_for() -> None:
    async with running(Scheduler) as world:
        world.add_node("node-0", gpus=4)
        world.add_node("node-1", gpus=8)
        world.add_pod("p", gpus=8)
        await world.pass_seconds(SOON)
        assert world.node_of("p") == "node-1"
        assert world.condition("p", "PodScheduled")["status"] == "True"
        assert world.changes[-1].actor == "kube-scheduler"


@virtual_time
async def test_the_node_with_the_largest_share_free_is_taken_and_of_equal_ones_the_first_by_name() -> None:
    async with running(Scheduler) as world:
        for index in (2, 0, 1):
            world.add_node(f"node-{index}")
        for index in range(4):
            world.add_pod(f"p-{index}", gpus=2)
        await world.pass_seconds(SOON)
        assert [world.node_of(f"p-{index}") for index in range(4)] == ["node-0", "node-1", "node-2", "node-0"]


@virtual_time
async def test_pods_come_in_the_order_in_which_they_were_made() -> None:
    async with running(Scheduler) as world:
        for name in ("first", "second", "third"):
            world.add_pod(name, gpus=8)
        await world.pass_seconds(SOON)
        world.add_node("node-0")
        await world.pass_seconds(2)
        assert [world.node_of(name) for name in ("first", "second", "third")] == ["node-0", "", ""]


@virtual_time
async def test_what_pods_took_is_free_again_when_they_have_ended_or_are_gone_and_not_while_they_terminate() -> None:
    async with running(Scheduler) as world:
        world.add_node("node-0")
        world.add_pod("ends", gpus=4)
        world.add_pod("goes", gpus=4)
        await world.pass_seconds(SOON)
        world.add_pod("next", gpus=4)
        world.add_pod("last", gpus=4)
        await world.pass_seconds(20)
        world.delete_pod("goes", grace_seconds=30)
        await world.pass_seconds(20)
        assert [world.node_of(name) for name in ("next", "last")] == ["", ""]
        world.set_status("ends", phase="Failed")
        await world.pass_seconds(SOON)
        assert [world.node_of(name) for name in ("next", "last")] == ["node-0", ""]
        world.delete_pod("goes", grace_seconds=0)
        await world.pass_seconds(11)
        assert world.node_of("last") == "node-0"


@virtual_time
async def test_the_message_counts_the_nodes_by_what_they_lack() -> None:
    async with running(Scheduler) as world:
        for index in range(8):
            world.add_node(f"full-{index}", gpus=4)
        for index in range(2):
            world.add_node(f"cordoned-{index}", unschedulable=True)
        world.add_pod("p", gpus=8)
        await world.pass_seconds(SOON)
        lacks = "2 node(s) were unschedulable, 8 Insufficient nvidia.com/gpu"
        assert why_not(world, "p") == f"0/10 nodes are available: {lacks}."


@virtual_time
async def test_every_reason_has_its_words() -> None:
    async with running(Scheduler) as world:
        world.add_node("tainted", taints=({"key": "gpu", "effect": "NoSchedule"},))
        world.add_node("elsewhere", labels={"pool": "b"})
        world.add_node("crowded", labels={"pool": "a"}, pods=0)
        world.add_node("small", labels={"pool": "a"}, gpus=1)
        world.add_pod("p", gpus=8, cpu="200", nodeSelector={"pool": "a"})
        await world.pass_seconds(SOON)
        assert why_not(world, "p") == (
            "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 1 Too many pods, 1 node(s) didn't match Pod's "
            "node affinity/selector, 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
        )


@virtual_time
async def test_without_nodes_the_message_says_that() -> None:
    async with running(Scheduler) as world:
        world.add_pod("p")
        await world.pass_seconds(SOON)
        assert why_not(world, "p") == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("taint", "toleration", "fits"),
    [
        ({"key": "a", "value": "x", "effect": "NoSchedule"}, {"key": "a", "value": "x", "effect": "NoSchedule"}, True),
        ({"key": "a", "value": "x", "effect": "NoSchedule"}, {"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "value": "x", "effect": "NoSchedule"}, {"operator": "Exists"}, True),
        ({"key": "a", "value": "x", "effect": "NoSchedule"}, {"key": "a", "value": "y"}, False),
        ({"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}, False),
        ({"key": "a", "effect": "NoExecute"}, {"key": "b", "operator": "Exists"}, False),
        ({"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "operator": "Exists"}, True),
    ],
)
def test_a_taint_keeps_pods_off_that_do_not_tolerate_it(
    taint: dict[str, str], toleration: dict[str, str], fits: bool
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with running(Scheduler) as world:
            world.add_node("node-0", taints=(taint,))
            world.add_pod("p", tolerations=[toleration])
            await world.pass_seconds(SOON)
            assert bool(world.node_of("p")) is fits

    scenario()


@pytest.mark.parametrize(
    ("term", "node"),
    [
        (affinity("In", "b", "c"), "node-b"),
        (affinity("NotIn", "a", "b"), "plain"),
        (affinity("Exists"), "node-a"),
        (affinity("DoesNotExist"), "plain"),
        (affinity("In", "z"), ""),
    ],
)
def test_required_node_affinity_is_kept_to(term: dict[str, Any], node: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with running(Scheduler) as world:
            world.add_node("plain")
            world.add_node("node-a", labels={"pool": "a"})
            world.add_node("node-b", labels={"pool": "b"})
            world.add_pod("p", affinity=term)
            await world.pass_seconds(SOON)
            assert world.node_of("p") == node

    scenario()


@virtual_time
async def test_a_gated_pod_waits_in_silence_until_its_last_gate_is_gone() -> None:
    # The real server allows only the removal of gates.
    async with running(Scheduler, kinds=(ServedKind(resource=PODS), ServedKind(resource=NODES))) as world:
        world.add_node("node-0")
        world.add_pod("p", schedulingGates=[{"name": "quota"}])
        await world.pass_seconds(400)
        assert (world.node_of("p"), world.condition("p", "PodScheduled")) == ("", {})
        world.server.patch(PODS, "p", {"spec": {"schedulingGates": None}}, kind=PatchKind.MERGE, namespace=NAMESPACE)
        await world.pass_seconds(SOON)
        assert world.node_of("p") == "node-0"


@pytest.mark.parametrize("fix", ["join", "uncordon", "untaint"])
def test_a_pod_that_fitted_nowhere_is_tried_again_when_a_node_it_fits_on_comes(fix: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with running(Scheduler) as world:
            world.add_node("cordoned", unschedulable=True)
            world.add_node("tainted", taints=({"key": "a", "effect": "NoSchedule"},))
            world.add_pod("p", gpus=8)
            await world.pass_seconds(100)
            match fix:
                case "join":
                    world.add_node("new")
                case "uncordon":
                    world.cordon("cordoned", unschedulable=False)
                case "untaint":
                    world.set_taints("tainted")
            await world.pass_seconds(SOON)
            assert world.node_of("p") == {"join": "new", "uncordon": "cordoned", "untaint": "tainted"}[fix]

    scenario()


@virtual_time
async def test_between_two_tries_it_backs_off() -> None:
    async with running(Scheduler) as world:
        world.add_pod("p", gpus=8)
        await world.pass_seconds(SOON)
        world.add_node("node-0")
        await world.pass_seconds(0.4)
        assert world.node_of("p") == ""
        await world.pass_seconds(SOON)
        assert world.node_of("p") == "node-0"


@virtual_time
async def test_waiting_costs_nothing_while_nothing_helps() -> None:
    async with running(Scheduler) as world:
        world.add_node("node-0", gpus=4)
        for index in range(8):
            world.add_pod(f"p-{index}", gpus=8)
        await world.pass_seconds(5)
        made = len(world.changes)
        for _ in range(100):
            world.cordon("node-0")
            world.cordon("node-0", unschedulable=False)
        await world.pass_seconds(3600)
        assert len(world.changes) == made + 200


@virtual_time
async def test_a_pod_deleted_before_its_turn_holds_up_no_one() -> None:
    async with running(Scheduler) as world:
        world.add_pod("p", gpus=8)
        world.add_pod("q", gpus=8)
        world.add_node("node-0")
        world.delete_pod("p")
        await world.pass_seconds(SOON)
        assert (world.gone("p"), world.node_of("q")) == (True, "node-0")


@virtual_time
async def test_what_was_there_before_the_scheduler_counts() -> None:
    async with running() as world:
        world.add_node("node-0")
        world.add_pod("bound", gpus=6, bound_to="node-0")
        world.add_pod("p", gpus=2)
        world.add_pod("q", gpus=2)
        async with running(lambda _, clock, entropy: Scheduler(world.server, clock, entropy)):
            await world.pass_seconds(SOON)
        assert [world.node_of(name) for name in ("p", "q")] == ["node-0", ""]


@virtual_time
async def test_a_node_made_again_under_its_name_still_carries_the_pods_bound_to_it() -> None:
    async with running(Scheduler) as world:
        world.add_node("node-0")
        world.add_pod("p", gpus=8)
        await world.pass_seconds(SOON)
        world.server.delete(NODES, "node-0")
        world.add_pod("q", gpus=8)
        await world.pass_seconds(5)
        world.add_node("node-0")
        await world.pass_seconds(11)
        assert world.node_of("q") == ""
        assert why_not(world, "q") == "no nodes available to schedule pods"


@virtual_time
async def test_requests_are_limited_to_50_a_second() -> None:
    async with running(Scheduler) as world:
        for index in range(40):
            world.add_node(f"node-{index}")
        for index in range(200):
            world.add_pod(f"p-{index}", gpus=1)
        await world.pass_seconds(1.6)
        bound = sum(bool(world.node_of(f"p-{index}")) for index in range(200))
        assert 100 < bound <= 180
        await world.pass_seconds(1.5)
        assert all(world.node_of(f"p-{index}") for index in range(200))


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [("8", 8000), ("500m", 500), ("1.5", 1500), ("2Ki", 2048 * 1000), ("1k", 10**6), (3, 3000), ("100u", 1)],
)
def test_quantities_are_counted_in_thousandths(quantity: str | int, amount: int) -> None:
    assert thousandths(quantity) == amount


def test_a_pod_asks_for_its_containers_together_or_for_its_largest_init_container() -> None:
    def container(gpus: str, cpu: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {GPUS: gpus, "cpu": cpu}}}

    spec = {"containers": [container("4", "1"), container("4", "1")], "initContainers": [container("0", "16")]}
    assert amounts_of(spec) == {GPUS: 8000, "cpu": 16000}


def test_native_sidecars_count_beside_the_containers_and_beside_the_init_containers_after_them() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = container("2", restartPolicy="Always")
    assert amounts_of({"containers": [container("4")], "initContainers": [sidecar]}) == {"cpu": 6000}
    assert amounts_of({"containers": [container("4")], "initContainers": [sidecar, container("8")]}) == {"cpu": 10000}
    assert amounts_of({"containers": [container("4")], "initContainers": [container("8"), sidecar]}) == {"cpu": 8000}
