"""How often a group of a given size fails, how often it should write a checkpoint, and how much of its time it trains.

Formulas: J. W. Young (1974) and J. T. Daly (2006) for the interval; for the share of time that it trains,
E[ETTR] = (1 - rate (restart + interval/2)) / (1 + write/interval), with failures as a Poisson process.

The rate is an assumption: Llama 3 (arXiv:2407.21783, table 5) was interrupted unexpectedly 419 times in 54 days on
16,384 H100. It is counted per GPU, because three quarters of the causes were hardware. Other hardware may differ.
"""

from math import sqrt

FAILURES_PER_GPU_DAY = 419 / (54 * 16384)
_DAY_SECONDS = 86400.0


def failures_per_day(gpus: int) -> float:
    return gpus * FAILURES_PER_GPU_DAY


def seconds_between_failures(gpus: int) -> float:
    """The mean time between two failures."""
    return _DAY_SECONDS / failures_per_day(gpus)


def best_interval_seconds(gpus: int, write_seconds: float) -> float:
    """The time between two checkpoints: Young's first-order optimum, which Daly gives for a write that is short
    compared with the time between failures."""
    return sqrt(2 * write_seconds * seconds_between_failures(gpus))


def training_ratio(gpus: int, interval_seconds: float, write_seconds: float, restart_seconds: float) -> float:
    """The share of time in which the group does work that is not lost again, from 0 to 1. `restart_seconds`: from a
    failure until the group trains again, without the work since its last checkpoint."""
    lost = (restart_seconds + interval_seconds / 2) / seconds_between_failures(gpus)
    return max(0.0, 1 - lost) / (1 + write_seconds / interval_seconds)


def lost_gpu_hours_per_day(gpus: int, interval_seconds: float, write_seconds: float) -> float:
    """The cost of checkpoints at that interval: the time to write them, and the work that failures undo."""
    return 24 * gpus * (1 - training_ratio(gpus, interval_seconds, write_seconds, restart_seconds=0))


def largest_group(ratio: float, write_seconds: float, restart_seconds: float) -> int:
    """The largest number of GPUs that still train for that share of the time, at their best interval. 0: none do.

    With r failures per second and s = sqrt(r) the best interval turns the formula into
    restart s^2 + (1 + ratio) sqrt(write/2) s - (1 - ratio) = 0.
    """
    half = (1 + ratio) * sqrt(write_seconds / 2)
    if restart_seconds:
        root = (sqrt(half**2 + 4 * restart_seconds * (1 - ratio)) - half) / (2 * restart_seconds)
    else:
        root = (1 - ratio) / half
    return int(root**2 * _DAY_SECONDS / FAILURES_PER_GPU_DAY)


def longest_restart_seconds(gpus: int, ratio: float, write_seconds: float) -> float:
    """The longest restart overhead with which such a group still trains for that share of the time, at its best
    interval. Negative: there is none."""
    rate = 1 / seconds_between_failures(gpus)
    return ((1 - ratio) - (1 + ratio) * sqrt(write_seconds * rate / 2)) / rate
