"""A small API server on 127.0.0.1 that gives the answers of a test."""

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

OBJECT = b'{"kind": "Pod"}'
"""The smallest successful answer of an API server."""

Answerer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return json.loads(self.body)


@dataclass
class Server:
    """Answers come from `script`, one for each request. When it is used up, every answer is `OBJECT`."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    script: deque[Answerer] = field(default_factory=deque)

    def kubeconfig(self, folder: Path, user: Mapping[str, object] | None = None) -> str:
        """Write a kubeconfig for this server; returns its path."""
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
                    "clusters": [{"name": "tests", "cluster": {"server": self.url}}],
                    "users": [{"name": "tests", "user": user or {"token": "secret"}}],
                }
            )
        )
        return str(path)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        received = Received(request.method, request.raw_path.split("?")[0], request.query, request.headers, body)
        self.received.append(received)
        return (
            await self.script.popleft()(request)
            if self.script
            else web.Response(body=OBJECT, content_type="application/json")
        )


def status(code: int, reason: str = "", message: str = "no", headers: Mapping[str, str] | None = None) -> Answerer:
    """A failure with a Status body."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {}}
        return web.json_response(body, status=code, headers=headers)

    return answer


def stream(*chunks: bytes, cut_off: bool = False) -> Answerer:
    """A chunked body. `cut_off`: the connection breaks after it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if cut_off:
            hang_up(request)
        return response

    return answer


def hang_up(request: web.Request) -> None:
    """Break the connection."""
    assert request.transport is not None
    request.transport.abort()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """Run a server on a free port."""
    server = Server()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
