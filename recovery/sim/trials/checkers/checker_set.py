"""All checkers of a trial as one object. The trial reports everything to it."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from recovery.ports import Resource
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers import ALL
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.observed_world import world_of
from recovery.sim.trials.trial_evidence import Checker, RequestRecord, TrialEvidence, Violation

MOST = 20
"""At most this many violations are kept, because one bug breaks an invariant many times."""


class CheckerSet:
    """Passes each checker what it subscribes to, and keeps what they find."""

    def __init__(self, evidence: TrialEvidence, checkers: Sequence[Callable[[TrialEvidence], Checker]] = ALL) -> None:
        self.violations: list[Violation] = []
        """The first `MOST` violations, in the order in which they were found."""
        self._world = world_of(evidence)
        self._checkers = [make(evidence) for make in checkers]
        self._by_resource: dict[Resource, list[Checker]] = {}
        self._of_requests = [
            checker
            for checker in self._checkers
            if not isinstance(checker, CheckerRule) or type(checker).heard != CheckerRule.heard
        ]

    def changed(self, change: ObjectChange, at: datetime) -> None:
        self._world.note(change, at)
        resource = change.resource
        checkers = self._by_resource.get(resource)
        if checkers is None:
            checkers = self._by_resource[resource] = [
                each for each in self._checkers if not isinstance(each, CheckerRule) or resource in each.hears
            ]
        for checker in checkers:
            self._keep(checker.changed(change, at))

    def requested(self, record: RequestRecord) -> None:
        self._world.heard(record)
        for checker in self._of_requests:
            self._keep(checker.requested(record))

    def ended(self) -> None:
        for checker in self._checkers:
            self._keep(checker.ended())

    def _keep(self, found: Iterable[Violation]) -> None:
        for violation in found:
            if len(self.violations) < MOST:
                self.violations.append(violation)
