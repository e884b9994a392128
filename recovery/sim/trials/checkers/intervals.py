"""A rule about the time between the restarts of a group."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.core.model.ledger import AttemptAction
from recovery.ports import RECOVERY_GROUPS
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.ledger_changes import LedgerChange
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_READY_BEFORE_THE_ROUND = timedelta(seconds=30)
"""The controller sees that all ranks are ready, which may be before they have met."""

_CLOCKS_DIFFER = timedelta(seconds=2)
"""The ledger has the dates of the controller's clock, and objects have whole seconds."""


class IntervalKept(CheckerRule):
    """No run that a restart by the controller begins comes sooner than `backoff.minInterval` after all ranks had met
    following the restart before, ours or one by the platform. If they never met, not sooner than that after that
    restart. A restart that a person requests does not wait, nor does one that makes the group smaller. Jobs that the
    controller must not suspend (a deadline, Kueue) are left out: there a restart does not wait where one more exit
    would fail the Job.
    """

    hears = frozenset({RECOVERY_GROUPS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._last: dict[str, datetime] = {}
        """When the last restart of a group began, by UID of its workload."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        if made is None or made.added is None:
            return
        last = self._last.get(made.workload_uid) if made.before.epoch else None
        self._last[made.workload_uid] = at
        incident = made.after.incident
        if last is None or incident is None or not self._waits(made):
            return
        interval = timedelta(seconds=incident.pinned.backoff_min_interval_seconds)
        ended, what = self._ended(made, last)
        begins = at if incident.suspension is None else incident.suspension.until
        early = begins is not None and begins < ended + interval - _CLOCKS_DIFFER
        if early and not self.world.undisturbed.clock_was_off(last, at):
            sentence = (
                f"{made.actor} enters a restart whose run may begin at {begins:%H:%M:%S}, sooner than "
                f"{interval.total_seconds():g} s after {ended:%H:%M:%S}, when {what}"
            )
            yield self.found(at, sentence, made.group)

    def _waits(self, made: LedgerChange) -> bool:
        plan, trigger, incident = self.evidence.jobs.get(made.group), made.trigger, made.after.incident
        if trigger is None or incident is None or made.by_hand or incident.resumed_by_others:
            return False
        suspendable = plan is not None and not plan.under_kueue and plan.deadline_seconds is None
        return suspendable and trigger.action is not AttemptAction.SHRINK

    def _ended(self, made: LedgerChange, last: datetime) -> tuple[datetime, str]:
        """A moment at or before the end of the last restart, and what happened then."""
        rounds = self.evidence.trace.of(str(made.group), EventKind.ROUND_FORMED)
        met = next((record.at for record in rounds if last < record.at <= made.at), None)
        if met is None:
            return last, "the last restart began"
        return max(last, met - _READY_BEFORE_THE_ROUND), "all ranks had met after the last restart, or shortly before"
