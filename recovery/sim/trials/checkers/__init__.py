"""The invariants of a trial as code. Each checker is one invariant, and its docstring is the rule.

A counterexample carries the name of the checker that found it, and so do the tests that plant bugs.
"""

from collections.abc import Callable

from recovery.sim.trials.checkers.booked_time import LostTimeBooked
from recovery.sim.trials.checkers.causes import IncidentCaused
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.controller_processes import BoundedRequests, NoLivelock, NoUnhandledException
from recovery.sim.trials.checkers.controller_writes import (
    BreakerObeyed,
    HealthyUntouched,
    LedgerBeforeAction,
    ObserveWritesNothing,
    OnlyTargets,
    PausedUntouched,
)
from recovery.sim.trials.checkers.convergence import ConvergesAfterHealing, TimelyAction
from recovery.sim.trials.checkers.deadlines import DeadlineHolds
from recovery.sim.trials.checkers.drills import DrillNamed, DrillTakenBack
from recovery.sim.trials.checkers.failed_jobs import FailedStaysFailed
from recovery.sim.trials.checkers.fleet_totals import FleetTotalsFold
from recovery.sim.trials.checkers.installations import YoungerLeaseHolds
from recovery.sim.trials.checkers.intervals import IntervalKept
from recovery.sim.trials.checkers.last_nodes import LastNodesSpared
from recovery.sim.trials.checkers.ledger_bookkeeping import (
    LedgerSuccession,
    MetricsFold,
    MonotoneCounters,
    OneCharge,
    RecordedOnce,
)
from recovery.sim.trials.checkers.node_writes import (
    ForceOnlyTheDead,
    ForeignKept,
    QuarantineOnNode,
    QuarantinePermitted,
    QuarantineReleased,
    QuarantineWithinCap,
)
from recovery.sim.trials.checkers.one_incarnation import OneIncarnation
from recovery.sim.trials.checkers.other_actors import OneActorEndsARun, SomeoneActs
from recovery.sim.trials.checkers.overdue_waits import SuspensionReleased, WatchdogTouches
from recovery.sim.trials.checkers.policy_rules import ChargedByRule, FailJobForItsCause
from recovery.sim.trials.checkers.progress import ProgressIsNew
from recovery.sim.trials.checkers.restarts import BaselineUntouched, JustifiedRestart, NativeFirst, ResizeKept
from recovery.sim.trials.checkers.standing import StandingConfirmed
from recovery.sim.trials.checkers.tenants import BreakerShared, MessagesConfirmed, NamespaceWithinShare
from recovery.sim.trials.trial_evidence import Checker, TrialEvidence

_RULES: tuple[type[CheckerRule], ...] = (
    NoUnhandledException,
    NoLivelock,
    BoundedRequests,
    OneIncarnation,
    LedgerBeforeAction,
    OnlyTargets,
    LedgerSuccession,
    OneCharge,
    MonotoneCounters,
    IncidentCaused,
    JustifiedRestart,
    BaselineUntouched,
    ResizeKept,
    NativeFirst,
    WatchdogTouches,
    SuspensionReleased,
    IntervalKept,
    DeadlineHolds,
    ChargedByRule,
    FailJobForItsCause,
    FailedStaysFailed,
    ForceOnlyTheDead,
    QuarantineWithinCap,
    QuarantinePermitted,
    QuarantineOnNode,
    QuarantineReleased,
    LastNodesSpared,
    ForeignKept,
    MessagesConfirmed,
    NamespaceWithinShare,
    BreakerShared,
    ObserveWritesNothing,
    PausedUntouched,
    BreakerObeyed,
    HealthyUntouched,
    RecordedOnce,
    YoungerLeaseHolds,
    MetricsFold,
    ProgressIsNew,
    FleetTotalsFold,
    TimelyAction,
    SomeoneActs,
    OneActorEndsARun,
    ConvergesAfterHealing,
    LostTimeBooked,
    StandingConfirmed,
    DrillNamed,
    DrillTakenBack,
)

ALL: tuple[Callable[[TrialEvidence], Checker], ...] = _RULES

PENDING: dict[str, str] = {
    "SpareBoundOnce": "spares: each bound to at most one group, none leaked",
}
"""Invariants of features that are not built yet: what is still missing, by name."""


def describe() -> dict[str, str]:
    """The rule of each invariant, by name."""
    return {rule.__name__: " ".join((rule.__doc__ or "").split()) for rule in _RULES}
