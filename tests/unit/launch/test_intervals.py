"""Whether checkpoints are frequent enough for the size of the group, and whether that size pays."""

import pytest

from recovery.launch.recoverability import intervals
from tests.unit.launch.groups import TRAIN_JOB, group, names, only

INTERVAL = "recovery.trainjob.dev/checkpoint-interval"
WRITE = "recovery.trainjob.dev/checkpoint-write"
RESTART = "recovery.trainjob.dev/restart-overhead"


def test_nothing_is_said_of_an_interval_that_no_one_told() -> None:
    assert names(intervals.check(group(nodes=128))) == []


@pytest.mark.parametrize(
    ("nodes", "interval", "told"),
    [
        # 1,024 GPUs, 60 s each: best every 77 min. Above 2.6 times and below a 2.6th of that, the cost is 1.5-fold.
        (128, "77m", False),
        (128, "3h", False),
        (128, "4h", True),
        (128, "31m", False),
        (128, "27m", True),
        # 128 GPUs: best every 3 h 38 min
        (16, "4h", False),
        (16, "24h", True),
        # 16,384 GPUs and a fast restart: best every 19 min
        (2048, "30m", False),
        (2048, "1h", True),
    ],
)
def test_an_interval_is_held_against_the_best_for_the_size(nodes: int, interval: str, told: bool) -> None:
    found = names(intervals.check(group(nodes=nodes, annotations={INTERVAL: interval, RESTART: "10s"})))
    assert found == (["costly-checkpoint-interval"] if told else [])


def test_a_cheaper_write_asks_for_a_shorter_interval() -> None:
    told = {INTERVAL: "27m", WRITE: "10s"}
    assert names(intervals.check(group(nodes=128, annotations=told))) == []


def test_a_costly_interval_is_told_with_its_numbers() -> None:
    finding = only(intervals.check(group(nodes=128, annotations={INTERVAL: "24h"})))
    assert finding.message == (
        "a checkpoint every 1 d, for which training stands still 1 min, costs 1,024 GPUs about 5,972 GPU-hours a day, "
        "in writing them and in work that failures undo; one every 1 h 17 min would cost 630 (at a failure every "
        "2 d 1 h: 419 failures in 54 days on 16,384 GPUs, as Llama 3 had them)"
    )
    assert finding.fix == "write a checkpoint every 1 h 17 min"
    assert finding.place == TRAIN_JOB / "metadata" / "annotations" / INTERVAL


@pytest.mark.parametrize("text", ["86400s", "1440m", "23h59m60s"])
def test_one_duration_in_several_units(text: str) -> None:
    assert only(intervals.check(group(nodes=128, annotations={INTERVAL: text}))).message.startswith(
        "a checkpoint every 1 d,"
    )


@pytest.mark.parametrize("text", ["", "30", "30 min", "1.5h", "0s", "-5m", "1m30", "1s2m", "999999999999s"])
def test_what_is_no_duration_is_told_and_counts_for_nothing(text: str) -> None:
    finding = only(intervals.check(group(nodes=128, annotations={INTERVAL: text})))
    assert finding.code.name == "unreadable-duration"
    assert finding.message == f"{text!r} is no duration above zero, and the annotation counts for nothing"


def test_each_annotation_is_read() -> None:
    broken = {INTERVAL: "x", WRITE: "x", RESTART: "x"}
    assert names(intervals.check(group(annotations=broken))) == ["unreadable-duration"] * 3


@pytest.mark.parametrize(
    ("nodes", "annotations", "told"),
    [
        (1079, {}, False),  # 8,632 GPUs
        (1080, {}, True),  # 8,640 GPUs
        (2048, {RESTART: "1m"}, True),
        (2048, {RESTART: "10s"}, False),
        (2048, {RESTART: "5m", WRITE: "5s"}, False),
        (128, {RESTART: "5h"}, True),
    ],
)
def test_a_group_is_too_large_where_less_than_nine_tenths_of_its_time_trains(
    nodes: int, annotations: dict[str, str], told: bool
) -> None:
    assert names(intervals.check(group(nodes=nodes, annotations=annotations))) == (["group-too-large"] if told else [])


def test_a_group_that_is_too_large_is_told_the_sizes_that_are_not() -> None:
    finding = only(intervals.check(group(nodes=2048)))
    assert finding.message == (
        "16,384 GPUs fail about every 3 h 5 min (at 419 failures in 54 days on 16,384 GPUs, as Llama 3 had them): with "
        "restarts of 10 min and checkpoints of 1 min only 85% of the time is left for training, however often they are "
        "written"
    )
    assert finding.fix == (
        "train with 1,079 nodes (8,632 GPUs) or fewer, or bring a restart down to 15 s and say so "
        "(recovery.trainjob.dev/restart-overhead)"
    )


def test_where_writing_alone_costs_too_much_the_write_is_to_fix() -> None:
    finding = only(intervals.check(group(nodes=8192)))
    assert "write checkpoints asynchronously" in finding.fix


def test_a_runtime_by_itself_has_no_size() -> None:
    assert names(intervals.check(group(nodes=2048, runtime_alone=True))) == []


def test_without_gpus_no_rate_is_known() -> None:
    assert names(intervals.check(group(nodes=2048, gpus_per_pod=0, annotations={INTERVAL: "24h"}))) == []
