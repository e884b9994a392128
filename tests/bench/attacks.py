"""How much clients can slow down or bloat a leader: eight scrapers, and 150 clients that send only part of a webhook
body.

Each arm is a separate process with 500 ledgers and 50,000 pods in its store. The first arm of each attack uses what the
libraries provide: `generate_latest` in the event loop, and kopf's own webhook server. The lag is how much too late a
task that sleeps in the same event loop wakes in the worst case. On a leader, a trigger would wait as long.
"""

import asyncio
import gc
import json
import logging
import os
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from aiohttp import web
from prometheus_client import generate_latest

from recovery.admission.certificates import Certificates, make_certificates
from recovery.admission.https_server import HttpsServer
from recovery.controller.clock import SystemClock
from recovery.telemetry.observer import Telemetry
from recovery.telemetry.server import serve
from tests.unit.telemetry.fleets import fleet, in_an_incident, put

JOBS = 500
PODS = 100
SCRAPERS = 8
SCRAPES_SECONDS = 8.0
BODIES = 150
BODY_BYTES = 1024 * 1024
SENT_BYTES = 1000 * 1024
HELD_SECONDS = 4.0
PROBE_SECONDS = 0.005


@dataclass
class Row:
    """What one arm measured."""

    attack: str
    arm: str
    worst_lag_milliseconds: float
    worst_work_milliseconds: float
    """The most CPU time that the event loop's thread spent between two wake-ups of the probe: the lag without the time
    that other processes took."""
    of_first: float
    """The ratio of that work to the work of the attack's first arm."""
    answered: int
    """Scrapes that arrived complete. For half bodies, whether a review was answered meanwhile: 1 or 0."""
    grown_megabytes: float
    """How much the resident memory grew at most."""


# --- the process that is attacked -------------------------------------------------------------------------------------


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Probe:
    """Measures until it is cancelled."""

    def __init__(self) -> None:
        self.worst_seconds = self.worst_work_seconds = 0.0
        self.first_bytes = self.most_bytes = _resident_bytes()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began, spent = loop.time(), time.thread_time()
            await asyncio.sleep(PROBE_SECONDS)
            self.worst_work_seconds = max(self.worst_work_seconds, time.thread_time() - spent)
            self.worst_seconds = max(self.worst_seconds, loop.time() - began - PROBE_SECONDS)
            self.most_bytes = max(self.most_bytes, _resident_bytes())


def _telemetry() -> Telemetry:
    store = fleet(jobs=JOBS, pods=PODS)
    for number, key in enumerate(store.keys()):
        put(store, key, in_an_incident(number, gpus=8 * PODS, ranks=PODS))
    telemetry = Telemetry(clock=SystemClock(), version="1")
    telemetry.follow(store)
    telemetry.leadership_changed(leads=True)
    return telemetry


@asynccontextmanager
async def _scraped_at_once(telemetry: Telemetry) -> AsyncIterator[int]:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(telemetry.registry))

    application = web.Application()
    application.add_routes([web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


async def _review(*_: Any, **__: Any) -> Any:
    return {"response": {"allowed": True}}


@asynccontextmanager
async def _webhooks(make: Callable[[int, Path], Any]) -> AsyncIterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
        certificate = Path(folder, "tls.pem")
        certificate.write_bytes(made.serving + made.key)
        port = kopf.WebhookServer._allocate_free_port()
        served = make(port, certificate)(_review)
        await anext(served)
        yield port
        await served.aclose()


ARMS: dict[tuple[str, str], Callable[[], Any]] = {
    ("scrapes", "one for each, in one go"): lambda: _scraped_at_once(_telemetry()),
    ("scrapes", "one for all, in slices"): lambda: serve(
        "127.0.0.1", 0, exposed=_telemetry(), clock=SystemClock(), missing=tuple
    ),
    ("half bodies", "kopf's server"): lambda: _webhooks(
        lambda port, file: kopf.WebhookServer(addr="127.0.0.1", port=port, certfile=file, pkeyfile=file)
    ),
    ("half bodies", "with limits"): lambda: _webhooks(
        lambda port, file: HttpsServer(
            lambda _: None,
            plurals={},
            reviewed=lambda *_: None,
            host="127.0.0.1",
            port=port,
            certificate=file,
            key=file,
            check_seconds=10,
        )
    ),
}


async def _attacked(attack: str, arm: str) -> None:
    """The child process. It prints its port, and its measurements when its input ends."""
    logging.disable()  # the libraries' servers log a traceback for each client that goes away
    async with ARMS[attack, arm]() as port:
        if "in slices" in arm:
            gc.collect()
            gc.freeze()  # as `recovery.controller.heap` does
        probe = _Probe()
        probing = asyncio.create_task(probe.run())
        print("port", port, flush=True)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
        await ended.wait()
        probing.cancel()
        grown = (probe.most_bytes - probe.first_bytes) / 1e6
        print(json.dumps([probe.worst_seconds * 1000, probe.worst_work_seconds * 1000, grown]), flush=True)


# --- the clients ------------------------------------------------------------------------------------------------------


async def _scrape(port: int) -> int:
    """How many scrapes arrived complete."""
    whole = 0
    until = asyncio.get_running_loop().time() + SCRAPES_SECONDS

    async def one() -> None:
        nonlocal whole
        async with aiohttp.ClientSession() as session:
            while asyncio.get_running_loop().time() < until:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    async for _ in answer.content.iter_any():
                        pass
                    whole += answer.status == 200

    await asyncio.gather(*(one() for _ in range(SCRAPERS)))
    return whole


async def _send_half(port: int) -> int:
    """Whether a review is answered while the other clients hold back the rest of their bodies. 1 or 0."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    head = f"POST /policies HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES - 1}\r\n\r\n".encode()
    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        for _ in range(BODIES):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                held.append((reader, writer))  # a reader that is garbage-collected closes its connection
                writer.write(head + b"x" * SENT_BYTES)
                await writer.drain()
        await asyncio.sleep(HELD_SECONDS)
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"https://127.0.0.1:{port}/policies", json={}) as answer,
        ):
            return int(answer.status == 200)
    finally:
        for _, writer in held:
            writer.transport.abort()


ATTACKS: dict[str, Callable[[int], Awaitable[int]]] = {"scrapes": _scrape, "half bodies": _send_half}


async def _port(output: asyncio.StreamReader) -> int:
    """Reads the port. Log lines may come before it."""
    while not (line := await output.readline()).startswith(b"port "):
        assert line, "the process has ended"
    return int(line.split()[1])


async def measure() -> list[Row]:
    """All arms. It takes about a minute and needs no Go."""
    rows: list[Row] = []
    for attack, arm in ARMS:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.attacks",
            attack,
            arm,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1024 * 1024,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        answered = await ATTACKS[attack](await _port(child.stdout))
        child.stdin.close()
        lag, work, grown = json.loads(await child.stdout.readline())
        await child.wait()
        first = next((row.worst_work_milliseconds for row in rows if row.attack == attack), work)
        rows.append(Row(attack, arm, lag, work, work / first, answered, grown))
    return rows


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| attack | served | worst lag ms | work ms | ratio | answered | MB more |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.attack} | {row.arm} | {row.worst_lag_milliseconds:.0f} | {row.worst_work_milliseconds:.0f} "
        f"| {row.of_first:.2f} | {row.answered} | {row.grown_megabytes:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    asyncio.run(_attacked(*sys.argv[1:]))
