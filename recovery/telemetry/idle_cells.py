"""GPU-seconds of incidents in the finest pieces that any counter has, and a memory that keeps them from going back.

A counter must never fall, also not between two leaders, who share the ledger and no memory: Prometheus takes a fall
for a restart, and counts all that was there before a second time. The end of a phase may be booked some seconds after
its date, because the last rank was Ready before the controller had read it. So what lasts counts up to
`surely_lost_until`, a few seconds ago, and in full once the ledger books its end.

All counters of idle GPU-seconds are sums over these pieces, so the sum by reason and the sum by cause are equal at
every scrape.
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
from recovery.telemetry.catalogue.label_values import BOOKED_REASONS, HUNG, known_class

Key = TypeVar("Key", bound=Hashable)


class IdleCell(msgspec.Struct, frozen=True):
    """Where idle GPU-seconds are counted."""

    failure_class: str
    reason: str


IdleCells = dict[IdleCell, float]

BOOKED_WITHIN = timedelta(seconds=5)
"""From the end of a phase, as its objects date it, until the ledger has it: one second of the API's rounding, the
watch, the reconcile and its write. Where these take longer, a change of leader at that moment may let a counter fall.
"""

_ROUNDING_SECONDS = 1e-3
"""Below this a difference between two sums of the same figures is none."""


class Monotone(Generic[Key]):
    """Values that never fall within this process."""

    def __init__(self) -> None:
        self._reached: dict[Key, float] = {}

    def raised(self, values: Mapping[Key, float]) -> dict[Key, float]:
        """Each value, or what was reported for it before where that was more; those too that are missing now."""
        for key, value in values.items():
            self._reached[key] = max(value, self._reached.get(key, 0.0))
        return dict(self._reached)

    def keep_only(self, lives: Callable[[Key], bool]) -> None:
        """The others will not come again."""
        self._reached = {key: value for key, value in self._reached.items() if lives(key)}


def open_incident(ledger: Ledger) -> Incident | None:
    """None: none is open."""
    incident = ledger.incident
    return incident if incident is not None and incident.closing is None else None


def running_span(ledger: Ledger) -> PhaseSpan | None:
    """The phase that lasts. None: none does."""
    incident = open_incident(ledger)
    if incident is None or not incident.phases or incident.phases[-1].ended_at is not None:
        return None
    return incident.phases[-1]


def booked_in(totals: Totals) -> IdleCells:
    """What a ledger has booked. What has no class there is of class Unknown: a version booked it that knew none."""
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
    """What the spans of an incident that have ended have cost."""
    cells: IdleCells = {}
    for span in incident.phases:
        if span.idle_gpu_seconds:
            add(cells, incident.disruption_class, span.phase, span.idle_gpu_seconds)
    return cells


def surely_lost_until(incident: Incident, now: datetime) -> datetime:
    """Up to when the phase that lasts has surely lasted: its end, once it is booked, is not before.

    A group that runs whole without a restart is believed only after a while, and its phase ends when it became Ready.
    """
    return now - (OUTLIVES_IN if incident.held is not None else SETTLES_IN) - BOOKED_WITHIN


def running_of(ledger: Ledger, now: datetime) -> tuple[IdleCells, float]:
    """The phase that lasts, up to `surely_lost_until`: idle GPU-seconds and released ones."""
    span, incident = running_span(ledger), ledger.incident
    cells: IdleCells = {}
    if span is None or incident is None:
        return cells, 0.0
    seconds = max(0.0, (surely_lost_until(incident, now) - span.started_at).total_seconds())
    # Rounded up it could be more than what is booked.
    gpu_seconds = math.floor(seconds * incident.gpus_in(span) * 1000) / 1000
    if span.released:
        return cells, gpu_seconds
    add(cells, incident.disruption_class, span.phase, gpu_seconds)
    return cells, 0.0


def add(cells: IdleCells, failure_class: str, phase: str, seconds: float) -> None:
    cell = IdleCell(known_class(failure_class), BOOKED_REASONS.get(phase, HUNG))
    cells[cell] = cells.get(cell, 0.0) + seconds


def thousandths(seconds: float) -> float:
    """As the ledger keeps it. A sum in another order is another float, and would be a fall."""
    return round(seconds, 3)


def merged(*parts: IdleCells) -> IdleCells:
    """Their sum."""
    total: IdleCells = {}
    for part in parts:
        for cell, seconds in part.items():
            total[cell] = total.get(cell, 0.0) + seconds
    return total
