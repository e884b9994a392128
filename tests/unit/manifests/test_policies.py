"""The shipped policies are read as they are written, and the prepared runtime is what its comments say."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from recovery.core.config import CONFIG_NAME, ConfigFacts, ConfigSpec
from recovery.core.policy import (
    JOINED_PROBE_ANNOTATION,
    Mode,
    OnExhausted,
    Policy,
    PolicyFacts,
    PolicySpec,
    Restart,
    resolve,
)

REPOSITORY = Path(__file__).resolve().parents[3]
POLICIES = REPOSITORY / "policies"
SHIPPED = sorted(path.name for path in POLICIES.glob("*.yaml") if not path.name.startswith("runtime-"))
STRUCTS: dict[str, type[msgspec.Struct]] = {
    "RecoveryPolicy": PolicySpec,
    "ClusterRecoveryPolicy": PolicySpec,
    "RecoveryConfig": ConfigSpec,
}


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((POLICIES / name).read_text())
    return document


def resolved(name: str) -> Policy:
    document = load(name)
    assert document["kind"] in {"RecoveryPolicy", "ClusterRecoveryPolicy"}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    spec = msgspec.convert(document["spec"], PolicySpec)
    return resolve(PolicyFacts(document["metadata"]["name"], "team", "uid", 1, spec, now, now))


def test_there_are_policies_to_check() -> None:
    assert SHIPPED == ["cluster-default.yaml", "default.yaml", "observe-only.yaml", "recovery-config.yaml"]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_policy_says_nothing_that_is_not_read(name: str) -> None:
    document = load(name)
    spec = document["spec"]
    read = msgspec.to_builtins(msgspec.convert(spec, STRUCTS[document["kind"]]))
    assert_contains(read, spec, "spec")


def assert_contains(read: Any, written: Any, path: str) -> None:
    if isinstance(written, dict):
        for key, value in written.items():
            assert key in read, f"{path}.{key} is not read"
            assert_contains(read[key], value, f"{path}.{key}")
    else:
        assert read == written, path


def test_the_default_recovers_and_observe_only_does_not() -> None:
    default, observe_only = resolved("default.yaml"), resolved("observe-only.yaml")
    assert (default.mode, default.restart) == (Mode.ENFORCE, Restart.RECREATE_GROUP_ON_POD_RESTART)
    assert (default.budget_limit, default.budget_window) == (10, timedelta(hours=24))
    assert (default.on_exhausted, default.backoff.initial) == (OnExhausted.HOLD, timedelta(seconds=10))
    assert observe_only.mode is Mode.OBSERVE
    # Both in one namespace: the default applies.
    assert load("observe-only.yaml")["spec"]["priority"] < load("default.yaml")["spec"]["priority"]


def test_the_cluster_policy_writes_to_nothing() -> None:
    """Whoever applies all of the folder has not yet let anything act outside of his own namespace."""
    assert load("cluster-default.yaml")["kind"] == "ClusterRecoveryPolicy"
    assert resolved("cluster-default.yaml").mode is Mode.OBSERVE


def test_the_shipped_config_is_what_holds_without_one() -> None:
    document = load("recovery-config.yaml")
    assert document["metadata"]["name"] == CONFIG_NAME
    spec = msgspec.convert(document["spec"], ConfigSpec)
    assert spec == ConfigSpec()
    assert ConfigFacts(CONFIG_NAME, "uid", 1, spec).pause_words == ""


def test_the_defaults_that_the_guide_shows_are_the_defaults() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "policy.md").read_text(), flags=re.DOTALL)
    shown = yaml.safe_load(block)["spec"]
    assert msgspec.convert(shown, PolicySpec) == PolicySpec()
    assert_contains(shown, msgspec.to_builtins(PolicySpec()), "spec")


def test_the_runtime_with_the_joined_probe_is_the_prepared_one_and_the_probe() -> None:
    prepared, joined = load("runtime-prepared.yaml"), load("runtime-joined-probe.yaml")
    [job] = joined["spec"]["template"]["spec"]["replicatedJobs"]
    template = job["template"]["spec"]["template"]
    assert template.pop("metadata") == {"annotations": {JOINED_PROBE_ANNOTATION: "readiness"}}
    assert template["spec"]["containers"][0].pop("readinessProbe")["exec"]["command"][:2] == ["test", "-f"]
    assert joined["metadata"].pop("name") == prepared["metadata"].pop("name") + "-joined"
    assert joined == prepared


def test_the_prepared_runtime() -> None:
    [job] = load("runtime-prepared.yaml")["spec"]["template"]["spec"]["replicatedJobs"]
    # Trainer finds the trainer's Job by this label and the container by this name.
    assert job["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    assert "podFailurePolicy" not in job["template"]["spec"]
    assert job["template"]["spec"]["backoffLimit"] >= 128
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert 0 < pod["terminationGracePeriodSeconds"] <= 30
    assert {t["key"] for t in pod["tolerations"] if 30 <= t["tolerationSeconds"] <= 60} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    [container] = pod["containers"]
    assert (container["name"], container["terminationMessagePolicy"]) == ("node", "FallbackToLogsOnError")
