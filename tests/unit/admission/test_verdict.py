"""The verdict on a policy or on the RecoveryConfig, by its own content and by the others."""

from typing import Any

import pytest

from recovery.admission.objects import JudgedObject, from_request
from recovery.admission.verdict import AdmissionVerdict, judge
from recovery.ports import CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS, RECOVERY_POLICIES
from tests.unit.admission.api import recovery_config, recovery_policy
from tests.unit.fake_api import Object


def judged(found: Object) -> JudgedObject:
    resources = {each.kind: each for each in (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS)}
    return from_request(resources[found["kind"]], found)


def verdict(found: Object, *others: Object, config: Object | None = None) -> AdmissionVerdict:
    return judge(judged(found), map(judged, others), judged(config) if config is not None else None)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "window": ({"budget": {"window": "7d"}}, "spec.budget.window: '7d' is not a duration; write it like 24h"),
    "no window": ({"budget": {"window": "0s"}}, "spec.budget.window: must be longer than 0s"),
    "limit": ({"budget": {"limit": -1}}, "spec.budget.limit: -1 is negative"),
    "start": ({"timeouts": {"start": "soon"}}, "spec.timeouts.start: 'soon' is not a duration"),
    "rendezvous": ({"timeouts": {"rendezvous": "0s"}}, "spec.timeouts.rendezvous: must be longer than 0s"),
    "grace": ({"teardown": {"graceSeconds": 0}}, "spec.teardown.graceSeconds: 0 would force-delete"),
    "initial": ({"backoff": {"initial": "1"}}, "spec.backoff.initial: '1' is not a duration"),
    "max": ({"backoff": {"initial": "10m"}}, "spec.backoff.max: 5m is shorter than spec.backoff.initial, 10m"),
    "factor": ({"backoff": {"factor": 0.5}}, "spec.backoff.factor: 0.5 is not between 1 and 100"),
    "reset": ({"backoff": {"resetAfter": "never"}}, "spec.backoff.resetAfter: 'never' is not a duration"),
    "rule": (
        {"rules": [{"name": "all", "action": "Ignore"}]},
        "spec.rules[0].when: Ignore without any condition would apply to every disruption",
    ),
    "pattern": (
        {"rules": [{"name": "a", "action": "Ignore", "when": {"onMessagePattern": "("}}]},
        "spec.rules[0].when.onMessagePattern: '(' is no regular expression in RE2 syntax",
    ),
    "action": (
        {"rules": [{"name": "a", "action": "Reboot"}]},
        "spec.rules[0].action: Invalid enum value 'Reboot'",
    ),
    "settle": ({"settle": "1m"}, "spec.settle: 1m is longer than 30s"),
    "mode": ({"mode": "enforce"}, "spec.mode: Invalid enum value 'enforce'"),
    "type": ({"budget": {"limit": "ten"}}, "spec.budget.limit: Expected `int`, got `str`"),
}


@pytest.mark.parametrize(("spec", "sentence"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("namespace", ["team", ""], ids=["namespaced", "cluster"])
def test_a_bad_field_is_an_error_with_its_path(spec: dict[str, Any], sentence: str, namespace: str) -> None:
    [error] = verdict(recovery_policy(namespace=namespace, **spec)).errors
    assert error.startswith(sentence)


def test_all_errors_are_told_at_once() -> None:
    found = verdict(recovery_policy(budget={"limit": -1, "window": "7d"}, backoff={"initial": "1h", "factor": 0}))
    assert [error.partition(":")[0] for error in found.errors] == [
        "spec.budget.limit",
        "spec.budget.window",
        "spec.backoff.max",
        "spec.backoff.factor",
    ]


@pytest.mark.parametrize("found", [recovery_policy(), recovery_policy(namespace=""), recovery_config()])
def test_defaults_are_accepted_without_a_word(found: Object) -> None:
    assert verdict(found) == AdmissionVerdict()


def test_what_is_wrong_is_not_warned_about_on_top() -> None:
    twin = recovery_policy("twin")
    assert verdict(recovery_policy(budget={"limit": -1}), twin).warnings == ()


# --- several policies ----------------------------------------------------------------------------------------------


def test_a_twin_is_named_and_so_is_the_one_that_applies() -> None:
    [warning] = verdict(recovery_policy("young"), recovery_policy("old", age=30)).warnings
    assert warning == (
        "spec.priority: RecoveryPolicy team/old has the same selector and the same priority, 0; "
        "of the two old, the oldest, applies; give each a priority or a selector of its own"
    )


def test_of_many_twins_three_are_named() -> None:
    twins = [recovery_policy(f"p{number}", age=number) for number in range(5)]
    [warning] = verdict(recovery_policy("young"), *twins).warnings
    assert "RecoveryPolicy team/p0, RecoveryPolicy team/p1, RecoveryPolicy team/p2 and 2 more have the same" in warning
    assert "of them p4, the oldest, applies" in warning


def test_the_cluster_s_policies_are_twins_of_each_other() -> None:
    [warning] = verdict(recovery_policy("b", ""), recovery_policy("a", "")).warnings
    assert warning.startswith("spec.priority: ClusterRecoveryPolicy a has the same selector")


@pytest.mark.parametrize(
    "other",
    [
        recovery_policy("other", priority=1),
        recovery_policy("other", selector={"matchLabels": {"team": "a"}}),
        recovery_policy("other", mode="unknown"),
        recovery_policy("self"),
    ],
    ids=["priority", "selector", "unreadable", "itself as it was"],
)
def test_what_is_told_apart_is_no_twin(other: Object) -> None:
    assert verdict(recovery_policy("self"), other).warnings == ()


def test_a_policy_that_is_being_deleted_is_no_twin() -> None:
    other = recovery_policy("other")
    other["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert verdict(recovery_policy("self"), other).warnings == ()


# --- the RecoveryConfig itself -------------------------------------------------------------------------------------


def test_a_bad_config_is_an_error_with_its_path() -> None:
    found = verdict(recovery_config(paused=True, quarantine={"maxPercent": 101}, circuitBreaker={"recoveries": 0}))
    assert [error.partition(":")[0] for error in found.errors] == [
        "spec.quarantine.maxPercent",
        "spec.circuitBreaker.recoveries",
    ]
    assert found.warnings == ()


# --- policies under the RecoveryConfig -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", [None, recovery_config(), recovery_config(allow={"failJob": "perhaps"})], ids=["none", "no", "unreadable"]
)
def test_failing_jobs_without_leave_says_what_happens_instead(config: Object | None) -> None:
    found = verdict(recovery_policy(mode="Enforce", budget={"onExhausted": "FailJob"}), config=config)
    [warning] = found.warnings
    assert warning.startswith("spec.budget.onExhausted: FailJob is not allowed in this cluster")
    assert "will mean Hold" in warning
    assert "spec.allow.failJob of RecoveryConfig default" in warning


@pytest.mark.parametrize(
    ("mode", "on_exhausted", "allowed"),
    [("Enforce", "FailJob", True), ("Observe", "FailJob", False), ("Enforce", "Suspend", False)],
)
def test_no_warning_where_nothing_is_withheld(mode: str, on_exhausted: str, allowed: bool) -> None:
    config = recovery_config(allow={"failJob": allowed})
    assert (
        verdict(recovery_policy(mode=mode, budget={"onExhausted": on_exhausted}), config=config) == AdmissionVerdict()
    )


# --- the RecoveryConfig --------------------------------------------------------------------------------------------


def test_a_pause_of_everything_is_a_warning_with_its_reason() -> None:
    found = verdict(recovery_config(paused=True, pauseReason="storage is down"))
    assert found == AdmissionVerdict(
        warnings=("spec.paused: RecoveryConfig default pauses all recoveries: storage is down",)
    )


def test_an_unreadable_config_is_an_error() -> None:
    [error] = verdict(recovery_config(allow={"failJob": "perhaps"})).errors
    assert error.startswith("spec.allow.failJob: Expected `bool`, got `str`")


ASKING: dict[str, tuple[dict[str, Any], str, str]] = {
    "FailJob by rule": (
        {"rules": [{"name": "a", "action": "FailJob", "when": {"onClass": ["UserError"]}}]},
        "failJob",
        "spec.rules[0].action: FailJob is not allowed in this cluster, so the group will be held; "
        "spec.allow.failJob of RecoveryConfig default allows it",
    ),
    "ReplaceNode": (
        {
            "rules": [
                {"name": "a", "action": "Ignore", "when": {"onClass": ["Killed"]}},
                {"name": "b", "action": "ReplaceNode", "when": {"onClass": ["HardwareFault"]}},
            ]
        },
        "cordon",
        "spec.rules[1].action: to quarantine nodes is not allowed in this cluster, so the group may come back on the "
        "same one; spec.allow.cordon of RecoveryConfig default allows it",
    ),
    "AssumeDead": (
        {"teardown": {"fencing": {"mode": "AssumeDead"}}},
        "assumeDead",
        "spec.teardown.fencing.mode: AssumeDead is not allowed in this cluster, so it will mean Proven; "
        "spec.allow.assumeDead of RecoveryConfig default allows it",
    ),
}


@pytest.mark.parametrize(("spec", "permission", "sentence"), ASKING.values(), ids=ASKING)
def test_what_is_not_allowed_says_what_happens_instead(spec: dict[str, Any], permission: str, sentence: str) -> None:
    asking = recovery_policy(mode="Enforce", **spec)
    assert verdict(asking).warnings == (sentence,)
    assert verdict(asking, config=recovery_config(allow={permission: True})).warnings == ()
    # In Observe none of it would be done anyway.
    assert verdict(recovery_policy(**spec)).warnings == ()
