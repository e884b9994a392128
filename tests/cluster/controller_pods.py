"""The controller's Deployment as an on-call engineer finds it: with a pod whose log `kubectl logs` prints.

The modelled kubelets start no containers, so the controllers of the tests run outside the cluster. Here the Deployment
still has a pod, on its own node, and every node serves logs as a kubelet does. For that pod they are the logs of the
controllers outside the cluster. For a pod of a training they are a few fixed lines.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from recovery import api_verbs
from recovery.ports import NODES, PatchKind
from recovery.sim.kubelets.node_run import NodeSpec
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet

SYSTEM = "recovery-system"
NODE = "control-0"
DEPLOYMENT = ("deployment/recovery-controller", "-n", SYSTEM)
_TRAINING = ["step 41", "step 42"]
_WRITTEN_AT = "2026-11-22T10:00:00.000000000Z"


@asynccontextmanager
async def controller_pods(control_plane: ControlPlane, fleet: Fleet, logs: Path) -> AsyncIterator[None]:
    """`logs`: the folder with the logs of the controllers, `controller-N.log`."""
    async with _log_server(control_plane, logs) as port:
        fleet.kubelets.add_node(NodeSpec(name=NODE, gpus=0))
        async with asyncio.timeout(GUARD_SECONDS):
            await fleet.kubelets.nodes_ready()
        for name in (NODE, *fleet.nodes):
            await _serves_logs(fleet, name, port)
        await _pinned(control_plane, NODE)
        await control_plane.kubectl("scale", *DEPLOYMENT, "--replicas=1")
        await control_plane.kubectl("rollout", "status", *DEPLOYMENT, f"--timeout={GUARD_SECONDS:.0f}s")
        try:
            yield
        finally:
            await control_plane.kubectl("scale", *DEPLOYMENT, "--replicas=0")
            await control_plane.kubectl("delete", "pods", "-n", SYSTEM, "--all", "--grace-period=1")
            await _pinned(control_plane, None)
            await fleet.kubelets.remove_node(NODE)


async def _pinned(control_plane: ControlPlane, node: str | None) -> None:
    """Pin the pods of the Deployment to this node. None: the scheduler chooses."""
    name = "null" if node is None else f'"{node}"'
    patch = f'{{"spec": {{"template": {{"spec": {{"nodeName": {name}}}}}}}}}'
    await control_plane.kubectl("patch", *DEPLOYMENT, "--type=strategic", "-p", patch)


async def _serves_logs(fleet: Fleet, node: str, port: int) -> None:
    """Make the API server read the logs of the node's containers from that port."""
    change = [
        {"op": "add", "path": "/status/addresses", "value": [{"type": "InternalIP", "address": "127.0.0.1"}]},
        {"op": "add", "path": "/status/daemonEndpoints", "value": {"kubeletEndpoint": {"Port": port}}},
    ]
    await api_verbs.patch(fleet.api, NODES, node, change, kind=PatchKind.JSON, subresource="status")


@asynccontextmanager
async def _log_server(control_plane: ControlPlane, logs: Path) -> AsyncIterator[int]:
    """Serves /containerLogs as a kubelet does. Yields the port."""

    async def container_logs(request: web.Request) -> web.Response:
        lines = _TRAINING
        if request.match_info["namespace"] == SYSTEM:
            lines = [line for log in sorted(logs.glob("controller-*.log")) for line in log.read_text().splitlines()]
        lines = lines[-int(request.query.get("tailLines", len(lines))) :]
        stamp = f"{_WRITTEN_AT} " if request.query.get("timestamps") == "true" else ""
        return web.Response(text="".join(f"{stamp}{line}\n" for line in lines))

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", container_logs)
    runner = web.AppRunner(application)
    await runner.setup()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(str(control_plane.certificates.serving), str(control_plane.certificates.serving_key))
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
