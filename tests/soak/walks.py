"""Walks of the decision: the rules of `tests/simulation/decisions`, drawn at random."""

import random
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from tests.simulation.decisions.rules import RULES, Step, WalkPlan, keep
from tests.soak.attempt import Attempt, Broken, Campaign

T = TypeVar("T")


def draw(number: int) -> WalkPlan:
    """The walk of that number, always the same one."""
    entropy = random.Random(f"walk {number}")
    name = entropy.choice(list(RULES))
    rule = RULES[name]
    return WalkPlan(
        name,
        entropy.choice(list(rule.worlds)),
        entropy.choice(list(rule.terms)),
        entropy.choice(rule.limits),
        tuple(
            tuple(entropy.choice(values) for values in entropy.choice(rule.steps))
            for _ in range(entropy.randint(1, rule.most_steps))
        ),
    )


def attempt(number: int) -> Attempt:
    plan = draw(number)
    began_seconds = time.process_time()
    found = broken_by(lambda: keep(plan))
    return Attempt(
        cpu_seconds=time.process_time() - began_seconds,
        broken=() if found is None else (found,),
        figures={"steps": len(plan.steps), f"walks of '{plan.rule}'": 1},
    )


def broken_by(check: Callable[[], None]) -> Broken | None:
    """The invariant that the check finds broken: its function and its first line. None: all held."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 - the product may raise anything, and each walk is a verdict of its own
        return _broken(error)
    return None


def _broken(error: Exception) -> Broken:
    ours = [
        (frame.f_code.co_qualname, traceback.FrameSummary(frame.f_code.co_filename, line, "").line or "")
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in {"recovery", "tests"}
    ]
    function, line = ours[-1]
    raised = "" if isinstance(error, AssertionError) else f"{type(error).__name__} in "
    return Broken(f"{raised}{function}: {line}", str(error))


def shrunk(plan: WalkPlan) -> WalkPlan:
    """The walk with the fewest of its steps that break the same invariant. One that breaks none is left as it is."""
    found = broken_by(lambda: keep(plan))
    if found is None:
        return plan

    def breaks(steps: tuple[Step, ...]) -> bool:
        less = broken_by(lambda: keep(replace(plan, steps=steps)))
        return less is not None and less.invariant == found.invariant

    return replace(plan, steps=fewest(plan.steps, breaks))


def fewest(steps: tuple[T, ...], breaks: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """The steps without each one that is not needed. None of those that are left can be left out."""
    place = len(steps)
    while place > 0:
        place -= 1
        less = steps[:place] + steps[place + 1 :]
        if breaks(less):
            steps, place = less, len(less)  # A step that was needed before may be needless now.
    return steps


def describe(number: int) -> str:
    return "\n".join(_lines(draw(number)))


def explain(number: int) -> str:
    plan = draw(number)
    less = shrunk(plan)
    found = broken_by(lambda: keep(less))
    if found is None:
        return f"{describe(number)}\nIt breaks nothing."
    saying = f" ({found.sentence})" if found.sentence else ""
    left = f"{len(less.steps)} of {len(plan.steps)} steps are needed"
    return "\n".join((*_lines(less), f"{left} to break {found.invariant}{saying}"))


def _lines(plan: WalkPlan) -> Iterator[str]:
    yield f"rule: {plan.rule}; world: {plan.world}; terms: {plan.terms}; limit: {plan.limit}; steps:"
    yield from (f"  {step}" for step in plan.steps)


WALKS = Campaign(
    noun="walk",
    attempt=attempt,
    describe=describe,
    explain=explain,
    command="make soak ARGS=walks FIRST={number} SEEDS=1",
    attempts=20_000,
    limit_seconds=60,
)
