"""The totals of the fleet, which count each closed incident once, no matter how often it is added.

The ledger of a group drops a closed incident only after it was added here, or keeps what is still to be added. A crash
between the two writes repeats the first one, and `FleetTotals.counted` shows that it is a repeat.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from recovery.core.fleet import counted_marks
from recovery.core.fleet.counted_marks import IncidentName, mark_of, minute_of
from recovery.core.model.enforce_estimate import summed
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.model.ledger import Incident, IncidentTotals, Ledger
from recovery.core.model.standing import Broken

COUNTED_MAX = 4000
"""At most this many incidents are remembered as counted, about 50 kB: the status is written with each of them."""

REMEMBERED_FOR = timedelta(minutes=10)
"""They are remembered for at least this long, longer than a cache lags behind a ledger that has dropped one of them."""


def name_of(workload_uid: str, incident: Incident) -> IncidentName:
    return workload_uid, incident.number, incident.started_at


def name_of_broken(workload_uid: str, broken: Broken) -> IncidentName:
    """The name of the time in which the group hangs between incidents. It counts once too, but has no number."""
    return workload_uid, 0, broken.booked_from


def held_by(workload_uid: str, ledger: Ledger) -> tuple[IncidentName, ...]:
    """The incidents that this ledger may still ask to count, and the time in which its group is Broken."""
    owed = [(each.workload_uid, each.number, each.started_at) for each in ledger.uncounted]
    if ledger.broken is not None:
        owed.append(name_of_broken(workload_uid, ledger.broken))
    if ledger.incident is not None:
        owed.append(name_of(workload_uid, ledger.incident))
    return tuple(owed)


def with_closed(
    totals: FleetTotals, closed: Iterable[IncidentTotals], now: datetime, *, may_return: Callable[[str], bool]
) -> FleetTotals:
    """The totals with these incidents added. The same object if it contains all of them already.

    `may_return`: whether a caller may still ask to count the incident of that mark. An incident that was counted long
    ago and cannot return is no longer remembered.
    """
    known = set(counted_marks.marks(totals.counted))
    new: dict[str, IncidentTotals] = {}
    for each in closed:
        mark = mark_of((each.workload_uid, each.number, each.started_at))
        if mark not in known:
            new.setdefault(mark, each)
    if not new:
        return totals
    for each in new.values():
        totals = _added(totals, each)
    old = minute_of(now - REMEMBERED_FOR)
    kept = (
        (minute, mark)
        for minute, mark in counted_marks.dated(totals.counted)
        if minute >= old or may_return(mark)  # the minute of `old` is not over by then
    )
    fresh = ((minute_of(now), mark) for mark in new)
    return msgspec.structs.replace(totals, counted=counted_marks.by_minute((*kept, *fresh)[-COUNTED_MAX:]))


def _added(totals: FleetTotals, closed: IncidentTotals) -> FleetTotals:
    incidents = totals.incidents
    if not closed.broken:
        outcomes = incidents.get(closed.disruption_class, {})
        handlings = outcomes.get(closed.outcome, {})
        handlings = {**handlings, closed.handling: handlings.get(closed.handling, 0) + 1}
        incidents = {**incidents, closed.disruption_class: {**outcomes, closed.outcome: handlings}}
    idle = dict(totals.idle_gpu_seconds_by_class.get(closed.disruption_class, {}))
    for phase, seconds in closed.idle_gpu_seconds.items():
        idle[phase] = round(idle.get(phase, 0.0) + seconds, 3)
    return msgspec.structs.replace(
        totals,
        incidents=incidents,
        idle_gpu_seconds_by_class={**totals.idle_gpu_seconds_by_class, closed.disruption_class: idle}
        if idle
        else totals.idle_gpu_seconds_by_class,
        released_gpu_seconds=round(totals.released_gpu_seconds + closed.released_gpu_seconds, 3),
        restarts=totals.restarts + closed.restarts,
        enforce_estimate=summed((totals.enforce_estimate, closed.enforce_estimate)),
    )
