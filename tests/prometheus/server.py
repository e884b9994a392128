"""Processes beside the control plane: a Prometheus that scrapes the targets in a file, and kube-state-metrics."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from recovery.dashboards.rules import KUBE_STATE_METRICS_LABELS
from tests.cluster.controlplane.ports import PortClaims
from tests.cluster.controlplane.processes import ManagedProcess

START_SECONDS = 60.0
WAIT_SECONDS = 120.0

Sample = tuple[Mapping[str, str], float]


@dataclass
class PrometheusServer:
    """A Prometheus on its own port, with its data and its log in one folder."""

    process: ManagedProcess
    url: str
    folder: Path

    @classmethod
    @asynccontextmanager
    async def running(
        cls, binary: Path, folder: Path, *, scrapes: Sequence[Mapping[str, Any]], rules: Mapping[str, Any] | None = None
    ) -> AsyncIterator["PrometheusServer"]:
        """`scrapes`: scrape configurations. `rules` None: no rules. The process is killed on exit."""
        folder.mkdir(parents=True, exist_ok=True)
        if rules is not None:
            (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"] if rules is not None else [],
            "scrape_configs": list(scrapes),
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        claims = PortClaims()
        address = f"127.0.0.1:{claims.claim()}"
        command = [
            str(binary),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ]
        process = ManagedProcess("prometheus", command, folder / "prometheus.log", {"HOME": str(folder)})
        process.start()
        server = cls(process, f"http://{address}", folder)
        try:
            await server._until_ready()
            yield server
        finally:
            process.end()
            claims.close()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within the block the process is stopped: it scrapes nothing, and does not notice."""
        assert self.process.pid is not None, "it runs"
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    async def query(self, expr: str, at: float | None = None) -> list[Sample]:
        """The result of the expression at that time (seconds since the epoch). `at` None: now."""
        answer = await self._ask("query", {"query": expr, **({} if at is None else {"time": str(at)})})
        return [(each["metric"], float(each["value"][1])) for each in answer["result"]]

    async def values(self, expr: str, start: float, end: float, step: float = 1.0) -> list[list[float]]:
        """The values of each series from start to end."""
        window = {"query": expr, "start": str(start), "end": str(end), "step": str(step)}
        answer = await self._ask("query_range", window)
        return [[float(value) for _, value in each["values"]] for each in answer["result"]]

    async def until(self, expr: str, holds: Callable[[list[Sample]], bool] = bool) -> list[Sample]:
        """Wait for an answer for which `holds` is true, by default any sample. AssertionError if it takes too long."""
        answer: list[Sample] = []
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not holds(answer := await self.query(expr)):
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(
                f"within {WAIT_SECONDS:.0f} s this did not come to hold: {expr}; it gives {answer}"
            ) from None
        return answer

    async def alerts(self) -> list[Mapping[str, Any]]:
        """The alerts that are pending or firing, with their annotations filled in."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/api/v1/alerts") as answer:
            return list((await answer.json())["data"]["alerts"])

    async def _ask(self, endpoint: str, parameters: Mapping[str, str]) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/{endpoint}", params=dict(parameters)) as answer,
        ):
            body = await answer.json()
        assert body["status"] == "success", body
        return body["data"]

    async def _until_ready(self) -> None:
        await _until_it_answers(self.process, f"{self.url}/-/ready")


@asynccontextmanager
async def kube_state_metrics(binary: Path, folder: Path, kubeconfig: Path) -> AsyncIterator[str]:
    """Runs kube-state-metrics for pods, with the label allowlist that docs/monitoring.md states. Yields its address."""
    folder.mkdir(parents=True, exist_ok=True)
    claims = PortClaims()
    port, own = claims.claim(), claims.claim()
    command = [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        "--resources=pods",
        f"--metric-labels-allowlist=pods=[{','.join(KUBE_STATE_METRICS_LABELS)}]",
        "--host=127.0.0.1",
        f"--port={port}",
        "--telemetry-host=127.0.0.1",
        f"--telemetry-port={own}",
    ]
    process = ManagedProcess("kube-state-metrics", command, folder / "kube-state-metrics.log", {"HOME": str(folder)})
    process.start()
    try:
        await _until_it_answers(process, f"http://127.0.0.1:{port}/metrics")
        yield f"127.0.0.1:{port}"
    finally:
        process.end()
        claims.close()


async def _until_it_answers(process: ManagedProcess, url: str) -> None:
    try:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while True:
                if process.exit_code is not None:
                    raise process.failure(f"ended with {process.exit_code}")
                try:
                    async with session.get(url) as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise process.failure(f"did not answer within {START_SECONDS:.0f} s") from None


class Targets:
    """The targets of a scrape job. They may change while Prometheus runs, because it reads the file again."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._write([])

    def set(self, addresses: Mapping[str, str]) -> None:
        """Scrape these addresses, each as the pod of that name."""
        self._write(
            [
                {"targets": [address], "labels": {"__meta_kubernetes_pod_name": pod}}
                for pod, address in addresses.items()
            ]
        )

    def _write(self, groups: list[Mapping[str, Any]]) -> None:
        unfinished = self.file.with_suffix(".new")
        unfinished.write_text(json.dumps(groups))
        unfinished.rename(self.file)
