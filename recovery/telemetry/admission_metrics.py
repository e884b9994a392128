"""The metrics of the admission webhooks. The webhooks run in a thread of their own and count here directly, because the
instruments of prometheus_client are thread-safe."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.telemetry.catalogue.label_values import WEBHOOK_OUTCOMES
from recovery.telemetry.catalogue.of_process import ADMISSION_REQUESTS, ADMISSION_UP, CERTIFICATE_EXPIRY
from recovery.telemetry.families import counter, filled


class AdmissionMetrics(Collector):
    """A prometheus collector over a server of webhooks, and the counter of their reviews."""

    def __init__(self, registry: CollectorRegistry, webhooks: Sequence[str]) -> None:
        """`webhooks`: the path of each."""
        self._up: Callable[[], bool] = lambda: False
        self._expires_at: Callable[[], datetime | None] = lambda: None
        self._requests = counter(ADMISSION_REQUESTS, registry)
        for webhook in webhooks:
            for outcome in WEBHOOK_OUTCOMES:
                self._requests.labels(webhook, outcome)
        registry.register(self)

    def follow(self, up: Callable[[], bool], expires_at: Callable[[], datetime | None]) -> None:
        """Ask at every scrape whether the webhooks are served, and until when their certificate is valid."""
        self._up, self._expires_at = up, expires_at

    def reviewed(self, webhook: str, outcome: str) -> None:
        """A webhook has reviewed an object. Any thread may call it."""
        self._requests.labels(webhook, outcome).inc()

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield filled(ADMISSION_UP, {(): float(self._up())})
        expires_at = self._expires_at()
        if expires_at is not None:
            yield filled(CERTIFICATE_EXPIRY, {(): expires_at.timestamp()})
