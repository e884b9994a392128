"""The rule that each incident has a cause, which happened to the present run of the group."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.core.model.reason import Reason
from recovery.ports import RECOVERY_GROUPS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import JobView, Loss
from recovery.sim.trials.checkers.ledger_changes import LedgerChange
from recovery.sim.trials.trial_evidence import Violation

_OLDEST = timedelta(minutes=16)
"""A loss may open an incident for 15 minutes. One more minute allows for clocks and for reconciles under way."""
_ON_ITS_WAY = timedelta(seconds=5)
"""How long a write about the run before the resume may be on its way, if nothing holds up the controllers."""
_GROWTH = "Growth"
"""The class of an incident that only uses new room."""


class IncidentCaused(CheckerRule):
    """Each incident has a cause: since the incident before it, a member of the present run was lost, or its Job failed
    or was deleted; a node of the run has a fault; a person asked for it; or a smaller group grows. An incident about a
    training that does not end may be about any member that its present Jobs have lost. It is no cause that pods of a
    run which a suspension has ended take long to end."""

    hears = frozenset({RECOVERY_GROUPS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        incident = made.after.incident if made is not None else None
        if made is None or incident is None or not made.opened or made.by_hand:
            return
        if incident.disruption_class == _GROWTH or self._is_caused(made, at):
            return
        sentence = (
            f"{made.actor} opens incident {incident.id}, and nothing has happened to the present run of the group"
        )
        yield self.found(at, f"{sentence}; it says: {incident.message}", made.group)

    def _is_caused(self, made: LedgerChange, at: datetime) -> bool:
        undisturbed, state = self.world.undisturbed, self.world.ledgers.of(made.workload_uid)
        oldest = at - _OLDEST - (undisturbed.watch_lag() if undisturbed.clocks_jumped() else timedelta())
        opened = [opened_at for _, opened_at in state.spans[:-1]] if state is not None else []
        since = max((oldest, *opened[-1:]))
        jobs = [job for job in self.world.jobs.values() if job.group == made.group and job.member]
        if made.after.current_incident.step.verdict is Reason.FINISH_OVERDUE:
            return any(job.losses for job in jobs if not job.gone)
        if any(loss.at >= since for job in jobs for loss in self._losses(job, at)):
            return True
        # The fault of a node lasts, so an incident may be about one that is older than the incident before it.
        return any(trouble.at >= oldest for job in jobs for trouble in job.troubles)

    def _losses(self, job: JobView, at: datetime) -> Iterator[Loss]:
        yield from job.losses
        if self.world.undisturbed.seconds(job.began_at, at) <= _ON_ITS_WAY.total_seconds():
            yield from (loss for loss in job.late if loss not in job.taken)
