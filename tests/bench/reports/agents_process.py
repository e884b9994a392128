"""The agents of slot 0 of many jobs, as the controller sees them: one report at a time, over TLS, and again when due.

The waits between reports are those of `BarrierHost`, and the bodies are those of real barriers. Each agent has an
address of its own, because the controller limits the reports of an address. A line for each attempt says how it went.
Commands come by standard input: `ports`, a list, is where the Service leads; `burst` makes all report at once, with new
tokens if `tokens` is `new`.
"""

import argparse
import asyncio
import json
import random
import ssl
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from recovery.agent._trainjob_recovery.barrier_host import (
    ASKING_EVERY_SECONDS,
    OTHER_REPLICA_AFTER_SECONDS,
    OTHER_REPLICAS_TRIED,
    REPORT_SPREAD,
)
from recovery.agent._trainjob_recovery.report import PATH, TIMEOUT_SECONDS
from tests.agent.groups import Group

_EVERY_SECONDS = 30.0


def _say(**event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Service:
    """Where reports go."""

    def __init__(self, ca_pem: str) -> None:
        self.ports: Sequence[int] = ()
        self.context = ssl.create_default_context(cadata=ca_pem)


class Reporter:
    """Reports for one job."""

    def __init__(self, number: int, tokens: Sequence[str], slots: int, service: Service, draw: random.Random) -> None:
        self._number = number
        self._token, self._new_token = tokens
        self._group = Group(slots, alone=3)
        self._service = service
        self._draw = draw
        self._address = f"127.1.{number // 250}.{number % 250 + 1}"
        self._changed = asyncio.Event()

    def burst(self, tokens: str) -> None:
        if tokens == "new":
            self._token = self._new_token
        self._changed.set()

    async def run(self) -> None:
        await self._wait(self._draw.uniform(0, _EVERY_SECONDS))
        others, silent_seconds = 0, 1.0
        while True:
            self._changed.clear()
            status, after_seconds = await self._attempt()
            others = others + 1 if status == 503 else 0
            if 0 < others <= OTHER_REPLICAS_TRIED:
                await asyncio.sleep(OTHER_REPLICA_AFTER_SECONDS)
            elif status != 200 and after_seconds is not None:
                await asyncio.sleep(max(ASKING_EVERY_SECONDS, after_seconds))
            else:
                silent_seconds = 1.0 if status == 200 else min(_EVERY_SECONDS, silent_seconds * 2)
                seconds = _EVERY_SECONDS if status == 200 else silent_seconds
                await self._wait(seconds * self._draw.uniform(*REPORT_SPREAD))

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def _attempt(self) -> tuple[int, float | None]:
        """The status, 0 without an answer, and when the controller wants to be asked again."""
        port, began = self._draw.choice(list(self._service.ports)), time.monotonic()
        status, permitted = 0, False
        headers: dict[str, str] = {}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status, headers, body = await self._exchange(port)
                permitted = status == 200 and bool(json.loads(body)["permitted"])
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        now = time.monotonic()
        _say(at=now, job=self._number, port=port, status=status, permitted=permitted, took=now - began)
        after = headers.get("retry-after")
        return status, float(after) if after is not None else None

    async def _exchange(self, port: int) -> tuple[int, dict[str, str], bytes]:
        service = self._service
        report = json.dumps(self._group.report, separators=(",", ":")).encode()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=service.context, local_addr=(self._address, 0)
        )
        try:
            head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(report)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + report)
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            return int(first.split()[1]), fields, body
        finally:
            writer.transport.abort()


async def _run(given: Path) -> None:
    asked = json.loads(given.read_text())
    service, draw = Service(asked["ca"]), random.Random(1)
    reporters = [Reporter(number, token, asked["slots"], service, draw) for number, token in enumerate(asked["tokens"])]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: list[asyncio.Task[None]] = []
    while line := await reader.readline():
        command = json.loads(line)
        service.ports = command.get("ports", service.ports)
        if not tasks:
            tasks = [asyncio.ensure_future(reporter.run()) for reporter in reporters]
            await asyncio.sleep(0)
        if command.get("burst"):
            for reporter in reporters:
                reporter.burst(command["tokens"])
    for task in tasks:
        task.cancel()


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reports.agents_process")
    parser.add_argument("given", type=Path, help="JSON with ca, slots, and the tokens of the jobs")
    asyncio.run(_run(parser.parse_args().given))


if __name__ == "__main__":
    _main()
