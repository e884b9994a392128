"""Which policy applies, and why that one."""

from datetime import UTC, datetime, timedelta

import pytest

from recovery.cli.selection import policy_of
from recovery.core.facts import WorkloadFacts
from recovery.core.policy import BudgetSpec, PolicyError, PolicyFacts, PolicySpec, Selector

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)


def policy(name: str, *, priority: int = 0, age: int = 0, labels: dict[str, str] | None = None) -> PolicyFacts:
    created = BEGIN - timedelta(days=age)
    spec = PolicySpec(priority=priority, selector=Selector(match_labels=labels or {}))
    return PolicyFacts(name, "team-a", name, 1, spec, created_at=created, mode_since=created)


def workload(annotation: str | None = None) -> WorkloadFacts:
    annotations = {"recovery.trainjob.dev/policy": annotation} if annotation is not None else {}
    return WorkloadFacts("TrainJob", "llm", "u", "1", 1, BEGIN, labels={"tier": "gold"}, annotations=annotations)


@pytest.mark.parametrize(
    ("policies", "annotation", "name", "why"),
    [
        ([policy("a")], None, "a", "the only one that selects the job"),
        ([policy("a"), policy("b", labels={"tier": "tin"})], None, "a", "the only one that selects the job"),
        (
            [policy("a"), policy("b", priority=5)],
            None,
            "b",
            "of 2 that select the job the one with the highest priority (5)",
        ),
        ([policy("a"), policy("b", age=3)], None, "b", "of those with priority 0 that select the job the oldest"),
        (
            [policy("a"), policy("b", labels={"x": "y"})],
            "b",
            "b",
            "named by the job's annotation recovery.trainjob.dev/policy",
        ),
        ([], None, "", "the namespace has no RecoveryPolicy"),
        (
            [policy("b", labels={"tier": "tin"})],
            None,
            "",
            "no RecoveryPolicy of the namespace selects the job's labels (there are: b)",
        ),
        (
            [policy("a")],
            "z",
            "",
            "the job's annotation recovery.trainjob.dev/policy names 'z', and there is no such RecoveryPolicy",
        ),
    ],
)
def test_the_choice_is_explained(policies: list[PolicyFacts], annotation: str | None, name: str, why: str) -> None:
    selection = policy_of(policies, workload(annotation))
    assert (selection.name, selection.why) == (name, why)
    assert (selection.policy is not None) == bool(name)


def test_a_policy_that_cannot_be_read_is_chosen_all_the_same() -> None:
    broken = PolicyFacts("a", "team-a", "a", 1, PolicySpec(budget=BudgetSpec(window="soon")), BEGIN, BEGIN)
    selection = policy_of([broken], workload())
    assert (selection.name, selection.policy) == ("a", None)
    assert isinstance(selection.decides, PolicyError)
    assert str(selection.decides).startswith("RecoveryPolicy team-a/a: spec.budget.window:")
