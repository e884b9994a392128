"""Busybox pods on a chosen node, and what the API server reports about them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.real_nodes.images import BUSYBOX_IMAGE
from tests.cluster.real_nodes.node import RealNode
from tests.cluster.real_nodes.start import RealCluster

NAMESPACE = "default"


def pod(
    name: str, node: RealNode, script: str = "sleep 3600", *, grace_seconds: int = 1, **spec: Any
) -> dict[str, Any]:
    """One container `main` that runs this script. `spec`: further fields of the pod's spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": node.name,
            "terminationGracePeriodSeconds": grace_seconds,
            "containers": [{"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script]}],
            **spec,
        },
    }


async def eventually(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds. `what` names it in the error."""
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            while not await holds():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"within {GUARD_SECONDS:.0f} s this did not happen: {what}") from None


async def create(cluster: RealCluster, *manifests: dict[str, Any]) -> None:
    for manifest in manifests:
        await cluster.control_plane.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


async def running(cluster: RealCluster, *names: str) -> None:
    """Wait until all are Ready."""
    await cluster.control_plane.kubectl(
        "wait", "--for=condition=Ready", f"--timeout={GUARD_SECONDS:.0f}s", *(f"pod/{name}" for name in names)
    )


async def get(cluster: RealCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await cluster.control_plane.kubectl("get", "pod", name, "-o", "json"))
    return found


async def main_container(cluster: RealCluster, name: str) -> dict[str, Any]:
    """The status of the container `main`. Before the container's first status it is Waiting."""
    statuses = (await get(cluster, name))["status"].get("containerStatuses", [])
    not_yet = {"name": "main", "restartCount": 0, "ready": False, "state": {"waiting": {}}, "lastState": {}}
    return next((status for status in statuses if status["name"] == "main"), not_yet)


async def is_in_phase(cluster: RealCluster, name: str, phase: str) -> bool:
    return bool((await get(cluster, name))["status"]["phase"] == phase)


async def ended(cluster: RealCluster, name: str, *, exit_code: int, reason: str) -> bool:
    """Whether `main` has ended like this, in its present or its last instance."""
    status = await main_container(cluster, name)
    ends = [state["terminated"] for state in (status["state"], status["lastState"]) if "terminated" in state]
    return any((each["exitCode"], each["reason"]) == (exit_code, reason) for each in ends)


async def processes(cluster: RealCluster, node: RealNode, name: str) -> list[int]:
    """Process ids of its container `main`, in the machine's own PID namespace."""
    uid = (await get(cluster, name))["metadata"]["uid"]
    container = (await main_container(cluster, name))["containerID"].partition("://")[2]
    return node.processes_of(uid, container)


async def remove(cluster: RealCluster, *names: str) -> None:
    """Delete the pods and wait until they are gone. By force, because a pod's node may be silent."""
    await cluster.control_plane.kubectl(
        "delete", "pod", *names, "--ignore-not-found", "--force", "--grace-period=0", f"--timeout={GUARD_SECONDS:.0f}s"
    )
