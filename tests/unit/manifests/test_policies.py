"""The shipped policies are read as they are written, and the prepared runtime does what its comments say."""

import re
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from recovery.cli.lint_checks import lint_all
from recovery.core.model.annotations import JOINED_PROBE_ANNOTATION
from recovery.core.model.config import CONFIG_NAME, ConfigFacts, ConfigSpec
from recovery.core.policy.resolved import Policy, PolicyFacts, resolve
from recovery.core.policy.spec import Mode, OnExhausted, PolicySpec, Restart
from recovery.core.policy.validation import problems
from recovery.launch.documents import documents
from recovery.rendezvous.tokens import AUDIENCE
from tests.image import agent

REPOSITORY = Path(__file__).resolve().parents[3]
POLICIES = REPOSITORY / "policies"
PERMISSIONS = sorted(f"permissions/{path.name}" for path in (POLICIES / "permissions").glob("*.yaml"))
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
    assert SHIPPED == [
        "cluster-default.yaml",
        "default.yaml",
        "elastic.yaml",
        "gpu-faults.yaml",
        "large-1000-gpus.yaml",
        "observe-only.yaml",
        "recovery-config.yaml",
        "spot.yaml",
        "user-errors-fail-fast.yaml",
    ]
    assert PERMISSIONS == [
        "permissions/gpu-faults.yaml",
        "permissions/large-1000-gpus.yaml",
        "permissions/user-errors-fail-fast.yaml",
    ]


@pytest.mark.parametrize("name", [*SHIPPED, *PERMISSIONS])
def test_a_shipped_policy_says_nothing_that_is_not_read(name: str) -> None:
    document = load(name)
    spec = document["spec"]
    read = told(msgspec.convert(spec, STRUCTS[document["kind"]]))
    assert_contains(read, spec, "spec")


def told(value: Any) -> Any:
    """All fields of a struct, defaults included, under their names on the wire."""
    if isinstance(value, msgspec.Struct):
        return {field.encode_name: told(getattr(value, field.name)) for field in msgspec.structs.fields(value)}
    return [told(each) for each in value] if isinstance(value, tuple) else value


def assert_contains(read: Any, written: Any, path: str) -> None:
    if isinstance(written, dict):
        for key, value in written.items():
            assert key in read, f"{path}.{key} is not read"
            assert_contains(read[key], value, f"{path}.{key}")
    elif isinstance(written, list):
        assert len(read) == len(written), path
        for number, (one, other) in enumerate(zip(read, written, strict=True)):
            assert_contains(one, other, f"{path}[{number}]")
    else:
        assert read == written, path


def test_the_default_recovers_and_observe_only_does_not() -> None:
    default, observe_only = resolved("default.yaml"), resolved("observe-only.yaml")
    assert (default.mode, default.restart) == (Mode.ENFORCE, Restart.RECREATE_GROUP_ON_POD_RESTART)
    assert (default.budget_limit, default.budget_window) == (10, timedelta(hours=24))
    assert (default.on_exhausted, default.backoff.initial) == (OnExhausted.HOLD, timedelta(seconds=10))
    assert observe_only.mode is Mode.OBSERVE
    # Where a namespace has both, the default applies.
    assert load("observe-only.yaml")["spec"]["priority"] < load("default.yaml")["spec"]["priority"]


def test_the_cluster_policy_writes_to_nothing() -> None:
    """Applying the whole folder must not let the controller act outside the user's own namespace."""
    assert load("cluster-default.yaml")["kind"] == "ClusterRecoveryPolicy"
    assert resolved("cluster-default.yaml").mode is Mode.OBSERVE


@pytest.mark.parametrize("name", [name for name in SHIPPED if load(name)["kind"] != "RecoveryConfig"])
def test_no_shipped_policy_is_wrong(name: str) -> None:
    assert list(problems(msgspec.convert(load(name)["spec"], PolicySpec))) == []


def test_whoever_applies_the_whole_folder_has_given_no_job_a_policy_for_a_situation() -> None:
    """Policies for a situation need a label, or their name on the job. Other jobs get the default."""
    for name in SHIPPED:
        document = load(name)
        if document["kind"] == "RecoveryPolicy" and name not in {"default.yaml", "observe-only.yaml"}:
            called = name.removesuffix(".yaml")
            assert document["metadata"]["name"] == called
            assert document["spec"]["selector"] == {"matchLabels": {"recovery": called}}
            assert document["spec"]["priority"] > load("default.yaml")["spec"]["priority"]


@pytest.mark.parametrize("name", PERMISSIONS)
def test_permissions_are_of_the_one_config_and_allow_what_their_policy_asks_for_and_no_more(name: str) -> None:
    document, policy = load(name), load(name.removeprefix("permissions/"))["spec"]
    assert (document["kind"], document["metadata"]["name"]) == ("RecoveryConfig", CONFIG_NAME)
    actions = {rule["action"] for rule in policy["rules"]}
    asks = {
        "cordon": "ReplaceNode" in actions,
        "assumeDead": policy.get("teardown", {}).get("fencing", {}).get("mode") == "AssumeDead",
        "failJob": "FailJob" in actions or policy.get("budget", {}).get("onExhausted") == "FailJob",
    }
    assert document["spec"]["allow"] == {allowed: True for allowed, asked in asks.items() if asked}


@pytest.mark.parametrize("name", ["default.yaml", "elastic.yaml", "observe-only.yaml", "spot.yaml"])
def test_policies_without_permissions_ask_for_none(name: str) -> None:
    written = (POLICIES / name).read_text()
    for asked in ("ReplaceNode", "FailJob", "AssumeDead"):
        assert asked not in written


def test_the_shipped_config_is_what_holds_without_one() -> None:
    document = load("recovery-config.yaml")
    assert document["metadata"]["name"] == CONFIG_NAME
    spec = msgspec.convert(document["spec"], ConfigSpec)
    assert spec == ConfigSpec()
    assert ConfigFacts(CONFIG_NAME, "uid", 1, spec).pause is None


def examples() -> list[str]:
    """The policies of the guides, in order. A YAML block within a list is indented."""
    pages = "\n".join((REPOSITORY / "docs" / page).read_text() for page in ("policy.md", "elastic.md"))
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```$", pages, flags=re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.parametrize("text", examples(), ids=lambda text: yaml.safe_load(text)["metadata"]["name"])
def test_an_example_of_the_guide_is_a_policy_that_says_nothing_that_is_not_read(text: str) -> None:
    document = yaml.safe_load(text)
    assert document["kind"] == "RecoveryPolicy"
    assert_contains(told(msgspec.convert(document["spec"], PolicySpec)), document["spec"], "spec")
    assert lint_all(documents(text)) == ()


def test_the_guide_has_an_example_of_what_takes_several_fields() -> None:
    names = [yaml.safe_load(text)["metadata"]["name"] for text in examples()]
    assert names == ["default", "rules", "suspicious", "elastic", "preempted"]


def test_the_defaults_that_the_guide_shows_are_the_defaults() -> None:
    shown = yaml.safe_load(examples()[0])["spec"]
    assert msgspec.convert(shown, PolicySpec) == PolicySpec()
    assert_contains(shown, told(PolicySpec()), "spec")


def test_the_runtime_with_the_joined_probe_is_the_prepared_one_and_the_probe() -> None:
    prepared, joined = load("runtime-prepared.yaml"), load("runtime-joined-probe.yaml")
    [job] = joined["spec"]["template"]["spec"]["replicatedJobs"]
    template = job["template"]["spec"]["template"]
    assert template.pop("metadata") == {"annotations": {JOINED_PROBE_ANNOTATION: "readiness"}}
    [container] = template["spec"]["containers"]
    *test, file = container.pop("readinessProbe")["exec"]["command"]
    assert (test, container.pop("env")) == (["test", "-f"], [{"name": "RECOVERY_JOINED_FILE", "value": file}])
    assert joined["metadata"].pop("name") == prepared["metadata"].pop("name") + "-joined"
    assert joined == prepared


def test_the_runtime_with_a_failure_policy_is_the_prepared_one_but_for_who_restarts_it() -> None:
    prepared, native = load("runtime-prepared.yaml"), load("runtime-failure-policy.yaml")
    assert native["metadata"].pop("name") == prepared["metadata"].pop("name") + "-native"
    job_set, job = native["spec"]["template"]["spec"], native["spec"]["template"]["spec"]["replicatedJobs"][0]
    # Without failurePolicy, a failed pod would end the job. Without backoffLimit 0, its Job would replace only the pod.
    assert job_set.pop("failurePolicy") == {"maxRestarts": 10, "restartStrategy": "BlockingRecreate"}
    assert job["template"]["spec"].pop("backoffLimit") == 0
    assert prepared["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"].pop("backoffLimit") == 1000
    assert native == prepared


def test_the_runtime_with_the_agent_is_the_prepared_one_and_what_the_component_injects() -> None:
    prepared, with_agent = load("runtime-prepared.yaml"), load("runtime-agent.yaml")
    [job] = with_agent["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod.pop("volumes")}
    variables = {each["name"]: each for each in pod["containers"][0].pop("env")}
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0].pop("volumeMounts")}
    assert with_agent["metadata"].pop("name") == prepared["metadata"].pop("name") + "-agent"
    assert with_agent == prepared
    injected = (REPOSITORY / "manifests" / "components" / "agent" / "injection.yaml").read_text()
    assert all(f"'{path}'" in injected for path in mounts.values())
    assert all(f"'{name}'" in injected for name in variables if name != "PYTHONPATH")
    assert injected.count("'RECOVERY_AGENT_") == len(variables) - 1
    assert variables["PYTHONPATH"]["value"] == mounts["recovery-agent"]
    [token] = volumes["recovery-agent-token"]["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == AUDIENCE


def test_the_runtime_with_the_agent_mounts_every_file_of_it_and_lets_pods_start_without() -> None:
    [job] = load("runtime-agent.yaml")["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    [volume] = [each["configMap"] for each in pod["volumes"] if "configMap" in each]
    assert volume["optional"] is True
    assert all(Path(item["path"]).name == item["key"] for item in volume["items"])
    assert sorted(item["path"] for item in volume["items"]) == [str(path) for path in agent.files()]
    assert sum((agent.AGENT / item["path"]).stat().st_size for item in volume["items"]) < 2**20, "a ConfigMap's limit"
    sources = [each.get("valueFrom", {}) for each in pod["containers"][0]["env"]]
    references = [source["configMapKeyRef"] for source in sources if "configMapKeyRef" in source]
    assert [each["optional"] for each in references] == [True, True]


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
