"""The controller has the least rights that it can work with. Observing alone gives it none over a workload."""

import pytest

from recovery.cli.preflight import (
    ACCOUNTING,
    DRILLS,
    ENFORCE,
    LOGS,
    NODE_LEASES,
    OBSERVE,
    POLICY_STATUS,
    QUARANTINE,
    RECORDS,
    Permission,
    to_lead,
)
from recovery.controller.lease import LEASE_NAME
from recovery.core.model.annotations import (
    BIRTH_SETTINGS_ANNOTATION,
    BIRTH_SETTINGS_LABEL,
    BIRTH_SETTINGS_LABELLED,
    NODES_ANNOTATION,
)
from recovery.ports import RECOVERY_GROUPS
from tests.unit.manifests.kustomize import REPOSITORY, Object, objects, only, rights

READ = {"get", "list", "watch"}
OWN_GROUP = "recovery.trainjob.dev"
CONTROLLER = {"kind": "ServiceAccount", "name": "recovery-controller", "namespace": "recovery-system"}
ROLES = [
    *("recovery-observe", "recovery-node-leases", "recovery-enforce", "recovery-quarantine"),
    *("recovery-viewer", "recovery-operator", "recovery-drill"),
]


def role(name: str) -> Object:
    return only("rbac", "ClusterRole", name)


def written(name: str) -> set[tuple[str, str]]:
    """The resources that the role may write."""
    return {(group, resource) for group, resource, verb in rights(role(name)) if verb not in READ}


def as_rights(permissions: tuple[Permission, ...]) -> set[tuple[str, str, str]]:
    return {
        (each.resource.group, each.resource.plural + (f"/{each.subresource}" if each.subresource else ""), each.verb)
        for each in permissions
    }


def bound_in(folder: str) -> set[str]:
    """The ClusterRoles that the controller has in all namespaces."""
    bindings = objects(folder, "ClusterRoleBinding")
    return {each["roleRef"]["name"] for each in bindings if CONTROLLER in each["subjects"]}


def test_these_are_all_the_roles() -> None:
    assert {each["metadata"]["name"] for each in objects("rbac", "ClusterRole")} == set(ROLES)


@pytest.mark.parametrize("name", ROLES)
def test_no_wildcards_no_secrets_and_nothing_that_gives_more_rights(name: str) -> None:
    for group, resource, verb in rights(role(name)):
        assert "*" not in {group, resource, verb}
        assert group != "rbac.authorization.k8s.io"
        assert resource.split("/")[0] not in {"secrets", "serviceaccounts", "configmaps"}
        assert verb not in {"escalate", "bind", "impersonate"}


def test_observing_writes_nothing_but_its_own_objects_and_events() -> None:
    assert written("recovery-observe") == {
        (OWN_GROUP, "recoverygroups"),
        (OWN_GROUP, "recoverygroups/status"),
        (OWN_GROUP, "recoveryconfigs/status"),
        (OWN_GROUP, "recoverypolicies/status"),
        (OWN_GROUP, "clusterrecoverypolicies/status"),
        (OWN_GROUP, "recoveryincidents"),
        (OWN_GROUP, "recoveryincidents/status"),
        (OWN_GROUP, "recoverydrills"),
        (OWN_GROUP, "recoverydrills/status"),
        ("", "events"),
    }


def test_the_controller_asks_at_its_start_for_exactly_what_the_roles_grant() -> None:
    assert as_rights((*OBSERVE, *ACCOUNTING, *POLICY_STATUS, *RECORDS, *DRILLS)) == rights(role("recovery-observe"))
    assert as_rights(ENFORCE) == rights(role("recovery-enforce"))
    assert as_rights(QUARANTINE) == rights(role("recovery-quarantine"))
    leader = only("rbac", "Role", "recovery-leader")
    assert as_rights(to_lead("recovery-system")) == rights(leader)
    assert leader["metadata"]["namespace"] == "recovery-system"
    assert as_rights(NODE_LEASES) == rights(role("recovery-node-leases"))


def test_of_the_leases_beside_its_own_the_controller_changes_none() -> None:
    """An overlay may put its Lease beside others, and its right to read the nodes' Leases is for all namespaces."""
    limited = {
        verb: tuple(rule.get("resourceNames", ()))
        for rule in only("rbac", "Role", "recovery-leader")["rules"]
        for verb in rule["verbs"]
    }
    assert limited == {"get": (LEASE_NAME,), "patch": (LEASE_NAME,), "create": ()}
    assert {each.verb: each.name for each in to_lead("ops")} == {"get": LEASE_NAME, "patch": LEASE_NAME, "create": ""}
    assert rights(role("recovery-node-leases")) == {("coordination.k8s.io", "leases", "get")}


def test_enforcing_reads_nothing_more() -> None:
    assert not any(verb in READ for _, _, verb in rights(role("recovery-enforce")))


def test_quarantine_is_a_right_of_its_own_that_can_be_withheld_alone() -> None:
    assert rights(role("recovery-quarantine")) == {("", "nodes", "patch")}
    assert [name for name in ROLES if ("", "nodes") in written(name)] == ["recovery-quarantine"]
    assert only("enforce", "ClusterRoleBinding", "recovery-quarantine")["roleRef"]["name"] == "recovery-quarantine"


def test_enforcing_is_bound_by_its_overlay_and_the_default_and_not_by_the_other_overlay() -> None:
    assert bound_in("overlays/enforce") - bound_in("overlays/observe") == {"recovery-enforce", "recovery-quarantine"}
    assert bound_in("default") == bound_in("overlays/enforce")


def test_the_overlay_observe_lets_the_controller_write_to_no_workload_and_no_node() -> None:
    roles = {each["metadata"]["name"]: each for each in objects("overlays/observe", "ClusterRole")}
    held = set().union(*(rights(roles[name]) for name in bound_in("overlays/observe")))
    written_groups = {(group, resource) for group, resource, verb in held if verb not in READ and group != OWN_GROUP}
    assert written_groups == {("", "events"), ("admissionregistration.k8s.io", "validatingwebhookconfigurations")}


def test_birth_settings_are_rights_of_a_component_that_no_overlay_has() -> None:
    granted = rights(only("components/birth-settings", "ClusterRole"))
    assert granted == {(OWN_GROUP, "recoverygroups", "patch"), ("batch", "jobs", "create")}
    binding = only("components/birth-settings", "ClusterRoleBinding")
    assert (binding["roleRef"]["name"], binding["subjects"]) == ("recovery-birth-settings", [CONTROLLER])
    for folder in ("default", "overlays/enforce", "overlays/observe"):
        held = set().union(*(rights(each) for kind in ("ClusterRole", "Role") for each in objects(folder, kind)))
        assert not granted & held, folder


def test_jobs_are_created_in_dry_runs_only() -> None:
    """The right to create Jobs is the right to run anything, so what grants it also refuses creates of real Jobs."""
    policy = only("components/birth-settings", "ValidatingAdmissionPolicy")
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == (
        "request.userInfo.username.startsWith('system:serviceaccount:') "
        f"&& request.userInfo.username.endsWith(':{CONTROLLER['name']}')"
    ), "in whatever namespace it is"
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["resources"], rule["operations"]) == (["batch"], ["jobs"], ["CREATE"])
    (validation,) = policy["spec"]["validations"]
    assert (policy["spec"]["failurePolicy"], validation["expression"]) == ("Fail", "request.?dryRun.orValue(false)")
    binding = only("components/birth-settings", "ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_the_policy_for_birth_settings_is_bound_to_labelled_ledgers_and_fails_open() -> None:
    policy = only("components/birth-settings", "MutatingAdmissionPolicy")["spec"]
    assert policy["failurePolicy"] == "Ignore"
    assert policy["paramKind"] == {"apiVersion": RECOVERY_GROUPS.api_version, "kind": RECOVERY_GROUPS.kind}
    assert len(policy["mutations"]) == 1, "all that is set at birth, or nothing"
    text = policy["mutations"][0]["jsonPatch"]["expression"]
    for annotation in (BIRTH_SETTINGS_ANNOTATION, NODES_ANNOTATION):
        assert f"/metadata/annotations/{annotation.replace('/', '~1')}'" in text
    binding = only("components/birth-settings", "MutatingAdmissionPolicyBinding")["spec"]
    assert binding["policyName"] == "recovery-birth-settings"
    assert binding["paramRef"] == {
        "selector": {"matchLabels": {BIRTH_SETTINGS_LABEL: BIRTH_SETTINGS_LABELLED}},
        "parameterNotFoundAction": "Allow",
    }


def test_logs_are_a_right_of_a_component_that_no_overlay_has() -> None:
    granted = rights(only("components/pod-logs", "ClusterRole"))
    assert granted == as_rights(LOGS) == {("", "pods/log", "get")}
    binding = only("components/pod-logs", "ClusterRoleBinding")
    assert (binding["roleRef"]["name"], binding["subjects"]) == ("recovery-pod-logs", [CONTROLLER])
    for folder in ("default", "overlays/enforce", "overlays/observe"):
        held = set().union(*(rights(each) for kind in ("ClusterRole", "Role") for each in objects(folder, kind)))
        assert not any(resource == "pods/log" for _, resource, _ in held), folder


def test_every_role_is_explained_where_one_reads_before_installing() -> None:
    told = (REPOSITORY / "docs" / "install.md").read_text()
    optional = objects("components/pod-logs", "ClusterRole")
    for each in (*objects("default", "ClusterRole"), *objects("default", "Role"), *optional):
        assert f"`{each['metadata']['name']}`" in told, each["metadata"]["name"]


def test_no_binding_names_anybody_but_the_controller() -> None:
    account = only("default", "ServiceAccount")["metadata"]
    assert (account["name"], account["namespace"]) == (CONTROLLER["name"], CONTROLLER["namespace"])
    for binding in (*objects("default", "ClusterRoleBinding"), *objects("default", "RoleBinding")):
        assert binding["subjects"] == [CONTROLLER], binding["metadata"]["name"]


def test_users_read_everything_of_ours_and_write_only_policies() -> None:
    assert written("recovery-viewer") == set()
    read = {resource for group, resource, verb in rights(role("recovery-viewer")) if group == OWN_GROUP}
    served = {each["spec"]["names"]["plural"] for each in objects("crd", "CustomResourceDefinition")}
    assert read == served
    assert written("recovery-operator") == {(OWN_GROUP, "recoverypolicies"), (OWN_GROUP, "recoveryincidents")}
    incidents = {verb for _, resource, verb in rights(role("recovery-operator")) if resource == "recoveryincidents"}
    assert incidents == {"delete", "deletecollection"}, "a record is removed or kept, never changed"


def test_only_a_role_of_its_own_may_run_drills_and_none_may_write_their_verdict() -> None:
    """Who names a pod in a RecoveryDrill can make its failure cost nothing."""
    granted = {verb for _, _, verb in rights(role("recovery-drill"))}
    assert granted == {"create", "get", "list", "watch", "patch"}
    assert written("recovery-drill") == {(OWN_GROUP, "recoverydrills")}
    labels = role("recovery-drill")["metadata"]["labels"]
    assert not any("aggregate-to" in label for label in labels)


@pytest.mark.parametrize(("name", "into"), [("recovery-viewer", "view"), ("recovery-operator", "edit")])
def test_roles_for_users_extend_the_roles_that_clusters_have(name: str, into: str) -> None:
    labels = role(name)["metadata"]["labels"]
    assert {label for label in labels if "aggregate-to" in label} == {f"rbac.authorization.k8s.io/aggregate-to-{into}"}
