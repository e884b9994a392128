"""Random walks: for any events in any order, the invariants hold, and in the end no group hangs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.decisions.rules import RULES, StepKind, WalkPlan, keep


def walks(name: str) -> st.SearchStrategy[WalkPlan]:
    """Walks of the rule of that name."""
    rule = RULES[name]
    return st.builds(
        WalkPlan,
        st.just(name),
        st.sampled_from(list(rule.worlds)),
        st.sampled_from(list(rule.terms)),
        st.sampled_from(rule.limits),
        st.lists(st.one_of(*map(_steps, rule.steps)), max_size=rule.most_steps).map(tuple),
    )


def _steps(kind: StepKind) -> st.SearchStrategy[tuple[object, ...]]:
    return st.tuples(*map(st.sampled_from, kind))


@settings(max_examples=200)
@given(walks("the invariants hold"))
def test_the_invariants_hold_in_every_walk(walk: WalkPlan) -> None:
    keep(walk)


@settings(max_examples=200)
@given(walks("nothing waits for what will not come"))
def test_once_all_is_quiet_nothing_waits_for_what_will_not_come(walk: WalkPlan) -> None:
    keep(walk)


@settings(max_examples=40)
@given(walks("no one hangs"))
def test_in_the_end_no_one_hangs_and_nothing_is_open(walk: WalkPlan) -> None:
    keep(walk)


@settings(max_examples=200)
@given(walks("no one hangs where restarts are withheld"))
def test_in_the_end_no_one_hangs_where_restarts_are_withheld(walk: WalkPlan) -> None:
    keep(walk)


@settings(max_examples=40)
@given(walks("Observe and None do not touch the workload"))
def test_observe_and_none_never_touch_the_workload(walk: WalkPlan) -> None:
    keep(walk)


@settings(max_examples=40)
@given(walks("the ledger survives its encoding"))
def test_the_ledger_survives_its_encoding(walk: WalkPlan) -> None:
    keep(walk)
