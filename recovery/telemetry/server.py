"""The HTTP server for those who operate the controller: `/metrics`, `/healthz`, `/readyz`."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

_log = structlog.get_logger("recovery.telemetry")

_CLOSE_SECONDS = 1.0
"""How long a stop waits for a scrape in progress."""


class ServerError(Exception):
    """The server cannot listen; the message is one line that names the address."""


@asynccontextmanager
async def serve(
    host: str, port: int, *, registry: CollectorRegistry, missing: Callable[[], Sequence[str]]
) -> AsyncIterator[int]:
    """Serve while the context lasts; gives the port, which the system chose if `port` is 0. Raises ServerError.

    `missing` names what the controller still waits for before it can work; it is ready when that is nothing.
    """

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # an event loop that hangs does not answer at all

    async def readyz(_request: web.Request) -> web.Response:
        waits_for = missing()
        if waits_for:
            return web.Response(status=503, text=f"not ready, waiting for: {', '.join(waits_for)}\n")
        return web.Response(text="ok\n")

    application = web.Application()
    application.add_routes(
        [web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)],
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_CLOSE_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ServerError(f"cannot serve metrics on {host}:{port}: {_words(error)}") from error
        bound = int(runner.addresses[0][1])
        _log.info("serving /metrics, /healthz and /readyz", address=f"{host}:{bound}")
        yield bound
    finally:
        await runner.cleanup()


def _words(error: OSError) -> str:
    """The system's words; asyncio wraps its own around them. (Name resolution has errors of its own, below 0.)"""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)
