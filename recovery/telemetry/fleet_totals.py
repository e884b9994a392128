"""The counters of the whole cluster: all ended incidents, and the certain part of the open ones. The time in which a
group is Broken between incidents counts in the same way, for its GPU-seconds only.

Ended incidents are in `RecoveryConfig.status.totals`, each counted once, so the counters survive a change of leader and
the deletion of jobs. An incident that is not there yet is counted from its ledger. The caches of the two objects may
lag behind each other, but no value falls within one process. Without a RecoveryConfig this process counts from 0, and
remembers the incidents that ended while it led.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import TypeAlias

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.core.fleet.counted_marks import IncidentName, mark_of, marks
from recovery.core.fleet.totals import name_of, name_of_broken
from recovery.core.incident.closed_incident import totals_of
from recovery.core.model.drill import DRILL_CLASS
from recovery.core.model.enforce_estimate import EnforceEstimate, summed
from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.model.ledger import Incident, IncidentTotals, Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.ports import Clock, GroupStore
from recovery.telemetry.catalogue import of_fleet
from recovery.telemetry.catalogue.label_values import (
    DRILL_REASON,
    ENFORCE_OR_PLATFORM,
    FAILURE_CLASSES,
    FAILURE_REASONS,
    SCOPE,
    badput_of,
    known_class,
)
from recovery.telemetry.families import filled, preset_labels
from recovery.telemetry.idle_cells import (
    IdleCell,
    IdleCells,
    Monotone,
    add,
    booked_by_class,
    booked_of,
    hanging,
    open_incident,
    running_of,
    thousandths,
)
from recovery.telemetry.jobs_found import FoundJobs
from recovery.telemetry.pieces import Pieces, complete

_Ended: TypeAlias = tuple[str, ...]
"""Class, outcome and handling of incidents that have ended."""

_LEDGERS_AT_ONCE = 50
"""Ledgers in one step: less than a millisecond."""

_NO_CELLS: Mapping[IdleCell, float] = {}
_NONE_ENDED: Mapping[_Ended, float] = {}


class _Sums(msgspec.Struct, frozen=True):
    """What some incidents add up to."""

    ended: Mapping[_Ended, float] = _NONE_ENDED
    idle: Mapping[IdleCell, float] = _NO_CELLS
    released: float = 0.0
    restarts: float = 0.0
    would: EnforceEstimate = EnforceEstimate()


def _added(parts: Iterable[_Sums]) -> _Sums:
    ended: dict[_Ended, float] = {}
    idle: IdleCells = {}
    released = restarts = 0.0
    parts = tuple(parts)
    for part in parts:
        for key, count in part.ended.items():
            ended[key] = ended.get(key, 0.0) + count
        for cell, seconds in part.idle.items():
            idle[cell] = idle.get(cell, 0.0) + seconds
        released += part.released
        restarts += part.restarts
    return _Sums(ended, idle, released, restarts, summed(part.would for part in parts))


class FleetTotalsCollector(Collector):
    """A prometheus collector over the totals of the fleet and all ledgers. Without a store, or while another process
    leads, it is silent."""

    def __init__(self, clock: Clock, jobs: FoundJobs) -> None:
        self._clock = clock
        self._jobs = jobs
        self._store: GroupStore | None = None
        self.leads = False
        """Whether this process leads, and so reports the fleet."""
        self._remembered = _Sums()
        """The incidents that ended while this process led and there was no RecoveryConfig to count them."""
        self._remembered_which: frozenset[IncidentName] = frozenset()
        """Those of them that are still in a ledger."""
        self._ended: Monotone[_Ended] = Monotone()
        self._idle: Monotone[IdleCell] = Monotone()
        self._others: Monotone[str] = Monotone()

    def follow(self, store: GroupStore) -> None:
        """Report the fleet of this store from now on."""
        self._store = store

    def ledger_written(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        """Remember what has ended with this write, if there is no RecoveryConfig."""
        if self._store is None or self._store.config() is not None:
            return
        ended = [incident] if (incident := _closed_by(before, after)) is not None else []
        broken = _booked_broken(before, after)
        job = self._jobs.present().get(key) if ended or broken else None
        if job is None:
            return  # it was deleted meanwhile; without a RecoveryConfig nothing remembers it
        parts = {name_of(job.workload_uid, each): _of_incident(job.workload_uid, each) for each in ended}
        if broken and before.broken is not None:
            parts[name_of_broken(job.workload_uid, before.broken)] = _Sums(idle=broken)
        self._remembered = _added((self._remembered, *parts.values()))
        self._remembered_which |= frozenset(parts)

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        return complete(self.pieces())

    def pieces(self) -> Pieces:
        """See `MadeInPieces`."""
        if self._store is None or not self.leads:
            return iter(())
        config = self._store.config()
        return self._families(
            config.fleet.totals if config is not None else FleetTotals(),
            tuple(self._store.ledger_objects()),
            frozenset(job.workload_uid for job in self._jobs.present().values()),
            (self._remembered, self._remembered_which),
            self._clock.now(),
        )

    def _families(
        self,
        totals: FleetTotals,
        groups: Sequence[LedgerObject],
        present: Set[str],
        remembered: tuple[_Sums, frozenset[IncidentName]],
        now: datetime,
    ) -> Pieces:
        """`present`: UIDs of the workloads that exist."""
        sums = yield from self._sums(totals, groups, present, remembered, now)
        reached = self._ended.raised(sums.ended)
        # Drills begin with the first one, as those of a job do.
        preset = (labels for labels in preset_labels(of_fleet.FLEET_INCIDENTS) if DRILL_CLASS not in labels)
        ended: dict[tuple[str, ...], float] = dict.fromkeys(preset, 0.0)
        yield filled(of_fleet.FLEET_INCIDENTS, {**ended, **reached})
        idle: dict[tuple[str, ...], float] = {
            (reason, name, badput_of(reason)): 0.0 for reason in FAILURE_REASONS for name in FAILURE_CLASSES
        }
        idle[DRILL_REASON, DRILL_CLASS, badput_of(DRILL_REASON)] = 0.0
        for cell, seconds in self._idle.raised(sums.idle).items():
            idle[cell.reason, cell.failure_class, badput_of(cell.reason)] = thousandths(seconds)
        yield filled(of_fleet.FLEET_GPU_IDLE_SECONDS, idle)
        others = self._others.raised(
            {
                "released": sums.released,
                "restarts": sums.restarts,
                "would restart": sums.would.restarts,
                "enforce": sums.would.idle_gpu_seconds,
                "platform": sums.would.platform_idle_gpu_seconds,
            }
        )
        yield filled(of_fleet.FLEET_GPU_RELEASED_SECONDS, {(): thousandths(others["released"])})
        yield filled(of_fleet.FLEET_GROUP_RESTARTS, {(SCOPE,): others["restarts"]})
        yield filled(of_fleet.FLEET_WOULD_RESTART, {(): others["would restart"]})
        by: dict[tuple[str, ...], float] = {(each,): thousandths(others[each]) for each in ENFORCE_OR_PLATFORM}
        yield filled(of_fleet.FLEET_WOULD_GPU_IDLE_SECONDS, by)

    def _sums(
        self,
        totals: FleetTotals,
        groups: Sequence[LedgerObject],
        present: Set[str],
        remembered: tuple[_Sums, frozenset[IncidentName]],
        now: datetime,
    ) -> Generator[None, None, _Sums]:
        remembered_sums, remembered_which = remembered
        counted = frozenset(marks(totals.counted))
        parts = [_of_totals(totals), remembered_sums]
        still_there: set[IncidentName] = set()
        for number, group in enumerate(groups, 1):
            if number % _LEDGERS_AT_ONCE == 0:
                yield
            if not group.readable:
                continue
            for which, part in _parts(group, now, running=group.workload_uid in present):
                if which in remembered_which:
                    still_there.add(which)
                elif mark_of(which) not in counted:
                    parts.append(part)
        self._remembered_which -= remembered_which - still_there  # more may have ended meanwhile
        return _added(parts)


def _closed_by(before: Ledger, after: Ledger) -> Incident | None:
    """The incident that has ended with this write. None: none has."""
    incident, was = after.incident, before.incident
    if incident is None or incident.closing is None:
        return None
    known = was is not None and was.id == incident.id and was.closing is not None
    return None if known else incident


def _booked_broken(before: Ledger, after: Ledger) -> IdleCells:
    """What this write has booked for the time in which the group hung between incidents."""
    broken, cells = before.broken, IdleCells()
    if broken is not None and (after.broken is None or after.broken.booked_from != broken.booked_from):
        booked = [
            ledger.totals.idle_gpu_seconds_by_class.get(broken.disruption_class, {}).get(BROKEN_SECONDS, 0.0)
            for ledger in (before, after)
        ]
        add(cells, broken.disruption_class, BROKEN_SECONDS, booked[1] - booked[0])
    return cells


def _parts(group: LedgerObject, now: datetime, *, running: bool) -> Iterator[tuple[IncidentName, _Sums]]:
    """What a ledger has that may not be in the totals yet: its current incident, the time in which it hangs after the
    last one, and what could not be added.

    `running` False: its workload is gone, so none of its GPUs is idle any more."""
    incident, hangs, seen = group.ledger.incident, hanging(group.ledger), set()
    for each in group.ledger.uncounted:
        which = (each.workload_uid, each.number, each.started_at)
        seen.add(which)
        yield which, _of_closed(each)
    if running and hangs is not None:
        idle, _ = running_of(group.ledger, now)
        yield name_of_broken(group.workload_uid, hangs), _Sums(idle=idle)
    if incident is None or name_of(group.workload_uid, incident) in seen:
        return
    yield name_of(group.workload_uid, incident), _of_incident(group.workload_uid, incident)
    if running and open_incident(group.ledger) is not None:
        idle, released = running_of(group.ledger, now)
        yield name_of(group.workload_uid, incident), _Sums(idle=idle, released=released)


def _of_incident(workload_uid: str, incident: Incident) -> _Sums:
    """The sums of an incident so far, without the phase in progress."""
    if incident.closing is not None:
        return _of_closed(totals_of(workload_uid, incident))
    released = sum(span.released_gpu_seconds for span in incident.phases)
    restarts = incident.restarts - incident.drill_restarts
    return _Sums(idle=booked_of(incident), released=released, restarts=restarts)


def _of_closed(each: IncidentTotals) -> _Sums:
    idle: IdleCells = {}
    for phase, seconds in each.idle_gpu_seconds.items():
        add(idle, each.disruption_class, phase, seconds)
    ended: dict[_Ended, float] = {}
    if not each.broken:
        ended[known_class(each.disruption_class), str(each.outcome), str(each.handling)] = 1.0
    return _Sums(ended, idle, each.released_gpu_seconds, each.restarts, each.enforce_estimate)


def _of_totals(totals: FleetTotals) -> _Sums:
    ended: dict[_Ended, float] = {}
    for name, outcomes in totals.incidents.items():
        for outcome, handlings in outcomes.items():
            for handling, count in handlings.items():
                key = (known_class(name), outcome, handling)
                ended[key] = ended.get(key, 0.0) + count
    idle = booked_by_class(totals.idle_gpu_seconds_by_class)
    return _Sums(ended, idle, totals.released_gpu_seconds, totals.restarts, totals.enforce_estimate)
