"""The rule that compares the totals of the fleet with the records of the incidents that they count."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from recovery.core.fleet.counted_marks import IncidentName, mark_of, marks
from recovery.core.fleet.totals import held_by, name_of_broken, with_closed
from recovery.core.incident.closed_incident import totals_of
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.ledger import Closing, Incident, IncidentTotals
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.ports import RECOVERY_CONFIGS, RECOVERY_INCIDENTS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation


class _Recorded(msgspec.Struct, frozen=True):
    at: datetime
    group: GroupKey | None
    adds: IncidentTotals


class FleetTotalsFold(CheckerRule):
    """The totals of the fleet are the sums over the RecoveryIncidents that were recorded since the RecoveryConfig
    exists. Each of them is counted once, and none is missed. So is the time in which a group was Broken when its job
    was deleted.

    A record need not be counted yet while its ledger still holds the incident. Nor need one whose job was deleted while
    controllers were held up, because its ledger may have gone with it.
    """

    hears = frozenset({RECOVERY_CONFIGS, RECOVERY_INCIDENTS})
    COUNTED_WITHIN = timedelta(seconds=90)
    ROUNDING = 0.01

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._recorded: dict[IncidentName, _Recorded] = {}
        self._counted: set[str] = set()
        """Marks."""
        self._names: dict[str, IncidentName] = {}
        """What marks stand for, of all that ledgers held when something was counted. Number 0 is no incident."""
        self._hung: set[str] = set()
        """Those of them that are no incident, but the time in which a group was Broken after one. No record has it."""
        self._totals = FleetTotals()
        self._config_since: datetime | None = None
        """None: there is no RecoveryConfig."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_INCIDENTS:
            if change.type == "ADDED":
                self._record(change, at)
            elif change.type == "MODIFIED" and change.body.get("status"):
                self._record_shared(change, at)
            return
        if change.type == "DELETED":
            self._config_since, self._totals = None, FleetTotals()
            self._counted.clear()
            return
        self._config_since = self._config_since or at
        before, self._totals = self._totals, self.world.fleet.totals
        new = set(marks(self._totals.counted)) - set(marks(before.counted))
        if new:  # what is counted is in a ledger until afterwards
            held = (name for state in self.world.ledgers for name in held_by(state.workload_uid, state.ledger))
            self._names |= {mark_of(name): name for name in held}
        for mark in sorted(new):
            if mark in self._counted:
                yield self.found(at, f"{self._which(mark)} is counted twice")
            self._counted.add(mark)
            if mark in self._names and self._names[mark][1] == 0:
                self._hung.add(mark)

    def _record(self, change: ObjectChange, at: datetime) -> None:
        spec = change.body["spec"]
        incident = msgspec.structs.replace(msgspec.convert(spec, Incident), closing=msgspec.convert(spec, Closing))
        adds = totals_of(spec["workloadRef"]["uid"], incident)
        name = (adds.workload_uid, adds.number, adds.started_at)
        self._recorded[name] = _Recorded(at, self.world.group_of(RECOVERY_INCIDENTS, change.body), adds)

    def _record_shared(self, change: ObjectChange, at: datetime) -> None:
        """Notes one more incident in a shared record. It adds what the sums of the record rise by."""
        spec, fold = change.body["spec"], msgspec.convert(change.body["status"], FoldedIncidents)
        old = (change.before or {}).get("status")
        uid = spec["workloadRef"]["uid"]
        if old is None:
            before = self._recorded[uid, spec["number"], msgspec.convert(spec["startedAt"], datetime)].adds
            idle, released, restarts = before.idle_gpu_seconds, before.released_gpu_seconds, before.restarts
            estimate = before.enforce_estimate
        else:
            was = msgspec.convert(old, FoldedIncidents)
            idle, released, restarts = was.idle_gpu_seconds, was.released_gpu_seconds, was.restarts
            estimate = was.enforce_estimate
        risen = {key: round(seconds - idle.get(key, 0.0), 3) for key, seconds in fold.idle_gpu_seconds.items()}
        adds = IncidentTotals(
            workload_uid=uid,
            number=fold.latest_number,
            started_at=fold.latest_started_at,
            disruption_class=spec["class"],
            outcome=spec["outcome"],
            idle_gpu_seconds={key: seconds for key, seconds in risen.items() if seconds},
            released_gpu_seconds=round(fold.released_gpu_seconds - released, 3),
            restarts=fold.restarts - restarts,
            enforce_estimate=EnforceEstimate(
                fold.enforce_estimate.restarts - estimate.restarts,
                round(fold.enforce_estimate.idle_gpu_seconds - estimate.idle_gpu_seconds, 3),
                round(fold.enforce_estimate.platform_idle_gpu_seconds - estimate.platform_idle_gpu_seconds, 3),
            ),
        )
        name = (adds.workload_uid, adds.number, adds.started_at)
        self._recorded.setdefault(name, _Recorded(at, self.world.group_of(RECOVERY_INCIDENTS, change.body), adds))

    def ended(self) -> Iterator[Violation]:
        at = self.evidence.ends_at
        recorded = {mark_of(name) for name in self._recorded}
        for mark in sorted(self._counted - recorded - self._hung):
            yield self.found(at, f"{self._which(mark)} is counted and not recorded")
        for name, record in self._recorded.items():
            if mark_of(name) not in self._counted and self._is_due(name, record.at):
                yield self.found(at, f"incident {name[1]} of workload {name[0]} is not counted", record.group)
        yield from self._left_broken(at)
        counted = (each.adds for name, each in self._recorded.items() if mark_of(name) in self._counted)
        fold = with_closed(FleetTotals(), counted, at, may_return=lambda _: False)
        for sentence in self._differences(fold, self._totals):
            yield self.found(at, sentence)

    def _which(self, mark: str) -> str:
        name = self._names.get(mark)
        return f"incident {name[1]} of workload {name[0]}" if name is not None else f"what no ledger held ({mark})"

    def _left_broken(self, at: datetime) -> Iterator[Violation]:
        """The jobs whose groups were Broken when they were deleted, and are not counted."""
        for state in self.world.ledgers:
            broken, gone_at = state.ledger.broken, state.gone_at
            if broken is None or gone_at is None or not broken.gpus or gone_at <= broken.booked_from:
                continue
            name = name_of_broken(state.workload_uid, broken)
            if mark_of(name) not in self._counted and self._is_due(name, gone_at):
                since = f"{broken.booked_from:%H:%M:%S}"
                yield self.found(at, f"the time in which it hung from {since} on is not counted", state.group)

    def _is_due(self, name: IncidentName, since: datetime) -> bool:
        """`since`: when the record was written, or the ledger deleted."""
        if self._config_since is None or since < self._config_since + self.COUNTED_WITHIN:
            return False
        state = self.world.ledgers.of(name[0])
        if state is None:
            return False
        if state.gone_at is None:
            return name not in held_by(name[0], state.ledger)
        begins, ends = state.gone_at - self.COUNTED_WITHIN, state.gone_at + self.COUNTED_WITHIN
        undisturbed = self.world.undisturbed.seconds(begins, ends) >= (ends - begins).total_seconds()
        return undisturbed and ends < self.evidence.ends_at

    def _differences(self, fold: FleetTotals, written: FleetTotals) -> Iterator[str]:
        estimate, of_totals = fold.enforce_estimate, written.enforce_estimate
        saved = abs(estimate.saved_gpu_seconds - of_totals.saved_gpu_seconds)
        if estimate.restarts != of_totals.restarts or saved > self.ROUNDING:
            yield f"Enforce is estimated as {of_totals}, the records say {estimate}"
        for what in ("incidents", "restarts"):
            if getattr(fold, what) != getattr(written, what):
                yield f"{what} are {getattr(written, what)}, the records say {getattr(fold, what)}"
        if abs(fold.released_gpu_seconds - written.released_gpu_seconds) > self.ROUNDING:
            yield f"{written.released_gpu_seconds} GPU-seconds are released, {fold.released_gpu_seconds} by the records"
        by_class, expected = written.idle_gpu_seconds_by_class, fold.idle_gpu_seconds_by_class
        for class_ in sorted({*by_class, *expected}):
            one, other = by_class.get(class_, {}), expected.get(class_, {})
            phases = {*one, *other} - {BROKEN_SECONDS}
            if any(abs(one.get(phase, 0.0) - other.get(phase, 0.0)) > self.ROUNDING for phase in phases):
                yield f"idle GPU-seconds of class {class_} are {one}, the records say {other}"
