"""The component that injects the agent: it keeps no job from running, and has the least rights that it works with."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from recovery.certificates import serving_names
from recovery.rendezvous.authority import NAME
from recovery.rendezvous.tokens import AUDIENCE
from tests.image import agent
from tests.unit.manifests.kustomize import MANIFESTS, Object, objects, only, rights
from tests.unit.manifests.test_manager import container, run_options

AGENT = MANIFESTS / "components" / "agent"
POLICIES = [each["metadata"]["name"] for each in objects("components/agent", "MutatingAdmissionPolicy")]


def policy(name: str) -> Object:
    return only("components/agent", "MutatingAdmissionPolicy", name)


def patches() -> list[Object]:
    [patch] = yaml.safe_load((AGENT / "kustomization.yaml").read_text())["patches"]
    assert patch["target"] == {"kind": "Deployment", "name": "recovery-controller"}
    return list(yaml.safe_load(patch["patch"]))


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_refuses_anything_and_none_acts_without_the_label_of_the_namespace(name: str) -> None:
    spec = policy(name)["spec"]
    assert spec["failurePolicy"] == "Ignore"
    assert spec["matchConstraints"]["namespaceSelector"] == {"matchLabels": {"recovery.trainjob.dev/agent": "enabled"}}
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE"], "a running job is never changed"
    binding = only("components/agent", "MutatingAdmissionPolicyBinding", name)["spec"]
    assert binding["policyName"] == name


def test_deleting_the_parameters_is_the_kill_switch() -> None:
    assert policy(NAME)["spec"]["paramKind"] == {"apiVersion": "v1", "kind": "ConfigMap"}
    parameters = only("components/agent", "ConfigMap")["metadata"]
    assert only("components/agent", "MutatingAdmissionPolicyBinding", NAME)["spec"]["paramRef"] == {
        "name": parameters["name"],
        "namespace": parameters["namespace"],
        "parameterNotFoundAction": "Allow",
    }


def test_what_is_shipped_injects_nothing_until_an_image_is_named() -> None:
    assert only("components/agent", "ConfigMap")["data"] == {
        "url": f"https://{serving_names(NAME, 'recovery-system', '')[0]}:443"
    }


def test_the_token_is_for_nobody_but_the_endpoint() -> None:
    variables = {each["name"]: each["expression"] for each in policy(NAME)["spec"]["variables"]}
    assert f"'audience': dyn('{AUDIENCE}')" in variables["volumes"]


def test_the_controller_may_ask_about_tokens_and_keep_one_secret_and_one_config_map() -> None:
    assert rights(only("components/agent", "ClusterRole")) == {("authentication.k8s.io", "tokenreviews", "create")}
    [role] = objects("components/agent", "Role")
    assert rights(role) == {("", kind, verb) for kind in ("secrets", "configmaps") for verb in ("get", "patch")}
    assert [rule["resourceNames"] for rule in role["rules"]] == [[NAME]]
    secret = only("components/agent", "Secret")
    assert "data" not in secret, "applying it again would take the authority away"


def test_the_service_reaches_the_port_that_the_deployment_gets() -> None:
    argument, port = (each["value"] for each in patches())
    option, _, address = argument.partition("=")
    assert option in run_options()
    assert address == f":{port['containerPort']}"
    service = only("components/agent", "Service")
    assert service["metadata"]["name"] == NAME
    assert [each["targetPort"] for each in service["spec"]["ports"]] == [port["name"]]
    taken = {each["containerPort"] for each in container()["ports"]} | {9443}
    assert port["containerPort"] not in taken


def test_agents_are_let_in_from_namespaces_with_agents_only_and_only_where_the_network_is_restricted() -> None:
    assert objects("components/agent", "NetworkPolicy") == []
    spec = only("components/agent/network-policy", "NetworkPolicy")["spec"]
    assert spec["podSelector"] == only("network-policy", "NetworkPolicy")["spec"]["podSelector"]
    [rule] = spec["ingress"]
    assert [each["port"] for each in rule["ports"]] == [patches()[1]["value"]["containerPort"]]
    assert [each["namespaceSelector"]["matchLabels"] for each in rule["from"]] == [
        {"recovery.trainjob.dev/agent": "enabled"}
    ]


# --- the image -----------------------------------------------------------------------------------------------------


def unpacked(archive: Path) -> tuple[Any, dict[str, bytes]]:
    """The manifest of the archive's image, and its blobs by digest."""
    with tarfile.open(archive) as opened:
        content = {each.name: opened.extractfile(each).read() for each in opened if each.isfile()}  # type: ignore[union-attr]
    blobs = {f"sha256:{Path(name).name}": blob for name, blob in content.items() if name.startswith("blobs/")}
    [described] = json.loads(content["index.json"])["manifests"]
    return json.loads(blobs[described["digest"]]), blobs


def test_the_image_of_the_agent_has_its_files_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    (folder / "_trainjob_recovery" / "__pycache__").mkdir(parents=True)
    (folder / "Containerfile").write_text((agent.AGENT / "Containerfile").read_text())
    (folder / "sitecustomize.py").write_text("import sys\n")
    (folder / "_trainjob_recovery" / "__init__.py").write_text("")
    (folder / "_trainjob_recovery" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    references = {agent.build(tmp_path / name, folder) for name in ("a.tar", "b.tar")}
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    [reference] = references
    manifest, blobs = unpacked(tmp_path / "a.tar")
    [layer] = manifest["layers"]
    (tmp_path / "layer").write_bytes(blobs[layer["digest"]])
    with tarfile.open(tmp_path / "layer") as opened:
        assert {each.name: each.mode for each in opened} == {
            "_trainjob_recovery": 0o755,
            "_trainjob_recovery/__init__.py": 0o644,
            "sitecustomize.py": 0o644,
        }
    assert reference.startswith("docker.io/library/trainjob-recovery-agent:")
    assert reference.rpartition("@")[2] in blobs
