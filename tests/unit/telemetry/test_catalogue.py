"""promlint accepts the names of the metrics, and the docs and the collectors agree with the catalogue."""

import re

import pytest

from recovery.telemetry.catalogue import CATALOGUE, MetricRecord, MetricType, of_jobs, record_of
from recovery.telemetry.catalogue.label_values import (
    BADPUT,
    BOOKED_REASONS,
    COUNTED_REASONS,
    FAILURE_CLASSES,
    REASONS,
    badput_of,
)
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import Group, Scrape

records = pytest.mark.parametrize("record", CATALOGUE, ids=lambda record: record.name)

# promlint, validations: https://github.com/prometheus/client_golang/tree/main/prometheus/testutil/promlint
OTHER_THAN_BASE_UNITS = {
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "percent",
    "percentage",
}
ABBREVIATED_UNITS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
TYPES_IN_NAMES = {"gauge", "counter", "histogram", "summary", "untyped"}


@records
def test_promlint_has_nothing_to_say(record: MetricRecord) -> None:
    parts = set(record.name.split("_"))
    assert re.fullmatch(r"[a-z][a-z0-9_]*", record.name), "snake case, and no colon: that is for rules"
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in record.label_names)
    assert record.name.endswith("_total") is (record.type is MetricType.COUNTER)
    assert not record.name.endswith(("_count", "_sum", "_bucket"))
    assert not {"le", "quantile"} & set(record.label_names)
    assert not parts & (OTHER_THAN_BASE_UNITS | ABBREVIATED_UNITS | TYPES_IN_NAMES)
    assert record.help.strip()


@records
def test_a_record_says_all_of_its_metric(record: MetricRecord) -> None:
    for sentence in (record.meaning, record.set_when, *(label.meaning for label in record.labels)):
        assert sentence[0].isupper() or sentence[0] in "`0123456789"
        assert sentence.endswith(".")
    assert record.name in record.example
    assert record.unit
    if "seconds" in record.name:
        assert "seconds" in record.unit


@records
def test_the_labels_of_prometheus_itself_are_not_used(record: MetricRecord) -> None:
    assert not {"job", "instance", "pod"} & set(record.label_names)
    assert len(set(record.label_names)) == len(record.label_names)


@records
def test_only_gauges_and_counters_have_the_labels_of_a_job(record: MetricRecord) -> None:
    assert not (record.per_job and record.type is MetricType.HISTOGRAM)
    assert record.per_job is (record in of_jobs.OF_JOBS)


def test_no_metric_is_there_twice() -> None:
    assert len({record.name for record in CATALOGUE}) == len(CATALOGUE)


def test_a_metric_is_found_with_and_without_the_prefix() -> None:
    assert record_of("job_gpus") is record_of("recovery_job_gpus") is of_jobs.JOB_GPUS
    assert record_of("process_open_fds").name == "process_open_fds"
    with pytest.raises(KeyError):
        record_of("job_gpu")


def test_every_counted_reason_has_one_type_of_badput() -> None:
    assert {badput_of(reason) for reason in COUNTED_REASONS} == set(BADPUT)
    assert set(COUNTED_REASONS) == {*BOOKED_REASONS.values(), "drill"}
    assert set(BOOKED_REASONS.values()) < set(REASONS)


def test_classes_end_with_the_one_for_those_that_are_not_known() -> None:
    assert FAILURE_CLASSES[-1] == "unknown"
    assert len(FAILURE_CLASSES) == 14


def test_what_is_scraped_is_what_the_catalogue_says(metrics: Telemetry, group: Group) -> None:
    """Names, types, HELP lines, labels, and the values of labels that have a closed set."""
    metrics.admission(["trainjobs"]).reviewed("trainjobs", "refused")
    metrics.permissions_missing([("patch", "nodes")])
    group.fails()
    group.attempt()
    group.closes()
    scrape = Scrape(metrics)
    known = {record.name.removesuffix("_total"): record for record in CATALOGUE}
    for family, kind in scrape.families.items():
        record = known[family]
        assert kind == record.type
        assert f"# HELP {record.name} {record.help}\n" in scrape.text
    for name, labels in scrape.samples:
        family = re.sub(r"_(bucket|count|sum)$", "", name) if "_seconds_" in name else name
        record = record_of(family)
        found = {label: value for label, value in labels if label != "le"}
        assert set(found) == set(record.label_names)
        for label, value in found.items():
            assert not record.values_of(label) or value in record.values_of(label)
