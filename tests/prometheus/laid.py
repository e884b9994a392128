"""Writes a recording into the blocks of a Prometheus, evaluates its rules over it, and starts a server on them."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from recovery.dashboards.alert import Alert
from recovery.dashboards.alerts import ALERTS, expression
from recovery.dashboards.rules import INTERVAL_SECONDS, recording_groups
from tests.cluster.controlplane.ports import PortClaims
from tests.cluster.controlplane.processes import ManagedProcess
from tests.prometheus.recorder import Recording, Sample

TARGET_NAMESPACE = "recovery-system"
START_SECONDS = 30
_LOOKBACK_SECONDS = INTERVAL_SECONDS + 1
"""Blocks have no staleness markers to end a series that a scrape lacks. The short lookback ends it instead."""


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and its values with their times."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        return self.points[-1][1]


class PrometheusError(Exception):
    """Prometheus refused a query or did not start. The text has its message."""


@dataclass(frozen=True)
class Queries:
    """Sends queries to a running server."""

    url: str

    def instant(self, expr: str, at: datetime) -> list[Series]:
        found = self._get("query", {"query": expr, "time": f"{at.timestamp():.3f}"})
        return [Series(each["metric"], [_point(each["value"])]) for each in found]

    def over(self, expr: str, begin: datetime, end: datetime, step_seconds: float) -> list[Series]:
        times = {"start": f"{begin.timestamp():.3f}", "end": f"{end.timestamp():.3f}", "step": f"{step_seconds:g}"}
        found = self._get("query_range", {"query": expr, **times})
        return [Series(each["metric"], [_point(point) for point in each["values"]]) for each in found]

    def _get(self, what: str, parameters: Mapping[str, str]) -> list[dict]:  # type: ignore[type-arg]
        try:
            with urlopen(f"{self.url}/api/v1/{what}?{urlencode(parameters)}", timeout=60) as answer:
                body = json.load(answer)
        except URLError as error:
            text = error.read().decode() if hasattr(error, "read") else str(error)
            raise PrometheusError(f"{parameters['query']}: {text}") from None
        result: list[dict] = body["data"]["result"]  # type: ignore[type-arg]
        return result


def _point(pair: Sequence[object]) -> tuple[float, float]:
    return float(str(pair[0])), float(str(pair[1]))


@dataclass(frozen=True)
class Laid:
    """Prometheus's data, with all rules evaluated."""

    prometheus: Path
    promtool: Path
    data: Path
    honors_labels: bool

    @contextmanager
    def served(self) -> Iterator[Queries]:
        """Runs a server on the data, on a free port of the loopback address."""
        config = self.data.parent / "prometheus.yml"
        config.write_text("global: {}\n")
        claims = PortClaims()
        port = claims.claim()
        command = [
            str(self.prometheus),
            f"--config.file={config}",
            f"--storage.tsdb.path={self.data}",
            "--storage.tsdb.retention.time=100y",
            f"--query.lookback-delta={_LOOKBACK_SECONDS}s",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        process = ManagedProcess("prometheus", command, self.data.parent / "prometheus.log", dict(os.environ))
        process.start()
        try:
            url = f"http://127.0.0.1:{port}"
            _await_ready(url, process)
            yield Queries(url)
        finally:
            process.end()
            claims.close()

    def evaluate(self, rules: Sequence[Mapping[str, str | Mapping[str, str]]], begin: datetime, end: datetime) -> None:
        """Record these rules over the data so far. The server must not run."""
        file = self.data.parent / "now.rules.yaml"
        group = {"name": "now", "interval": f"{INTERVAL_SECONDS}s", "rules": list(rules)}
        file.write_text(yaml.safe_dump({"groups": [group]}))
        with self.served() as server:
            arguments = [f"--start={begin.timestamp():.0f}", f"--end={end.timestamp():.0f}", f"--url={server.url}"]
            output = self.data.parent / "evaluated"
            self._promtool(
                "tsdb", "create-blocks-from", "rules", *arguments, f"--output-dir={output}",
                f"--eval-interval={INTERVAL_SECONDS}s", str(file),
            )  # fmt: skip
        for block in output.iterdir():
            shutil.move(block, self.data / block.name)

    def import_text(self, text: Iterable[str]) -> None:
        file = self.data.parent / "samples.txt"
        with file.open("w") as output:
            output.writelines(text)
        self._promtool("tsdb", "create-blocks-from", "openmetrics", str(file), str(self.data))

    def _promtool(self, *arguments: str) -> None:
        done = subprocess.run([self.promtool, *arguments], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise PrometheusError(f"promtool {' '.join(arguments)}: {done.stdout}{done.stderr}")


def lay(recording: Recording, *, prometheus: Path, promtool: Path, folder: Path, honors_labels: bool) -> Laid:
    """Write the recording as a scrape with or without honorLabels would have, and evaluate all rules over it."""
    laid = Laid(prometheus, promtool, folder / "data", honors_labels)
    laid.data.mkdir(parents=True)
    laid.import_text(_openmetrics(recording.samples, honors_labels=honors_labels))
    begin, end = recording.evidence.began_at, recording.ends_at
    jobs, fleet, *others = recording_groups()
    for groups in ([jobs, fleet], *([group] for group in others)):
        rules = [{"record": rule.record, "expr": rule.expr} for group in groups for rule in group.rules]
        laid.evaluate(rules, begin, end)
    for level in _explained_after_what_explains_them():
        laid.evaluate([_as_recorded(alert) for alert in level], begin, end)
    return laid


def _explained_after_what_explains_them() -> Iterator[list[Alert]]:
    """An alert that stays silent while another fires has to see that one, so the other is evaluated first."""
    left = list(ALERTS)
    while left:
        names = {alert.name for alert in left}
        level = [alert for alert in left if names.isdisjoint(alert.explained_by)]
        assert level, f"these alerts explain each other: {names}"
        yield level
        left = [alert for alert in left if alert not in level]


def _as_recorded(alert: Alert) -> Mapping[str, str | Mapping[str, str]]:
    """The series that Prometheus writes while the alert fires. promtool evaluates recording rules only."""
    expr = expression(alert)
    samples = max(1, alert.for_seconds // INTERVAL_SECONDS)
    lasting = f"count_over_time(({expr})[{max(alert.for_seconds, INTERVAL_SECONDS)}s:{INTERVAL_SECONDS}s]) >= {samples}"
    labels = {"alertname": alert.name, "alertstate": "firing", "severity": str(alert.severity)}
    return {"record": "ALERTS", "expr": f"({lasting}) * 0 + 1", "labels": labels}


def scraped_labels(sample: Sample, *, honors_labels: bool) -> Mapping[str, str]:
    """The labels of a sample after a ServiceMonitor's scrape."""
    labels = {str(key): str(value) for key, value in sample.labels.items()}
    if not honors_labels and "namespace" in labels:
        labels["exported_namespace"] = labels.pop("namespace")
    return {
        "namespace": TARGET_NAMESPACE,
        "pod": sample.replica,
        "instance": f"{sample.replica}:8080",
        "endpoint": "metrics",
        "container": "manager",
        "service": "recovery-controller-metrics",
        "job": "recovery-controller-metrics",
        **labels,
    }


def _openmetrics(samples: Sequence[Sample], *, honors_labels: bool) -> Iterator[str]:
    """OpenMetrics text. The samples of a family are adjacent, as the format requires."""
    for sample in sorted(samples, key=lambda sample: sample.name):
        labels = scraped_labels(sample, honors_labels=honors_labels)
        written = ",".join(f'{key}="{value}"' for key, value in labels.items())
        yield f"{sample.name}{{{written}}} {sample.value!r} {sample.at.timestamp():.3f}\n"
    yield "# EOF\n"


def _await_ready(url: str, process: ManagedProcess) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up and process.exit_code is None:
        try:
            with urlopen(f"{url}/-/ready", timeout=2):
                return
        except URLError:
            time.sleep(0.1)
    raise process.failure(f"did not get ready within {START_SECONDS} s")
