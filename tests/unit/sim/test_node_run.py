"""Nodes: what they register, how they send heartbeats, and what is left of them when they die."""

import asyncio
from datetime import datetime

import pytest

from recovery import api_verbs
from recovery.ports import NODES, PODS
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeDeath, NodeSpec
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.cluster import QUICK, Cluster, Obedient, obedient_cluster


def renewed_at(c: Cluster[Obedient], node: str) -> datetime:
    lease = c.api.of("leases", node)
    assert lease
    return datetime.fromisoformat(lease["spec"]["renewTime"])


@virtual_time
async def test_a_node_registers_with_its_gpus_ready_and_leased() -> None:
    async with obedient_cluster(nodes=0) as c:
        c.kubelets.add_node(NodeSpec(name="gpu-7", gpus=4, labels={"zone": "a"}))
        await c.kubelets.nodes_ready()
        node, lease = c.api.of("nodes", "gpu-7"), c.api.of("leases", "gpu-7")
        assert node
        assert lease
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        assert node["status"]["capacity"] == node["status"]["allocatable"]
        assert node["metadata"]["labels"]["zone"] == "a"
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "gpu-7"
        ready = next(condition for condition in node["status"]["conditions"] if condition["type"] == "Ready")
        assert ready["status"] == "True"
        assert lease["metadata"]["namespace"] == "kube-node-lease"
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


@virtual_time
async def test_a_node_is_ready_when_the_control_plane_has_taken_off_its_taint() -> None:
    async with obedient_cluster(nodes=0) as c:
        c.api.put(NODES, {"metadata": {"name": "new"}, "spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}})
        c.kubelets.add_node(NodeSpec(name="new"))
        waiting = asyncio.create_task(c.kubelets.nodes_ready())
        await c.pass_seconds(10)
        assert not waiting.done()
        c.api.change(NODES, "new", spec={"taints": None})
        await c.pass_seconds(1)
        assert waiting.done()


@virtual_time
async def test_leases_are_renewed_all_the_time_and_node_status_seldom() -> None:
    async with obedient_cluster(KubeletSettings(lease_seconds=10, node_status_seconds=300), nodes=3) as c:
        await c.pass_seconds(610)
        renewals = c.api.writes_of("patch", "leases")
        assert 180 <= len(renewals) <= 190
        assert len(c.api.writes_of("patch", "nodes")) == 6


@virtual_time
async def test_beats_of_nodes_that_start_together_are_spread() -> None:
    async with obedient_cluster(nodes=50) as c:
        await c.pass_seconds(20)
        seconds = {renewed_at(c, f"node-{index}").second % 10 for index in range(50)}
        assert len(seconds) == 10


@virtual_time
async def test_a_node_that_is_already_there_is_taken_over() -> None:
    async with obedient_cluster(nodes=0) as c:
        c.api.put(NODES, {"metadata": {"name": "old"}, "status": {"conditions": []}})
        c.kubelets.add_node(NodeSpec(name="old"))
        await c.kubelets.nodes_ready()
        node = c.api.of("nodes", "old")
        assert node
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"


@virtual_time
async def test_a_removed_node_takes_its_objects_and_processes_along() -> None:
    async with obedient_cluster(nodes=2) as c:
        await c.bind("p", node="node-0", restart_policy="OnFailure")
        await c.pass_seconds(1)
        await c.kubelets.remove_node("node-0")
        assert c.api.of("nodes", "node-0") is None
        assert c.api.of("leases", "node-0") is None
        assert c.workload.running == []
        await c.pass_seconds(60)
        assert c.phase("p") == "Running"
        assert c.api.of("leases", "node-0") is None
        with pytest.raises(LookupError):
            c.kubelets.kill_node("node-0", NodeDeath.POWER_LOSS)


@pytest.mark.parametrize(("how", "processes_left"), [(NodeDeath.POWER_LOSS, 0), (NodeDeath.PARTITION, 2)])
def test_a_dead_kubelet_leaves_all_objects_as_they_were(how: NodeDeath, processes_left: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with obedient_cluster(nodes=2) as c:
            for name in ("p", "q"):
                await c.bind(name, node="node-0", restart_policy="OnFailure")
            await c.pass_seconds(30)
            killed_at = c.clock.now()
            c.kubelets.kill_node("node-0", how)
            writes = len(c.api.writes_of("patch", "pods"))
            await api_verbs.delete(c.api, PODS, "q", namespace="default")
            await c.bind("late", node="node-0")
            await c.pass_seconds(600)
            assert len(c.workload.running) == processes_left
            assert renewed_at(c, "node-0") <= killed_at < renewed_at(c, "node-1")
            assert len(c.api.writes_of("patch", "pods")) == writes
            assert [c.phase(name) for name in ("p", "q", "late")] == ["Running", "Running", "Pending"]

    scenario()


@virtual_time
async def test_a_node_back_from_a_power_loss_restarts_what_is_left() -> None:
    async with obedient_cluster() as c:
        await c.bind("on-failure", restart_policy="OnFailure")
        await c.bind("never", restart_policy="Never")
        await c.bind("deleted", restart_policy="OnFailure")
        await c.pass_seconds(30)
        c.kubelets.kill_node("node-0", NodeDeath.POWER_LOSS)
        await c.pass_seconds(10)
        await api_verbs.delete(c.api, PODS, "deleted", namespace="default")
        await c.bind("late")
        await c.pass_seconds(100)
        c.kubelets.revive_node("node-0")
        await c.pass_seconds(1)
        assert (c.phase("on-failure"), c.container("on-failure")["restartCount"]) == ("Running", 1)
        assert c.container("on-failure")["lastState"]["terminated"]["exitCode"] == 255
        assert (c.phase("never"), c.container("never")["state"]["terminated"]["exitCode"]) == ("Failed", 255)
        assert c.gone("deleted")
        assert c.phase("late") == "Running"
        assert c.workload.started == 5


@virtual_time
async def test_a_partitioned_node_acts_on_what_it_missed_when_it_is_back() -> None:
    async with obedient_cluster() as c:
        for name in ("kept", "deleted", "forced"):
            await c.bind(name)
        await c.pass_seconds(30)
        c.kubelets.kill_node("node-0", NodeDeath.PARTITION)
        await api_verbs.delete(c.api, PODS, "deleted", namespace="default")
        await api_verbs.delete(c.api, PODS, "forced", namespace="default", grace_seconds=0)
        await c.pass_seconds(100)
        assert len(c.workload.running) == 3
        c.kubelets.revive_node("node-0")
        await c.pass_seconds(2.5)
        assert [process.pod.name for process in c.workload.running] == ["kept"]
        assert c.gone("deleted")
        assert (c.clock.now() - renewed_at(c, "node-0")).total_seconds() < 5


@virtual_time
async def test_a_node_that_is_back_takes_back_what_others_said_of_its_pods() -> None:
    async with obedient_cluster() as c:
        await c.bind("p")
        await c.pass_seconds(1)
        c.kubelets.kill_node("node-0", NodeDeath.PARTITION)
        conditions = [{**each, "status": "False"} for each in c.status("p")["conditions"]]
        c.api.change(PODS, "p", subresource="status", status={"conditions": conditions})  # as node lifecycle does
        await c.pass_seconds(60)
        c.kubelets.revive_node("node-0")
        await c.pass_seconds(1)
        assert c.condition("p", "Ready")["status"] == "True"
        assert c.container("p")["restartCount"] == 0


@virtual_time
async def test_a_revived_node_says_ready_again() -> None:
    async with obedient_cluster() as c:
        c.kubelets.kill_node("node-0", NodeDeath.PARTITION)
        await c.pass_seconds(60)
        unknown = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
        c.api.change(NODES, "node-0", subresource="status", status={"conditions": unknown})
        await c.pass_seconds(60)
        c.kubelets.revive_node("node-0")
        await c.pass_seconds(QUICK)
        node = c.api.of("nodes", "node-0")
        assert node
        ready = next(condition for condition in node["status"]["conditions"] if condition["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
        assert ready["lastTransitionTime"] == "2026-11-02T08:02:00Z"


@virtual_time
async def test_a_reset_node_comes_back_with_its_processes_dead_and_restarts_them_by_their_policy() -> None:
    async with obedient_cluster() as c:
        await c.bind("on-failure", restart_policy="OnFailure")
        await c.bind("never", restart_policy="Never")
        await c.bind("stuck")
        await c.pass_seconds(30)
        c.kubelets.stuck_termination("stuck")
        await api_verbs.delete(c.api, PODS, "stuck", namespace="default")
        await c.pass_seconds(60)
        c.kubelets.reset_node("node-0", 20.0)
        assert c.workload.running == []
        await c.pass_seconds(19)
        assert c.phase("never") == "Running"
        assert not c.gone("stuck")
        await c.pass_seconds(2)
        assert (c.phase("on-failure"), c.container("on-failure")["restartCount"]) == ("Running", 1)
        assert (c.phase("never"), c.container("never")["state"]["terminated"]["exitCode"]) == ("Failed", 255)
        assert c.gone("stuck")


@virtual_time
async def test_a_node_that_was_revived_or_taken_away_while_it_was_reset_does_not_boot_again() -> None:
    async with obedient_cluster(nodes=2) as c:
        await c.bind("p", restart_policy="OnFailure")
        await c.pass_seconds(1)
        for name in ("node-0", "node-1"):
            c.kubelets.reset_node(name, 20.0)
        c.kubelets.revive_node("node-0")
        await c.kubelets.remove_node("node-1")
        await c.pass_seconds(100)
        assert c.container("p")["restartCount"] == 1
        assert c.api.of("nodes", "node-1") is None


@pytest.mark.parametrize("how", list(NodeDeath))
def test_a_node_tells_when_it_last_renewed_its_lease_though_it_writes_none(how: NodeDeath) -> None:
    @virtual_time
    async def scenario() -> None:
        settings = KubeletSettings(start_seconds=(0.0, 0.0), lease_seconds=10.0, writes_leases=False)
        async with obedient_cluster(settings) as c:
            await c.pass_seconds(995)
            assert c.api.writes_of("patch", "leases") == ["node-0"]  # the first renewal, which found no Lease
            await c.pass_seconds(5)
            lost_seconds = c.clock.monotonic_seconds()
            c.kubelets.kill_node("node-0", how)
            await c.pass_seconds(100)
            renewed_seconds = c.kubelets.renewed_seconds("node-0")
            assert renewed_seconds is not None
            assert lost_seconds - 10 < renewed_seconds <= lost_seconds
            c.kubelets.revive_node("node-0")
            await c.pass_seconds(100)
            renewed_seconds = c.kubelets.renewed_seconds("node-0")
            assert renewed_seconds is not None
            assert 0 <= c.clock.monotonic_seconds() - renewed_seconds < 10
            assert c.kubelets.renewed_seconds("node-1") is None

    scenario()
