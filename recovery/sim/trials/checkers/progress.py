"""The rule about the progress that ends an incident."""

from collections.abc import Iterator
from datetime import datetime

from recovery.ports import RECOVERY_GROUPS
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.trial_evidence import Violation


class ProgressIsNew(CheckerRule):
    """An incident ends by progress only after ranks have reported progress that met since its loss. The model of the
    training says which ranks reported."""

    hears = frozenset({RECOVERY_GROUPS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        incident = made.after.incident if made is not None and made.closed else None
        if made is None or incident is None or incident.closing is None or incident.closing.source != "progress":
            return
        met: dict[str, datetime] = {}
        for each in self.evidence.trace.of(str(made.group), EventKind.ROUND_FORMED):
            if each.at >= incident.started_at:
                met.setdefault(each.job_uid, each.at)
        reports = self.evidence.trace.of(str(made.group), EventKind.REPORTED)
        if not any(each.job_uid in met and met[each.job_uid] <= each.at <= made.at for each in reports):
            sentence = f"{made.actor} ends incident {incident.id} by progress, but no ranks that met since its loss "
            yield self.found(at, f"{sentence}have reported any", made.group)
