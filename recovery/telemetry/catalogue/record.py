"""What the catalogue says of one metric."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

PREFIX = "recovery_"


class MetricType(StrEnum):
    """As in the TYPE line of the exposition."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSource(StrEnum):
    """Which processes have series of the metric."""

    LEADER = "the leader"
    REPLICA = "every replica"


class MetricLabel(msgspec.Struct, frozen=True):
    """A label, with all its values where they are known."""

    name: str
    meaning: str
    values: tuple[str, ...] = ()
    """All values that this version gives it; later versions may add some. Empty: they come from the cluster."""


class MetricRecord(msgspec.Struct, frozen=True):
    """One metric. Collectors, the docs and the dashboards take what they say of it from here."""

    name: str
    """The whole name; of a counter with `_total`."""
    type: MetricType
    meaning: str
    """One sentence or more, each with its full stop."""
    unit: str
    """Of the value, as people read it."""
    set_when: str
    """When there is a series, and what changes it: for the docs."""
    source: MetricSource
    example: str
    """A PromQL query that a person would ask."""
    labels: tuple[MetricLabel, ...] = ()
    preset: bool = False
    """A series for all values of the labels is there from the start, at 0."""

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def help(self) -> str:
        """The HELP line."""
        return f"{self.meaning} Reported by {self.source}."

    @property
    def per_job(self) -> bool:
        """It has the labels of a job."""
        return self.label_names[: len(JOB)] == tuple(label.name for label in JOB)

    def values_of(self, label: str) -> tuple[str, ...]:
        """All values of that label. Raises KeyError: the metric has no such label."""
        for each in self.labels:
            if each.name == label:
                return each.values
        raise KeyError(label)


JOB = (
    MetricLabel("namespace", "The namespace of the workload."),
    MetricLabel("job_name", "The name of the TrainJob, or of the JobSet that nothing controls."),
)
"""The labels of a job. Never `job`: Prometheus gives that name to the scrape job."""


def one_of(name: str, meaning: str, values: Sequence[str]) -> MetricLabel:
    """A label whose values are all known."""
    return MetricLabel(name, meaning, tuple(str(value) for value in values))
