"""The modelled API server with the Lease of an election, and the connections through which candidates reach it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from random import Random

from recovery.controller.lease import LEASE_NAME
from recovery.ports import LEASES, ApiError, ApiRequest, PatchKind, UnknownOutcomeError
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.kind import ServedKind
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.virtual_time import VirtualClock
from tests.unit.fake_api import Object

NAMESPACE = "recovery-system"


class LeaseServer:
    """Serves Leases without validation, so that tests can write unreadable ones. Calls `judge` with each new holder."""

    def __init__(self) -> None:
        self.holders: list[str] = []
        """The holders in order. Empty: the Lease was released."""
        self.judge: Callable[[str], None] = lambda _holder: None
        self._server = ApiServer(
            [ServedKind(resource=LEASES, has_status=False)], clock=VirtualClock(), entropy=Random(1)
        )
        self._server.subscribe(self._changed, LEASES)
        self.client = ModelClient(self._server, "candidate")

    @property
    def lease(self) -> Object | None:
        return self._server.find(LEASES, LEASE_NAME, NAMESPACE)

    @property
    def spec(self) -> Object:
        assert self.lease is not None, "there is no Lease"
        spec: Object = self.lease["spec"]
        return spec

    def put(self, spec: Object) -> None:
        """Another writer creates or overwrites the Lease."""
        if self.lease is None:
            self._server.create(LEASES, {"metadata": {"name": LEASE_NAME}, "spec": spec}, namespace=NAMESPACE)
        else:
            self._patch([{"op": "add", "path": "/spec", "value": spec}], PatchKind.JSON)

    def touch(self) -> None:
        """Another writer annotates the Lease."""
        self._patch({"metadata": {"annotations": {"touched": str(self._server.revision)}}}, PatchKind.MERGE)

    def delete(self) -> None:
        """Another writer deletes the Lease, if it exists."""
        if self.lease is not None:
            self._server.delete(LEASES, LEASE_NAME, namespace=NAMESPACE)

    def _patch(self, patch: object, kind: PatchKind) -> None:
        self._server.patch(LEASES, LEASE_NAME, patch, kind=kind, namespace=NAMESPACE)

    def _changed(self, change: ObjectChange) -> None:
        if change.type == "DELETED":
            return
        holder = change.body["spec"].get("holderIdentity", "")
        self.judge(holder)
        if self.holders[-1:] != [holder]:
            self.holders.append(holder)


class Way:
    """`ports.ApiClient` of one candidate. A test sets how long requests take and how they fail."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self.there: Callable[[], float] = lambda: 0.0
        """Seconds until a request is handled."""
        self.back: Callable[[], float] = lambda: 0.0
        """Seconds until the answer arrives."""
        self.loses_answer: Callable[[], bool] = lambda: False
        self.refusal: ApiError | None = None
        """The error that every request raises before it reaches the server."""
        self.sent: list[str] = []

    def refuse(self, refusal: ApiError) -> None:
        """Fail every request from now on."""
        self.refusal = refusal

    async def send(self, request: ApiRequest) -> bytes:
        self.sent.append(request.verb)
        if self.refusal is not None:
            raise self.refusal
        # A request under way arrives, even if its sender has given up.
        delivery = asyncio.ensure_future(self._delivered(request))
        delivery.add_done_callback(asyncio.Future.exception)  # an error that nothing awaits must not fail the test
        return await asyncio.shield(delivery)

    async def _delivered(self, request: ApiRequest) -> bytes:
        await asyncio.sleep(self.there())
        try:
            answer, error = await self._server.client.send(request), None
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
