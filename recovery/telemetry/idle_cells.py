"""GPU-seconds of incidents, and of groups that hang after one, in the smallest cells that any counter needs, and a
memory that keeps them from falling.

A counter must never fall, not even between two leaders, which share the ledger but no memory: Prometheus treats a fall
as a restart and counts the whole value a second time. The end of a phase may be booked some seconds after its date,
because the last rank was Ready before the controller had read it. So a phase in progress counts only up to
`surely_lost_until`, a few seconds ago, and in full once the ledger books its end.

All counters of idle GPU-seconds are sums over these cells, so the sum by reason and the sum by cause are equal at every
scrape.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from recovery.core.decision.resuming import OUTLIVES_IN, SETTLES_IN
from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Incident, Ledger, PhaseSpan
from recovery.core.model.standing import BROKEN_SECONDS, Broken
from recovery.telemetry.catalogue.label_values import counted_reason, known_class

Key = TypeVar("Key", bound=Hashable)


class IdleCell(msgspec.Struct, frozen=True):
    """Where idle GPU-seconds are counted."""

    failure_class: str
    reason: str


IdleCells = dict[IdleCell, float]

BOOKED_WITHIN = timedelta(seconds=5)
"""From the end of a phase, as its objects date it, until the ledger has it: one second of the API's rounding, the
watch, the reconcile and its write. If these take longer, a change of leader at that moment may let a counter fall.
"""

_ROUNDING_SECONDS = 1e-3
"""A smaller difference between two sums of the same figures counts as none."""


class Monotone(Generic[Key]):
    """Values that never fall within this process."""

    def __init__(self) -> None:
        self._reached: dict[Key, float] = {}

    def raised(self, values: Mapping[Key, float]) -> dict[Key, float]:
        """Each value, or the earlier one if that was higher. Keys that are missing now keep their earlier values."""
        for key, value in values.items():
            self._reached[key] = max(value, self._reached.get(key, 0.0))
        return dict(self._reached)

    def keep_only(self, lives: Callable[[Key], bool]) -> None:
        """Forget all other keys."""
        self._reached = {key: value for key, value in self._reached.items() if lives(key)}


def open_incident(ledger: Ledger) -> Incident | None:
    """The open incident. None: none is open."""
    incident = ledger.incident
    return incident if incident is not None and incident.closing is None else None


def hanging(ledger: Ledger) -> Broken | None:
    """Since when the group hangs between incidents. None: it does not, or an incident is open."""
    return ledger.broken if open_incident(ledger) is None else None


def running_span(ledger: Ledger) -> PhaseSpan | None:
    """The phase in progress. None: there is none."""
    incident = open_incident(ledger)
    if incident is None or not incident.phases or incident.phases[-1].ended_at is not None:
        return None
    return incident.phases[-1]


def booked_in(totals: Totals) -> IdleCells:
    """What a ledger has booked. Seconds without a class get class Unknown: a version without classes booked them."""
    cells = booked_by_class(totals.idle_gpu_seconds_by_class)
    for phase, seconds in totals.idle_gpu_seconds.items():
        classed = sum(phases.get(phase, 0.0) for phases in totals.idle_gpu_seconds_by_class.values())
        if seconds - classed > _ROUNDING_SECONDS:
            add(cells, DisruptionClass.UNKNOWN, phase, seconds - classed)
    return cells


def booked_by_class(by_class: Mapping[str, Mapping[str, float]]) -> IdleCells:
    """The cells of totals by class, and then by phase."""
    cells: IdleCells = {}
    for name, phases in by_class.items():
        for phase, seconds in phases.items():
            add(cells, name, phase, seconds)
    return cells


def booked_of(incident: Incident) -> IdleCells:
    """What the ended spans of an incident have cost."""
    cells: IdleCells = {}
    for span in incident.phases:
        if span.idle_gpu_seconds:
            add(cells, incident.booked_class, span.phase, span.idle_gpu_seconds)
    return cells


def surely_lost_until(incident: Incident, now: datetime) -> datetime:
    """Up to when the phase in progress has certainly lasted: once its end is booked, it is not earlier.

    A group that runs whole without a restart is trusted only after a while, and its phase ends when it became Ready.
    """
    return now - (OUTLIVES_IN if incident.step.verdict is not None else SETTLES_IN) - BOOKED_WITHIN


def running_of(ledger: Ledger, now: datetime) -> tuple[IdleCells, float]:
    """Idle and released GPU-seconds of the phase in progress, or of a group that hangs between incidents, as far as
    they are surely lost."""
    span, incident, hangs = running_span(ledger), ledger.incident, hanging(ledger)
    cells: IdleCells = {}
    if hangs is not None:
        # The ranks that end the hang are seen within seconds, as in a phase.
        lost = _gpu_seconds(hangs.booked_from, now - SETTLES_IN - BOOKED_WITHIN, hangs.gpus)
        add(cells, hangs.disruption_class, BROKEN_SECONDS, lost)
        return cells, 0.0
    if span is None or incident is None:
        return cells, 0.0
    gpu_seconds = _gpu_seconds(span.started_at, surely_lost_until(incident, now), incident.gpus_in(span))
    if span.released:
        return cells, gpu_seconds
    add(cells, incident.booked_class, span.phase, gpu_seconds)
    return cells, 0.0


def _gpu_seconds(since: datetime, until: datetime, gpus: int) -> float:
    """Rounded down to thousandths: rounded up they could exceed what is booked later."""
    return math.floor(max(0.0, (until - since).total_seconds()) * gpus * 1000) / 1000


def add(cells: IdleCells, failure_class: str, phase: str, seconds: float) -> None:
    cell = IdleCell(known_class(failure_class), counted_reason(failure_class, phase))
    cells[cell] = cells.get(cell, 0.0) + seconds


def thousandths(seconds: float) -> float:
    """Rounded as in the ledger. A sum in another order may be a smaller float, which would be a fall."""
    return round(seconds, 3)


def merged(*parts: IdleCells) -> IdleCells:
    """Their sum."""
    total: IdleCells = {}
    for part in parts:
        for cell, seconds in part.items():
            total[cell] = total.get(cell, 0.0) + seconds
    return total
