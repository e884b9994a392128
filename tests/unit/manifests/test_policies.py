"""The shipped policies are read as they are written, and the prepared runtime is what its comments say."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from recovery.core.policy import Mode, Policy, PolicyFacts, PolicySpec, Restart, resolve

POLICIES = Path(__file__).resolve().parents[3] / "policies"
SHIPPED = sorted(path.name for path in POLICIES.glob("*.yaml") if not path.name.startswith("runtime-"))


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((POLICIES / name).read_text())
    return document


def resolved(name: str) -> Policy:
    document = load(name)
    assert document["kind"] == "RecoveryPolicy"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    spec = msgspec.convert(document["spec"], PolicySpec)
    return resolve(PolicyFacts(document["metadata"]["name"], "team", "uid", 1, spec, now, now))


def test_there_are_policies_to_check() -> None:
    assert {"default.yaml", "observe-only.yaml"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_policy_says_nothing_that_is_not_read(name: str) -> None:
    spec = load(name)["spec"]
    read = msgspec.to_builtins(msgspec.convert(spec, PolicySpec))
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
    assert observe_only.mode is Mode.OBSERVE
    # Both in one namespace: the default applies.
    assert load("observe-only.yaml")["spec"]["priority"] < load("default.yaml")["spec"]["priority"]


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
