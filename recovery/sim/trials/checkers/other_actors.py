"""Rules about groups that several actors look after: for each loss one of them acts, and no more than one."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.core.model.annotations import SUSPENDED_BY_ANNOTATION
from recovery.core.model.facts import GroupKey
from recovery.core.model.standing import Standing
from recovery.core.policy.spec import Mode
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, RECOVERY_GROUPS, TRAIN_JOBS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.controller_writes import WORKLOADS, suspended
from recovery.sim.trials.checkers.convergence import ConvergesAfterHealing
from recovery.sim.trials.checkers.group_views import GroupView, deletion_begins, ours
from recovery.sim.trials.checkers.standing import was_resized
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation


class SomeoneActs(CheckerRule):
    """Someone acts after each loss: a group under Enforce that does not train is not left alone for six undisturbed
    minutes. In that time it trains again, or an incident is open, or its ledger says that it hangs or why nothing can
    be done, or another client keeps it suspended. A rank that a user removes is no loss, although the others hang."""

    hears = frozenset({PODS, NODES, JOBS, JOB_SETS, TRAIN_JOBS, RECOVERY_GROUPS})
    LONGEST = timedelta(minutes=6)
    """The taint manager deletes the pods of a silent node after five minutes, which is when the controller acts. Ranks
    that hang give up after ten minutes and begin again, so later no one would have to act."""
    LOOKS_EVERY = timedelta(minutes=1)

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._convergence = ConvergesAfterHealing(evidence)
        self._alone: dict[GroupKey, tuple[str, datetime]] = {}
        """The trouble of a group that is left alone, and since when it has been seen."""
        self._looked_at = evidence.began_at
        self._found: set[tuple[GroupKey, datetime]] = set()

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if at - self._looked_at >= self.LOOKS_EVERY:
            self._looked_at = at
            yield from self._look(at)

    def ended(self) -> Iterator[Violation]:
        yield from self._look(self.evidence.ends_at)

    def _look(self, at: datetime) -> Iterator[Violation]:
        for key in self.evidence.jobs:
            group = self.world.group(key)
            trouble = self._convergence.trouble_of(group) if self._is_alone(group) else None
            known, since = self._alone.get(key, ("", at))
            if trouble is None:
                self._alone.pop(key, None)
            elif trouble != known or self._was_looked_after(group, since):
                # While a group trains and nothing changes there are no looks, so the trouble before may be long over.
                self._alone[key] = (trouble, at)
            elif (key, since) not in self._found and self._lasted(since, at):
                self._found.add((key, since))
                yield self.found(at, f"{trouble}, and no one has acted since {since:%H:%M:%S}", key)

    def _lasted(self, since: datetime, at: datetime) -> bool:
        return self.world.undisturbed.seconds(since, at) > self.LONGEST.total_seconds()

    def _is_alone(self, group: GroupView) -> bool:
        """No incident is open, and the ledger does not say that the group hangs, or that it cannot tell."""
        state = self.world.ledgers.of_group(group.key)
        if group.mode != Mode.ENFORCE or group.suspended or was_resized(self.evidence, group.key):
            return False
        if state is None:
            return True
        says = state.ledger.standing is Standing.BROKEN or any(
            each.status == "True" for each in state.ledger.conditions
        )
        return state.open_incident is None and not says

    def _was_looked_after(self, group: GroupView, since: datetime) -> bool:
        """An incident was opened, or another client acted, between two looks."""
        state = self.world.ledgers.of_group(group.key)
        opened = state is not None and any(opened_at >= since for _, opened_at in state.spans[-1:])
        return opened or any(each >= since for each in group.disturbances[-1:])


class OneActorEndsARun(CheckerRule):
    """No run is taken down twice: the controller deletes no Job of a workload that another client keeps suspended, from
    five undisturbed seconds after the suspension on."""

    hears = frozenset({JOBS, *WORKLOADS})
    SEEN_WITHIN = timedelta(seconds=5)

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._suspended_at: dict[GroupKey, datetime] = {}

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        key = self.world.group_of(change.resource, change.body)
        if key is None:
            return
        group = self.world.group(key)
        if change.resource in WORKLOADS:
            if not suspended(change.body) or SUSPENDED_BY_ANNOTATION in group.annotations:
                self._suspended_at.pop(key, None)
            elif not suspended(change.before):
                self._suspended_at[key] = at
        elif deletion_begins(change) and ours(change.actor) and key in self._suspended_at:
            since = self._suspended_at[key]
            lag = self.SEEN_WITHIN + self.world.undisturbed.watch_lag()
            if at - since > lag and self.world.undisturbed.seconds(since, at) > self.SEEN_WITHIN.total_seconds():
                name = change.body["metadata"]["name"]
                sentence = f"{change.actor} deletes Job {name}, though another client has suspended {key} at"
                yield self.found(at, f"{sentence} {since:%H:%M:%S}", key)
