"""The HTTP server for operators of the controller: `/metrics`, `/healthz`, `/readyz`."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from aiohttp import web

from recovery.http_server import HttpLimits, PartsResponse, listen
from recovery.ports import Clock
from recovery.telemetry.exposition import Exposed, Exposition, chosen_format
from recovery.telemetry.server_error import ServerError

_log = structlog.get_logger("recovery.telemetry")

_CLOSE_SECONDS = 1.0
"""How long a stop waits for a scrape in progress."""

METRICS_LIMITS = HttpLimits(connections=32, body_bytes=4096, unread_bytes=256 * 1024)
"""Some Prometheus replicas, the kubelet's probes and a few people; none sends a body."""


Alive = Callable[[], tuple[bool, str]]


def _answers() -> tuple[bool, str]:
    """The process is alive, because it answers."""
    return True, "ok"


@asynccontextmanager
async def serve(
    host: str,
    port: int,
    *,
    exposed: Exposed,
    clock: Clock,
    missing: Callable[[], Sequence[str]],
    alive: Alive = _answers,
) -> AsyncIterator[int]:
    """Serve while the context is open. Yields the port, which the system chooses if `port` is 0. Raises ServerError.

    `missing` names what the controller still waits for before it can work. It is ready when that is nothing.
    `alive` says whether the process should continue, and a line about it. It must not wait, because waiting requests
    would take all connections. An event loop that hangs does not answer at all.
    """
    exposition = Exposition(exposed, clock)

    async def metrics(request: web.Request) -> web.StreamResponse:
        text_format = chosen_format(request.headers.get("Accept", ""))
        body = await exposition.body(text_format)
        return PartsResponse(body.parts, headers={"Content-Type": text_format})

    async def healthz(_request: web.Request) -> web.Response:
        goes_on, words = alive()
        return web.Response(status=200 if goes_on else 503, text=f"{words}\n")

    async def readyz(_request: web.Request) -> web.Response:
        waits_for = missing()
        if waits_for:
            return web.Response(status=503, text=f"not ready, waiting for: {', '.join(waits_for)}\n")
        return web.Response(text="ok\n")

    routes = [web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]
    async with AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(
                listen(routes, host, port, limits=METRICS_LIMITS, close_seconds=_CLOSE_SECONDS)
            )
        except OSError as error:
            raise ServerError(f"cannot serve metrics on {host}:{port}: {_words(error)}") from error
        stack.push_async_callback(exposition.end)
        _log.info("serving /metrics, /healthz and /readyz", address=f"{host}:{bound}")
        yield bound


def _words(error: OSError) -> str:
    """The system's words; asyncio wraps its own around them. (Name resolution has errors of its own, below 0.)"""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)
