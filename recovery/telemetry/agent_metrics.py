"""The metrics of the agents' endpoint. It runs in a thread of its own and counts here directly, because the instruments
of prometheus_client are thread-safe."""

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.core.model.facts import GroupKey
from recovery.ports import Clock
from recovery.telemetry.catalogue.label_values import AGENT_RESULTS
from recovery.telemetry.catalogue.of_process import (
    AGENT_CERTIFICATE_EXPIRY,
    AGENT_JOBS,
    AGENT_REPORT_SECONDS,
    AGENT_REPORTS,
)
from recovery.telemetry.families import counter, filled, histogram

REPORTED_SECONDS = 90.0
"""Agents report every 30 seconds: a job that counts has missed two reports at most."""
_ANSWER_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class AgentMetrics(Collector):
    """A prometheus collector over the endpoint, and the counter of its reports."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._expires_at: Callable[[], datetime | None] = lambda: None
        self._reports = counter(AGENT_REPORTS, registry)
        for result in AGENT_RESULTS:
            self._reports.labels(result)
        self._seconds = histogram(AGENT_REPORT_SECONDS, registry, _ANSWER_SECONDS)
        self._reported: dict[GroupKey, float] = {}
        """When each job was last answered, by our monotonic clock."""
        self._lock = threading.Lock()
        registry.register(self)

    def follow(self, expires_at: Callable[[], datetime | None]) -> None:
        """Ask at every scrape until when the serving certificate is valid."""
        self._expires_at = expires_at

    def refused(self, result: str) -> None:
        """A report was not taken in. Any thread may call it."""
        self._reports.labels(result).inc()

    def answered(self, key: GroupKey, seconds: float) -> None:
        """A report was answered, this long after it had arrived. Any thread may call it."""
        self._reports.labels("accepted").inc()
        self._seconds.observe(seconds)
        with self._lock:
            self._reported[key] = self._clock.monotonic_seconds()

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield filled(AGENT_JOBS, {(): float(self._reporting())})
        expires_at = self._expires_at()
        if expires_at is not None:
            yield filled(AGENT_CERTIFICATE_EXPIRY, {(): expires_at.timestamp()})

    def _reporting(self) -> int:
        """How many jobs have been answered lately. The others are forgotten."""
        since = self._clock.monotonic_seconds() - REPORTED_SECONDS
        with self._lock:
            self._reported = {key: at for key, at in self._reported.items() if at >= since}
            return len(self._reported)
