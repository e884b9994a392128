"""What the tests need of real nodes: they fail as machines do, they come back, and they leave nothing behind."""

import os

import pytest

from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.real_nodes.start import RealCluster
from tests.cluster.real_nodes.traces import Traces
from tests.real_nodes import pods


async def test_pods_reach_each_other_services_and_the_cluster_s_dns(cluster: RealCluster) -> None:
    one, two, _ = cluster.nodes
    address = "kubernetes.default.svc.cluster.local"
    connects = f"echo | nc -w 1 {address} 443 && echo | nc -w 1 $PEER 7777"
    asks = f"until nslookup {address} && {connects}; do sleep 0.2; done"
    await pods.create(cluster, pods.pod("listens", two, "nc -ll -p 7777 -e date"))
    try:
        await pods.running(cluster, "listens")
        peer = (await pods.get(cluster, "listens"))["status"]["podIP"]
        await pods.create(cluster, pods.pod("asks", one, f"PEER={peer}; {asks}", restartPolicy="Never"))
        await cluster.control_plane.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/asks", f"--timeout={GUARD_SECONDS:.0f}s"
        )
    finally:
        await pods.remove(cluster, "listens", "asks")


async def test_a_killed_kubelet_leaves_its_containers_and_finds_them_when_it_is_back(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    await pods.create(cluster, pods.pod("survivor", node))
    try:
        await pods.running(cluster, "survivor")
        processes = await pods.processes(cluster, node, "survivor")
        node.kill_kubelet()
        await cluster.not_ready(node)
        assert await pods.processes(cluster, node, "survivor") == processes
        node.start_kubelet()
        await cluster.ready(node)
        await pods.running(cluster, "survivor")
        assert await pods.processes(cluster, node, "survivor") == processes
        assert (await pods.main_container(cluster, "survivor"))["restartCount"] == 0
    finally:
        await pods.remove(cluster, "survivor")


async def test_a_partitioned_node_goes_on_unseen_and_comes_back_as_it_was(cluster: RealCluster) -> None:
    node = cluster.nodes[1]
    await pods.create(cluster, pods.pod("cut-off", node))
    try:
        await pods.running(cluster, "cut-off")
        processes = await pods.processes(cluster, node, "cut-off")
        node.unplug()
        await cluster.not_ready(node)
        assert await pods.processes(cluster, node, "cut-off") == processes
        node.plug_in()
        await cluster.ready(node)
        assert await pods.processes(cluster, node, "cut-off") == processes
    finally:
        node.plug_in()
        await pods.remove(cluster, "cut-off")


async def test_a_node_that_lost_power_has_no_process_left_and_starts_its_pods_again(cluster: RealCluster) -> None:
    node = cluster.nodes[2]
    await pods.create(cluster, pods.pod("restarted", node))
    try:
        await pods.running(cluster, "restarted")
        processes = await pods.processes(cluster, node, "restarted")
        node.lose_power()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in processes)
        await cluster.not_ready(node)
        node.start()
        await cluster.ready(node)

        async def restarted() -> bool:
            status = await pods.main_container(cluster, "restarted")
            return bool(status["restartCount"] == 1 and status["ready"])

        await pods.eventually("the pod of before runs again in its second container", restarted)
    finally:
        await pods.remove(cluster, "restarted")


async def test_starts_and_losses_of_power_leave_nothing_behind(
    cluster: RealCluster, request: pytest.FixtureRequest
) -> None:
    """`make real-nodes ARGS="-k leave --loops=20"` repeats this more often."""
    node = cluster.nodes[2]
    node.lose_power()
    without = Traces.now()
    for _ in range(request.config.getoption("--loops")):
        node.start()
        await cluster.ready(node)
        node.lose_power()
        assert without.difference(Traces.now()) == []
    node.start()
    await cluster.ready(node)
