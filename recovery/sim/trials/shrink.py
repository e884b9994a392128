"""Shrinks a counterexample to few faults, jobs and minutes that still break the same invariant.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002): leave out smaller
and smaller parts of the faults, and keep each plan that still breaks the invariant. In the end no single fault can be
left out. Faults have keys, so the remaining ones keep their meaning.
"""

import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

import msgspec

from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.trial_evidence import Violation
from recovery.sim.virtual_time import BEGIN

MAX_RUNS = 200
_SHARES = (0.125, 0.25, 0.5, 0.75)
"""The shares of the time for faults and of the healing that are tried, the shortest first."""


class Tried(Protocol):
    """The outcome of running a plan."""

    @property
    def plan(self) -> TrialPlan:
        """The plan with all faults that took place, and without rates, so that no further faults are drawn."""
        ...

    @property
    def violations(self) -> Sequence[Violation]: ...


T = TypeVar("T", bound=Tried)


class Shrunk(msgspec.Struct, Generic[T], frozen=True):
    outcome: T
    """Of the smallest plan found that breaks the invariant."""
    runs: int
    replays: bool
    """The faults that took place break the invariant again when they are given as a list. False: shrinking was not
    possible."""
    complete: bool
    """No fault can be left out any more. False: the runs were used up first."""


def shrink(outcome: T, run: Callable[[TrialPlan], T], *, max_runs: int = MAX_RUNS) -> Shrunk[T]:
    """Shrinks an outcome with violations. The invariant of the first one must break. Runs at most `max_runs` trials."""
    search = _Search(outcome, run, max_runs)
    if not search.breaks(outcome.plan):
        return Shrunk(outcome, search.runs, replays=False, complete=False)
    try:
        search.shorten()  # First, because it makes all further runs shorter.
        search.drop_faults()
        search.drop_jobs()
        search.shorten()
        search.drop_faults()  # A dropped job or a shorter trial may have made more faults unnecessary.
    except _UsedUpError:
        return Shrunk(search.smallest, search.runs, replays=True, complete=False)
    return Shrunk(search.smallest, search.runs, replays=True, complete=True)


class _UsedUpError(Exception):
    """No run is left."""


class _Search(Generic[T]):
    def __init__(self, outcome: T, run: Callable[[TrialPlan], T], max_runs: int) -> None:
        self.smallest = outcome
        self.runs = 0
        self._invariant = outcome.violations[0].invariant
        self._before_healing = _is_before_healing(outcome.violations[0], outcome.plan)
        """An invariant that broke before the healing must break before it again: with less healing, the invariants
        about it break easily."""
        self._run = run
        self._max_runs = max_runs
        self._known: dict[bytes, bool] = {}
        """Whether a plan breaks the invariant, by its encoding."""
        self._plan = outcome.plan
        """The smallest plan that breaks it, as given. Its outcome lacks the faults that found nothing to affect."""

    def breaks(self, plan: TrialPlan) -> bool:
        """Runs the plan, unless it ran before. If it breaks the invariant, it is the smallest plan from now on."""
        name = msgspec.json.encode(plan)
        if name in self._known:
            return self._known[name]
        if self.runs >= self._max_runs:
            raise _UsedUpError
        self.runs += 1
        outcome = self._run(plan)
        broken = any(
            violation.invariant == self._invariant and (not self._before_healing or _is_before_healing(violation, plan))
            for violation in outcome.violations
        )
        self._known[name] = broken
        if broken:
            self.smallest, self._plan = outcome, plan
        return broken

    def drop_faults(self) -> None:
        if not self._plan.faults or self._breaks_with(()):
            return
        parts: int | None = 2
        while parts is not None:
            parts = self._next_parts(parts)

    def _next_parts(self, parts: int) -> int | None:
        """Tries to leave out some of the faults, split into `parts`. Returns the next number of parts. None: no single
        fault can be left out."""
        faults = self._plan.faults
        if len(faults) < 2:
            return None
        bounds = [len(faults) * part // parts for part in range(parts + 1)]
        pieces = list(itertools.pairwise(bounds))
        if any(self._breaks_with(faults[begin:end]) for begin, end in pieces):
            return 2
        if parts > 2 and any(self._breaks_with(faults[:begin] + faults[end:]) for begin, end in pieces):
            return parts - 1
        return min(len(faults), 2 * parts) if parts < len(faults) else None

    def _breaks_with(self, faults: tuple[TrialFault, ...]) -> bool:
        return self.breaks(msgspec.structs.replace(self._plan, faults=faults))

    def drop_jobs(self) -> None:
        for job in self._plan.jobs:
            if len(self._plan.jobs) == 1:
                return
            jobs = tuple(other for other in self._plan.jobs if other != job)
            faults = tuple(fault for fault in self._plan.faults if fault.job != str(job))
            self.breaks(msgspec.structs.replace(self._plan, jobs=jobs, faults=faults))

    def shorten(self) -> None:
        """Cuts off no fault."""
        last_seconds = max(
            ((fault.at_seconds or 0.0) + max(0.0, fault.seconds) for fault in self._plan.faults), default=0.0
        )
        whole = self._plan.active_seconds
        for seconds in dict.fromkeys(_whole_minutes(max(share * whole, last_seconds)) for share in _SHARES):
            if seconds < whole and self.breaks(msgspec.structs.replace(self._plan, active_seconds=seconds)):
                break
        if not self._before_healing:
            return
        whole = self._plan.healing_seconds
        for seconds in (_whole_minutes(share * whole) for share in _SHARES):
            if seconds < whole and self.breaks(msgspec.structs.replace(self._plan, healing_seconds=seconds)):
                break


def _is_before_healing(violation: Violation, plan: TrialPlan) -> bool:
    return violation.at < BEGIN + timedelta(seconds=plan.active_seconds)


def _whole_minutes(seconds: float) -> float:
    """The next whole minute, later than a fault that ends at `seconds`."""
    return 60.0 * (seconds // 60 + 1)
