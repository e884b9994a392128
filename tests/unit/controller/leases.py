"""The API server as far as Leases go, and the ways on which candidates reach it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from recovery.ports import (
    LEASES,
    AlreadyExistsError,
    ApiError,
    ApiRequest,
    ConflictError,
    NotFoundError,
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

    def handle(self, request: ApiRequest) -> bytes:
        assert request.resource == LEASES
        match request.verb:
            case "get":
                return self.get()
            case "create":
                return self.create(json.loads(request.body or b""))
            case "patch":
                return self.patch(json.loads(request.body or b""))
        raise AssertionError(f"an election does nothing of the kind: {request}")

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

    async def send(self, request: ApiRequest) -> bytes:
        self.sent.append(request.verb)
        if self.refusal is not None:
            raise self.refusal
        # What is on its way arrives, even if its sender has given up.
        delivery = asyncio.ensure_future(self._delivered(request))
        delivery.add_done_callback(asyncio.Future.exception)  # what nobody hears any more is not an error of the test
        return await asyncio.shield(delivery)

    async def _delivered(self, request: ApiRequest) -> bytes:
        await asyncio.sleep(self.there())
        try:
            answer, error = self._server.handle(request), None
        except ApiError as failure:
            answer, error = b"", failure
        await asyncio.sleep(self.back())
        if request.writes and self.loses_answer():
            raise UnknownOutcomeError("the connection was lost")
        if error is not None:
            raise error
        return answer

    def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        raise AssertionError("an election watches nothing")
