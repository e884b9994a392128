"""An API server in memory: as much of one as the kubelet model can tell from the real one, and faults on demand."""

import asyncio
import copy
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from recovery.ports import (
    PODS,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ExpiredError,
    NotFoundError,
    PatchKind,
    Propagation,
    Resource,
    TryLaterError,
)
from recovery.sim.kubelets.pod_status import timestamp
from recovery.sim.virtual_time import VirtualClock

Body = dict[str, Any]
Key = tuple[str, str | None, str]

REQUEST_SECONDS = 0.002
GONE_LINE = (
    b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}}'
)


@dataclass
class Fault:
    """The next `times` requests of this verb on this resource raise `error`, after having been applied or not."""

    verb: str
    plural: str
    error: ApiError
    times: int
    applied: bool


class FakeApi:
    """`ports.ApiClient`. `writes` counts what reached the server, as (verb, plural, name)."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str, str]] = []
        self.most_writes_in_flight = 0
        self.lists = 0
        self.silent = False
        """Watches tell nothing for now."""
        self._clock = VirtualClock()
        self._objects: dict[Key, Body] = {}
        self._log: list[tuple[int, str, Key, bytes]] = []
        self._version = 0
        self._oldest = 0
        self._news = asyncio.Condition()
        self._streams = 0
        self._last_line = b""
        self._faults: list[Fault] = []
        self._in_flight = 0

    # What tests do.

    def fail(self, verb: str, plural: str, error: ApiError, *, times: int = 1, applied: bool = False) -> None:
        self._faults.append(Fault(verb, plural, error, times, applied))

    async def put(self, resource: Resource, body: Body) -> Body:
        """Make an object as a test wants it, no questions asked."""
        metadata = body["metadata"]
        key = (resource.plural, metadata.get("namespace"), metadata["name"])
        metadata.setdefault("uid", f"uid-{self._version + 1}")
        await self._store("ADDED", key, copy.deepcopy(body))
        return self._objects[key]

    def of(self, plural: str, name: str) -> Body | None:
        """The only object of that name, in whatever namespace. None: there is none."""
        return next((body for key, body in self._objects.items() if (key[0], key[2]) == (plural, name)), None)

    def writes_of(self, verb: str, plural: str) -> list[str]:
        return [name for was, of, name in self.writes if (was, of) == (verb, plural)]

    async def disconnect(self, *, expire: bool = False, say_so: bool = False) -> None:
        """End all watches; `expire`: what they would go on from is too old; `say_so`: in a last line of the stream."""
        self._streams += 1
        self._last_line = GONE_LINE if say_so else b""
        if expire:
            self._oldest = self._version + 1
            self._version += 1
        async with self._news:
            self._news.notify_all()

    async def bookmark(self) -> None:
        """Tell the watches how far they are, and forget how it was before."""
        self._version += 1
        self._oldest = self._version
        nothing = {"metadata": {"resourceVersion": str(self._version)}, "spec": {"containers": None}, "status": {}}
        key = ("pods", None, "")
        self._log.append((self._version, "BOOKMARK", key, msgspec.json.encode(nothing)))
        async with self._news:
            self._news.notify_all()

    async def release_finalizers(self, name: str) -> None:
        key = next(key for key in self._objects if (key[0], key[2]) == ("pods", name))
        body = self._objects[key]
        body["metadata"]["finalizers"] = []
        await self._store("MODIFIED", key, body)
        if "deletionTimestamp" in body["metadata"] and body["metadata"]["deletionGracePeriodSeconds"] == 0:
            await self._remove(key)

    # The port.

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        with self._request("get", resource, name):
            await asyncio.sleep(REQUEST_SECONDS)
            return msgspec.json.encode(self._found((resource.plural, namespace, name)))

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
        """Two objects a page, so that pages are tested with few."""
        with self._request("list", resource, ""):
            await asyncio.sleep(REQUEST_SECONDS)
            self.lists += 1
            first = int(continue_token or 0)
            items = [body for key, body in self._objects.items() if key[0] == resource.plural and _bound(body)]
            more = str(first + 2) if len(items) > first + 2 else ""
            metadata = {"resourceVersion": str(self._version), "continue": more}
            return msgspec.json.encode({"metadata": metadata, "items": items[first : first + 2]})

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
        assert field_selector == "spec.nodeName!="
        stream = self._streams
        seen = int(resource_version or 0)
        if seen < self._oldest:
            raise ExpiredError("too old resource version", status=410)
        while True:
            for version, event, key, body in list(self._log):
                if not self.silent and version > seen and key[0] == resource.plural:
                    seen = version
                    yield b'{"type":"%s","object":%s}' % (event.encode(), body)
            if self._streams != stream:
                if self._last_line:
                    yield self._last_line
                raise TryLaterError("connection lost")
            # Nothing can have happened since the log was read: a consumer that does not wait lets nobody else run.
            async with self._news:
                await self._news.wait()

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
        name = body["metadata"]["name"]
        with self._request("create", resource, name) as fault:
            await asyncio.sleep(REQUEST_SECONDS)
            if (resource.plural, namespace, name) in self._objects:
                raise AlreadyExistsError(name, status=409)
            made = await self.put(resource, body)
            if fault:
                raise fault.error
            return msgspec.json.encode(made)

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
        assert isinstance(body, dict)
        with self._request("patch", resource, name) as fault:
            await asyncio.sleep(REQUEST_SECONDS)
            key = (resource.plural, namespace, name)
            found = self._found(key)
            if body.get("metadata", {}).get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
                raise ConflictError("the UID in the precondition is another", status=409)
            merged = _merge(found, body, strategic=kind is PatchKind.STRATEGIC)
            await self._store("MODIFIED", key, merged)
            if fault:
                raise fault.error
            return msgspec.json.encode(merged)

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
        """Graceful for pods that are bound and not terminal, as on the real one."""
        with self._request("delete", resource, name) as fault:
            await asyncio.sleep(REQUEST_SECONDS)
            key = (resource.plural, namespace, name)
            body = self._found(key)
            metadata = body["metadata"]
            if uid not in {None, metadata["uid"]}:
                raise ConflictError("the UID in the precondition is another", status=409)
            grace = self._grace(body, grace_seconds) if resource == PODS else 0
            if grace < metadata.get("deletionGracePeriodSeconds", grace + 1):
                metadata["deletionTimestamp"] = timestamp(self._clock.now() + timedelta(seconds=grace))
                metadata["deletionGracePeriodSeconds"] = grace
                await self._store("MODIFIED", key, body)
            if grace == 0 and not metadata.get("finalizers"):
                await self._remove(key)
            if fault:
                raise fault.error
            return b"{}"

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

    @staticmethod
    def _grace(body: Body, asked_seconds: int | None) -> int:
        if not body["spec"].get("nodeName") or body.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            return 0
        return int(body["spec"]["terminationGracePeriodSeconds"]) if asked_seconds is None else asked_seconds

    def _found(self, key: Key) -> Body:
        if key not in self._objects:
            raise NotFoundError(f"{key[0]} {key[2]} not found", status=404)
        return self._objects[key]

    async def _remove(self, key: Key) -> None:
        await self._store("DELETED", key, self._objects[key])
        del self._objects[key]

    async def _store(self, event: str, key: Key, body: Body) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = body
        if _bound(body):
            self._log.append((self._version, event, key, msgspec.json.encode(body)))
        async with self._news:
            self._news.notify_all()


def _bound(body: Body) -> bool:
    return bool(body.get("spec", {}).get("nodeName"))


def _merge(into: Body, patch: Body, *, strategic: bool) -> Body:
    """A merge patch; as a strategic one it merges conditions by type."""
    merged = dict(into)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merge(into.get(name, {}), value, strategic=strategic)
        elif strategic and name == "conditions":
            by_type = {item["type"]: item for item in into.get(name, [])}
            for item in value:
                by_type[item["type"]] = _merge(by_type.get(item["type"], {}), item, strategic=True)
            merged[name] = list(by_type.values())
        else:
            merged[name] = value
    return merged
