"""Families of the scrape and instruments of the registry, as the catalogue names and describes them."""

from collections.abc import Mapping
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from recovery.telemetry.catalogue import MetricRecord, MetricType

Family = CounterMetricFamily | GaugeMetricFamily


def family(record: MetricRecord) -> Family:
    """An empty family, for a collector to fill."""
    kind = CounterMetricFamily if record.type is MetricType.COUNTER else GaugeMetricFamily
    return kind(record.name, record.help, labels=record.label_names)


def filled(record: MetricRecord, samples: Mapping[tuple[str, ...], float]) -> Family:
    """The family with these samples, by the values of their labels."""
    made = family(record)
    for labels, value in samples.items():
        made.add_metric(labels, value)
    return made


def preset_labels(record: MetricRecord) -> tuple[tuple[str, ...], ...]:
    """All combinations of the label values that the catalogue lists."""
    return tuple(product(*(label.values for label in record.labels)))


def counter(record: MetricRecord, registry: CollectorRegistry) -> Counter:
    """The counter. It starts at 0 for all combinations of labels if the catalogue says so."""
    made = Counter(record.name, record.help, record.label_names, registry=registry)
    if record.preset:
        for labels in preset_labels(record):
            made.labels(*labels)
    return made


def gauge(record: MetricRecord, registry: CollectorRegistry) -> Gauge:
    return Gauge(record.name, record.help, record.label_names, registry=registry)


def histogram(record: MetricRecord, registry: CollectorRegistry, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(record.name, record.help, record.label_names, buckets=buckets, registry=registry)
