"""A plain-HTTP proxy in front of the API server: it counts what the controller asks, and holds a chosen request.

With it, "the controller wrote nothing but its own objects" is counted and not believed, and a crash between two writes
happens at exactly that point: the request is held before it reaches the server, or its answer before it reaches the
controller, while the test kills the controller. The proxy has no rights of its own and lends none: the kubeconfig that
it writes bears the token of the shipped ServiceAccount, which goes through to the API server as it is.
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

from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS

_HOP_HEADERS = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"}
)


@dataclass
class SeenRequest:
    """One request of the controller. `status` None: it is under way, or its answer never got out."""

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
        """None: the request is of the whole cluster."""
        parts = self.path.strip("/").split("/")
        return parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-2] else None

    @property
    def resource(self) -> str:
        """The plural that the path names, with its subresource: `pods`, `recoverygroups/status`."""
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
    """Not only the first that matches."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    withdrawn: bool = False

    async def reach(self) -> None:
        """A request has got here; it goes on when the hold is released."""
        self.reached.set()
        await self.released.wait()

    async def wait(self, timeout_seconds: float = GUARD_SECONDS) -> None:
        """Until a request is held."""
        async with asyncio.timeout(timeout_seconds):
            await self.reached.wait()

    def holds(self, seen: SeenRequest) -> bool:
        return not self.withdrawn and (self.every or not self.reached.is_set()) and self.matches(seen)

    def withdraw(self) -> None:
        """Hold nothing more; what is held stays held."""
        self.withdrawn = True

    def release(self) -> None:
        """Hold nothing more, and let go what is held."""
        self.withdrawn = True
        self.released.set()


class ApiProxy:
    """Started by `ApiProxy.running(...)`; `url` is what a kubeconfig points at."""

    def __init__(self, control_plane: ControlPlane, token: str) -> None:
        self.upstream = control_plane.server
        """The API server that requests from now on go to; what is open stays where it is."""
        self._token = token
        self._tls = ssl.create_default_context(cafile=str(control_plane.certificates.authority))
        self._holds: list[Hold] = []
        self._writing: set[asyncio.Task[web.Response]] = set()
        self._watches: dict[aiohttp.ClientResponse, web.Request] = {}
        self._watches_speak = asyncio.Event()
        self._watches_speak.set()
        self._session: aiohttp.ClientSession
        self.requests: list[SeenRequest] = []
        self.url = ""

    @classmethod
    @asynccontextmanager
    async def running(cls, control_plane: ControlPlane) -> AsyncIterator[Self]:
        """The manifests must be applied: they bring the ServiceAccount."""
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
        """Hold nothing more, and let go all that is held."""
        for hold in self._holds:
            hold.release()

    def writes(self, matches: Matches = lambda _: True) -> list[SeenRequest]:
        """What reached the server and was not a read, but for the Lease: that is written as time passes."""
        reached = (seen for seen in self.requests if seen.is_write and seen.status is not None)
        return [seen for seen in reached if seen.resource != "leases" and matches(seen)]

    @contextmanager
    def silenced_watches(self) -> Iterator[None]:
        """Watches, new ones too, are open and tell nothing meanwhile, not even bookmarks; no connection breaks.

        What they had to tell comes afterwards, to those who still listen.
        """
        self._watches_speak.clear()
        try:
            yield
        finally:
            self._watches_speak.set()

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """No request is answered and no watch tells anything meanwhile; no connection breaks."""
        hold = self.hold(lambda _: True, every=True)
        try:
            with self.silenced_watches():
                yield
        finally:
            hold.release()

    def cut_watches(self, *, broken: bool) -> int:
        """End all watches: in good order, as a server does whose time limit is over, or with a broken connection.

        Gives how many were open.
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
        """Cancelled when its sender is gone: what is held then never happens, and no watch is left open for no one."""
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
        # A write that is on its way arrives, whatever becomes of its sender, and is recorded.
        writing = asyncio.create_task(self._write(request, seen))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        response = await asyncio.shield(writing)
        await self._held(seen, after=True)
        return response

    async def _held(self, seen: SeenRequest, *, after: bool) -> None:
        """Wait as long as a hold wants the request, or its answer, held."""
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
        async with self._sent(request, seen) as answer:
            return web.Response(status=answer.status, headers=_passed(answer), body=await answer.read())

    @staticmethod
    async def _pass_on(
        request: web.Request, answer: aiohttp.ClientResponse, may_speak: asyncio.Event | None = None
    ) -> web.StreamResponse:
        """Chunk by chunk: a watch must not wait for more. `may_speak` None: always."""
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
    """The answer's headers, its encoding too: the body goes through as it is."""
    kept = _HOP_HEADERS - {"content-encoding"}
    return {name: value for name, value in answer.headers.items() if name.lower() not in kept}
