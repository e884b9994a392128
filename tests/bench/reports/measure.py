"""500 jobs report to `recovery run`: as they do all the time, all at once, and to a new leader."""

import asyncio
import contextlib
import gc
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.child import Child, Event
from tests.bench.reports.api import OWN_NAMESPACE, AgentRequests, authority, prepare, token_of
from tests.bench.scale.cluster import Cluster
from tests.bench.scale.controller import Controller, source_of_this
from tests.bench.scale.fleet import Fleet
from tests.bench.scale.server import Server

PATIENCE_SECONDS = 180.0
_OPTIONS = ("--lease-namespace", OWN_NAMESPACE, "--agent-address", "127.0.0.1:0")
_ROUND_SECONDS = 35.0
"""After it, each job has reported."""
_STANDS_BY = "standing by"
_SERVES = '"serving agents"'


@dataclass(frozen=True)
class Options:
    jobs: int = 500
    pods: int = 10
    """Of each job."""
    idle_seconds: float = 15.0
    """How long the leader is watched without reports. What it uses then is no report's."""
    cadence_seconds: float = 60.0


@dataclass(frozen=True)
class Row:
    """One phase. Milliseconds, seconds and megabytes depend on the machine. None: the phase has no such figure."""

    phase: str
    load: float
    """The load average of the last minute, at the end of the phase."""
    answered: int
    not_answered: int
    """Attempts that were refused or not answered in time: the agents try again."""
    cpu_milliseconds: float | None
    """Of the leader, for each report that it answers, beyond what it uses without reports."""
    p50_milliseconds: float
    p99_milliseconds: float
    """From dialling to the answer, of what was answered."""
    all_known_seconds: float | None
    """Until every job has had an answer."""
    resident_mb: float


async def measure(options: Options | None = None) -> list[Row]:
    """Some three minutes. Needs no Go."""
    options = options or Options()
    fleet = Fleet([(options.jobs, options.pods)])
    prepare(fleet)
    gc.collect()
    gc.freeze()  # or the fake server's own collections delay its answers
    server = Server(fleet, AgentRequests(Cluster(fleet)))
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as name:
        async with await server.start():
            return await _Run(options, fleet, server, Path(name)).rows()


class _Run:
    def __init__(self, options: Options, fleet: Fleet, server: Server, folder: Path) -> None:
        self._options = options
        self._fleet = fleet
        self._server = server
        self._folder = folder
        self._agents: Child
        self._idle_load = 0.0
        """The share of a processor that the leader uses without reports."""

    async def rows(self) -> list[Row]:
        options = self._options
        async with self._controller("first", '"leading"') as leader:
            await leader.quiet()
            used, began = leader.cpu_seconds(), time.monotonic()
            await asyncio.sleep(options.idle_seconds)
            self._idle_load = (leader.cpu_seconds() - used) / (time.monotonic() - began)
            without_mb = leader.resident_mb()
            async with self._controller("second", _STANDS_BY) as standby:
                ports = [await _port_of(leader), await _port_of(standby)]
                given = str(await self._given())
                command = (sys.executable, "-m", "tests.bench.reports.agents_process", given)
                async with Child.running(*command) as self._agents:
                    rows = [self._row("none", leader, [], 0.0, 0.0, resident_mb=without_mb)]
                    rows.append(await self._cadence(leader, ports))
                    rows.append(await self._new_leader(leader, standby, ports[1]))
                    rows.append(await self._burst("all at once", standby, ports[1]))
                    rows.append(await self._burst("all at once, with new tokens", standby, ports[1], tokens="new"))
                await standby.end()
        return rows

    @contextlib.asynccontextmanager
    async def _controller(self, name: str, ready: str) -> AsyncIterator[Controller]:
        folder = self._folder / name
        folder.mkdir()
        async with Controller.running(self._server.port, source_of_this(), folder, _OPTIONS, ready) as controller:
            yield controller

    async def _given(self) -> Path:
        """The file that tells the agents what admission and the kubelet would."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not authority(self._fleet):
                await asyncio.sleep(0.2)
        first_pods = [
            pod for group in self._fleet.groups.values() for pod in group.lives().pods.values() if pod.index == 0
        ]
        given = {
            "ca": authority(self._fleet),
            "slots": self._options.pods,
            "tokens": [[token_of(pod), token_of(pod, "renewed")] for pod in first_pods],
        }
        path = self._folder / "agents.json"
        path.write_text(json.dumps(given))
        return path

    # ---- phases ------------------------------------------------------------------------------------------------------

    async def _cadence(self, leader: Controller, ports: Sequence[int]) -> Row:
        """Half of the reports meet the replica that stands by first, as with a Service."""
        self._agents.tell(ports=ports)
        await asyncio.sleep(_ROUND_SECONDS)
        began, used = time.monotonic(), leader.cpu_seconds()
        await asyncio.sleep(self._options.cadence_seconds)
        cpu_seconds, seconds = leader.cpu_seconds() - used, time.monotonic() - began
        answers = [event for event in self._since(began) if event["status"] == 200]
        assert all(event["permitted"] for event in answers), "these jobs may restart in place"
        return self._row("every 30 s", leader, self._since(began), cpu_seconds, seconds)

    async def _new_leader(self, leader: Controller, standby: Controller, port: int) -> Row:
        """The old one releases the Lease as it ends: no report fails, which would bring the next one early."""
        ending = asyncio.create_task(leader.end())
        await standby.until_logged('"leading"')
        began, used = time.monotonic(), standby.cpu_seconds()
        await ending
        self._agents.tell(ports=[port])
        all_known = await self._all_known(began, port)
        cpu_seconds, seconds = standby.cpu_seconds() - used, time.monotonic() - began
        return self._row("to a new leader", standby, self._since(began), cpu_seconds, seconds, all_known=all_known)

    async def _burst(self, phase: str, leader: Controller, port: int, tokens: str = "kept") -> Row:
        await leader.quiet(15.0)
        began, used = time.monotonic(), leader.cpu_seconds()
        self._agents.tell(burst=True, tokens=tokens)
        all_known = await self._all_known(began, port)
        cpu_seconds, seconds = leader.cpu_seconds() - used, time.monotonic() - began
        return self._row(phase, leader, self._since(began), cpu_seconds, seconds, all_known=all_known)

    # ---- what the agents have said -----------------------------------------------------------------------------------

    def _since(self, began: float) -> list[Event]:
        """The attempts that have begun since then."""
        return [event for event in self._agents.events if event["at"] - event["took"] >= began]

    async def _all_known(self, began: float, port: int) -> float:
        """Seconds until the replica at this port has answered every job."""

        def known(_: object) -> float | None:
            first: dict[int, float] = {}
            for event in self._since(began):
                if event["status"] == 200 and event["port"] == port:
                    first.setdefault(event["job"], event["at"])
            return max(first.values()) - began if len(first) == self._options.jobs else None

        seconds = await self._agents.all_said(known, PATIENCE_SECONDS)
        assert isinstance(seconds, float)
        return seconds

    def _row(
        self,
        phase: str,
        controller: Controller,
        attempts: Sequence[Event],
        cpu_seconds: float,
        seconds: float,
        *,
        all_known: float | None = None,
        resident_mb: float | None = None,
    ) -> Row:
        took = sorted(event["took"] * 1000 for event in attempts if event["status"] == 200)
        for_reports = max(0.0, cpu_seconds - self._idle_load * seconds)
        row = Row(
            phase=phase,
            load=os.getloadavg()[0],
            answered=len(took),
            not_answered=len(attempts) - len(took),
            cpu_milliseconds=for_reports * 1000 / len(took) if took else None,
            p50_milliseconds=took[len(took) // 2] if took else 0.0,
            p99_milliseconds=took[len(took) * 99 // 100] if took else 0.0,
            all_known_seconds=all_known,
            resident_mb=controller.resident_mb() if resident_mb is None else resident_mb,
        )
        print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
        return row


async def _port_of(controller: Controller) -> int:
    found = re.search(r"127\.0\.0\.1:(\d+)", await controller.until_logged(_SERVES))
    assert found is not None
    return int(found[1])


def table(rows: Sequence[Row]) -> str:
    """A Markdown table. The ratios count: the figures themselves depend on the machine."""
    base = next((row.cpu_milliseconds for row in rows if row.phase.startswith("every") and row.cpu_milliseconds), None)
    head = (
        "| reports | answered | not answered | CPU ms each | of every 30 s | p50 ms | p99 ms | all known after s "
        "| MB | load |"
    )
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for row in rows:
        cpu, known = row.cpu_milliseconds, row.all_known_seconds
        cells = [
            row.phase,
            f"{row.answered:,}",
            f"{row.not_answered:,}",
            "" if cpu is None else f"{cpu:.1f}",
            "" if cpu is None or base is None else f"{cpu / base:.2f}",
            f"{row.p50_milliseconds:.0f}" if row.answered else "",
            f"{row.p99_milliseconds:.0f}" if row.answered else "",
            "" if known is None else f"{known:.1f}",
            f"{row.resident_mb:.0f}",
            f"{row.load:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
