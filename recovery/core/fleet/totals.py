"""The totals of the fleet, which count each closed incident once, no matter how often it is added.

The ledger of a group drops a closed incident only after it was added here, or keeps what is still to be added. A crash
between the two writes repeats the first one, and `FleetTotals.counted` shows that it is a repeat.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.enforce_estimate import summed
from recovery.core.model.fleet_ledger import CountedIncident, FleetTotals
from recovery.core.model.ledger import Incident, IncidentTotals, Ledger
from recovery.core.model.standing import Broken

COUNTED_MAX = 4000
"""At most this many incidents are remembered as counted, about 0.6 MB, because the API server limits object sizes."""

REMEMBERED_FOR = timedelta(minutes=10)
"""They are remembered for at least this long, longer than a cache lags behind a ledger that has dropped one of them."""

IncidentName = tuple[str, int, datetime]
"""UID of the workload, number of the incident, and when its failure happened."""


def name_of(workload_uid: str, incident: Incident) -> IncidentName:
    return workload_uid, incident.number, incident.started_at


def name_of_broken(workload_uid: str, broken: Broken) -> IncidentName:
    """The name of the time in which the group hangs between incidents. It counts once too, but has no number."""
    return workload_uid, 0, broken.booked_from


def contains(totals: FleetTotals, name: IncidentName) -> bool:
    """Whether the incident is counted. This is remembered for as long as a ledger may hold the incident."""
    return any((each.workload_uid, each.number, each.started_at) == name for each in totals.counted)


def held_by(workload_uid: str, ledger: Ledger) -> tuple[IncidentName, ...]:
    """The incidents that this ledger may still ask to count, and the time in which its group is Broken."""
    owed = [(each.workload_uid, each.number, each.started_at) for each in ledger.uncounted]
    if ledger.broken is not None:
        owed.append(name_of_broken(workload_uid, ledger.broken))
    if ledger.incident is not None:
        owed.append(name_of(workload_uid, ledger.incident))
    return tuple(owed)


def with_closed(
    totals: FleetTotals, closed: Iterable[IncidentTotals], now: datetime, *, may_return: Callable[[IncidentName], bool]
) -> FleetTotals:
    """The totals with these incidents added. The same object if it contains all of them already.

    `may_return`: whether a caller may still ask to count the incident of that name. An incident that was counted long
    ago and cannot return is no longer remembered.
    """
    known = {(each.workload_uid, each.number, each.started_at) for each in totals.counted}
    new: dict[IncidentName, IncidentTotals] = {}
    for each in closed:
        name = (each.workload_uid, each.number, each.started_at)
        if name not in known:
            new.setdefault(name, each)
    if not new:
        return totals
    for each in new.values():
        totals = _added(totals, each)
    kept = (
        each
        for each in totals.counted
        if now - each.counted_at < REMEMBERED_FOR or may_return((each.workload_uid, each.number, each.started_at))
    )
    fresh = (CountedIncident(*name, counted_at=now, broken=each.broken) for name, each in new.items())
    return msgspec.structs.replace(totals, counted=(*kept, *fresh)[-COUNTED_MAX:])


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
