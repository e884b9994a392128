"""The walks of a soak: a number draws one, and one that breaks an invariant loses the steps that are not needed."""

from collections.abc import Callable
from itertools import chain

import pytest

from tests.simulation.decisions.rules import RULES, WalkPlan, keep
from tests.soak import walks

NEEDED = (("deleted", 1), ("wait", 3))
PLAN = WalkPlan("no one hangs", "plain", "hold", 20, (("wait", 1), NEEDED[0], ("wait", 2), NEEDED[1], ("wait", 1)))


def breaks_with(*needed: object) -> Callable[[WalkPlan], None]:
    """A product that breaks when all of these steps are taken."""

    def keep(plan: WalkPlan) -> None:
        assert not set(needed) <= set(plan.steps), "all are there"

    return keep


def test_a_number_draws_the_same_walk_again() -> None:
    assert [walks.draw(number) for number in range(20)] == [walks.draw(number) for number in range(20)]


def test_numbers_draw_different_walks_of_all_rules_and_steps() -> None:
    drawn = [walks.draw(number) for number in range(2000)]
    assert len(set(drawn)) > 1950
    assert {plan.rule for plan in drawn} == set(RULES)
    for name, rule in RULES.items():
        of_rule = [plan for plan in drawn if plan.rule == name]
        assert {plan.world for plan in of_rule} == set(rule.worlds)
        assert {plan.terms for plan in of_rule} == set(rule.terms)
        assert {plan.limit for plan in of_rule} == set(rule.limits)
        names = {step[0] for plan in of_rule for step in plan.steps}
        assert names == set(chain.from_iterable(kind[0] for kind in rule.steps))
        assert {len(plan.steps) for plan in of_rule} == set(range(1, rule.most_steps + 1))


def test_a_walk_that_keeps_its_rule_says_so() -> None:
    number = next(number for number in range(100) if walks.draw(number).rule == "the ledger survives its encoding")
    tried = walks.attempt(number)
    assert tried.broken == ()
    assert tried.figures["steps"] == len(walks.draw(number).steps)


def test_the_invariant_is_the_assertion_that_failed() -> None:
    found = walks.broken_by(lambda: breaks_with(NEEDED[0])(PLAN))
    assert found is not None
    assert found.invariant == 'breaks_with.<locals>.keep: assert not set(needed) <= set(plan.steps), "all are there"'
    assert found.sentence.startswith("all are there")


def test_an_error_of_the_product_is_named_by_its_place() -> None:
    found = walks.broken_by(lambda: keep(WalkPlan("no one hangs", "plain", "hold", 20, (("clock", "no number"),))))
    assert found is not None
    assert found.invariant == "TypeError in Walk.now: return self.seconds + self.skew"


@pytest.mark.parametrize("needed", [NEEDED, NEEDED[:1], NEEDED[1:]])
def test_a_walk_is_shrunk_to_the_steps_that_are_needed(
    needed: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "keep", breaks_with(*needed))
    assert walks.shrunk(PLAN).steps == needed


def test_a_shorter_walk_that_breaks_something_else_is_no_shorter_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(plan: WalkPlan) -> None:
        assert len(plan.steps) < 5
        assert len(plan.steps) > 3

    monkeypatch.setattr(walks, "keep", keep)
    assert walks.shrunk(PLAN) == PLAN


def test_a_step_that_was_needed_before_may_be_left_out_later() -> None:
    """The third step is needed only as long as the second is there."""
    assert walks.fewest((1, 2, 3), lambda left: 1 in left and (2 not in left or 3 in left)) == (1,)


def test_a_walk_that_breaks_nothing_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "keep", breaks_with(("node silent", 0)))
    assert walks.shrunk(PLAN) == PLAN


def test_an_explanation_has_the_steps_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "draw", lambda number: PLAN)
    monkeypatch.setattr(walks, "keep", breaks_with(*NEEDED))
    first, *others = walks.explain(7).splitlines()
    assert first == "rule: no one hangs; world: plain; terms: hold; limit: 20; steps:"
    assert others[:2] == ["  ('deleted', 1)", "  ('wait', 3)"]
    assert others[2].startswith("2 of 5 steps are needed to break breaks_with.<locals>.keep: assert not set(needed)")
