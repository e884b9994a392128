"""Restores what a ledger's account of GPU time lacks after another version has written it.

Earlier versions of the controller write no split by class and no released time, and a CRD of an earlier version drops
both. The missing values are derived from the others, so that both sums of the idle GPU-seconds are equal again, and
each span adds up to its length.
"""

import msgspec

from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Incident, Ledger, PhaseSpan

UNKNOWN_CLASS = "Unknown"
"""The class of GPU-seconds that were booked without one."""

_ROUNDING_GPU_SECONDS = 0.01
_MERGED_GPU_SECONDS = 0.5
"""Rounding errors add up in merged spans. Less than the invariants tolerate: they must accept an unrestored span."""


def restore_account(ledger: Ledger) -> Ledger:
    """The ledger where every idle GPU-second has a class, and every GPU-second of a span is either idle or released."""
    incident = ledger.incident
    return msgspec.structs.replace(
        ledger,
        totals=_every_second_of_a_class(ledger.totals),
        incident=_every_second_of_a_kind(incident) if incident is not None else None,
    )


def _every_second_of_a_class(totals: Totals) -> Totals:
    """Idle GPU-seconds without a class count as class Unknown. A counter by class may fall because of that, once, as it
    does when a process restarts. A counter by phase does not."""
    by_class = totals.idle_gpu_seconds_by_class
    missing: dict[str, float] = {}
    for phase, seconds in totals.idle_gpu_seconds.items():
        known = sum(of_class.get(phase, 0.0) for of_class in by_class.values())
        if seconds - known > _ROUNDING_GPU_SECONDS:
            missing[phase] = round(seconds - known, 3)
    if not missing:
        return totals
    unknown = dict(by_class.get(UNKNOWN_CLASS, {}))
    for phase, seconds in missing.items():
        unknown[phase] = round(unknown.get(phase, 0.0) + seconds, 3)
    return msgspec.structs.replace(totals, idle_gpu_seconds_by_class={**by_class, UNKNOWN_CLASS: unknown})


def _every_second_of_a_kind(incident: Incident) -> Incident:
    """In a span that has ended, GPU-seconds that are not idle were released. The last span, if open, is released if the
    span before it has the same phase and is not: a phase has two spans in a row only where that changed."""
    spans: list[PhaseSpan] = []
    for span in incident.phases:
        found = span
        if span.ended_at is not None:
            length = (span.ended_at - span.started_at).total_seconds() * incident.gpus_in(span)
            missing = round(length - span.idle_gpu_seconds - span.released_gpu_seconds, 3)
            if missing > _MERGED_GPU_SECONDS:
                released = round(span.released_gpu_seconds + missing, 3)
                found = msgspec.structs.replace(span, released=not span.idle_gpu_seconds, released_gpu_seconds=released)
        elif spans and spans[-1].phase is span.phase and not spans[-1].released:
            found = msgspec.structs.replace(span, released=True)
        spans.append(found)
    return msgspec.structs.replace(incident, phases=tuple(spans))
