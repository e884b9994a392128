"""Rules about the ledgers: each must fit the one before it, and all must fit what really happened."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from recovery.core.incident.invariants import violations
from recovery.core.model.facts import GroupKey
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Ledger
from recovery.ports import RECOVERY_GROUPS, RECOVERY_INCIDENTS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.ledger_changes import OURS, LedgerChange, LedgerState
from recovery.sim.trials.checkers.policy_rules import rule_of
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence, Violation
from recovery.telemetry.catalogue.label_values import COUNTED_REASONS, badput_of

_decode: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_ROUNDING = 0.01
_MOST_ATTEMPTS = 20
"""The most attempts of an incident, whatever its budget (docs/policy.md)."""
_BOOKED_AHEAD = 2.0 * 64
"""By how many GPU-seconds the metrics may exceed the ledger, for each incident of a group of 64 GPUs. A running phase
is reported up to now, but may be booked to an end up to two seconds earlier, and a reported counter never falls."""


def sample(name: str, **labels: str) -> str:
    """The name of a sample in `TrialEvidence.metrics`."""
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name


class LedgerSuccession(CheckerRule):
    """Each ledger follows from the ledger that it replaced, and was swapped against exactly that one
    (`recovery/core/incident/invariants.py`). No write of another process is lost."""

    hears = frozenset({RECOVERY_GROUPS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        if made is None or change.before is None:
            return
        for broken in violations(made.before, made.after):
            yield self.found(at, f"{made.actor} wrote at revision {made.revision}: {broken}", made.group)

    def heard(self, record: RequestRecord) -> Iterator[Violation]:
        request = record.request
        if not record.applied or request.resource != RECOVERY_GROUPS or request.verb != "patch":
            return
        made, expected = self.world.ledgers.newest, _swapped_against(request.body)
        if expected is None:
            group = self.world.group_of_request(record)
            sentence = f"{record.actor} wrote {request} at revision {record.revision} against no resourceVersion"
            yield self.found(record.at, sentence, group)
        elif made is not None and made.revision == record.revision and made.replaced_version != expected:
            sentence = f"{record.actor} swapped {request} against {expected}, and replaced {made.replaced_version}"
            yield self.found(record.at, sentence, made.group)


def _swapped_against(body: bytes | None) -> str | None:
    """The resourceVersion that a patch requires. None: it requires none."""
    patch = _decode.decode(body) if body else {}
    if isinstance(patch, dict):
        return (patch.get("metadata") or {}).get("resourceVersion")
    return next((step.get("value") for step in patch if step["path"] == "/metadata/resourceVersion"), None)


class OneCharge(CheckerRule):
    """An incident is charged at most once, for a restart by the controller. What others did before is not charged, and
    what they do after refunds nothing. The budget is never overdrawn, no incident gets more attempts than it allows,
    and the epoch counts the restarts."""

    hears = frozenset({RECOVERY_GROUPS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._charged: dict[tuple[str, int], int] = {}

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        if made is None:
            return
        for sentence in (*self._counted(made.after), *self._charges(made), *_attempts(made)):
            yield self.found(at, sentence, made.group)

    def _counted(self, after: Ledger) -> Iterator[str]:
        if after.epoch != after.totals.restarts:
            yield f"the epoch is {after.epoch}, but {after.totals.restarts} restarts are counted"
        if after.budget.remaining < 0:
            yield f"{after.budget.remaining} recoveries remain"

    def _charges(self, made: LedgerChange) -> Iterator[str]:
        before, after = made.before, made.after
        rise, incident = after.totals.charged - before.totals.charged, after.incident
        if made.same is not None and made.same.charged and incident is not None and not incident.charged:
            yield f"the charge of incident {incident.id} is refunded"
        if not rise:
            return
        if incident is None:
            yield f"{rise} charges without an incident"
            return
        if made.trigger is None:
            yield f"incident {incident.id} is charged, though the controller restarts nothing"
        charges = self._charged.get((made.workload_uid, incident.number), 0) + rise
        self._charged[made.workload_uid, incident.number] = charges
        if charges > 1:
            yield f"incident {incident.id} has been charged {charges} times"
        newest = max(after.budget.charges, default=made.at)
        since = newest - timedelta(seconds=incident.pinned.budget_window_seconds)
        counting = [charge for charge in after.budget.charges if charge > since]
        if len(counting) > incident.pinned.budget_limit:
            yield f"{len(counting)} charges count, against a limit of {incident.pinned.budget_limit}"


def _attempts(made: LedgerChange) -> Iterator[str]:
    trigger, incident = made.trigger, made.after.incident
    if trigger is None or incident is None or made.by_hand:
        return
    if made.same is not None and not made.same.charged:
        return  # So far only a person or the platform has restarted it. This is the attempt that is charged.
    since = trigger.started_at - timedelta(seconds=incident.pinned.budget_window_seconds)
    if made.after.budget.reset_at is not None:
        since = max(since, made.after.budget.reset_at)
    rule = rule_of(incident)
    free = rule is not None and not rule.charge  # The budget does not limit attempts that are not charged to it.
    most = _MOST_ATTEMPTS if free else min(incident.pinned.budget_limit, _MOST_ATTEMPTS)
    attempts = [each for each in incident.attempts if each.action in OURS and each.started_at > since]
    if len(attempts) > most:
        yield f"incident {incident.id} gets attempt {len(attempts)} where {most} are allowed"


class MonotoneCounters(CheckerRule):
    """Counters never fall, however often controllers crash. The idle GPU-seconds by class add up to those by phase."""

    hears = frozenset({RECOVERY_GROUPS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        if made is None:
            return
        old, new = _counters(made.before), _counters(made.after)
        for name, was in old.items():
            if new.get(name, 0) < was:
                yield self.found(at, f"{name} falls from {was:g} to {new.get(name, 0):g}", made.group)
        totals = made.after.totals
        for phase, seconds in totals.idle_gpu_seconds.items():
            of_classes = sum(each.get(phase, 0.0) for each in totals.idle_gpu_seconds_by_class.values())
            if abs(of_classes - seconds) > _ROUNDING:
                sentence = f"{seconds:g} idle GPU-seconds in {phase} are {of_classes:g} by class"
                yield self.found(at, sentence, made.group)


def _counters(ledger: Ledger) -> dict[str, float]:
    totals: Totals = ledger.totals
    return {
        "the epoch": ledger.epoch,
        "incidents": totals.incidents,
        "restarts": totals.restarts,
        "charges": totals.charged,
        **{f"failures of class {name}": count for name, count in totals.failures.items()},
        "released GPU-seconds": totals.released_gpu_seconds,
        **{f"idle GPU-seconds in {name}": count for name, count in totals.idle_gpu_seconds.items()},
        **{
            f"idle GPU-seconds of class {name} in {phase}": count
            for name, of_class in totals.idle_gpu_seconds_by_class.items()
            for phase, count in of_class.items()
        },
    }


class RecordedOnce(CheckerRule):
    """Each incident is recorded once. No two incidents share a number, and the numbers have no gap. Each incident that
    has moved into the history, or was open when its job was deleted, has its RecoveryIncident. Each clear loss belongs
    to an incident.

    A loss is clear where a controller must see it: the group trained since it was last resumed, a policy applies, no
    one suspends or deletes the group at the same time, and no fault keeps the controllers from reconciling in the time
    that they have.
    """

    hears = frozenset({RECOVERY_GROUPS, RECOVERY_INCIDENTS})
    SEEN_WITHIN = timedelta(seconds=90)

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._recorded: dict[tuple[str, int], str] = {}
        """Names of the RecoveryIncidents, by UID of the workload and number of the incident."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_INCIDENTS:
            if change.type != "DELETED":
                yield from self._record(change, at)
            return
        made = self.written(change)
        if made is None or made.after.history == made.before.history or made.before.incident is None:
            return
        number = made.before.incident.number
        if (made.workload_uid, number) not in self._recorded:
            yield self.found(at, f"incident {number} went into the history without a record", made.group)

    def _record(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        spec, name = change.body["spec"], change.body["metadata"]["name"]
        status = change.body.get("status")
        number = status["numbers"][-1]["last"] if status else spec["number"]
        which = (spec["workloadRef"]["uid"], number)
        known = self._recorded.get(which)
        if known is not None and (known != name or change.type == "ADDED"):
            group = self.world.group_of(RECOVERY_INCIDENTS, change.body)
            yield self.found(at, f"incident {which[1]} is recorded as {known} and as {name}", group)
        self._recorded[which] = name

    def ended(self) -> Iterator[Violation]:
        at = self.evidence.ends_at
        for state in self.world.ledgers:
            yield from self._gaps(state, at)
        for loss in self.world.clear_losses:
            if (
                not self.world.spoiled(loss)
                and self.world.undisturbed.seconds(loss.at, loss.at + loss.NOTICED_WITHIN) >= 30
            ):
                known = self.world.ledgers.of(loss.workload_uid)
                if known is None or not _covered(known, loss.at):
                    yield self.found(loss.at, f"{loss.text} belongs to no incident", loss.group)

    def _gaps(self, state: LedgerState, at: datetime) -> Iterator[Violation]:
        open_ = state.ledger.incident is not None and not self._must_be_recorded(state)
        owed = state.ledger.totals.incidents - (1 if open_ else 0)
        for number in range(1, owed + 1):
            if (state.workload_uid, number) not in self._recorded:
                yield self.found(at, f"incident {number} of {owed} has no record", state.group)

    def _must_be_recorded(self, state: LedgerState) -> bool:
        """The incident that was open when the ledger was deleted with its workload needs a record.

        If controllers were held up at that moment, the incident may be lost with the ledger.
        """
        if state.gone_at is None:
            return False
        begins, ends = state.gone_at - self.SEEN_WITHIN, state.gone_at + self.SEEN_WITHIN
        undisturbed = self.world.undisturbed.seconds(begins, ends) >= (ends - begins).total_seconds()
        return undisturbed and ends < self.evidence.ends_at


def _covered(state: LedgerState, lost_at: datetime) -> bool:
    """An incident was open when the member was lost, or was opened soon after."""
    for incident_id, opened_at in state.spans:
        closed_at = state.closed_at.get(incident_id)
        if opened_at <= lost_at + timedelta(seconds=60) and (closed_at is None or closed_at >= lost_at):
            return True
    return False


class MetricsFold(CheckerRule):
    """The metrics that the leader exports equal the totals of the ledgers. There is one leader. Two installations have
    two as long as there is no ledger: only a ledger shows one controller the other."""

    def ended(self) -> Iterator[Violation]:
        replicas = self.evidence.metrics
        if not replicas or (self.evidence.plan.installations > 1 and not any(True for _ in self.world.ledgers)):
            return
        leaders = [name for name, metrics in replicas.items() if metrics.get("recovery_leader", 0) == 1]
        at = self.evidence.ends_at
        if len(leaders) != 1:
            yield self.found(at, f"{len(leaders)} of {len(replicas)} replicas say that they lead: {', '.join(leaders)}")
            return
        for state in self.world.ledgers:
            workload = self.world.group(state.group).workload
            if state.exists and workload is not None and workload["metadata"]["uid"] == state.workload_uid:
                for sentence in _differences(replicas[leaders[0]], state.group, state.ledger):
                    yield self.found(at, f"{leaders[0]}: {sentence}", state.group)


def _differences(metrics: Any, group: GroupKey, ledger: Ledger) -> Iterator[str]:
    job = {"namespace": group.namespace, "job_name": group.name}
    totals = ledger.totals
    expected = {sample("recovery_group_restarts_total", **job, scope="group"): totals.restarts - totals.drill_restarts}
    for name, count in totals.failures.items():
        expected[sample("recovery_failures_total", **job, failure_class=name)] = count
    for name, wanted in expected.items():
        if metrics.get(name, 0.0) != wanted:
            yield f"{name} is {metrics.get(name, 0.0):g}, the ledger says {wanted}"
    idle = sum(
        metrics.get(sample("recovery_gpu_idle_seconds_total", **job, reason=reason, badput=badput_of(reason)), 0.0)
        for reason in COUNTED_REASONS
    )
    booked = sum(totals.idle_gpu_seconds.values())
    open_ = (ledger.incident is not None and ledger.incident.closing is None) or ledger.broken is not None
    # While an incident is open or the group is Broken, the metric includes the time up to now: it may only be higher.
    if idle < booked - _ROUNDING or (not open_ and idle > booked + _BOOKED_AHEAD * totals.incidents + _ROUNDING):
        yield f"{idle:.3f} idle GPU-seconds are reported, the ledger has booked {booked:.3f}"
