"""The totals of the fleet, against the records of the incidents that they count."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from recovery.core.fleet.totals import IncidentName, held_by, with_closed
from recovery.core.incident.closed_incident import totals_of
from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.model.ledger import Closing, Incident, IncidentTotals
from recovery.ports import RECOVERY_CONFIGS, RECOVERY_INCIDENTS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation


class _Recorded(msgspec.Struct, frozen=True):
    at: datetime
    group: GroupKey | None
    adds: IncidentTotals


class FleetTotalsFold(CheckerRule):
    """The totals of the fleet are the fold over the RecoveryIncidents recorded since there is a RecoveryConfig: each is
    counted once, and none is missed.

    One that its ledger has not forgotten yet is still to be counted. So is one whose job went while controllers were
    held up: its ledger may have gone with it.
    """

    hears = frozenset({RECOVERY_CONFIGS, RECOVERY_INCIDENTS})
    COUNTED_WITHIN = timedelta(seconds=90)
    ROUNDING = 0.01

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._recorded: dict[IncidentName, _Recorded] = {}
        self._counted: dict[IncidentName, datetime] = {}
        self._totals = FleetTotals()
        self._config_since: datetime | None = None
        """None: there is no RecoveryConfig."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_INCIDENTS:
            if change.type == "ADDED":
                self._record(change, at)
            return
        if change.type == "DELETED":
            self._config_since, self._totals = None, FleetTotals()
            self._counted.clear()
            return
        self._config_since = self._config_since or at
        before, self._totals = self._totals, self.world.fleet.totals
        known = set(before.counted)
        for each in self._totals.counted:
            if each in known:
                continue
            name = (each.workload_uid, each.number, each.started_at)
            if name in self._counted:
                yield self.found(at, f"incident {each.number} of workload {each.workload_uid} is counted twice")
            self._counted[name] = at

    def _record(self, change: ObjectChange, at: datetime) -> None:
        spec = change.body["spec"]
        incident = msgspec.structs.replace(msgspec.convert(spec, Incident), closing=msgspec.convert(spec, Closing))
        adds = totals_of(spec["workloadRef"]["uid"], incident)
        name = (adds.workload_uid, adds.number, adds.started_at)
        self._recorded[name] = _Recorded(at, self.world.group_of(RECOVERY_INCIDENTS, change.body), adds)

    def ended(self) -> Iterator[Violation]:
        at = self.evidence.ends_at
        for name in self._counted:
            if name not in self._recorded:
                yield self.found(at, f"incident {name[1]} of workload {name[0]} is counted and not recorded")
        for name, record in self._recorded.items():
            if name not in self._counted and self._is_due(name, record):
                yield self.found(at, f"incident {name[1]} of workload {name[0]} is not counted", record.group)
        counted = (each.adds for name, each in self._recorded.items() if name in self._counted)
        fold = with_closed(FleetTotals(), counted, at, may_return=lambda _: False)
        for sentence in self._differences(fold, self._totals):
            yield self.found(at, sentence)

    def _is_due(self, name: IncidentName, record: _Recorded) -> bool:
        if self._config_since is None or record.at < self._config_since + self.COUNTED_WITHIN:
            return False
        state = self.world.ledgers.of(name[0])
        if state is None:
            return False
        if state.gone_at is None:
            return name not in held_by(name[0], state.ledger)
        begins, ends = state.gone_at - self.COUNTED_WITHIN, state.gone_at + self.COUNTED_WITHIN
        undisturbed = self.world.undisturbed.seconds(begins, ends) >= (ends - begins).total_seconds()
        return undisturbed and ends < self.evidence.ends_at

    def _differences(self, fold: FleetTotals, told: FleetTotals) -> Iterator[str]:
        for what in ("incidents", "restarts"):
            if getattr(fold, what) != getattr(told, what):
                yield f"{what} are {getattr(told, what)}, the records say {getattr(fold, what)}"
        if abs(fold.released_gpu_seconds - told.released_gpu_seconds) > self.ROUNDING:
            yield f"{told.released_gpu_seconds} GPU-seconds are released, {fold.released_gpu_seconds} by the records"
        by_class, expected = told.idle_gpu_seconds_by_class, fold.idle_gpu_seconds_by_class
        for class_ in sorted({*by_class, *expected}):
            one, other = by_class.get(class_, {}), expected.get(class_, {})
            if any(abs(one.get(phase, 0.0) - other.get(phase, 0.0)) > self.ROUNDING for phase in {*one, *other}):
                yield f"idle GPU-seconds of class {class_} are {one}, the records say {other}"
