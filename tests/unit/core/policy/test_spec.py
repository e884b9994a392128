"""Which policy applies, and what it says."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.incident.preconditions import paused
from recovery.core.model.config import (
    AllowSpec,
    CircuitBreakerSpec,
    ConfigFacts,
    ConfigSpec,
    IncidentsSpec,
    QuarantineSpec,
    SuspicionSpec,
)
from recovery.core.model.durations import DurationError, parse_duration
from recovery.core.model.fleet_ledger import FleetLimits
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.policy.resolved import PolicyFacts, resolve
from recovery.core.policy.selection import select
from recovery.core.policy.spec import (
    BudgetSpec,
    FencingMode,
    FencingSpec,
    Mode,
    PolicyError,
    PolicySpec,
    Restart,
    Selector,
    TeardownSpec,
    TimeoutsSpec,
)
from recovery.core.policy.validation import config_problems, problems
from tests.unit.core.groups import training
from tests.unit.core.world import at


def facts(
    name: str = "default", *, created: float = 0, mode_since: float = 0, deleting: bool = False, **spec: object
) -> PolicyFacts:
    return PolicyFacts(
        name=name,
        namespace="ml",
        uid=f"uid-{name}",
        generation=3,
        spec=PolicySpec(**spec),  # type: ignore[arg-type]
        created_at=at(created),
        mode_since=at(mode_since),
        deleting=deleting,
    )


def chosen(*policies: PolicyFacts, labels: dict[str, str] | None = None, wanted: str | None = None) -> str | None:
    workload = training().workload
    assert workload is not None
    annotations = {} if wanted is None else {"recovery.trainjob.dev/policy": wanted}
    workload = msgspec.structs.replace(workload, labels=labels or {}, annotations=annotations)
    found = select(policies, workload)
    return None if found is None else found.name


BLUE = Selector({"team": "blue"})


def test_none_applies_where_there_is_none() -> None:
    assert chosen() is None


def test_a_policy_without_labels_applies_to_all() -> None:
    assert chosen(facts()) == "default"


def test_all_labels_must_match() -> None:
    both = Selector({"team": "blue", "tier": "gold"})
    assert chosen(facts(selector=both), labels={"team": "blue"}) is None
    assert chosen(facts(selector=both), labels={"team": "blue", "tier": "gold", "more": "yes"}) == "default"


def test_the_highest_priority_wins_then_the_oldest_then_the_name() -> None:
    assert chosen(facts("a", priority=1), facts("b", priority=2)) == "b"
    assert chosen(facts("a", created=5), facts("b", created=4)) == "b"
    assert chosen(facts("b"), facts("a")) == "a"


def test_a_specific_selector_has_no_advantage_of_its_own() -> None:
    assert chosen(facts("all", priority=1), facts("blue", selector=BLUE), labels={"team": "blue"}) == "all"


def test_the_annotation_beats_priority_and_selector() -> None:
    assert chosen(facts("a", priority=9), facts("b", selector=BLUE), wanted="b") == "b"


def test_an_annotation_that_names_nothing_selects_nothing() -> None:
    assert chosen(facts("a"), wanted="missing") is None
    assert chosen(facts("a", deleting=True), wanted="a") is None


def test_a_policy_that_is_being_deleted_applies_no_more() -> None:
    assert chosen(facts("a", deleting=True, priority=9), facts("b")) == "b"


def test_the_defaults() -> None:
    policy = resolve(facts(created=10, mode_since=20))
    assert policy.mode is Mode.OBSERVE
    assert policy.restart is Restart.RECREATE_GROUP_ON_POD_RESTART
    assert (policy.budget_limit, policy.budget_window) == (10, timedelta(hours=24))
    assert policy.start_timeout == timedelta(minutes=15)
    assert policy.grace_seconds is None
    assert policy.generation == 3
    assert policy.since == at(20)


def test_evidence_counts_from_the_policys_creation_at_the_earliest() -> None:
    assert resolve(facts(created=30, mode_since=20)).since == at(30)


REFUSED = {
    "spec.budget.limit: -1 is negative; 0 allows only recoveries that use no budget": {"budget": BudgetSpec(limit=-1)},
    "spec.budget.window: must be longer than 0s, or no recovery would ever count": {"budget": BudgetSpec(window="0s")},
    "spec.budget.window: '1 day' is not a duration; write it like 24h, 15m, 10s or 500ms": {
        "budget": BudgetSpec(window="1 day")
    },
    "spec.timeouts.start: must be longer than 0s, or every start would be given up at once": {
        "timeouts": TimeoutsSpec(start="0m")
    },
    "spec.timeouts.start: '' is not a duration; write it like 24h, 15m, 10s or 500ms": {
        "timeouts": TimeoutsSpec(start="")
    },
    "spec.teardown.graceSeconds: 0 would force-delete pods that may still write; use 1 or more": {
        "teardown": TeardownSpec(grace_seconds=0)
    },
    "spec.rules[0].when: Ignore without any condition would apply to every disruption; say which ones it is about, or "
    "use `restart: None` to have nothing done at all": {"rules": (Rule("all", RuleAction.IGNORE),)},
    "spec.settle: 'a bit' is not a duration; write it like 24h, 15m, 10s or 500ms": {"settle": "a bit"},
    "spec.settle: 31s is longer than 30s, and no recovery begins while the cause settles; use 30s or less": {
        "settle": "31s"
    },
    "spec.teardown.fencing.assumeDeadAfter: 25h is longer than 24h, and the group waits all that time; use 24h or "
    "less": {"teardown": TeardownSpec(fencing=FencingSpec(assume_dead_after="25h"))},
    "spec.teardown.fencing.assumeDeadAfter: '1' is not a duration; write it like 24h, 15m, 10s or 500ms": {
        "teardown": TeardownSpec(fencing=FencingSpec(assume_dead_after="1"))
    },
}


@pytest.mark.parametrize(("says", "spec"), REFUSED.items(), ids=REFUSED)
def test_a_policy_that_cannot_be_read_names_its_field(says: str, spec: dict[str, object]) -> None:
    with pytest.raises(PolicyError) as error:
        resolve(facts(**spec))  # type: ignore[arg-type]
    assert str(error.value) == says


def test_the_last_of_several_rules_may_ignore_whatever_no_other_matches() -> None:
    """The only rule may not: `restart: None` says the same. So protection's reason RuleIgnoresAll has a rule before."""
    lost_node = Rule("node", RuleAction.REPLACE_NODE, When(on_class=("NodeLost",)))
    assert resolve(facts(rules=(lost_node, Rule("rest", RuleAction.IGNORE)))).rules[1].when == When()


def test_rules_and_fencing_as_they_are_resolved() -> None:
    rules = (Rule("rest", RuleAction.REPLACE_NODE),)
    fencing = FencingSpec(mode=FencingMode.ASSUME_DEAD, assume_dead_after="0s")
    policy = resolve(facts(rules=rules, override_native=True, settle="0s", teardown=TeardownSpec(fencing=fencing)))
    assert (policy.rules, policy.override_native, policy.settle) == (rules, True, timedelta())
    assert (policy.fencing, policy.assume_dead_after) == (FencingMode.ASSUME_DEAD, timedelta())
    # A policy alone does not allow any of this.
    assert (policy.may_assume_dead, policy.limits) == (False, FleetLimits())
    policy = resolve(facts())
    assert (policy.rules, policy.override_native, policy.settle) == ((), False, timedelta(seconds=2))
    assert (policy.fencing, policy.assume_dead_after) == (FencingMode.PROVEN, timedelta(seconds=60))


BAD_CONFIGS = {
    "spec.quarantine.maxNodes: -1 is negative; 0 allows no quarantine at all": {
        "quarantine": QuarantineSpec(max_nodes=-1)
    },
    "spec.quarantine.maxPercent: 101 is not between 0 and 100": {"quarantine": QuarantineSpec(max_percent=101)},
    "spec.quarantine.maxPercent: -1 is not between 0 and 100": {"quarantine": QuarantineSpec(max_percent=-1)},
    "spec.quarantine.releaseAfter: must be longer than 0s, or every node would be released at once": {
        "quarantine": QuarantineSpec(release_after="0s")
    },
    "spec.quarantine.releaseAfter: '1d' is not a duration; write it like 24h, 15m, 10s or 500ms": {
        "quarantine": QuarantineSpec(release_after="1d")
    },
    "spec.suspicion.suspicions: 0 would suspect every node; use 1 or more": {"suspicion": SuspicionSpec(suspicions=0)},
    "spec.suspicion.within: must be longer than 0s, or no suspicion would ever count": {
        "suspicion": SuspicionSpec(within="0s")
    },
    "spec.incidents.ttl: must be longer than 0s, or every record would be deleted at once": {
        "incidents": IncidentsSpec(ttl="0s")
    },
    "spec.incidents.maxPerNamespace: 0 would keep no record of any incident; use 1 or more": {
        "incidents": IncidentsSpec(max_per_namespace=0)
    },
    "spec.circuitBreaker.recoveries: 0 would open the breaker at once; use 1 or more, or spec.paused to stop all "
    "recoveries": {"circuit_breaker": CircuitBreakerSpec(recoveries=0)},
    "spec.circuitBreaker.within: must be longer than 0s, or no recovery would ever count": {
        "circuit_breaker": CircuitBreakerSpec(recoveries=1, within="0s")
    },
}


@pytest.mark.parametrize(("says", "spec"), BAD_CONFIGS.items(), ids=BAD_CONFIGS)
def test_a_config_that_cannot_be_used_names_its_field_and_no_policy_is_used_under_it(
    says: str, spec: dict[str, object]
) -> None:
    wrong = ConfigSpec(**spec)  # type: ignore[arg-type]
    assert list(config_problems(wrong)) == [says]
    with pytest.raises(PolicyError) as error:
        resolve(facts(), ConfigFacts("default", "uid", 1, wrong))
    assert str(error.value) == f"RecoveryConfig default cannot be used: {says}"


def test_what_the_config_allows() -> None:
    spec = ConfigSpec(
        allow=AllowSpec(fail_job=True, cordon=True, assume_dead=True),
        quarantine=QuarantineSpec(max_nodes=0, max_percent=100, release_after="1h", cordon=True),
        suspicion=SuspicionSpec(suspicions=1, within="10s"),
        circuit_breaker=CircuitBreakerSpec(recoveries=1, within="500ms"),
    )
    assert list(config_problems(spec)) == []
    policy = resolve(facts(), ConfigFacts("default", "uid", 1, spec))
    assert (policy.may_fail_jobs, policy.may_assume_dead) == (True, True)
    assert policy.limits == FleetLimits(
        may_cordon=True,
        cordons=True,
        max_nodes=0,
        max_percent=100,
        release_after_seconds=3600,
        suspicions=1,
        suspected_within_seconds=10,
        breaker_recoveries=1,
        breaker_within_seconds=0.5,
    )


def test_all_that_is_wrong_with_a_policy_is_told_at_once() -> None:
    spec = PolicySpec(budget=BudgetSpec(limit=-1), rules=(Rule("all", RuleAction.FAIL_JOB),), settle="1h")
    assert [each.partition(": ")[0] for each in problems(spec)] == [
        "spec.budget.limit",
        "spec.rules[0].when",
        "spec.settle",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("24h", 86400), ("1h30m", 5400), ("15m", 900), ("10s", 10), ("500ms", 0.5), ("1h2m3s4ms", 3723.004), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "spec.x") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "1d", "-5s", "5 m", "10s5m", "1.5h", "1h\n"])
def test_no_durations(text: str) -> None:
    with pytest.raises(DurationError, match=r"^spec\.x: "):
        parse_duration(text, "spec.x")


@pytest.mark.parametrize("text", ["9" * 30 + "h", "9" * 5000 + "h", "999999999h", "876601h"])
def test_a_duration_beyond_all_measure(text: str) -> None:
    """A date minus a thousand years is out of range. Such a window would make every reconcile of every job fail."""
    with pytest.raises(DurationError, match="longer than any duration that makes sense") as refused:
        parse_duration(text, "spec.x")
    assert len(str(refused.value)) < 200
    assert parse_duration("876600h", "spec.x") == timedelta(days=36525)


def test_digits_are_those_of_ascii() -> None:
    with pytest.raises(DurationError, match="is not a duration"):
        parse_duration("٣h", "spec.x")


@pytest.mark.parametrize(("value", "is_paused"), [("true", True), ("", True), ("since Monday", True), ("false", False)])
def test_paused(value: str, is_paused: bool) -> None:
    workload = training().paused(value).workload
    assert workload is not None
    assert paused(workload) is is_paused
