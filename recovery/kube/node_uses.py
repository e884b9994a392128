"""Reads from the API server how many accelerators the pods of all workloads hold on single nodes."""

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from recovery import api_verbs
from recovery.decoding import decoded
from recovery.kube.gpus_in_use import NodeUse, gpus_held
from recovery.kube.projections.pods import decode_pod
from recovery.kube.response_envelopes import read_page
from recovery.ports import PODS, ApiClient, ApiError

_log = structlog.get_logger("recovery.kube")

NODES_LOOKED_AT_MAX = 32
"""At most this many nodes are read for one group at a time."""
IN_FLIGHT_MAX = 8
"""Lists in flight in the whole process. Nothing that waits for them is urgent."""


class NodeUses:
    """Reads the use of nodes. One instance serves a whole process."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def read(self, nodes: Iterable[str]) -> Mapping[str, NodeUse]:
        """The use of nodes by name. A node is left out if its pods cannot be listed or one of them cannot be read."""
        names = tuple(nodes)
        found = await asyncio.gather(*map(self._read, names))
        return {name: use for name, use in zip(names, found, strict=True) if use is not None}

    async def _read(self, node: str) -> NodeUse | None:
        # Pods that have ended hold no accelerators, and a node may keep hundreds of them.
        selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        try:
            async with self._slots:
                body = await api_verbs.list_page(self._client, PODS, field_selector=selector)
            pods = [decoded(PODS, decode_pod, raw).value for raw in read_page(PODS, body).items or ()]
        except ApiError as error:
            _log.info("the pods on a node are not known, so it counts as full", node=node, error=str(error))
            return None
        return NodeUse(
            gpus=sum(gpus_held(pod.facts) for pod in pods),
            by_others=sum(gpus_held(pod.facts) for pod in pods if not pod.group.name),
        )
