"""A plain-HTTP proxy in front of the API server. It records the controller's requests, and can hold a chosen one.

With it, a test counts writes to show that the controller wrote only its own objects. A test can also place a crash
exactly between two writes: the proxy holds the request before it reaches the server, or its answer before it reaches
the controller, while the test kills the controller. The proxy has no rights of its own and lends none. The kubeconfig
that it writes has the token of the shipped ServiceAccount, which the proxy passes on unchanged.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from tests.cluster.conflicts import Conflicts, requested
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS

_HOP_HEADERS = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"}
)


@dataclass
class SeenRequest:
    """One request of the controller. `status` None: the server has not answered it."""

    method: str
    path: str
    query: str
    body: bytes
    status: int | None = None

    @property
    def is_write(self) -> bool:
        return self.method not in {"GET", "HEAD"}

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.query

    @property
    def namespace(self) -> str | None:
        """None: the request is for the whole cluster."""
        parts = self.path.strip("/").split("/")
        return parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-2] else None

    @property
    def resource(self) -> str:
        """The plural in the path, with its subresource: `pods`, `recoverygroups/status`."""
        parts = self.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if rest and rest[0] == "namespaces" and len(rest) > 2:
            rest = rest[2:]
        return "/".join((rest[0], *rest[2:]))


Matches = Callable[[SeenRequest], bool]


@dataclass
class Hold:
    """Requests to hold. `after`: they reach the server, and their answers are held. `matches` then sees the status."""

    matches: Matches
    after: bool
    every: bool
    """Hold all requests that match, not only the first."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    withdrawn: bool = False

    async def reach(self) -> None:
        """Keep a request here until the hold is released."""
        self.reached.set()
        await self.released.wait()

    async def wait(self, timeout_seconds: float = GUARD_SECONDS) -> None:
        """Wait until a request is held."""
        async with asyncio.timeout(timeout_seconds):
            await self.reached.wait()

    def holds(self, seen: SeenRequest) -> bool:
        return not self.withdrawn and (self.every or not self.reached.is_set()) and self.matches(seen)

    def withdraw(self) -> None:
        """Hold no further requests. Those that are held stay held."""
        self.withdrawn = True

    def release(self) -> None:
        """Hold no further requests, and let the held ones continue."""
        self.withdrawn = True
        self.released.set()


class ApiProxy:
    """Started by `ApiProxy.running(...)`; `url` is what a kubeconfig points at."""

    def __init__(self, control_plane: ControlPlane, token: str) -> None:
        self.upstream = control_plane.server
        """The API server for new requests. Requests that are open stay with the earlier one."""
        self._token = token
        self._tls = ssl.create_default_context(cafile=str(control_plane.certificates.authority))
        self._holds: list[Hold] = []
        self._writing: set[asyncio.Task[web.Response]] = set()
        self._watches: dict[aiohttp.ClientResponse, web.Request] = {}
        self._watches_speak = asyncio.Event()
        self._watches_speak.set()
        self._conflicts = Conflicts(control_plane.kubectl) if requested() else None
        self._session: aiohttp.ClientSession
        self.requests: list[SeenRequest] = []
        self.url = ""

    @classmethod
    @asynccontextmanager
    async def running(cls, control_plane: ControlPlane) -> AsyncIterator[Self]:
        """The manifests must be applied before: they contain the ServiceAccount."""
        token = await control_plane.token_of_service_account("recovery-system", "recovery-controller")
        proxy = cls(control_plane, token)
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", proxy._handle)
        connector = aiohttp.TCPConnector(ssl=proxy._tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as proxy._session:
            runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            proxy.url = f"http://{host}:{port}"
            try:
                yield proxy
            finally:
                proxy.release()
                await runner.cleanup()

    def hold(self, matches: Matches, *, after: bool = False, every: bool = False) -> Hold:
        """Hold the next request that matches, or `every` one."""
        hold = Hold(matches, after, every)
        self._holds.append(hold)
        return hold

    def release(self) -> None:
        """Withdraw all holds, and let all held requests continue."""
        for hold in self._holds:
            hold.release()

    def writes(self, matches: Matches = lambda _: True) -> list[SeenRequest]:
        """The writes that the server has answered, without those to the Lease, which is renewed all the time."""
        reached = (seen for seen in self.requests if seen.is_write and seen.status is not None)
        return [seen for seen in reached if seen.resource != "leases" and matches(seen)]

    @contextmanager
    def silenced_watches(self) -> Iterator[None]:
        """Inside the block, all watches, new ones too, stay open and deliver nothing, not even bookmarks.

        No connection breaks. Watches that are still open afterwards deliver what was held back.
        """
        self._watches_speak.clear()
        try:
            yield
        finally:
            self._watches_speak.set()

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Inside the block, no request is answered and no watch delivers anything. No connection breaks."""
        hold = self.hold(lambda _: True, every=True)
        try:
            with self.silenced_watches():
                yield
        finally:
            hold.release()

    def cut_watches(self, *, broken: bool) -> int:
        """End all watches: cleanly, as a server does at its time limit, or with a broken connection.

        Returns how many were open.
        """
        watches = tuple(self._watches.items())
        for answer, request in watches:
            if not broken:
                answer.close()
            elif request.transport is not None:
                request.transport.abort()
        return len(watches)

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig whose server is this proxy and whose user is the controller's ServiceAccount."""
        path.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n"
            f"clusters: [{{name: proxy, cluster: {{server: '{self.url}'}}}}]\n"
            f"users: [{{name: proxy, user: {{token: '{self._token}'}}}}]\n"
            "contexts: [{name: proxy, context: {cluster: proxy, user: proxy, namespace: recovery-system}}]\n"
        )
        return path

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        """Cancelled when its client is gone. A held request then never reaches the server, and no watch stays open."""
        seen = SeenRequest(request.method, request.path, request.query_string, await request.read())
        self.requests.append(seen)
        await self._held(seen, after=False)
        if not seen.is_write:
            async with self._sent(request, seen) as answer:
                await self._held(seen, after=True)
                if not seen.is_watch:
                    return await self._pass_on(request, answer)
                self._watches[answer] = request
                try:
                    return await self._pass_on(request, answer, self._watches_speak)
                finally:
                    del self._watches[answer]
        # A write that is under way reaches the server and is recorded, even if its client is gone.
        writing = asyncio.create_task(self._write(request, seen))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        response = await asyncio.shield(writing)
        await self._held(seen, after=True)
        return response

    async def _held(self, seen: SeenRequest, *, after: bool) -> None:
        """Wait while a hold keeps the request, or its answer."""
        hold = next((hold for hold in self._holds if hold.after is after and hold.holds(seen)), None)
        if hold is not None:
            await hold.reach()

    @asynccontextmanager
    async def _sent(self, request: web.Request, seen: SeenRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_HEADERS}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, self.upstream + request.path_qs, data=seen.body or None, headers=headers, timeout=timeout
        ) as answer:
            seen.status = answer.status
            yield answer

    async def _write(self, request: web.Request, seen: SeenRequest) -> web.Response:
        if self._conflicts:
            await self._conflicts.before(seen.method, seen.path, seen.body)
        async with self._sent(request, seen) as answer:
            return web.Response(status=answer.status, headers=_passed(answer), body=await answer.read())

    @staticmethod
    async def _pass_on(
        request: web.Request, answer: aiohttp.ClientResponse, may_speak: asyncio.Event | None = None
    ) -> web.StreamResponse:
        """Passes on each chunk at once, because a watch must not wait for more. `may_speak` None: it always may."""
        response = web.StreamResponse(status=answer.status, headers=_passed(answer))
        with suppress(ConnectionResetError, aiohttp.ClientError):
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                if may_speak is not None:
                    await may_speak.wait()
                await response.write(chunk)
            await response.write_eof()
        return response


def _passed(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """The answer's headers, its encoding too, because the body is passed on unchanged."""
    kept = _HOP_HEADERS - {"content-encoding"}
    return {name: value for name, value in answer.headers.items() if name.lower() not in kept}
