"""What a policy says about proofs, and the hash of what it decides."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.config import ConfigFacts
from recovery.core.model.proof import digest_of
from recovery.core.policy.resolved import Policy, resolve
from recovery.core.policy.spec import (
    BudgetSpec,
    ElasticSpec,
    Mode,
    PolicySpec,
    ProofSpec,
    Selector,
    TimeoutsSpec,
)
from recovery.core.policy.validation import problems
from tests.unit.core.fleet.test_breaker import OPEN
from tests.unit.core.policy.test_spec import facts


def resolved(**spec: object) -> Policy:
    return resolve(facts(**spec))  # type: ignore[arg-type]


def test_a_proof_never_expires_unless_the_policy_says_so() -> None:
    assert resolved().proof_max_age is None
    assert resolved(drill=ProofSpec("720h")).proof_max_age == timedelta(days=30)


@pytest.mark.parametrize("max_age", ["0s", "30d", ""])
def test_an_age_that_is_no_time_is_refused(max_age: str) -> None:
    assert [each.partition(": ")[0] for each in problems(PolicySpec(drill=ProofSpec(max_age)))] == ["spec.drill.maxAge"]


@pytest.mark.parametrize(
    "changed",
    [
        {"mode": Mode.ENFORCE},
        {"budget": BudgetSpec(limit=3)},
        {"timeouts": TimeoutsSpec(start="20m")},
        {"elastic": ElasticSpec(2, 4)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_decides_changes_the_hash(changed: dict[str, object]) -> None:
    assert resolved(**changed).digest != resolved().digest


@pytest.mark.parametrize(
    "changed",
    [
        {"selector": Selector({"team": "blue"})},
        {"priority": 7},
        {"drill": ProofSpec("720h")},
        {"name": "other"},
        {"mode_since": 300.0},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_only_selects_jobs_or_judges_proofs_does_not(changed: dict[str, object]) -> None:
    assert resolved(**changed).digest == resolved().digest


def test_an_open_circuit_breaker_is_no_other_policy() -> None:
    """It ends by itself, and the policy is unchanged."""
    observed = resolve(facts(mode=Mode.ENFORCE), ConfigFacts("default", "config-1", 1, fleet=OPEN))
    assert observed.mode is Mode.OBSERVE
    assert observed.digest == resolved(mode=Mode.ENFORCE).digest


class _Newer(msgspec.Struct, frozen=True):
    limit: int = 3
    added: str = "as before"


class _Older(msgspec.Struct, frozen=True):
    limit: int = 3


def test_a_field_that_a_new_version_adds_changes_no_hash() -> None:
    assert digest_of(_Newer(4)) == digest_of(_Older(4)) != digest_of(_Older())
