"""The manifests for admission: it never blocks a request by a failure, and it has only the rights that it needs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from recovery.admission import births, runtimes
from recovery.admission.certificates import (
    BIRTH_CONFIGURATION_NAME,
    CONFIGURATION_NAME,
    LAUNCH_CONFIGURATION_NAME,
    SECRET_NAME,
    SERVICE_NAME,
)
from recovery.admission.launches import LAUNCHES
from recovery.admission.objects import JUDGED
from recovery.admission.webhooks import PREPARE_PATH
from recovery.certificates import serving_names
from recovery.launch.preparing import PREPARE_ANNOTATION
from recovery.ports import JOBS, RECOVERY_GROUPS
from tests.unit.manifests import kustomize

ADMISSION = Path(__file__).resolve().parents[3] / "manifests" / "admission"
MANAGER = ADMISSION.parent / "manager" / "deployment.yaml"
NAMESPACE = "recovery-system"
OWN = {f"{resource.plural}/status" for resource in JUDGED}


def documents(way: str) -> list[dict[str, Any]]:
    """Every object of one way to get a certificate, before its patches. `way` may be below another folder."""
    folders = {(ADMISSION / way).parent / "base", ADMISSION / way}
    files = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    found = [document for path in files for document in yaml.safe_load_all(path.read_text())]
    return [document for document in found if document["kind"] not in {"Kustomization", "Component"}]


def only(way: str, kind: str) -> dict[str, Any]:
    [found] = [document for document in documents(way) if document["kind"] == kind]
    return found


def rights(way: str) -> set[tuple[str, str, str, str]]:
    """Each right as (kind of role, resource, name if only one object is meant, verb)."""
    return {
        (document["kind"], resource, name, verb)
        for document in documents(way)
        if document["kind"] in {"Role", "ClusterRole"}
        for rule in document["rules"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_every_webhook_is_ours_alone_and_fails_open() -> None:
    configuration = only("base", "ValidatingWebhookConfiguration")
    assert configuration["metadata"]["name"] == CONFIGURATION_NAME
    asked = []
    for webhook in configuration["webhooks"]:
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["sideEffects"] == "None"
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["timeoutSeconds"] <= 5
        [rule] = webhook["rules"]
        [plural] = rule["resources"]
        assert (rule["apiGroups"], rule["apiVersions"]) == ([JUDGED[0].group], [JUDGED[0].version])
        assert rule["operations"] == ["CREATE", "UPDATE"]
        assert webhook["clientConfig"]["service"] == {
            "name": SERVICE_NAME,
            "namespace": NAMESPACE,
            "port": 443,
            "path": f"/{plural}",
        }
        asked.append((plural, rule["scope"]))
    assert asked == [(each.plural, "Namespaced" if each.namespaced else "Cluster") for each in JUDGED]


def test_the_service_finds_every_replica() -> None:
    service, deployment = only("base", "Service"), yaml.safe_load(MANAGER.read_text())
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == (SERVICE_NAME, NAMESPACE)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    [port] = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "admission")


def test_a_certificate_of_our_own_making_takes_one_secret_and_one_configuration() -> None:
    assert rights("self-made") == {("ClusterRole", plural, "", "patch") for plural in OWN} | {
        ("Role", "secrets", SECRET_NAME, "get"),
        ("Role", "secrets", SECRET_NAME, "patch"),
        ("ClusterRole", "validatingwebhookconfigurations", CONFIGURATION_NAME, "get"),
        ("ClusterRole", "validatingwebhookconfigurations", CONFIGURATION_NAME, "patch"),
    }
    assert "data" not in only("self-made", "Secret"), "applying it again would take the certificate away"


def test_one_of_cert_manager_takes_no_right_but_for_the_condition() -> None:
    assert rights("cert-manager") == {("ClusterRole", plural, "", "patch") for plural in OWN}
    assert only("cert-manager", "Certificate")["spec"]["dnsNames"] == serving_names(SERVICE_NAME, NAMESPACE, "")


LAUNCH_SECONDS = 3
LAUNCH_WEBHOOK = {
    "matchPolicy": "Equivalent",
    "failurePolicy": "Ignore",
    "timeoutSeconds": LAUNCH_SECONDS,
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


def test_webhooks_of_train_jobs_fail_open_sooner_than_a_user_would_notice_and_ask_for_no_status() -> None:
    configuration = only("launch/base", "ValidatingWebhookConfiguration")
    assert configuration["metadata"]["name"] == LAUNCH_CONFIGURATION_NAME
    assert LAUNCH_SECONDS > runtimes.READ_SECONDS_MAX
    for webhook, resource in zip(configuration["webhooks"], LAUNCHES, strict=True):
        assert webhook["rules"] == [
            {
                "apiGroups": [resource.group],
                "apiVersions": [resource.version],
                "resources": [resource.plural],
                "operations": ["CREATE", "UPDATE"],
                "scope": "Namespaced" if resource.namespaced else "Cluster",
            }
        ]
        assert [each["name"] for each in webhook["matchConditions"]] == ["the-spec-is-new", "not-being-deleted"]
        assert webhook["clientConfig"]["service"]["path"] == f"/{resource.plural}"
        assert webhook.items() >= LAUNCH_WEBHOOK.items()


def test_no_train_job_is_sent_to_be_changed_but_one_whose_owner_asks_for_it() -> None:
    configuration = only("launch/base", "MutatingWebhookConfiguration")
    assert configuration["metadata"]["name"] == LAUNCH_CONFIGURATION_NAME
    [webhook] = configuration["webhooks"]
    [rule] = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["trainjobs"], ["CREATE"])
    [condition] = webhook["matchConditions"]
    assert f'["{PREPARE_ANNOTATION}"].orValue("") == "true"' in condition["expression"]
    assert webhook["clientConfig"]["service"]["path"] == f"/{PREPARE_PATH}"
    assert webhook.items() >= (LAUNCH_WEBHOOK | {"reinvocationPolicy": "Never"}).items()


def test_judging_train_jobs_takes_the_right_to_read_runtimes_by_name_and_to_have_the_certificate_trusted() -> None:
    reads = {("ClusterRole", resource.plural, "", "get") for resource in LAUNCHES if resource.kind != "TrainJob"}
    assert rights("launch/cert-manager") == reads
    assert rights("launch/self-made") == reads | {
        ("ClusterRole", plural, LAUNCH_CONFIGURATION_NAME, verb)
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
        for verb in ("get", "patch")
    }


def test_cert_manager_is_reported_every_webhook_of_train_jobs() -> None:
    component = yaml.safe_load((ADMISSION / "launch" / "cert-manager" / "kustomization.yaml").read_text())
    kinds = {document["kind"] for document in documents("launch/base") if "webhooks" in document}
    assert {(patch["target"]["kind"], patch["target"]["name"]) for patch in component["patches"]} == {
        (kind, LAUNCH_CONFIGURATION_NAME) for kind in kinds
    }
    for patch in component["patches"]:
        [operation] = yaml.safe_load(patch["patch"])
        assert operation["value"] == {"cert-manager.io/inject-ca-from": "recovery-system/recovery-admission"}


def test_nothing_asks_about_train_jobs_or_jobs_until_the_platform_installs_it() -> None:
    named = "\n".join(path.read_text() for path in ADMISSION.parent.rglob("kustomization.yaml"))
    used = [line for line in named.splitlines() if not line.startswith("#")]
    assert [line for line in used if "launch/" in line or "admission/birth-settings" in line] == []


def test_jobs_of_job_sets_alone_are_sent_to_get_their_settings_and_are_made_without_them_in_doubt() -> None:
    configuration = only("birth-settings/base", "MutatingWebhookConfiguration")
    policy = kustomize.only("components/birth-settings", "MutatingAdmissionPolicy")["spec"]
    assert configuration["metadata"]["name"] == BIRTH_CONFIGURATION_NAME
    [webhook] = configuration["webhooks"]
    [rule] = policy["matchConstraints"]["resourceRules"]
    assert webhook["rules"] == [{**rule, "scope": "Namespaced"}]
    assert webhook["objectSelector"] == policy["matchConstraints"]["objectSelector"]
    assert webhook["reinvocationPolicy"] == policy["reinvocationPolicy"]
    assert webhook["clientConfig"]["service"]["path"] == f"/{JOBS.plural}"
    assert webhook.items() >= LAUNCH_WEBHOOK.items()
    assert LAUNCH_SECONDS > births.READ_SECONDS_MAX


@pytest.mark.parametrize("way", ["self-made", "cert-manager"])
def test_settings_by_the_webhook_take_what_the_policy_takes_and_no_policy_that_older_clusters_lack(way: str) -> None:
    by_policy = kustomize.objects("components/birth-settings")
    shared = [each for each in by_policy if not each["kind"].startswith("MutatingAdmissionPolicy")]
    assert len(shared) == len(by_policy) - 2
    by_webhook = kustomize.objects(f"admission/birth-settings/{way}")
    own = [each["kind"] for each in by_webhook if each not in shared]
    certificate = ["ClusterRole", "ClusterRoleBinding"] if way == "self-made" else []
    assert sorted(own) == [*certificate, "MutatingWebhookConfiguration"]
    assert [each for each in shared if each not in by_webhook] == []
    assert ("ClusterRole", RECOVERY_GROUPS.plural, "", "list") in observing()


def observing() -> set[tuple[str, str, str, str]]:
    """The rights of the role that every installation binds."""
    role = kustomize.only("rbac", "ClusterRole", "recovery-observe")
    return {("ClusterRole", resource, "", verb) for _, resource, verb in kustomize.rights(role)}


def test_the_webhook_of_settings_is_trusted_by_either_certificate() -> None:
    assert rights("birth-settings/self-made") == {
        ("ClusterRole", "mutatingwebhookconfigurations", BIRTH_CONFIGURATION_NAME, verb) for verb in ("get", "patch")
    }
    component = yaml.safe_load((ADMISSION / "birth-settings" / "cert-manager" / "kustomization.yaml").read_text())
    [patch] = component["patches"]
    assert patch["target"] == {"kind": "MutatingWebhookConfiguration", "name": BIRTH_CONFIGURATION_NAME}
    [operation] = yaml.safe_load(patch["patch"])
    assert operation["value"] == {"cert-manager.io/inject-ca-from": "recovery-system/recovery-admission"}


WAYS = [f"{folder}{way}" for folder in ("", "launch/", "birth-settings/") for way in ("self-made", "cert-manager")]


@pytest.mark.parametrize("way", WAYS)
def test_every_role_is_bound_to_the_controller(way: str) -> None:
    found = documents(way)
    roles = {(each["kind"], each["metadata"]["name"]) for each in found if each["kind"] in {"Role", "ClusterRole"}}
    bindings = [each for each in found if each["kind"].endswith("Binding")]
    assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} == roles
    for binding in bindings:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "recovery-controller", "namespace": NAMESPACE}
        ]


@pytest.mark.parametrize("way", ["self-made", "cert-manager"])
def test_the_manager_is_told_to_serve(way: str) -> None:
    component = yaml.safe_load((ADMISSION / way / "kustomization.yaml").read_text())
    [patch] = [each for each in component["patches"] if each["target"]["kind"] == "Deployment"]
    assert patch["target"]["name"] == yaml.safe_load(MANAGER.read_text())["metadata"]["name"]
    operations = yaml.safe_load(patch["patch"])
    arguments = [op["value"] for op in operations if op["path"].endswith("/args/-")]
    ports = [op["value"] for op in operations if op["path"].endswith("/ports/-")]
    assert arguments[0] == "--admission-address=:9443"
    assert ports == [{"name": "admission", "containerPort": 9443}]


def test_the_manager_starts_while_cert_manager_has_no_certificate_yet() -> None:
    component = yaml.safe_load((ADMISSION / "cert-manager" / "kustomization.yaml").read_text())
    [patch] = [each for each in component["patches"] if each["target"]["kind"] == "Deployment"]
    [volume] = [op["value"] for op in yaml.safe_load(patch["patch"]) if op["path"].endswith("/volumes/-")]
    assert volume["secret"] == {"secretName": "recovery-admission-tls", "optional": True}
