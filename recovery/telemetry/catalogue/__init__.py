"""Every metric of the controller, in one place: its name, type, labels, unit, meaning, and when it is set.

Collectors and instruments take name, help and labels from here, `docs/metrics.md` is generated from here, and so are
rules and dashboards. Names and labels are stable. Later versions may add metrics, and values of labels.
"""

from recovery.telemetry.catalogue.of_fleet import DURATIONS_AND_DECISIONS, OF_FLEET
from recovery.telemetry.catalogue.of_jobs import OF_JOBS
from recovery.telemetry.catalogue.of_process import OF_PROCESS, OF_SYSTEM
from recovery.telemetry.catalogue.record import (
    JOB,
    PREFIX,
    MetricLabel,
    MetricRecord,
    MetricSource,
    MetricType,
)

CATALOGUE: tuple[MetricRecord, ...] = (*OF_JOBS, *OF_FLEET, *DURATIONS_AND_DECISIONS, *OF_PROCESS, *OF_SYSTEM)

_BY_NAME = {record.name: record for record in CATALOGUE}


def record_of(name: str) -> MetricRecord:
    """The metric of that name, with or without the prefix. Raises KeyError: there is none."""
    return _BY_NAME[name] if name in _BY_NAME else _BY_NAME[PREFIX + name]


__all__ = [
    "CATALOGUE",
    "JOB",
    "PREFIX",
    "MetricLabel",
    "MetricRecord",
    "MetricSource",
    "MetricType",
    "record_of",
]
