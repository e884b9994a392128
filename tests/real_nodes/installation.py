"""The controller as users run it in the cluster: the images and the shipped manifests."""

import asyncio
import json
from typing import Any

from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.real_nodes.node import RealNode
from tests.cluster.real_nodes.start import RealCluster
from tests.cluster.scene import REPOSITORY

SYSTEM = "recovery-system"
LEASE = "recovery-controller"
DEPLOYMENT = "deployment/recovery-controller"
_RUNTIMES = ("policies/runtime-prepared.yaml", "policies/runtime-joined-probe.yaml")


_KUSTOMIZATION = REPOSITORY / "build" / "real-nodes-installation" / "kustomization.yaml"
"""What docs/agent.md has a user write. kustomize takes relative paths alone."""


class Installation:
    """overlays/enforce with the component of the agent, the permission to read logs, and the prepared runtimes."""

    def __init__(self, cluster: RealCluster, agent_image: str) -> None:
        self.cluster = cluster
        self.agent_image = agent_image

    async def apply(self) -> None:
        """Returns when both replicas are ready and a leader has been elected."""
        kubectl = self.cluster.control_plane.kubectl
        # The optional permission comes first: the controller checks for it when it starts. The overlay creates its
        # ServiceAccount.
        await kubectl("apply", "--server-side", "-f", str(REPOSITORY / "manifests/components/pod-logs/rbac.yaml"))
        await self.apply_manifests()
        for runtime in _RUNTIMES:
            await kubectl("apply", "--server-side", "-f", str(REPOSITORY / runtime))
        await self.rolled_out()
        await self.next_leader("")

    async def apply_manifests(self) -> None:
        """Nothing in them is changed but the image of the agent, which they leave to the user."""
        image = [{"op": "add", "path": "/data/image", "value": self.agent_image}]
        kustomization = {
            "resources": ["../../manifests/overlays/enforce"],
            "components": ["../../manifests/components/agent"],
            "patches": [{"target": {"kind": "ConfigMap", "name": "recovery-agent"}, "patch": json.dumps(image)}],
        }
        _KUSTOMIZATION.parent.mkdir(parents=True, exist_ok=True)
        _KUSTOMIZATION.write_text(json.dumps(kustomization))
        await self.cluster.control_plane.kubectl("apply", "--server-side", "-k", str(_KUSTOMIZATION.parent))

    async def rolled_out(self) -> None:
        try:
            await self.cluster.control_plane.kubectl(
                "rollout", "status", DEPLOYMENT, "-n", SYSTEM, f"--timeout={GUARD_SECONDS:.0f}s"
            )
        except KubectlError as error:
            raise AssertionError(f"the replicas are not ready: {error}\n{await self.describe()}") from None

    async def pods(self) -> list[dict[str, Any]]:
        """The controller's pods, without those that are being deleted."""
        found = json.loads(await self.cluster.control_plane.kubectl("get", "pods", "-n", SYSTEM, "-o", "json"))
        return [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]

    async def leader(self) -> str:
        """The holder of the Lease, which begins with the name of its pod. Empty: there is none."""
        return await self.cluster.control_plane.kubectl(
            "get", "lease", LEASE, "-n", SYSTEM, "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity}"
        )

    async def next_leader(self, former: str) -> str:
        """Wait until a replica other than `former` holds the Lease."""
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                while (holder := await self.leader()) in {"", former}:
                    await asyncio.sleep(0.1)
                return holder
        except TimeoutError:
            raise AssertionError(f"nobody took the Lease from {former!r}\n{await self.describe()}") from None

    async def leading_pod(self) -> dict[str, Any]:
        holder = await self.leader()
        for pod in await self.pods():
            if holder.startswith(pod["metadata"]["name"]):
                return pod
        raise AssertionError(f"the holder of the Lease, {holder!r}, has no pod\n{await self.describe()}")

    async def leading_node(self) -> RealNode:
        name = (await self.leading_pod())["spec"]["nodeName"]
        return next(node for node in self.cluster.nodes if node.name == name)

    def processes_of(self, pod: dict[str, Any]) -> list[int]:
        """Process ids of the controller's container in that pod, in the machine's own PID namespace."""
        node = next(node for node in self.cluster.nodes if node.name == pod["spec"]["nodeName"])
        container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        return node.processes_of(pod["metadata"]["uid"], container)

    async def whole_again(self) -> None:
        """Wait until two replicas are ready, as the API server sees them, and one of them leads."""
        kubectl = self.cluster.control_plane.kubectl
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                while sum(_is_ready(pod) for pod in await self.pods()) != 2:
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"two ready replicas expected\n{await self.describe()}") from None
        await kubectl("rollout", "status", DEPLOYMENT, "-n", SYSTEM, f"--timeout={GUARD_SECONDS:.0f}s")
        await self.leading_pod()

    async def logs(self, pod: str) -> list[dict[str, Any]]:
        """The JSON lines of that pod's log."""
        printed = await self.cluster.control_plane.kubectl("logs", pod, "-n", SYSTEM)
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]

    async def describe(self) -> str:
        kubectl = self.cluster.control_plane.kubectl
        said = [
            await kubectl("get", "pods,lease", "-n", SYSTEM, "-o", "wide"),
            await kubectl("get", "events", "-n", SYSTEM),
        ]
        for pod in await self.pods():
            name = pod["metadata"]["name"]
            try:
                said.append(f"-- {name}\n{await kubectl('logs', name, '-n', SYSTEM, '--tail=15')}")
            except KubectlError as error:
                said.append(f"-- {name}: {error}")
        return "\n".join(said)


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
