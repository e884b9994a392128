"""Hand-written traces of a training of four ranks, in seconds from its beginning."""

from datetime import timedelta

from recovery.sim.training.trace import EventKind, Trace, TraceRecord
from recovery.sim.virtual_time import BEGIN

TRAINING = "team-a/llm"
RANKS = 4


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def event(
    trace: Trace, kind: EventKind, seconds: float, job_uid: str, index: int | None = None, pod_uid: str = ""
) -> None:
    trace.add(
        TraceRecord(
            at=BEGIN + at(seconds),
            kind=kind,
            training=TRAINING,
            job_uid=job_uid,
            step=0,
            member="node-0",
            pod_uid=pod_uid or f"{job_uid}/{index}",
            index=index,
        )
    )


def started(trace: Trace, seconds: float, job_uid: str, ranks: range = range(RANKS)) -> None:
    for index in ranks:
        event(trace, EventKind.PROCESS_STARTED, seconds, job_uid, index)


def met(trace: Trace, seconds: float, job_uid: str) -> None:
    event(trace, EventKind.ROUND_FORMED, seconds, job_uid)


def exited(trace: Trace, seconds: float, job_uid: str, ranks: range = range(RANKS)) -> None:
    for index in ranks:
        event(trace, EventKind.PROCESS_EXITED, seconds, job_uid, index)


def incarnation(trace: Trace, job_uid: str, *, starts: float, meets: float, ends: float | None) -> None:
    """`ends` None: it keeps training."""
    started(trace, starts, job_uid)
    met(trace, meets, job_uid)
    if ends is not None:
        exited(trace, ends, job_uid)
