"""Checks whether the group writes checkpoints as often as its size requires, and whether it is too large to train well.

Optional annotations of the job say what the manifest cannot show. Without an interval, nothing is reported about it. A
write takes 60 s by default, and a restart 10 minutes.
"""

import re
from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.recoverability.effective import runtime_alone
from recovery.launch.recoverability.failure_rate import (
    best_interval_seconds,
    largest_group,
    longest_restart_seconds,
    lost_gpu_hours_per_day,
    seconds_between_failures,
    training_ratio,
)
from recovery.launch.recoverability.words import counted, span

INTERVAL_ANNOTATION = "recovery.trainjob.dev/checkpoint-interval"
"""How often the job writes a checkpoint: `30m`."""
WRITE_ANNOTATION = "recovery.trainjob.dev/checkpoint-write"
"""How long the training stops to write a checkpoint: `60s`. With asynchronous checkpoints only the copy to memory."""
RESTART_ANNOTATION = "recovery.trainjob.dev/restart-overhead"
"""From a failure until the group trains again: detection, teardown, scheduling, start, loading: `10m`."""

UNREADABLE_DURATION = Code("unreadable-duration", Severity.WARNING, "a recovery annotation holds no valid duration")
COSTLY_CHECKPOINT_INTERVAL = Code(
    "costly-checkpoint-interval", Severity.WARNING, "checkpoints are too rare or too frequent"
)
GROUP_TOO_LARGE = Code(
    "group-too-large", Severity.WARNING, "the group is so large that its failures cost too much time"
)
CODES = (UNREADABLE_DURATION, COSTLY_CHECKPOINT_INTERVAL, GROUP_TOO_LARGE)

_DEFAULT_SECONDS = {WRITE_ANNOTATION: 60.0, RESTART_ANNOTATION: 600.0}
_COSTLY = 1.5
"""Times the cost of the best interval. An interval above 2.6 times, or below 1/2.6 of, the best one costs more."""
_RATIO_WANTED = 0.9
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_SOURCE = "419 failures in 54 days on 16,384 GPUs, as Llama 3 had them"


def check(launch: Launch) -> Iterator[LintFinding]:
    for name in (INTERVAL_ANNOTATION, WRITE_ANNOTATION, RESTART_ANNOTATION):
        if name in launch.annotations and _seconds(launch.annotations[name]) is None:
            yield _unreadable(launch, name)
    if launch.gpus and not runtime_alone(launch):
        yield from _interval(launch)
        yield from _size(launch)


def _unreadable(launch: Launch, name: str) -> LintFinding:
    return LintFinding(
        UNREADABLE_DURATION,
        launch.place / "metadata" / "annotations" / name,
        f"{launch.annotations[name]!r} is no duration above zero, and the annotation counts for nothing",
        "write it like 90s, 30m or 1h30m",
    )


def _interval(launch: Launch) -> Iterator[LintFinding]:
    interval = _seconds(launch.annotations.get(INTERVAL_ANNOTATION, ""))
    if interval is None:
        return
    write = _annotated_seconds(launch, WRITE_ANNOTATION)
    best = best_interval_seconds(launch.gpus, write)
    cost = lost_gpu_hours_per_day(launch.gpus, interval, write)
    least = lost_gpu_hours_per_day(launch.gpus, best, write)
    if cost <= _COSTLY * least:
        return
    yield LintFinding(
        COSTLY_CHECKPOINT_INTERVAL,
        launch.place / "metadata" / "annotations" / INTERVAL_ANNOTATION,
        f"a checkpoint every {span(interval)}, for which training stands still {span(write)}, costs "
        f"{counted(launch.gpus, 'GPU')} about {cost:,.0f} GPU-hours a day, in writing them and in work that failures "
        f"undo; one every {span(_rounded(best))} would cost {least:,.0f} (at a failure every "
        f"{span(seconds_between_failures(launch.gpus))}: {_SOURCE})",
        f"write a checkpoint every {span(_rounded(best))}",
    )


def _size(launch: Launch) -> Iterator[LintFinding]:
    write, restart = _annotated_seconds(launch, WRITE_ANNOTATION), _annotated_seconds(launch, RESTART_ANNOTATION)
    ratio = training_ratio(launch.gpus, best_interval_seconds(launch.gpus, write), write, restart)
    if ratio >= _RATIO_WANTED:
        return
    per_node = max(1, launch.gpus // max(1, launch.nodes))
    nodes = largest_group(_RATIO_WANTED, write, restart) // per_node
    shorter = longest_restart_seconds(launch.gpus, _RATIO_WANTED, write)
    fixes = [f"train with {counted(nodes, 'node')} ({nodes * per_node:,} GPUs) or fewer"] if nodes else []
    if shorter >= 1:
        fixes.append(f"bring a restart down to {span(shorter)} and say so ({RESTART_ANNOTATION})")
    else:
        fixes.append(f"write checkpoints asynchronously and say how long they stop the training ({WRITE_ANNOTATION})")
    yield LintFinding(
        GROUP_TOO_LARGE,
        launch.place,
        f"{counted(launch.gpus, 'GPU')} fail about every {span(seconds_between_failures(launch.gpus))} (at {_SOURCE}): "
        f"with restarts of {span(restart)} and checkpoints of {span(write)} only {ratio:.0%} of the "
        "time is left for training, however often they are written",
        ", or ".join(fixes),
    )


def _annotated_seconds(launch: Launch, name: str) -> float:
    return _seconds(launch.annotations.get(name, "")) or _DEFAULT_SECONDS[name]


def _seconds(text: str) -> float | None:
    """The duration in seconds. None: the text is not a duration above zero."""
    matched = _DURATION.fullmatch(text)
    if matched is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in matched.groups())
    return float(3600 * hours + 60 * minutes + seconds) or None


def _rounded(seconds: float) -> float:
    """Rounds to whole minutes if that is precise enough: no one sets 19 min 16 s."""
    return 60 * round(seconds / 60) if seconds >= 300 else seconds
