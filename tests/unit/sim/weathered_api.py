"""The embedded API server as a kubelet meets it on a bad day: requests take time, fail on demand, watches break."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from recovery.ports import (
    JOB_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    ApiError,
    Clock,
    Entropy,
    PatchKind,
    Propagation,
    Resource,
    TryLaterError,
)
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.server import ApiServer

REQUEST_SECONDS = 0.002
PAGE = 2
"""Objects in a page, so that pages are tested with few."""
GONE_LINE = (
    b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}}'
)
# Nodes without the taint that only the node lifecycle controller would take away; Jobs and JobSets as tests word them.
PLAIN = {resource: ServedKind(resource=resource) for resource in (NODES, JOBS, JOB_SETS)}


@dataclass
class Fault:
    """The next `times` requests of this verb on this resource raise `error`, after having been applied or not."""

    verb: str
    plural: str
    error: ApiError
    times: int
    applied: bool


class WeatheredApi:
    """`ports.ApiClient`. `writes` counts what was asked of the server, as (verb, plural, name)."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        kinds = {kind.resource: kind for kind in core_kinds()} | PLAIN
        self.server = ApiServer(kinds.values(), clock=clock, entropy=entropy)
        self.writes: list[tuple[str, str, str]] = []
        self.most_writes_in_flight = 0
        self.lists = 0
        self.silent = False
        """Watches tell nothing for now."""
        self._client = ModelClient(self.server, "kubelet")
        self._cut = asyncio.Event()
        """Ends all streams that are open."""
        self._last_line = b""
        self._faults: list[Fault] = []
        self._in_flight = 0

    # What tests do.

    def fail(self, verb: str, plural: str, error: ApiError, *, times: int = 1, applied: bool = False) -> None:
        self._faults.append(Fault(verb, plural, error, times, applied))

    def put(self, resource: Resource, body: Body) -> Body:
        """Make an object as a test wants it, its status included; a pod as the scheduler leaves it."""
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
        """As somebody else does it."""
        namespace = "default" if resource.namespaced else None
        kind = PatchKind.MERGE
        return self.server.patch(resource, name, fields, kind=kind, namespace=namespace, subresource=subresource)

    def of(self, plural: str, name: str) -> Body | None:
        """The only object of that name, in whatever namespace. None: there is none."""
        (resource,) = (each for each in (PODS, NODES, LEASES) if each.plural == plural)
        return next((body for body in self.server.objects(resource) if body["metadata"]["name"] == name), None)

    def writes_of(self, verb: str, plural: str) -> list[str]:
        return [name for was, of, name in self.writes if (was, of) == (verb, plural)]

    def disconnect(self, *, expire: bool = False, say_so: bool = False) -> None:
        """End all watches; `expire`: what they would go on from is too old; `say_so`: in a last line of the stream."""
        self._last_line = GONE_LINE if say_so else b""
        if expire:
            self.change(NODES, "node-0", metadata={"annotations": {"touched": "true"}})
            self.server.compact()
        self._cut.set()
        self._cut = asyncio.Event()

    def release_finalizers(self, name: str) -> None:
        self.change(PODS, name, metadata={"finalizers": None})

    # The port.

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        with self._request("get", resource, name):
            await asyncio.sleep(REQUEST_SECONDS)
            return await self._client.get(resource, name, namespace=namespace)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> bytes:
        with self._request("list", resource, ""):
            await asyncio.sleep(REQUEST_SECONDS)
            self.lists += 1
            return await self._client.list(
                resource, field_selector=field_selector, limit=PAGE, continue_token=continue_token
            )

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[bytes, None]:
        stream = self._client.watch(
            resource,
            field_selector=field_selector,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
        )
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

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bytes:
        assert isinstance(body, dict)
        with self._request("create", resource, body["metadata"]["name"]) as fault:
            await asyncio.sleep(REQUEST_SECONDS)
            made = await self._client.create(resource, body, namespace=namespace)
            if fault:
                raise fault.error
            return made

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
    ) -> bytes:
        with self._request("patch", resource, name) as fault:
            await asyncio.sleep(REQUEST_SECONDS)
            patched = await self._client.patch(
                resource, name, body, kind=kind, namespace=namespace, subresource=subresource
            )
            if fault:
                raise fault.error
            return patched

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> bytes:
        with self._request("delete", resource, name) as fault:
            await asyncio.sleep(REQUEST_SECONDS)
            deleted = await self._client.delete(
                resource, name, namespace=namespace, uid=uid, grace_seconds=grace_seconds
            )
            if fault:
                raise fault.error
            return deleted

    # Within.

    @contextmanager
    def _request(self, verb: str, resource: Resource, name: str) -> Iterator[Fault | None]:
        """Counts it. A fault that hits before the request is applied is raised here, the other kind handed on."""
        fault = next((f for f in self._faults if (f.verb, f.plural) == (verb, resource.plural)), None)
        if fault:
            fault.times -= 1
            self._faults = [fault for fault in self._faults if fault.times]
            if not fault.applied:
                raise fault.error
        if verb in {"get", "list"}:
            yield fault
            return
        self.writes.append((verb, resource.plural, name))
        self._in_flight += 1
        self.most_writes_in_flight = max(self.most_writes_in_flight, self._in_flight)
        try:
            yield fault
        finally:
            self._in_flight -= 1
