"""What happens to a node that no longer reports, to one that reports again, and to the pods on both."""

import random

import pytest

from recovery.ports import NODES
from recovery.sim.api.client import ModelClient
from recovery.sim.controllers.node_lifecycle import NodeLifecycle
from recovery.sim.controllers.taint_eviction import TaintEviction
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeDeath, NodeSpec
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.cluster import Obedient
from tests.unit.sim.controllers.node_world import NodeWorld, at_work, running

SOON = 0.5


def node_writes(world: NodeWorld) -> int:
    return sum(change.actor == "node-controller" for change in world.changes)


@virtual_time
async def test_a_node_is_unknown_when_it_was_not_heard_for_50_s_and_not_before() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0")
        await world.beat_until(30, "node-0")
        await world.until_second(79)
        assert world.node_condition("node-0", "Ready")["status"] == "True"
        assert node_writes(world) == 0
        await world.until_second(81)
        ready = world.node_condition("node-0", "Ready")
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert ready["message"] == "Kubelet stopped posting node status."
        assert ready["lastHeartbeatTime"] == "2026-11-02T08:00:00Z"
        assert ready["lastTransitionTime"] == "2026-11-02T08:01:20Z"
        assert world.node_condition("node-0", "MemoryPressure")["status"] == "Unknown"
        assert world.node_condition("node-0", "DiskPressure")["reason"] == "NodeStatusNeverUpdated"
        assert world.taints() == ["unreachable:NoSchedule", "unreachable:NoExecute"]


@virtual_time
async def test_a_heartbeat_is_noticed_in_the_next_pass_of_5_s() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0")
        await world.until_second(11)
        world.beat()
        await world.until_second(64)
        assert world.node_condition("node-0", "Ready")["status"] == "True"
        await world.until_second(66)
        assert world.node_condition("node-0", "Ready")["status"] == "Unknown"


@virtual_time
async def test_the_grace_period_can_be_another() -> None:
    async with running(lambda *parts: NodeLifecycle(*parts, grace_seconds=20)) as world:
        world.add_node("node-0")
        await world.until_second(21)
        assert world.node_condition("node-0", "Ready")["status"] == "Unknown"


@virtual_time
async def test_pods_of_a_lost_node_are_marked_not_ready_and_left_as_they_are() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0")
        world.add_node("node-1")
        world.add_pod("ready", bound_to="node-0", phase="Running", ready=True)
        world.add_pod("unready", bound_to="node-0", phase="Running", ready=False)
        world.add_pod("elsewhere", bound_to="node-1", phase="Running", ready=True)
        untouched = world.pod("unready")
        await world.beat_until(60, "node-1")
        assert world.condition("ready", "Ready")["status"] == "False"
        assert world.pod("ready")["status"]["phase"] == "Running"
        assert world.condition("elsewhere", "Ready")["status"] == "True"
        assert world.pod("unready") is untouched


@virtual_time
async def test_a_node_that_is_back_loses_its_taints_the_first_at_once_the_second_in_the_next_pass() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0")
        await world.until_second(101)
        world.say("node-0", Ready="True", MemoryPressure="False")
        world.beat()
        await world.pass_seconds(SOON)
        assert world.taints() == ["unreachable:NoExecute"]
        await world.until_second(106)
        assert world.taints() == []
        await world.until_second(150)
        assert world.node_condition("node-0", "Ready")["status"] == "True"
        await world.until_second(156)
        assert world.node_condition("node-0", "Ready")["status"] == "Unknown"


@virtual_time
async def test_a_new_node_is_open_to_pods_as_soon_as_it_is_ready() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0", ready=False)
        assert world.taints() == ["not-ready:NoSchedule"]
        await world.pass_seconds(SOON)
        assert world.taints() == []


@pytest.mark.parametrize(
    ("said", "taints"),
    [
        ({"Ready": "False"}, ["not-ready:NoSchedule", "not-ready:NoExecute"]),
        ({"MemoryPressure": "True"}, ["memory-pressure:NoSchedule"]),
        ({"DiskPressure": "True"}, ["disk-pressure:NoSchedule"]),
    ],
)
def test_what_a_kubelet_complains_of_becomes_a_taint(said: dict[str, str], taints: list[str]) -> None:
    @virtual_time
    async def scenario() -> None:
        async with running(NodeLifecycle) as world:
            world.add_node("node-0")
            await world.until_second(21)
            world.say("node-0", **said)
            await world.pass_seconds(5)
            assert world.taints() == taints

    scenario()


@virtual_time
async def test_one_taint_gives_way_to_the_other_when_an_unready_node_falls_silent() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0")
        world.say("node-0", Ready="False")
        await world.until_second(30)
        assert world.taints() == ["not-ready:NoSchedule", "not-ready:NoExecute"]
        await world.until_second(60)
        assert world.taints() == ["unreachable:NoSchedule", "unreachable:NoExecute"]


@virtual_time
async def test_a_cordon_is_a_taint_too_and_taints_of_others_are_left_alone() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0", taints=({"key": "team", "effect": "NoExecute"},))
        world.cordon("node-0")
        await world.pass_seconds(SOON)
        assert world.taints() == ["team:NoExecute", "unschedulable:NoSchedule"]
        world.cordon("node-0", unschedulable=False)
        await world.pass_seconds(SOON)
        assert world.taints() == ["team:NoExecute"]


@virtual_time
async def test_of_nodes_lost_together_one_gets_its_noexecute_taint_each_10_s() -> None:
    async with running(NodeLifecycle) as world:
        for index in range(3):
            world.add_node(f"node-{index}")
        executed = []
        for second in (51, 61, 71):
            await world.until_second(second)
            executed.append(sum("unreachable:NoExecute" in world.taints(f"node-{index}") for index in range(3)))
        assert executed == [1, 2, 3]
        assert all("unreachable:NoSchedule" in world.taints(f"node-{index}") for index in range(3))


@virtual_time
async def test_a_controller_that_hung_judges_by_what_was_heard_meanwhile() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("alive")
        world.add_node("dead")
        world.controllers[0].stall(True)
        await world.beat_until(100, "alive")
        assert world.node_condition("dead", "Ready")["status"] == "True"
        world.controllers[0].stall(False)
        await world.pass_seconds(SOON)
        assert world.node_condition("dead", "Ready")["status"] == "Unknown"
        assert world.node_condition("alive", "Ready")["status"] == "True"


@virtual_time
async def test_a_node_that_is_gone_is_forgotten() -> None:
    async with running(NodeLifecycle) as world:
        world.add_node("node-0")
        await world.until_second(30)
        world.server.delete(NODES, "node-0")
        await world.until_second(100)
        assert node_writes(world) == 0


@virtual_time
async def test_pods_leave_when_their_toleration_runs_out() -> None:
    async with running(NodeLifecycle, TaintEviction) as world:
        world.add_node("node-0")
        world.add_pod("default", bound_to="node-0", phase="Running")
        patient = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        world.add_pod("short", bound_to="node-0", phase="Running", tolerations=[{**patient, "tolerationSeconds": 20}])
        world.add_pod("patient", bound_to="node-0", phase="Running", tolerations=[patient])
        names = ("short", "default", "patient")
        seen = {}
        for second in (69, 72, 349, 352, 4000):
            await world.until_second(second)
            seen[second] = [world.deleting(name) for name in names]
        assert seen == {
            69: [False, False, False],
            72: [True, False, False],
            349: [True, False, False],
            352: [True, True, False],
            4000: [True, True, False],
        }
        target = world.condition("default", "DisruptionTarget")
        assert (target["status"], target["reason"]) == ("True", "DeletionByTaintManager")
        assert target["message"] == "Taint manager: deleting due to NoExecute taint"
        assert world.pod("default")["status"]["phase"] == "Running"


@virtual_time
async def test_no_one_leaves_a_node_that_came_back_in_time_and_the_time_begins_again() -> None:
    async with running(NodeLifecycle, TaintEviction) as world:
        world.add_node("node-0")
        world.add_pod("p", bound_to="node-0", phase="Running")
        await world.until_second(340)
        world.say("node-0", Ready="True")
        await world.beat_until(400, "node-0")
        await world.until_second(740)
        assert world.taints() == ["unreachable:NoSchedule", "unreachable:NoExecute"]
        assert not world.deleting("p")
        await world.until_second(760)
        assert world.deleting("p")


@virtual_time
async def test_a_taint_that_is_not_tolerated_drives_pods_away_at_once_and_each_once() -> None:
    async with running(TaintEviction) as world:
        world.add_node("node-0")
        world.add_pod("p", bound_to="node-0", finalizers=("keep",), phase="Running")
        world.set_taints("node-0", {"key": "gpu-broken", "effect": "NoExecute"})
        await world.pass_seconds(SOON)
        assert world.deleting("p")
        made = len(world.changes)
        world.set_taints("node-0", {"key": "gpu-broken", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"})
        await world.pass_seconds(400)
        assert len(world.changes) == made + 1


@virtual_time
async def test_a_pod_that_is_bound_to_a_tainted_node_later_leaves_it_too() -> None:
    async with running(TaintEviction) as world:
        world.add_node("node-0", taints=({"key": "gpu-broken", "effect": "NoExecute"},))
        world.add_pod("p", bound_to="node-0", phase="Running")
        await world.pass_seconds(SOON)
        assert world.deleting("p")


@virtual_time
async def test_evictions_are_limited_to_20_requests_a_second_with_a_burst_of_30() -> None:
    """A read, a condition and a delete for each pod: 120 requests take 4.5 s."""
    async with running(TaintEviction) as world:
        world.add_node("node-0")
        for index in range(40):
            world.add_pod(f"p-{index}", bound_to="node-0", phase="Running")
        world.set_taints("node-0", {"key": "gpu-broken", "effect": "NoExecute"})
        deleting = []
        for _ in range(3):
            await world.pass_seconds(1.6)
            deleting.append(sum(world.deleting(f"p-{index}") for index in range(40)))
        assert 10 <= deleting[0] <= 20
        assert deleting[0] < deleting[1] <= 31
        assert deleting[2] == 40


@pytest.mark.parametrize("writes_leases", [True, False])
def test_a_dead_kubelet_is_found_out_whether_its_renewals_are_written_or_not(writes_leases: bool) -> None:
    """As measured on a real control plane: 47 to 52 s after the death, 55 at most."""

    @virtual_time
    async def scenario() -> None:
        async with running() as world:
            client = ModelClient(world.server, "kubelet")
            settings = KubeletSettings(writes_leases=writes_leases)
            kubelets = Kubelets(client, world.clock, random.Random(1), Obedient(deaf=False), settings)
            controller = NodeLifecycle(
                world.server,
                world.clock,
                random.Random(2),
                renewed_seconds=(lambda _: None) if writes_leases else kubelets.renewed_seconds,
            )
            for index in range(5):
                kubelets.add_node(NodeSpec(name=f"node-{index}"))
            async with at_work(kubelets, controller):
                await kubelets.nodes_ready()
                await world.until_second(1000)
                made = len(world.changes)
                kubelets.kill_node("node-3", NodeDeath.PARTITION)
                await world.until_second(1039)
                assert world.node_condition("node-3", "Ready")["status"] == "True"
                await world.until_second(1056)
                statuses = [world.node_condition(f"node-{index}", "Ready")["status"] for index in range(5)]
                assert statuses == ["True", "True", "True", "Unknown", "True"]
                writes = [change.resource.plural for change in world.changes[made:] if change.actor == "kubelet"]
                assert ("leases" in writes) is writes_leases
                kubelets.revive_node("node-3")
                await world.until_second(1200)
                assert world.node_condition("node-3", "Ready")["status"] == "True"
                assert world.taints("node-3") == []

    scenario()
