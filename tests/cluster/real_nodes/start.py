"""A control plane and real nodes. They start together and end without a trace."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.controlplane import manifests
from tests.cluster.controlplane.build import CONTROL_PLANE, REAL_NODES, Toolbox, provide
from tests.cluster.controlplane.processes import ControlPlaneError
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.real_nodes import cgroups, network
from tests.cluster.real_nodes.dns import cluster_dns
from tests.cluster.real_nodes.images import make_template, write_basic_images
from tests.cluster.real_nodes.node import RealNode
from tests.cluster.real_nodes.settings import NodePlan

GPUS = 8
"""The GPUs of each node. No device plugin reports them: they are written to its status as an extended resource."""


class RealCluster:
    """A control plane and its real nodes. Made by `RealCluster.start`."""

    def __init__(self, control_plane: ControlPlane, nodes: tuple[RealNode, ...]) -> None:
        self.control_plane = control_plane
        self.nodes = nodes

    @classmethod
    @asynccontextmanager
    async def start(
        cls, *, nodes: int, archives: Sequence[Path] = (), toolbox: Toolbox | None = None
    ) -> "AsyncIterator[RealCluster]":
        """`archives`: images that every node has beside busybox. Call `enter_network` before."""
        toolbox = toolbox or provide(tools=(*CONTROL_PLANE, *REAL_NODES))
        settings = ControlPlaneSettings(node_address=network.CONTROL_PLANE_ADDRESS)
        async with ControlPlane.start(settings, toolbox) as control_plane:
            # The folders of killed runs have just been removed. A missing folder marks the cgroups of such a run.
            cgroups.remove_abandoned_cgroups(control_plane.folder.parent)
            folder = control_plane.folder / "nodes"
            folder.mkdir()
            template = await asyncio.to_thread(
                make_template, folder / "template", toolbox, (*write_basic_images(folder), *archives)
            )
            plans = [_plan(control_plane, toolbox, number) for number in range(1, nodes + 1)]
            cluster = cls(
                control_plane,
                tuple(RealNode(plan, template, f"{control_plane.folder.name}.{plan.name}") for plan in plans),
            )
            dns = cluster_dns(toolbox, folder, control_plane.kubeconfig)
            try:
                dns.start()
                for node in cluster.nodes:
                    node.start()
                await asyncio.gather(*(cluster.ready(node) for node in cluster.nodes))
                yield cluster
            finally:
                for node in cluster.nodes:
                    if node.started:
                        node.lose_power()
                dns.end()

    def check(self) -> None:
        """Raises an error with the last log lines of a part of the cluster that has ended."""
        self.control_plane.check_processes()
        for node in self.nodes:
            if not node.running:
                raise ControlPlaneError(f"{node.name} has ended.\n{node.last_words()}")

    async def ready(self, node: RealNode, timeout_seconds: float = GUARD_SECONDS) -> None:
        """Wait until the node has reported Ready after this call. It then has its GPUs.

        An earlier status of the node proves nothing. A kubelet that starts removes the GPUs from its node's status.
        """
        called_at = datetime.now(UTC)
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    status, _, reported_at = (await self._readiness(node)).partition(" ")
                    if status == "True" and datetime.fromisoformat(reported_at) > called_at:
                        break
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise ControlPlaneError(
                f"{node.name} is not Ready after {timeout_seconds} s.\n{node.last_words()}"
            ) from None
        capacity = {"status": {"capacity": {"nvidia.com/gpu": str(GPUS)}, "allocatable": {"nvidia.com/gpu": str(GPUS)}}}
        await self.control_plane.kubectl(
            "patch", "node", node.name, "--subresource=status", "--type=merge", "-p", json.dumps(capacity)
        )

    async def not_ready(self, node: RealNode, timeout_seconds: float = GUARD_SECONDS) -> None:
        """Wait until the API server shows the node as not Ready."""
        async with asyncio.timeout(timeout_seconds):
            while (await self._readiness(node)).startswith("True"):
                await asyncio.sleep(0.1)

    async def _readiness(self, node: RealNode) -> str:
        """The status of the condition Ready and the last time of its report. Empty: the node has not registered."""
        ready = '.status.conditions[?(@.type=="Ready")]'
        path = f"{{{ready}.status}} {{{ready}.lastHeartbeatTime}}"
        found = await self.control_plane.kubectl(
            "get", "node", node.name, "--ignore-not-found", "-o", f"jsonpath={path}"
        )
        return found.strip()


def _plan(control_plane: ControlPlane, toolbox: Toolbox, number: int) -> NodePlan:
    folder = control_plane.folder / "nodes" / f"node-{number}"
    folder.mkdir()
    kubeconfig = folder / "kubeconfig"
    certificates = control_plane.certificates
    user = {"client-certificate": str(certificates.client), "client-key": str(certificates.client_key)}
    kubeconfig.write_text(manifests.kubeconfig(control_plane.server_for_nodes, certificates, user))
    return NodePlan(number, folder, kubeconfig, certificates.authority, toolbox)
