"""Reads nodes from the API server itself, for many groups at once and with few requests.

Nodes are lost by the rack, and a node that is silent may carry members of many groups. Each of those groups asks about
it when it decides. One read answers all of them: a question joins a read of its node that waits to be sent, and never
one that was sent before it. So no answer is older than its question, which is what a decision on live facts needs.
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
"""Of the whole process. A rack that is lost is some dozen nodes; of several racks the reads go one after the other."""


def _retrieve_error(reading: asyncio.Task[NodeFacts | None]) -> None:
    """Keep asyncio from logging the error of a read whose callers have all been cancelled."""
    if not reading.cancelled():
        reading.exception()


class NodeReads:
    """Nodes by name, with the last sign of life of those that are not reachable. One serves a whole process."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(NODES_IN_FLIGHT_MAX)
        self._unsent: dict[str, asyncio.Task[NodeFacts | None]] = {}
        """Reads that wait for a slot: a new question about the node joins that read."""
        self._leases_refused = False
        """The log already says that Leases of nodes may not be read."""

    async def read(self, names: Iterable[str]) -> Mapping[str, NodeFacts | None]:
        """None: it does not exist. One that cannot be read, or whose Lease cannot, is left out. Raises ApiError."""
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
        """The read that a question of this moment joins."""
        reading = self._unsent.get(name)
        if reading is None:
            reading = self._unsent[name] = asyncio.create_task(self._read(name))
            reading.add_done_callback(_retrieve_error)
        return reading

    async def _read(self, name: str) -> NodeFacts | None:
        try:
            await self._slots.acquire()
        finally:
            del self._unsent[name]  # it is sent now: later questions need a newer answer
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
        """None: it has no Lease, or Leases may not be read; then nothing is known beyond the node's own conditions."""
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
