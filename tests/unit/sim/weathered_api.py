"""The embedded API server on a bad day for a kubelet: requests take time and fail on demand, and watches break."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from recovery.ports import (
    JOB_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    TRAIN_JOBS,
    ApiRequest,
    Clock,
    Entropy,
    PatchKind,
    Resource,
    TryLaterError,
)
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.server import ApiServer
from tests.unit.fake_api import FakeApi, sent

REQUEST_SECONDS = 0.002
PAGE = 2
"""Objects in a page: few, so that tests of pages need few objects."""
GONE_LINE = (
    b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}}'
)
# Nodes lack the taint that only the node lifecycle controller would remove. The other kinds stay as tests write them.
PLAIN = {resource: ServedKind(resource=resource) for resource in (NODES, JOBS, JOB_SETS, TRAIN_JOBS)}


class WeatheredApi(FakeApi):
    """The modelled API server. A kubelet's requests reach it after a delay."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        super().__init__()
        kinds = {kind.resource: kind for kind in core_kinds()} | PLAIN
        self.server = ApiServer(kinds.values(), clock=clock, entropy=entropy)
        self.handled: list[tuple[str, str, str]] = []
        """Verb, plural and name of the writes that reached the server."""
        self.most_writes_in_flight = 0
        self.lists = 0
        self.silent = False
        """Whether watches send nothing for now."""
        self._client = ModelClient(self.server, "kubelet")
        self._cut = asyncio.Event()
        """Set: all open streams end."""
        self._last_line = b""
        self._in_flight = 0

    # Called by tests.

    def put(self, resource: Resource, body: Body) -> Body:
        """Create an object with its status. A pod is then bound, as the scheduler does."""
        status = body.get("status")
        node = body["spec"].pop("nodeName") if resource == PODS else ""
        made = self.server.create(resource, body)
        name = made["metadata"]["name"]
        if status:
            made = self.change(resource, name, subresource="status", status=status)
        if node:
            binding = {"target": {"name": node}}
            self.server.create(PODS, binding, namespace="default", name=name, subresource="binding")
            made = self.server.get(PODS, name, namespace="default")
        return made

    def change(self, resource: Resource, name: str, *, subresource: str = "", **fields: Any) -> Body:
        """Change the object as another client does."""
        namespace = "default" if resource.namespaced else None
        kind = PatchKind.MERGE
        return self.server.patch(resource, name, fields, kind=kind, namespace=namespace, subresource=subresource)

    def of(self, plural: str, name: str) -> Body | None:
        """The only object of that name in any namespace. None: there is none."""
        (resource,) = (each for each in (PODS, NODES, LEASES) if each.plural == plural)
        return next((body for body in self.server.objects(resource) if body["metadata"]["name"] == name), None)

    def writes_of(self, verb: str, plural: str) -> list[str]:
        return [name for was, of, name in self.handled if (was, of) == (verb, plural)]

    def disconnect(self, *, expire: bool = False, say_so: bool = False) -> None:
        """End all watches. `expire`: their versions are then too old. `say_so`: a last line of the stream says so."""
        self._last_line = GONE_LINE if say_so else b""
        if expire:
            self.change(NODES, "node-0", metadata={"annotations": {"touched": "true"}})
            self.server.compact()
        self._cut.set()
        self._cut = asyncio.Event()

    def release_finalizers(self, name: str) -> None:
        self.change(PODS, name, metadata={"finalizers": None})

    # The port.

    async def answer(self, request: ApiRequest) -> bytes:
        if request.verb == "list":
            self.lists += 1
            request = msgspec.structs.replace(request, query={**request.query, "limit": PAGE})
        if request.writes:
            self.handled.append((request.verb, request.resource.plural, sent(request).name))
            self._in_flight += 1
            self.most_writes_in_flight = max(self.most_writes_in_flight, self._in_flight)
        try:
            await asyncio.sleep(REQUEST_SECONDS)
            return await self._client.send(request)
        finally:
            self._in_flight -= request.writes

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        stream = self._client.watch(request)
        cut = asyncio.ensure_future(self._cut.wait())
        async with aclosing(stream):
            while True:
                line = asyncio.ensure_future(anext(stream, None))
                try:
                    await asyncio.wait((line, cut), return_when=asyncio.FIRST_COMPLETED)
                    if self.silent:
                        await cut
                finally:
                    line.cancel()
                    await asyncio.wait((line,))
                if cut.done():
                    break
                told = line.result()
                if told is None:
                    return  # It timed out.
                yield told
        if self._last_line:
            yield self._last_line
        raise TryLaterError("connection lost")
