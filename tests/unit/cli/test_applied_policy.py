"""Which policy applies to a job, and the reason that commands give for it."""

from datetime import UTC, datetime, timedelta

import pytest

from recovery.cli.applied_policy import policy_of
from recovery.core.model.facts import WorkloadFacts
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.core.policy.spec import BudgetSpec, PolicyError, PolicySpec, Selector

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)


def policy(
    name: str, *, priority: int = 0, age: int = 0, labels: dict[str, str] | None = None, namespace: str = "team-a"
) -> PolicyFacts:
    created = BEGIN - timedelta(days=age)
    spec = PolicySpec(priority=priority, selector=Selector(match_labels=labels or {}))
    return PolicyFacts(name, namespace, name, 1, spec, created_at=created, mode_since=created)


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
        ([], None, "", "there is no RecoveryPolicy in the namespace and no ClusterRecoveryPolicy"),
        (
            [policy("b", labels={"tier": "tin"})],
            None,
            "",
            "no policy selects the job's labels (there are: RecoveryPolicy team-a/b)",
        ),
        (
            [policy("a")],
            "z",
            "",
            "the job's annotation recovery.trainjob.dev/policy names 'z', and there is no policy of that name",
        ),
    ],
)
def test_the_choice_is_explained(policies: list[PolicyFacts], annotation: str | None, name: str, why: str) -> None:
    selection = policy_of(PolicySet(tuple(policies)), workload(annotation))
    assert (selection.name, selection.why) == (name, why)
    assert (selection.policy is not None) == bool(name)


@pytest.mark.parametrize(
    ("policies", "kind", "name", "why"),
    [
        (
            [policy("c", namespace="")],
            "ClusterRecoveryPolicy",
            "c",
            "the only one that selects the job; the namespace has none that does",
        ),
        (
            [policy("a"), policy("c", namespace="", priority=9)],
            "RecoveryPolicy",
            "a",
            "the namespace's only one; the namespace's go before the cluster's, of which 1 would select it as well",
        ),
        (
            [policy("c", namespace=""), policy("d", namespace="", priority=9)],
            "ClusterRecoveryPolicy",
            "d",
            "of 2 that select the job the one with the highest priority (9); the namespace has none that does",
        ),
    ],
)
def test_the_cluster_gives_the_default(policies: list[PolicyFacts], kind: str, name: str, why: str) -> None:
    selection = policy_of(PolicySet(tuple(policies)), workload())
    assert (selection.kind, selection.name, selection.why) == (kind, name, why)


def test_a_policy_that_cannot_be_read_is_the_one_that_applies() -> None:
    broken = PolicyFacts("a", "team-a", "a", 1, PolicySpec(budget=BudgetSpec(window="soon")), BEGIN, BEGIN)
    selection = policy_of(PolicySet((broken,)), workload())
    assert (selection.name, selection.policy) == ("a", None)
    assert isinstance(selection.decides, PolicyError)
    assert str(selection.decides).startswith("RecoveryPolicy team-a/a: spec.budget.window:")
