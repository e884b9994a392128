"""The formulas against values computed by hand."""

from math import sqrt

import pytest

from recovery.launch.recoverability.failure_rate import (
    best_interval_seconds,
    failures_per_day,
    largest_group,
    longest_restart_seconds,
    lost_gpu_hours_per_day,
    seconds_between_failures,
    training_ratio,
)


def test_llama_3_is_what_the_rate_was_taken_from() -> None:
    assert failures_per_day(16384) == pytest.approx(419 / 54)
    assert seconds_between_failures(16384) == pytest.approx(54 * 86400 / 419)  # 3 h 5 min


@pytest.mark.parametrize(
    ("gpus", "hours"),
    [(1024, 49.49), (128, 395.9), (16384, 3.093)],  # 54 * 24 * 16384 / 419 / gpus
)
def test_time_between_failures(gpus: int, hours: float) -> None:
    assert seconds_between_failures(gpus) / 3600 == pytest.approx(hours, rel=1e-3)


@pytest.mark.parametrize(
    ("gpus", "write", "seconds"),
    [
        (16384, 60, 1155.9),  # sqrt(2 * 60 * 11134.99)
        (1024, 60, 4623.8),  # 16 times rarer: 4 times as long
        (1024, 15, 2311.9),  # a quarter of the write time: half
    ],
)
def test_best_interval(gpus: int, write: float, seconds: float) -> None:
    assert best_interval_seconds(gpus, write) == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize(
    ("gpus", "interval", "write", "restart", "ratio"),
    [
        (16384, 1200, 60, 600, 0.84975),  # (1 - 1200/11134.99) / 1.05
        (16384, 1200, 60, 0, 0.90107),  # (1 - 600/11134.99) / 1.05
        (1024, 3600, 60, 600, 0.97038),  # (1 - 2400/178159.9) / (1 + 1/60)
        (16384, 86400, 60, 0, 0.0),  # fails before it ever writes a checkpoint
    ],
)
def test_part_of_the_time_that_trains(gpus: int, interval: float, write: float, restart: float, ratio: float) -> None:
    assert training_ratio(gpus, interval, write, restart) == pytest.approx(ratio, abs=1e-4)


def test_cost_of_checkpoints() -> None:
    """1,024 GPUs, one checkpoint of 60 s a day: 1 - (1 - 43200/178159.9)/(1 + 60/86400) of 24,576 GPU-hours."""
    assert lost_gpu_hours_per_day(1024, 86400, 60) == pytest.approx(5972, rel=1e-3)


@pytest.mark.parametrize("gpus", [128, 1024, 8192, 16384])
def test_no_other_interval_costs_noticeably_less_than_the_best(gpus: int) -> None:
    best = best_interval_seconds(gpus, 60)
    least = lost_gpu_hours_per_day(gpus, best, 60)
    for factor in (0.25, 0.5, 0.8, 1.25, 2, 4):
        assert lost_gpu_hours_per_day(gpus, best * factor, 60) > least * 0.999


@pytest.mark.parametrize(("ratio", "write", "restart"), [(0.9, 60, 600), (0.9, 60, 0), (0.95, 5, 120), (0.5, 60, 600)])
def test_the_largest_group_trains_just_that_part_of_the_time(ratio: float, write: float, restart: float) -> None:
    gpus = largest_group(ratio, write, restart)
    at, beyond = (training_ratio(n, best_interval_seconds(n, write), write, restart) for n in (gpus, gpus + 8))
    assert at == pytest.approx(ratio, abs=1e-4)
    assert beyond < ratio


def test_the_largest_group_without_restart_overhead_by_hand() -> None:
    """s = 0.1 / (1.9 sqrt(30)), rate = s^2 per second."""
    rate = (0.1 / (1.9 * sqrt(30))) ** 2
    assert largest_group(0.9, 60, 0) == int(rate * 86400 * 54 * 16384 / 419)


@pytest.mark.parametrize("gpus", [1024, 8192, 16384])
def test_the_longest_restart_that_still_trains_that_part(gpus: int) -> None:
    longest = longest_restart_seconds(gpus, 0.9, 60)
    assert training_ratio(gpus, best_interval_seconds(gpus, 60), 60, longest) == pytest.approx(0.9, abs=1e-6)


def test_no_restart_is_short_enough_where_checkpoints_alone_cost_more() -> None:
    assert longest_restart_seconds(65536, 0.9, 60) < 0
