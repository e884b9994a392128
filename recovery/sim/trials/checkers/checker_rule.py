"""The base class of all checkers. They share one index, and receive only what they judge."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from recovery.core.model.facts import GroupKey
from recovery.ports import Resource
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.ledger_changes import LedgerChange
from recovery.sim.trials.checkers.observed_world import world_of
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence, Violation


class CheckerRule:
    """A `Checker`. The docstring of a subclass is its rule, and docs/simulation.md has the same words."""

    hears: ClassVar[frozenset[Resource]] = frozenset()
    """The resources whose changes it judges."""

    def __init__(self, evidence: TrialEvidence) -> None:
        self.name = type(self).__name__
        self.evidence = evidence
        self.world = world_of(evidence)

    def changed(self, change: ObjectChange, at: datetime) -> Iterable[Violation]:
        """After each revision."""
        self.world.note(change, at)
        return self.saw(change, at) if change.resource in self.hears else ()

    def requested(self, record: RequestRecord) -> Iterable[Violation]:
        """After each request of a controller process."""
        self.world.heard(record)
        return self.heard(record)

    def ended(self) -> Iterable[Violation]:
        """When the trial is over."""
        return ()

    def saw(self, change: ObjectChange, at: datetime) -> Iterable[Violation]:
        """Judges a change of a resource in `hears`. The index already contains it."""
        return ()

    def heard(self, record: RequestRecord) -> Iterable[Violation]:
        """Judges a request. The index already contains it."""
        return ()

    def written(self, change: ObjectChange) -> LedgerChange | None:
        """The ledger that this change wrote. None: it wrote none."""
        newest = self.world.ledgers.newest
        return newest if newest is not None and newest.revision == change.revision else None

    def found(self, at: datetime, sentence: str, group: GroupKey | None = None) -> Violation:
        return Violation(self.name, at, sentence, group)
