"""What an experiment does to its job, as data."""

import msgspec

from recovery.core.model.drill import DrillAction, MarkedTaint
from recovery.core.model.ledger import Phase
from recovery.scenario.schema import SelectionMode


class ExperimentChaos(msgspec.Struct, frozen=True):
    """One entry of an experiment's `chaos`. It happens in each repeat."""

    path: str
    """In the file, such as `chaos[0]`. What is said about the entry begins with it."""
    number: int
    """From 0, in the order of the file. Seeds the choice of pods (`selection.chance_of`)."""
    action: DrillAction
    mode: SelectionMode
    value: int | None = None
    """With mode fixed and fixed-percent."""
    indexes: tuple[int, ...] = ()
    """Completion indexes to choose from. Empty: those of all pods of the job."""
    at_seconds: float | None = None
    """From the start of the repeat. None: `during` says when."""
    during: Phase | None = None
    """It waits until the incident is in that phase. None: `at_seconds` says when."""
    grace_seconds: int | None = None
    """With pod-kill. 0: force-delete. None: the pod's own grace period."""
    taint: MarkedTaint | None = None
    """With taint. None: another action."""

    def __post_init__(self) -> None:
        assert (self.at_seconds is None) is not (self.during is None), "one of the two says when"
        assert (self.taint is None) is not (self.action is DrillAction.TAINT), "a taint says which one"
