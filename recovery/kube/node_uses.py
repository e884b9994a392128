"""Reads from the API server how many accelerators the pods on single nodes hold, those of all workloads."""

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
"""Nodes that are looked at for one group at a time."""
IN_FLIGHT_MAX = 8
"""Lists at a time, of the whole process: nothing that waits for them is urgent."""


class NodeUses:
    """One serves a whole process."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def read(self, nodes: Iterable[str]) -> Mapping[str, NodeUse]:
        """By name. A node whose pods cannot be listed, or one of whose pods cannot be read, is left out."""
        names = tuple(nodes)
        found = await asyncio.gather(*map(self._read, names))
        return {name: use for name, use in zip(names, found, strict=True) if use is not None}

    async def _read(self, node: str) -> NodeUse | None:
        # What has ended holds nothing, and a node may keep hundreds of such pods.
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
