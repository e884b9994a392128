"""Assumptions about kubelets that the controller and the kubelet model make, checked against a real one."""

import asyncio
import os
import signal
import time
from datetime import datetime, timedelta

import pytest

from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.real_nodes.start import RealCluster
from tests.real_nodes import pods

IGNORES_TERM = "trap '' TERM; while true; do sleep 0.2; done"


async def gone(cluster: RealCluster, name: str) -> None:
    """Wait until the API server no longer has the pod."""
    await cluster.control_plane.kubectl("wait", "--for=delete", f"pod/{name}", f"--timeout={GUARD_SECONDS:.0f}s")


@pytest.mark.usefixtures("token_reader")
async def test_the_grace_of_the_first_delete_counts_and_a_shorter_one_later_changes_nothing(
    cluster: RealCluster,
) -> None:
    """The API server takes the shorter grace; the kubelet does not (SyncTerminatingPod, kubernetes/kubernetes#113606).

    So a teardown is short only if the short delete comes before any other.
    """
    node, kubectl = cluster.nodes[0], cluster.control_plane.kubectl
    for name in ("long-first", "short-first"):
        await pods.create(cluster, pods.pod(name, node, IGNORES_TERM, grace_seconds=15))
    await pods.running(cluster, "long-first", "short-first")
    await kubectl("delete", "pod", "long-first", "--wait=false")
    await kubectl("delete", "pod", "short-first", "--grace-period=1", "--wait=false")
    began = time.monotonic()
    await asyncio.sleep(4)  # a busy kubelet may need longer than one second to begin with the first delete
    await kubectl("delete", "pod", "long-first", "--grace-period=1", "--wait=false")
    assert (await pods.get(cluster, "long-first"))["metadata"]["deletionGracePeriodSeconds"] == 1
    await kubectl("delete", "pod", "short-first", "--ignore-not-found", "--wait=false")
    await gone(cluster, "short-first")
    # The assertion is about the order: one pod ends while the other, which now has the same short grace, still runs.
    assert (await pods.get(cluster, "long-first"))["metadata"]["deletionGracePeriodSeconds"] == 1
    await gone(cluster, "long-first")
    assert time.monotonic() - began >= 15


@pytest.mark.usefixtures("token_reader")
@pytest.mark.parametrize(("policy", "restarts"), [("Never", False), ("OnFailure", True)])
async def test_the_pod_of_a_killed_process(cluster: RealCluster, policy: str, restarts: bool) -> None:
    node, name = cluster.nodes[1], f"killed-{policy.lower()}"
    await pods.create(cluster, pods.pod(name, node, restartPolicy=policy))
    try:
        await pods.running(cluster, name)
        os.kill((await pods.processes(cluster, node, name))[0], signal.SIGKILL)
        await pods.eventually(
            "the kubelet reports the end", lambda: pods.ended(cluster, name, exit_code=137, reason="Error")
        )
        phase = "Running" if restarts else "Failed"

        async def is_settled() -> bool:
            """If the container restarts, the end is its state for a while, and only later its last state."""
            restarted = "terminated" in (await pods.main_container(cluster, name))["lastState"]
            return restarted == restarts and await pods.is_in_phase(cluster, name, phase)

        await pods.eventually(f"the pod is {phase}", is_settled)
        assert (await pods.main_container(cluster, name))["restartCount"] == (1 if restarts else 0)
    finally:
        await pods.remove(cluster, name)


@pytest.mark.usefixtures("token_reader")
async def test_a_container_beyond_its_memory_is_oom_killed(cluster: RealCluster) -> None:
    node, name = cluster.nodes[2], "greedy"
    manifest = pods.pod(name, node, "head -c 100m /dev/zero | tail", restartPolicy="Never")
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"memory": "20Mi"}}
    await pods.create(cluster, manifest)
    try:
        await pods.eventually("it is OOMKilled", lambda: pods.ended(cluster, name, exit_code=137, reason="OOMKilled"))
    finally:
        await pods.remove(cluster, name)


@pytest.mark.usefixtures("token_reader")
async def test_a_container_that_fails_is_restarted_at_once_and_then_after_ten_seconds(cluster: RealCluster) -> None:
    """Meanwhile its state stays Terminated. CrashLoopBackOff is seen only in the last moment of the wait."""
    node, name = cluster.nodes[0], "crashes"
    await pods.create(cluster, pods.pod(name, node, "exit 3", restartPolicy="OnFailure"))

    async def restarted_twice() -> bool:
        return bool((await pods.main_container(cluster, name))["restartCount"] == 2)

    async def waits_as_terminated() -> bool:
        container = await pods.main_container(cluster, name)
        return container["restartCount"] == 1 and "terminated" in container["state"]

    try:
        await pods.eventually("its first restart at once", waits_as_terminated)
        second = (await pods.main_container(cluster, name))["state"]["terminated"]
        await pods.eventually("its second restart", restarted_twice)
        last = (await pods.main_container(cluster, name))["lastState"]["terminated"]
        assert last["containerID"] == second["containerID"]
        assert (last["exitCode"], last["reason"]) == (3, "Error")
        third = (await pods.get(cluster, name))["status"]["containerStatuses"][0]["state"]
        began = datetime.fromisoformat(next(iter(third.values()))["startedAt"])
        # Both times are in whole seconds.
        assert began - datetime.fromisoformat(second["finishedAt"]) >= timedelta(seconds=9)
    finally:
        await pods.remove(cluster, name)


async def test_a_force_deleted_pod_is_gone_from_the_api_before_its_processes_are(cluster: RealCluster) -> None:
    node, name = cluster.nodes[1], "forced"
    await pods.create(cluster, pods.pod(name, node, IGNORES_TERM, grace_seconds=30))
    await pods.running(cluster, name)
    processes = await pods.processes(cluster, node, name)
    node.kill_kubelet()
    try:
        await pods.remove(cluster, name)
        assert os.path.exists(f"/proc/{processes[0]}")
    finally:
        node.start_kubelet()
        await cluster.ready(node)

    async def ended() -> bool:
        return not any(os.path.exists(f"/proc/{pid}") for pid in processes)

    await pods.eventually("the kubelet that is back ends what the API does not know", ended)


@pytest.mark.usefixtures("token_reader")
async def test_a_main_container_that_ends_leaves_a_native_sidecar_time_to_end(cluster: RealCluster) -> None:
    node, name = cluster.nodes[2], "with-sidecar"
    manifest = pods.pod(name, node, "sleep 1", restartPolicy="Never")
    sidecar = {**manifest["spec"]["containers"][0], "name": "helper", "restartPolicy": "Always"}
    sidecar["command"] = ["sh", "-c", "sleep 3600"]
    manifest["spec"]["initContainers"] = [sidecar]
    await pods.create(cluster, manifest)
    try:
        await cluster.control_plane.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", f"--timeout={GUARD_SECONDS:.0f}s"
        )
        container = await pods.main_container(cluster, name)
        assert container["state"]["terminated"]["exitCode"] == 0
    finally:
        await pods.remove(cluster, name)
