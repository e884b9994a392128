"""Reads nodes from the API server itself, for many groups at once and with few requests.

Whole racks of nodes are lost at once, and a silent node may run members of many groups. Each of these groups asks about
the node when it decides, and one read answers all of them. A question joins a read of its node that waits to be sent,
never one that was already sent. So no answer is older than its question, as a decision on live facts requires.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog

from recovery import api_verbs
from recovery.core.model.facts import NodeFacts
from recovery.decoding import decoded
from recovery.kube.projections.nodes import decode_node, decode_renewal
from recovery.ports import (
    LEASES,
    NODE_LEASE_NAMESPACE,
    NODES,
    ApiClient,
    ForbiddenError,
    NotFoundError,
    UndecodableError,
)

_log = structlog.get_logger("recovery.kube")

NODES_IN_FLIGHT_MAX = 64
"""Node reads in flight in the whole process. A lost rack is some dozen nodes; several racks are read in turn."""


def _retrieve_error(reading: asyncio.Task[NodeFacts | None]) -> None:
    """Keep asyncio from logging the error of a read whose callers have all been cancelled."""
    if not reading.cancelled():
        reading.exception()


class NodeReads:
    """Reads nodes by name, with the last Lease renewal of unreachable ones. One instance serves a whole process."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(NODES_IN_FLIGHT_MAX)
        self._unsent: dict[str, asyncio.Task[NodeFacts | None]] = {}
        """Reads that wait for a slot. A new question about the same node joins its read."""
        self._leases_refused = False
        """Whether the log already says that Leases of nodes may not be read."""

    async def read(self, names: Iterable[str]) -> Mapping[str, NodeFacts | None]:
        """Nodes by name. None: the node does not exist. A node that cannot be decoded, or whose Lease cannot, is left
        out. Raises ApiError."""
        readings = {name: self._reading(name) for name in names}
        if readings:
            # Not `gather`: a caller that is cancelled must not cancel the read for the others.
            await asyncio.wait(readings.values())
        found: dict[str, NodeFacts | None] = {}
        for name, reading in readings.items():
            with suppress(UndecodableError):
                found[name] = reading.result()
        return found

    def _reading(self, name: str) -> asyncio.Task[NodeFacts | None]:
        """The read that a question asked now joins."""
        reading = self._unsent.get(name)
        if reading is None:
            reading = self._unsent[name] = asyncio.create_task(self._read(name))
            reading.add_done_callback(_retrieve_error)
        return reading

    async def _read(self, name: str) -> NodeFacts | None:
        try:
            await self._slots.acquire()
        finally:
            del self._unsent[name]  # the read is sent now: later questions need a newer answer
        try:
            node = await self.node(name)
            if node is None or node.reachable:
                return node
            return msgspec.structs.replace(node, lease_renewed_at=await self._lease_renewed_at(name))
        finally:
            self._slots.release()

    async def node(self, name: str) -> NodeFacts | None:
        """The node alone, by a request of its own. None: it does not exist."""
        try:
            body = await api_verbs.get(self._client, NODES, name)
        except NotFoundError:
            return None
        return decoded(NODES, decode_node, body).value

    async def _lease_renewed_at(self, node: str) -> datetime | None:
        """None: the node has no Lease, or Leases may not be read. Then only the node's own conditions are known."""
        try:
            body = await api_verbs.get(self._client, LEASES, node, namespace=NODE_LEASE_NAMESPACE)
        except NotFoundError:
            return None
        except ForbiddenError as error:
            if not self._leases_refused:
                _log.warning("Leases of nodes may not be read: AssumeDead goes by Ready alone", error=str(error))
                self._leases_refused = True
            return None
        return decoded(LEASES, decode_renewal, body)
