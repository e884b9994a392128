"""The invariants of a trial as code: each checker is one, and its docstring is the rule.

Names are what a counterexample is called, and what planted bugs are found by.
"""

from collections.abc import Callable

from recovery.sim.trials.checkers.bookkeeping import (
    LedgerSuccession,
    MetricsFold,
    MonotoneCounters,
    OneCharge,
    RecordedOnce,
)
from recovery.sim.trials.checkers.deadlines import DeadlineHolds
from recovery.sim.trials.checkers.deeds import (
    BreakerObeyed,
    HealthyUntouched,
    LedgerBeforeDeed,
    ObserveWritesNothing,
    OnlyTargets,
    PausedUntouched,
)
from recovery.sim.trials.checkers.feasible import LastNodesSpared
from recovery.sim.trials.checkers.nodes import (
    ForceOnlyTheDead,
    ForeignKept,
    QuarantinePermitted,
    QuarantineReleased,
    QuarantineWithinCap,
)
from recovery.sim.trials.checkers.outcome import ConvergesAfterHealing, TimelyAction
from recovery.sim.trials.checkers.processes import BoundedRequests, NoLivelock, NoUnhandledException
from recovery.sim.trials.checkers.restarts import BaselineUntouched, JustifiedRestart, NativeFirst
from recovery.sim.trials.checkers.rule import Rule
from recovery.sim.trials.checkers.rules import ChargedByRule, FailJobForItsCause
from recovery.sim.trials.checkers.training import OneIncarnation
from recovery.sim.trials.checkers.waiting import SuspensionReleased, WatchdogTouches
from recovery.sim.trials.evidence import Checker, Evidence

_RULES: tuple[type[Rule], ...] = (
    NoUnhandledException,
    NoLivelock,
    BoundedRequests,
    OneIncarnation,
    LedgerBeforeDeed,
    OnlyTargets,
    LedgerSuccession,
    OneCharge,
    MonotoneCounters,
    JustifiedRestart,
    BaselineUntouched,
    NativeFirst,
    WatchdogTouches,
    SuspensionReleased,
    DeadlineHolds,
    ChargedByRule,
    FailJobForItsCause,
    ForceOnlyTheDead,
    QuarantineWithinCap,
    QuarantinePermitted,
    QuarantineReleased,
    LastNodesSpared,
    ForeignKept,
    ObserveWritesNothing,
    PausedUntouched,
    BreakerObeyed,
    HealthyUntouched,
    RecordedOnce,
    MetricsFold,
    TimelyAction,
    ConvergesAfterHealing,
)

ALL: tuple[Callable[[Evidence], Checker], ...] = _RULES

PENDING: dict[str, str] = {
    "SpareBoundOnce": "spares: each bound to at most one group, none leaked (I8)",
    "ResizeKept": "issue 16: a size that a user gave a Job outlives its recreation, or the group is Held",
    "ElasticWithinBounds": "elastic training: the size stays between minNodes and maxNodes (I11)",
}
"""Invariants of features that are not built yet: name to what is waited for."""


def describe() -> dict[str, str]:
    """The rule of each invariant, by name."""
    return {rule.__name__: " ".join((rule.__doc__ or "").split()) for rule in _RULES}
