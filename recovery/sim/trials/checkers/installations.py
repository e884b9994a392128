"""The rule about several installations of the controller, each with a leader of its own."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.core.model.writer_lease import WriterLease
from recovery.ports import RECOVERY_GROUPS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation


class YoungerLeaseHolds(CheckerRule):
    """Where two installations have each elected a leader, the one with the younger Lease writes no ledger while the
    older one does: not within three durations of the Lease after a write that it had time to see."""

    hears = frozenset({RECOVERY_GROUPS})
    SEEN_WITHIN = timedelta(seconds=5)

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._wrote_at: dict[WriterLease, list[datetime]] = {}

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        write = self.written(change)
        if write is None or (writer := write.after.writer) is None or write.after == write.before:
            return
        for other, moments in self._wrote_at.items():
            if other.namespace == writer.namespace or not other.older_than(writer):
                continue
            ends = at - self.SEEN_WITHIN - self.world.undisturbed.watch_lag()
            known = [each for each in moments if at - timedelta(seconds=3 * other.duration_seconds) < each < ends]
            if any(self.world.undisturbed.seconds(each, at) >= self.SEEN_WITHIN.total_seconds() for each in known):
                older = f"{other.namespace} wrote at {known[-1]:%H:%M:%S}"
                sentence = f"{change.actor} of {writer.namespace} writes, though {older}"
                yield self.found(at, sentence, write.group)
                break
        self._wrote_at.setdefault(writer, []).append(at)
