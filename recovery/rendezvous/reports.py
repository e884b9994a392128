"""Reads a report, and writes its answer. Every field of a report is bounded, because a tenant may write anything in it.

A report that breaks a bound is refused as a whole, with a message that names the field. Only ages are clamped: the
clock of a busy node may jump. Fields that this version does not know are ignored.
"""

import math
import re
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias

import msgspec

from recovery.core.model.agent_facts import (
    AgentAnswer,
    AgentFacts,
    AgentRendezvous,
    AgentState,
    AgentSteps,
    EndedEpoch,
    RestartedBy,
)
from recovery.ports import UNDECODABLE

LISTED_MAX = 16
"""Slots in a list, and ended epochs."""
RENDEZVOUS_MAX = 8
MESSAGE_CHARACTERS_MAX = 300
AGE_SECONDS_MAX = 30 * 86400.0
_ERROR_CHARACTERS_MAX = 300
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal or a log would not show as it is, surrogates included."""

_Barrier: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
_Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Slot: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=100_000)]
_Slots: TypeAlias = Annotated[tuple[_Slot, ...], msgspec.Meta(max_length=LISTED_MAX)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
_Step: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9.-]{0,253}\Z")]


class ReportError(ValueError):
    """A report that is refused. The message names the field."""


class _Ended(msgspec.Struct, frozen=True, rename="camel"):
    epoch: _Epoch
    slot: _Slot
    rank: Annotated[int, msgspec.Meta(ge=0, lt=10_000_000)]
    age_seconds: float
    exit_code: Annotated[int, msgspec.Meta(ge=-255, le=255)] | None = None
    signal: Annotated[int, msgspec.Meta(ge=1, le=127)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_CHARACTERS_MAX)] = ""
    step: _Step | None = None
    pod: _Name = ""
    node: _Name = ""
    by: RestartedBy | None = None
    ran: bool = False


class _Rendezvous(msgspec.Struct, frozen=True, rename="camel"):
    epoch: _Epoch
    first_age_seconds: float
    joined_age_seconds: float | None = None
    arrived_age_seconds: float | None = None


class _Steps(msgspec.Struct, frozen=True, rename="camel"):
    lowest: _Step
    highest: _Step
    age_seconds: float
    first: _Step | None = None
    absolute: bool = False
    step_seconds: float | None = None


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    v: Literal[1]
    barrier: _Barrier
    epoch: _Epoch
    state: AgentState
    state_age_seconds: float
    epoch_age_seconds: float
    slots: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    missing: _Slots = ()
    missing_count: _Count | None = None
    """None: the list has all of them."""
    restarted: _Slots = ()
    stuck: _Slots = ()
    ended: Annotated[tuple[_Ended, ...], msgspec.Meta(max_length=LISTED_MAX)] = ()
    meets: bool = False
    rendezvous: Annotated[tuple[_Rendezvous, ...], msgspec.Meta(max_length=RENDEZVOUS_MAX)] = ()
    arrived: _Count = 0
    joined: _Count = 0
    waiting: _Slots = ()
    waiting_count: _Count | None = None
    """None: the list has all of them."""
    steps: _Steps | None = None


_decode = msgspec.json.Decoder(_Report).decode


def read_report(body: bytes, *, job_uid: str, pod_uid: str, received_at: datetime, sequence: int) -> AgentFacts:
    """The facts that the report states. Raises ReportError."""
    try:
        report = _decode(body)
    except UNDECODABLE as error:
        raise ReportError(_shown(str(error) or type(error).__name__)) from None
    _check_slots(report)
    return AgentFacts(
        job_uid=job_uid,
        pod_uid=pod_uid,
        barrier=report.barrier,
        epoch=report.epoch,
        state=report.state,
        state_since=received_at - _age(report.state_age_seconds, "stateAgeSeconds"),
        epoch_since=received_at - _age(report.epoch_age_seconds, "epochAgeSeconds"),
        slots=report.slots,
        received_at=received_at,
        sequence=sequence,
        missing=report.missing,
        missing_count=max(len(report.missing), report.missing_count or 0),
        restarted=report.restarted,
        stuck=report.stuck,
        ended=tuple(_ended(each, place, report, received_at) for place, each in enumerate(report.ended)),
        meets=report.meets,
        rendezvous=tuple(_rendezvous(each, place, report, received_at) for place, each in enumerate(report.rendezvous)),
        arrived=report.arrived,
        joined=report.joined,
        waiting=report.waiting,
        waiting_count=max(len(report.waiting), report.waiting_count or 0),
        steps=_steps(report.steps, received_at),
    )


def _check_slots(report: _Report) -> None:
    lists = {
        "missing": report.missing,
        "restarted": report.restarted,
        "stuck": report.stuck,
        "waiting": report.waiting,
    }
    for name, listed in lists.items():
        for place, slot in enumerate(listed):
            if slot >= report.slots:
                raise ReportError(f"Expected a slot below `slots` ({report.slots}) - at `$.{name}[{place}]`")
    counts = {
        "missingCount": report.missing_count,
        "waitingCount": report.waiting_count,
        "arrived": report.arrived,
        "joined": report.joined,
    }
    for name, count in counts.items():
        if count is not None and count > report.slots:
            raise ReportError(f"Expected at most `slots` ({report.slots}) - at `$.{name}`")


def _ended(raw: _Ended, place: int, report: _Report, received_at: datetime) -> EndedEpoch:
    where = f"$.ended[{place}]"
    if raw.epoch > report.epoch:
        raise ReportError(f"Expected an epoch up to the present one ({report.epoch}) - at `{where}.epoch`")
    if raw.slot >= report.slots:
        raise ReportError(f"Expected a slot below `slots` ({report.slots}) - at `{where}.slot`")
    if (raw.exit_code is None) == (raw.signal is None):
        raise ReportError(f"Expected either an exit code or a signal - at `{where}.exitCode`")
    return EndedEpoch(
        epoch=raw.epoch,
        slot=raw.slot,
        rank=raw.rank,
        exit_code=raw.exit_code,
        signal=raw.signal,
        ended_at=received_at - _age(raw.age_seconds, f"ended[{place}].ageSeconds"),
        message=_UNPRINTABLE.sub(" ", raw.message),
        step=raw.step,
        pod=raw.pod,
        node=raw.node,
        by=raw.by,
        ran=raw.ran,
    )


def _rendezvous(raw: _Rendezvous, place: int, report: _Report, received_at: datetime) -> AgentRendezvous:
    where = f"rendezvous[{place}]"
    if raw.epoch > report.epoch:
        raise ReportError(f"Expected an epoch up to the present one ({report.epoch}) - at `$.{where}.epoch`")
    first_at = received_at - _age(raw.first_age_seconds, f"{where}.firstAgeSeconds")
    arrived_at = joined_at = None
    if raw.arrived_age_seconds is not None:
        arrived_at = max(first_at, received_at - _age(raw.arrived_age_seconds, f"{where}.arrivedAgeSeconds"))
    if raw.joined_age_seconds is not None:
        joined_at = received_at - _age(raw.joined_age_seconds, f"{where}.joinedAgeSeconds")
        first_at = min(first_at, joined_at)
    return AgentRendezvous(raw.epoch, first_at, joined_at, arrived_at)


def _steps(raw: _Steps | None, received_at: datetime) -> AgentSteps | None:
    if raw is None:
        return None
    if raw.lowest > raw.highest:
        raise ReportError("Expected at most `highest` - at `$.steps.lowest`")
    seconds = raw.step_seconds
    return AgentSteps(
        lowest=raw.lowest,
        highest=raw.highest,
        at=received_at - _age(raw.age_seconds, "steps.ageSeconds"),
        first=raw.first,
        absolute=raw.absolute,
        step_seconds=None if seconds is None else _age(seconds, "steps.stepSeconds").total_seconds(),
    )


def _age(seconds: float, name: str) -> timedelta:
    if not math.isfinite(seconds):
        raise ReportError(f"Expected a finite number - at `$.{name}`")
    return timedelta(seconds=min(max(seconds, 0.0), AGE_SECONDS_MAX))


def _shown(message: str) -> str:
    return _UNPRINTABLE.sub(" ", message)[:_ERROR_CHARACTERS_MAX]


class _Action(msgspec.Struct, frozen=True):
    barrier: str
    epoch: int
    do: str


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    v: int
    permitted: bool
    alone: int
    in_place_seconds: float
    every_seconds: float
    action: _Action | None


def written_answer(answer: AgentAnswer) -> bytes:
    """The answer as JSON."""
    action = answer.action
    return msgspec.json.encode(
        _Answer(
            v=1,
            permitted=answer.permitted,
            alone=answer.alone,
            in_place_seconds=answer.in_place_seconds,
            every_seconds=answer.every_seconds,
            action=None if action is None else _Action(action.barrier, action.epoch, str(action.do)),
        )
    )
