"""Shrinking counterexamples: which faults, jobs and minutes are left, and in how many runs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.shrink import shrink
from recovery.sim.trials.trial_evidence import Violation
from recovery.sim.virtual_time import BEGIN

LLM, EVAL = JobPlan("team-a", "llm"), JobPlan("team-b", "eval")


@dataclass(frozen=True)
class Ran:
    plan: TrialPlan
    violations: tuple[Violation, ...]


class Trials:
    """Trials whose violations `broken` decides: it returns the names of invariants."""

    def __init__(self, broken: Callable[[TrialPlan], tuple[str, ...]], *, at_the_end: bool = False) -> None:
        self._broken = broken
        self._at_the_end = at_the_end
        self.plans: list[TrialPlan] = []

    def __call__(self, plan: TrialPlan) -> Ran:
        self.plans.append(plan)
        return self.outcome(plan)

    def outcome(self, plan: TrialPlan) -> Ran:
        seconds = plan.active_seconds + plan.healing_seconds if self._at_the_end else 0.0
        at = BEGIN + timedelta(seconds=seconds)
        return Ran(plan, tuple(Violation(name, at, "…") for name in self._broken(plan)))


def plan_of(faults: int, *jobs: JobPlan) -> TrialPlan:
    """Every fault affects llm, one after the other, all within the first 10 minutes."""
    found = tuple(
        TrialFault(FaultKey("world", number, FaultKind.POD_KILL), at_seconds=10.0 * number, job=str(LLM))
        for number in range(faults)
    )
    return TrialPlan(seed=1, jobs=jobs or (LLM,), faults=found)


def numbers(plan: TrialPlan) -> list[int]:
    return [fault.key.number for fault in plan.faults]


def needs(*needed: int, minutes: float = 0.0) -> Trials:
    """OneCharge breaks if all these faults are present and the time for faults is at least that long."""

    def broken(plan: TrialPlan) -> tuple[str, ...]:
        there = set(needed) <= set(numbers(plan)) and plan.active_seconds >= 60 * minutes
        return ("OneCharge",) if there else ()

    return Trials(broken)


def test_two_faults_of_45_are_found() -> None:
    trials = needs(7, 31)
    shrunk = shrink(trials.outcome(plan_of(45)), trials)
    assert numbers(shrunk.outcome.plan) == [7, 31]
    assert (shrunk.complete, shrunk.replays) == (True, True)
    assert shrunk.runs == len(trials.plans) < 80


def test_seven_faults_of_45_are_found() -> None:
    trials = needs(0, 3, 11, 12, 20, 38, 44)
    shrunk = shrink(trials.outcome(plan_of(45)), trials)
    assert numbers(shrunk.outcome.plan) == [0, 3, 11, 12, 20, 38, 44]
    assert shrunk.complete


def test_what_breaks_without_any_fault_needs_none() -> None:
    trials = needs()
    shrunk = shrink(trials.outcome(plan_of(45)), trials)
    assert numbers(shrunk.outcome.plan) == []
    assert shrunk.runs < 15


def test_no_plan_is_run_twice() -> None:
    trials = needs(7, 31)
    shrink(trials.outcome(plan_of(45)), trials)
    encoded = [msgspec.json.encode(plan) for plan in trials.plans]
    assert len(set(encoded)) == len(encoded)


def test_the_same_counterexample_shrinks_alike() -> None:
    first, second = needs(7, 31), needs(7, 31)
    shrink(first.outcome(plan_of(45)), first)
    shrink(second.outcome(plan_of(45)), second)
    assert first.plans == second.plans


def test_another_invariant_does_not_count() -> None:
    """Without fault 5 a different invariant breaks: that is another bug."""
    trials = Trials(lambda plan: ("OneCharge",) if 5 in numbers(plan) else ("NoLivelock",))
    shrunk = shrink(trials.outcome(plan_of(20)), trials)
    assert numbers(shrunk.outcome.plan) == [5]
    assert [violation.invariant for violation in shrunk.outcome.violations] == ["OneCharge"]


def test_jobs_that_have_no_part_in_it_are_dropped() -> None:
    trials = needs(2)
    shrunk = shrink(trials.outcome(plan_of(4, EVAL, LLM)), trials)
    assert shrunk.outcome.plan.jobs == (LLM,)


def test_a_job_that_has_to_be_there_is_kept() -> None:
    trials = Trials(lambda plan: ("OneIncarnation",) if {LLM.name, EVAL.name} <= {j.name for j in plan.jobs} else ())
    shrunk = shrink(trials.outcome(plan_of(4, LLM, EVAL)), trials)
    assert shrunk.outcome.plan.jobs == (LLM, EVAL)


def test_the_faults_of_a_dropped_job_go_with_it() -> None:
    """Any one fault is enough, but the two that are tried first both affect llm, which has no other part in it."""
    trials = Trials(lambda plan: ("OneCharge",) if EVAL in plan.jobs and len(plan.faults) != 1 else ())
    shrunk = shrink(trials.outcome(plan_of(4, EVAL, LLM)), trials)
    assert (shrunk.outcome.plan.jobs, numbers(shrunk.outcome.plan)) == ((EVAL,), [])


def test_a_trial_is_shortened_but_never_so_that_a_fault_is_cut_off() -> None:
    trials = needs(44, minutes=2)
    shrunk = shrink(trials.outcome(plan_of(45)), trials)
    (fault,) = shrunk.outcome.plan.faults
    assert fault.at_seconds == 440.0
    assert shrunk.outcome.plan.active_seconds == 480.0  # the next whole minute
    assert shrunk.outcome.plan.healing_seconds == 120.0  # an eighth of an eighth of an hour, likewise


def test_what_breaks_at_the_end_needs_its_healing() -> None:
    """With less healing, everything would be broken at the end."""
    trials = Trials(lambda plan: ("ConvergesAfterHealing",), at_the_end=True)
    shrunk = shrink(trials.outcome(plan_of(45)), trials)
    assert shrunk.outcome.plan.healing_seconds == 3600.0
    assert shrunk.outcome.plan.active_seconds < 5400.0


def test_what_broke_before_the_healing_has_to_break_before_it_again() -> None:
    def run(plan: TrialPlan) -> Ran:
        """Fault 5 breaks it at once. Without that fault it breaks at the end, if the healing is short."""
        if 5 in numbers(plan):
            return Ran(plan, (Violation("NoLivelock", BEGIN, "…"),))
        at = BEGIN + timedelta(seconds=plan.active_seconds + plan.healing_seconds)
        return Ran(plan, (Violation("NoLivelock", at, "…"),))

    assert numbers(shrink(run(plan_of(20)), run).outcome.plan) == [5]


def test_time_that_is_needed_is_kept() -> None:
    trials = needs(0, minutes=60)
    shrunk = shrink(trials.outcome(plan_of(3)), trials)
    assert shrunk.outcome.plan.active_seconds == 68 * 60


def test_runs_are_bounded() -> None:
    trials = needs(*range(0, 45, 2))
    shrunk = shrink(trials.outcome(plan_of(45)), trials, max_runs=30)
    assert (shrunk.runs, len(trials.plans), shrunk.complete) == (30, 30, False)
    assert shrunk.outcome.violations


def test_what_does_not_replay_is_left_as_it_is() -> None:
    """This would be a bug of the simulation: the faults that took place, given as a list, must take place again."""
    trials = needs(50)
    outcome = Ran(plan_of(45), (Violation("OneCharge", BEGIN, "…"),))
    shrunk = shrink(outcome, trials)
    assert shrunk.outcome is outcome
    assert (shrunk.replays, shrunk.runs) == (False, 1)
