"""Judges by the training's own trace whether the demo went as it should. Only one check uses what the controller says:
that its ledger says Held at the end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from recovery.sim.demo.stage import StageFailure
from recovery.sim.training.trace import EventKind, Trace, TraceRecord

RECOVERIES = len(StageFailure)
"""The number of failures before the crash loop."""
LOOP = RECOVERIES + 1
"""Number of the crash loop, the last incident."""


@dataclass(kw_only=True)
class Course:
    """What was done to the training, and when."""

    training: str
    ranks: int
    restarts_allowed: int
    """How many restarts the policy's budget allows in the crash loop."""
    failures: list[datetime] = field(default_factory=list)
    """The moments of the failures from which the training must recover, in order."""
    loop_at: datetime | None = None
    """When the crash loop began. None: it has not begun."""
    crashes: list[datetime] = field(default_factory=list)
    """The moments of the crashes in the loop, in order."""
    stuck: str = ""
    """What did not happen in time, which ended the play. Empty: the play reached its end."""


@dataclass(frozen=True)
class DemoVerdict:
    """The result, as sentences: what the trace proves, and what did not go as it should."""

    proofs: tuple[str, ...]
    problems: tuple[str, ...]


def judge(trace: Trace, course: Course, *, held: bool) -> DemoVerdict:
    """`held`: the ledger says Held at the end."""
    proofs: list[str] = []
    problems: list[str] = [course.stuck] if course.stuck else []
    moments = [*course.failures, course.loop_at]
    for number, (failed_at, until) in enumerate(zip(course.failures, moments[1:], strict=True), start=1):
        wrong = list(_not_recovered(trace, course, failed_at, until))
        problems += [f"incident {number}: {what}" for what in wrong]
        if not wrong:
            formed = _between(trace, course, EventKind.ROUND_FORMED, failed_at, until)[0]
            seconds = (formed.at - failed_at).total_seconds()
            proofs.append(
                f"incident {number}: all {course.ranks} ranks met again {seconds:.2f} s after the failure, as one new"
                " incarnation"
            )
    if len(course.failures) < RECOVERIES or course.loop_at is None:
        problems.append(f"not all {LOOP} incidents took place")
    if course.loop_at is not None:
        restarts = len(_incarnations(trace, course, course.loop_at, None))
        if restarts > course.restarts_allowed:
            problems.append(
                f"incident {LOOP}: {restarts} incarnations were started, and the budget allowed"
                f" {course.restarts_allowed}"
            )
        if not held:
            problems.append(f"incident {LOOP}: the ledger does not say Held")
        if restarts <= course.restarts_allowed and held:
            proofs.append(
                f"incident {LOOP}: restarted {restarts} times, of the {course.restarts_allowed} that the budget had"
                " left; then Held, as the ledger says"
            )
    overlaps = trace.overlaps(course.training)
    problems += [
        f"incarnations {' and '.join(overlap.job_uids)} ran at once from {overlap.since:%H:%M:%S.%f}"
        for overlap in overlaps
    ]
    if not overlaps:
        proofs.append("no two incarnations ran at once at any moment")
    return DemoVerdict(tuple(proofs), tuple(problems))


def trained_again(trace: Trace, course: Course, failed_at: datetime) -> datetime | None:
    """When all ranks had met again after that failure. None: they have not."""
    formed = _between(trace, course, EventKind.ROUND_FORMED, failed_at, None)
    return formed[0].at if formed else None


def started_between(trace: Trace, course: Course, since: datetime, until: datetime | None) -> int:
    """How many processes of new incarnations were started in that time."""
    known = _known(trace, course, since)
    started = _between(trace, course, EventKind.PROCESS_STARTED, since, until)
    return sum(record.job_uid not in known for record in started)


def _not_recovered(trace: Trace, course: Course, failed_at: datetime, until: datetime | None) -> Iterator[str]:
    incarnations = _incarnations(trace, course, failed_at, until)
    if len(incarnations) != 1:
        yield f"{len(incarnations)} new incarnations were started, not one"
    formed = _between(trace, course, EventKind.ROUND_FORMED, failed_at, until)
    if len(formed) != 1:
        yield f"the ranks met {len(formed)} times after the failure, not once"
    for round_ in formed:
        if round_.job_uid not in incarnations:
            yield "they met in an incarnation that was there before the failure"
        met = {
            record.index
            for record in trace.of(course.training, EventKind.PROCESS_STARTED)
            if record.job_uid == round_.job_uid and record.at <= round_.at
        }
        if met != set(range(course.ranks)):
            yield f"{len(met)} of {course.ranks} ranks met"


def _incarnations(trace: Trace, course: Course, since: datetime, until: datetime | None) -> Sequence[str]:
    """The Job UIDs that had no process before `since` and have one before `until`."""
    known = _known(trace, course, since)
    started = _between(trace, course, EventKind.PROCESS_STARTED, since, until)
    return [uid for uid in dict.fromkeys(record.job_uid for record in started) if uid not in known]


def _known(trace: Trace, course: Course, before: datetime) -> dict[str, None]:
    started = trace.of(course.training, EventKind.PROCESS_STARTED)
    return dict.fromkeys(record.job_uid for record in started if record.at < before)


def _between(
    trace: Trace, course: Course, kind: EventKind, since: datetime, until: datetime | None
) -> list[TraceRecord]:
    return [
        record
        for record in trace.of(course.training, kind)
        if since <= record.at and (until is None or record.at < until)
    ]
