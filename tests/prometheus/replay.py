"""A recording as the input of `promtool test rules`, which runs Prometheus's own rule manager, so alerts have states.

(The blocks for the dashboard tests have no alert states: their alerts are evaluated as recording rules.)
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from recovery.ports import PODS
from recovery.sim.cluster import EmbeddedCluster
from tests.prometheus.laid import scraped_labels
from tests.prometheus.promtool import FILES, Expected, check
from tests.prometheus.recorder import SCRAPE_SECONDS, Recording, Sample

_METRIC = re.compile(r"\b(?:recovery|kube)_[a-z_]+")
_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_MEMBERS = "kube-state-metrics"


def replay(
    promtool: Path, folder: Path, recording: Recording, expected: Sequence[tuple[str, Mapping[str, float]]]
) -> None:
    """Run the rules on the recording. AssertionError unless each expression gives these samples at its end."""
    began_at = recording.evidence.began_at
    scrapes = int((recording.ends_at - began_at).total_seconds()) // SCRAPE_SECONDS
    read = {name for file in FILES for name in _METRIC.findall(Path(file).read_text())}
    values: dict[str, list[float | None]] = {}
    for sample in recording.samples:
        if sample.name in read and not math.isnan(sample.value):
            scrape = round((sample.at - began_at).total_seconds()) // SCRAPE_SECONDS
            values.setdefault(_series(sample), [None] * (scrapes + 1))[scrape] = sample.value
    series = {name: " ".join(_notation(told)) for name, told in values.items()}
    at = f"{scrapes * SCRAPE_SECONDS - 5}s"  # not the time of a sample: versions differ about the ends of ranges
    wanted = [Expected(expr, at, samples) for expr, samples in expected]
    check(promtool, folder, series, wanted, interval_seconds=SCRAPE_SECONDS, starts_at=began_at)


def _series(sample: Sample) -> str:
    labels = scraped_labels(sample, honors_labels=True)
    written = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{sample.name}{{{written}}}"


def _notation(told: Sequence[float | None]) -> Iterator[str]:
    """Values in promtool's notation. A scrape without a series that the scrape before had marks the series as stale."""
    before: float | None = None
    for value in told:
        if value is not None:
            yield format(Decimal(repr(value)), "f")
        else:
            yield "stale" if before is not None else "_"
        before = value


def scrape_members(cluster: EmbeddedCluster, recording: Recording, at: datetime) -> None:
    """The part of kube-state-metrics' pod metrics that the rules read (`tests.prometheus.test_end_to_end` has the real
    one)."""
    for pod in cluster.server.objects(PODS):
        for name, labels, value in _of_pod(pod):
            named = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"], **labels}
            recording.samples.append(Sample(at, _MEMBERS, f"kube_pod_{name}", named, value))


def _of_pod(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    metadata, status = pod["metadata"], pod.get("status", {})
    yield "labels", {f"label_{_LABEL.sub('_', key)}": value for key, value in metadata.get("labels", {}).items()}, 1.0
    for owner in metadata.get("ownerReferences", []):
        yield "owner", {"owner_kind": owner["kind"], "owner_name": owner["name"]}, 1.0
    yield "created", {}, _seconds(metadata["creationTimestamp"])
    if "deletionTimestamp" in metadata:
        yield "deletion_timestamp", {}, _seconds(metadata["deletionTimestamp"])
    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
        yield "status_phase", {"phase": phase}, float(status.get("phase", "Pending") == phase)
    ends = []
    for container in status.get("containerStatuses", []):
        if "terminated" in container.get("state", {}):
            ends.append(_seconds(container["state"]["terminated"]["finishedAt"]))
        if "terminated" in container.get("lastState", {}):
            ended = _seconds(container["lastState"]["terminated"]["finishedAt"])
            yield "container_status_last_terminated_timestamp", {"container": container["name"]}, ended
    if ends:
        yield "completion_time", {}, max(ends)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
