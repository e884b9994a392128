"""The controller's rights are the least that it works with, and observing alone gives none over a workload."""

from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
READ = {"get", "list", "watch"}
OWN_GROUP = "recovery.trainjob.dev"


def documents(folder: str) -> list[dict[str, Any]]:
    """Every object that the folder's kustomization names."""
    resources = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())["resources"]
    files = [MANIFESTS / folder / name for name in resources]
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def rights(role: str) -> set[tuple[str, str, str]]:
    """As (API group, resource, verb)."""
    [found] = [d for d in documents("rbac") if d["kind"] == "ClusterRole" and d["metadata"]["name"] == role]
    return {
        (group, resource, verb)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("role", ["recovery-observe", "recovery-enforce"])
def test_no_wildcards_and_no_secrets(role: str) -> None:
    assert not any("*" in right or right[1].startswith("secrets") for right in rights(role))


def test_observing_writes_nothing_but_its_own_objects_and_events() -> None:
    written = {(group, resource) for group, resource, verb in rights("recovery-observe") if verb not in READ}
    assert written == {
        (OWN_GROUP, "recoverygroups"),
        (OWN_GROUP, "recoverygroups/status"),
        (OWN_GROUP, "recoveryincidents"),
        ("", "events"),
    }


def test_enforcing_adds_the_deeds_and_nothing_else() -> None:
    assert rights("recovery-enforce") == {
        ("batch", "jobs", "delete"),
        ("batch", "jobs", "patch"),
        ("", "pods", "delete"),
    }


def test_both_roles_are_bound_to_the_one_service_account() -> None:
    [account] = [d["metadata"] for d in documents("rbac") if d["kind"] == "ServiceAccount"]
    [namespace] = yaml.safe_load_all((MANIFESTS / "default" / "namespace.yaml").read_text())
    assert account["namespace"] == namespace["metadata"]["name"]
    bindings = [d for d in documents("rbac") if d["kind"] == "ClusterRoleBinding"]
    assert {d["roleRef"]["name"] for d in bindings} == {"recovery-observe", "recovery-enforce"}
    for binding in bindings:
        [subject] = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}


def test_the_default_installs_all_of_it() -> None:
    resources = yaml.safe_load((MANIFESTS / "default" / "kustomization.yaml").read_text())["resources"]
    assert set(resources) == {"namespace.yaml", "../crd", "../rbac"}
