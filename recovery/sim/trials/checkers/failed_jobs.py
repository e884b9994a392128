"""The rule about jobs that the controller has failed."""

from collections.abc import Iterator
from datetime import datetime

from recovery.core.model.ledger import Outcome
from recovery.ports import JOB_SETS, RECOVERY_GROUPS, TRAIN_JOBS
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.jobset import JobSetController
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.controller_writes import suspended
from recovery.sim.trials.checkers.group_views import controller_uid, deletion_begins
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation


class FailedStaysFailed(CheckerRule):
    """A TrainJob that FailJob has failed never trains again: no JobSet of it is created after the incident has ended,
    unless another client deletes the failed one or the TrainJob, or suspends the TrainJob. Trainer creates the JobSet
    of a failed TrainJob again once its TTL has deleted it."""

    hears = frozenset({RECOVERY_GROUPS, TRAIN_JOBS, JOB_SETS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._failed: set[str] = set()
        """UIDs of the TrainJobs that have to stay failed."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_GROUPS:
            self._note(change)
        elif change.resource == TRAIN_JOBS:
            if suspended(change.body) or deletion_begins(change):
                self._failed.discard(change.body["metadata"]["uid"])
        elif deletion_begins(change) and change.actor != JobSetController.name:
            self._failed.discard(controller_uid(change.body))
        elif change.type == "ADDED" and controller_uid(change.body) in self._failed:
            key = self.world.group_of(JOB_SETS, change.body)
            yield self.found(at, f"{change.actor} creates a JobSet of {key}, which FailJob has failed", key)

    def _note(self, change: ObjectChange) -> None:
        made = self.written(change)
        incident = made.after.incident if made is not None else None
        if made is None or incident is None or incident.closing is None:
            return
        if incident.step.fails_job and incident.closing.outcome is Outcome.FAILED:
            self._failed.add(made.workload_uid)
