"""Puts back what a ledger's account of GPU time lacks after another version has had it in its hands.

Earlier versions of the controller write no split by class and know no released time, and a CRD of an earlier version
drops both. What is missing follows from what is there, so that both sums of the idle GPU-seconds are equal again, and
each span adds up to its length.
"""

import msgspec

from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Incident, Ledger, PhaseSpan

UNKNOWN_CLASS = "Unknown"
"""Of GPU-seconds that were booked without a class."""

_ROUNDING_GPU_SECONDS = 0.01
_MERGED_GPU_SECONDS = 0.5
"""Merged spans add up roundings. Less than the invariants tolerate: a span that is not restored must not be refused."""


def restore_account(ledger: Ledger) -> Ledger:
    """The ledger with every idle GPU-second of a class, and every GPU-second of a span either idle or released."""
    incident = ledger.incident
    return msgspec.structs.replace(
        ledger,
        totals=_every_second_of_a_class(ledger.totals),
        incident=_every_second_of_a_kind(incident) if incident is not None else None,
    )


def _every_second_of_a_class(totals: Totals) -> Totals:
    """What no class accounts for counts as of class Unknown. A counter by class may fall by that, once, as it does when
    a process starts again; none by phase does."""
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
    """Of a span that has ended, what is not idle was released. Of one that lasts: a phase has two spans in a row only
    where that changed, so it is what the one before it was not."""
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
