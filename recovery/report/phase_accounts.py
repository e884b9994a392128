"""How long each phase of an incident took and what it cost, by our phases and by the public taxonomy of badput."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from recovery.core.model.ledger import Incident, Phase, PhaseSpan

INFRASTRUCTURE_RECOVERY = "infrastructure_recovery_from_disruption"
OTHER = "other"

_NO_ONE_RECOVERS = frozenset({Phase.DECIDED, Phase.BACKOFF, Phase.HELD})
"""Decided lasts milliseconds if something is done about a failure, and is long only if nothing is done."""

BADPUT: Mapping[Phase, str] = MappingProxyType(
    {phase: OTHER if phase in _NO_ONE_RECOVERS else INFRASTRUCTURE_RECOVERY for phase in Phase}
)
"""The names of Google's ml-goodput-measurement. The metrics label `badput` has the same name for each phase."""


class PhaseAccount(msgspec.Struct, frozen=True, rename="camel"):
    """One phase of an incident."""

    phase: Phase
    badput: str
    started_at: datetime
    ended_at: datetime | None
    """None: the phase has not ended."""
    duration_seconds: float
    """Up to now if the phase has not ended."""
    idle_gpu_seconds: float
    released_gpu_seconds: float
    """GPU-seconds that the controller's suspension gave back to the cluster. They are not idle."""


def phase_accounts(incident: Incident, now: datetime) -> tuple[PhaseAccount, ...]:
    """The phases in the order of the record."""
    return tuple(_account(span, incident.gpus_in(span), now) for span in incident.phases)


def _account(span: PhaseSpan, gpus: int, now: datetime) -> PhaseAccount:
    seconds = max(0.0, ((span.ended_at or now) - span.started_at).total_seconds())
    lasts = span.ended_at is None
    # The GPU-seconds of a span are booked when it ends. The oldest span may be several merged into one.
    running = seconds * gpus
    return PhaseAccount(
        phase=span.phase,
        badput=BADPUT[span.phase],
        started_at=span.started_at,
        ended_at=span.ended_at,
        duration_seconds=seconds,
        idle_gpu_seconds=span.idle_gpu_seconds + (running if lasts and not span.released else 0.0),
        released_gpu_seconds=span.released_gpu_seconds + (running if lasts and span.released else 0.0),
    )


def summed(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The values of each key added up, the largest first. Keys without a value are left out."""
    found: dict[str, float] = {}
    for key, value in pairs:
        found[key] = found.get(key, 0.0) + value
    return {key: round(value, 3) for key, value in sorted(found.items(), key=lambda pair: (-pair[1], pair[0])) if value}
