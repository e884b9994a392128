"""Sets of completion indexes as a Job's status writes them: `1,3-5,7`.

Source: `status.completedIndexes` in the Job API; `pkg/controller/job/indexed_job_utils.go` of Kubernetes 1.36.
"""

from collections.abc import Iterable


def parse_indexes(text: str, completions: int) -> set[int]:
    """The indexes below `completions`. Higher ones are from before the Job was scaled down."""
    indexes: set[int] = set()
    for interval in text.split(",") if text else ():
        first, _, last = interval.partition("-")
        indexes.update(range(int(first), min(int(last or first), completions - 1) + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """The indexes as text. Three or more in a row become an interval, two do not."""
    intervals: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if intervals and intervals[-1][1] == index - 1:
            intervals[-1] = (intervals[-1][0], index)
        else:
            intervals.append((index, index))
    return ",".join(_written(first, last) for first, last in intervals)


def _written(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
