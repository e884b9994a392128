"""The API server as far as Leases go, and the ways on which candidates reach it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from recovery.ports import (
    LEASES,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    NotFoundError,
    PatchKind,
    Propagation,
    Resource,
    UnknownOutcomeError,
)

Object = dict[str, Any]


class LeaseServer:
    """Holds one Lease, with compare-and-swap. Whoever wants to judge a write is asked before it is taken."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.holders: list[str] = []
        """One after the other; empty where it was released."""
        self.judge: Callable[[str], None] = lambda _holder: None
        self._version = 0

    @property
    def spec(self) -> Object:
        assert self.lease is not None, "there is no Lease"
        spec: Object = self.lease["spec"]
        return spec

    def get(self) -> bytes:
        if self.lease is None:
            raise NotFoundError("get leases: not found", status=404)
        return json.dumps(self.lease).encode()

    def put(self, spec: Object) -> bytes:
        """Whatever was there."""
        holder = spec.get("holderIdentity", "")
        self.judge(holder)
        self._version += 1
        self.lease = {"metadata": {"resourceVersion": str(self._version)}, "spec": spec}
        if self.holders[-1:] != [holder]:
            self.holders.append(holder)
        return self.get()

    def touch(self) -> None:
        """Somebody annotates it."""
        assert self.lease is not None
        self._version += 1
        self.lease["metadata"]["resourceVersion"] = str(self._version)

    def create(self, body: Object) -> bytes:
        if self.lease is not None:
            raise AlreadyExistsError("it exists", status=409, reason="AlreadyExists")
        return self.put(body["spec"])

    def patch(self, body: list[Object]) -> bytes:
        version, spec = body
        assert (version["path"], spec["path"]) == ("/metadata/resourceVersion", "/spec")
        if self.lease is None:
            raise NotFoundError("patch leases: not found", status=404)
        if version["value"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError("the object has been modified", status=409)
        return self.put(spec["value"])


class Way:
    """`ports.ApiClient` of one candidate: requests take as long, and fail, as the test says."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self.there: Callable[[], float] = lambda: 0.0
        """Seconds until a request is handled."""
        self.back: Callable[[], float] = lambda: 0.0
        """Seconds until its answer is here."""
        self.loses_answer: Callable[[], bool] = lambda: False
        self.refusal: ApiError | None = None
        """What every request meets now, unhandled."""
        self.sent: list[str] = []

    def refuse(self, refusal: ApiError) -> None:
        """From now on."""
        self.refusal = refusal

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        return await self._request("get", resource, self._server.get)

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bytes:
        sent = msgspec.json.decode(msgspec.json.encode(body))
        return await self._request("create", resource, lambda: self._server.create(sent))

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
        sent = msgspec.json.decode(msgspec.json.encode(body))
        return await self._request("patch", resource, lambda: self._server.patch(sent))

    async def _request(self, verb: str, resource: Resource, handle: Callable[[], bytes]) -> bytes:
        assert resource == LEASES
        self.sent.append(verb)
        if self.refusal is not None:
            raise self.refusal
        # What is on its way arrives, even if its sender has given up.
        delivery = asyncio.ensure_future(self._delivered(verb, handle))
        delivery.add_done_callback(asyncio.Future.exception)  # what nobody hears any more is not an error of the test
        return await asyncio.shield(delivery)

    async def _delivered(self, verb: str, handle: Callable[[], bytes]) -> bytes:
        await asyncio.sleep(self.there())
        try:
            answer, error = handle(), None
        except ApiError as failure:
            answer, error = b"", failure
        await asyncio.sleep(self.back())
        if verb != "get" and self.loses_answer():
            raise UnknownOutcomeError("the connection was lost")
        if error is not None:
            raise error
        return answer

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
        raise AssertionError("an election lists nothing")

    def watch(
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
        raise AssertionError("an election watches nothing")

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
        raise AssertionError("an election deletes nothing")
