"""The manifests as users apply them: what they let the controller do, that they are admitted, and their removal.

These tests have their own control plane, without nodes: the Deployment has its two replicas here, and roles lose verbs.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Object, apply, train_job

pytestmark = pytest.mark.central

SYSTEM = "recovery-system"
NODE_LEASES = "kube-node-lease"
"""The namespace of the Leases of nodes."""
SUSPENDED_BY = "recovery.trainjob.dev/suspended-by"
WARNS_WITHOUT = {
    "recovery-enforce": "policies in mode Enforce will be refused",
    "recovery-quarantine": "no node will be quarantined",
    "recovery-node-leases": "fencing AssumeDead will go by the Ready condition of nodes alone",
}
"""Role -> the warning if one of its rights is missing."""
_INCOMPLETE = "the totals of the fleet will be incomplete (manifests/rbac)"
_BASELINES_MOVE = "an edit of a policy will make earlier losses a baseline (manifests/rbac)"
_ONLY_MORE = "records of incidents will only become more (manifests/rbac)"
_NO_DRILLS = "no failure will count as a drill (manifests/rbac)"
CAN_DO_WITHOUT = {
    ("get", "recoveryincidents"): _INCOMPLETE,
    ("patch", "recoveryconfigs/status"): _INCOMPLETE,
    ("delete", "recoveryincidents"): _ONLY_MORE,
    ("patch", "recoveryincidents/status"): _ONLY_MORE,
    ("patch", "recoverypolicies/status"): _BASELINES_MOVE,
    ("patch", "clusterrecoverypolicies/status"): _BASELINES_MOVE,
    **{(verb, "recoverydrills"): _NO_DRILLS for verb in ("list", "watch", "delete")},
    ("patch", "recoverydrills/status"): _NO_DRILLS,
}
"""Rights of the role recovery-observe without which the controller starts, and the warning if one is missing."""
AT_ONCE = 4
"""How many controllers start at the same time. A start costs CPU time."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare(toolbox: Toolbox) -> AsyncIterator[ControlPlane]:
    """Kubernetes with JobSet and Trainer, and nothing of ours."""
    async with ControlPlane.start(ControlPlaneSettings(request_limits="raised"), toolbox) as running:
        yield running


async def apply_folder(control_plane: ControlPlane, folder: str) -> None:
    """Apply `manifests/FOLDER`, and wait until its CRDs are served."""
    await control_plane.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "manifests" / folder))
    await control_plane.kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd", "--all")


# --- the verbs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Right:
    """A verb on a resource. The log names a missing one as `patch recoverygroups.recovery.trainjob.dev/status`."""

    role: str
    group: str
    resource: str
    verb: str
    place: str = ""
    """The foreign namespace in which the controller needs it. Empty: everywhere, or in its own."""

    @property
    def words(self) -> str:
        plural, slash, subresource = self.resource.partition("/")
        named = f"{self.verb} {plural}{f'.{self.group}' if self.group else ''}{slash}{subresource}"
        return f"{named} in {self.place}" if self.place else named


def role_of_nodes(role: Object) -> bool:
    """The role for the Leases of nodes."""
    return bool(role["metadata"]["name"] == "recovery-node-leases")


def rights_of(role: Object) -> list[Right]:
    return [
        Right(role["metadata"]["name"], group, resource, verb, NODE_LEASES if role_of_nodes(role) else "")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def rules_without(role: Object, missing: Right | None) -> list[Object]:
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        for right in rights_of(role)
        if right != missing
    ]


def account_without(name: str, roles: Mapping[str, Object], missing: Right | None) -> list[Object]:
    """A ServiceAccount with all the rights of the roles but one."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    objects: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(name, SYSTEM)}]
    for role in roles.values():
        kind, namespace = role["kind"], role["metadata"].get("namespace")
        own = f"{name}-{role['metadata']['name']}"
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": own}
        # As docs/install.md narrows it. Bound everywhere, it would also grant reading the Lease of the election.
        place, binding = (NODE_LEASES, "RoleBinding") if role_of_nodes(role) else (namespace, f"{kind}Binding")
        objects.append(
            {**rbac, "kind": kind, "metadata": _metadata(own, namespace), "rules": rules_without(role, missing)}
        )
        objects.append(
            {**rbac, "kind": binding, "metadata": _metadata(own, place), "roleRef": reference, "subjects": [subject]}
        )
    return objects


def _metadata(name: str, namespace: str | None) -> Object:
    return {"name": name} if namespace is None else {"name": name, "namespace": namespace}


async def shipped_roles(control_plane: ControlPlane, folder: str, *names: str) -> dict[str, Object]:
    rendered = await control_plane.kubectl("kustomize", str(REPOSITORY / "manifests" / folder))
    found = [each for each in yaml.safe_load_all(rendered) if each["kind"] in {"Role", "ClusterRole"}]
    return {role["metadata"]["name"]: role for role in found if role["metadata"]["name"] in names}


@dataclass(frozen=True)
class Start:
    """How a controller started. `exit_code` None: its permissions were enough, and it was killed."""

    exit_code: int | None
    said: tuple[str, ...]
    """Its messages about missing permissions."""


async def started(kubeconfig: Path, lease_namespace: str = SYSTEM) -> Start:
    """Run a controller until it ends, or has checked its permissions and stands for election."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recovery.cli.entry", "run", "--kubeconfig", str(kubeconfig)),
        *("--metrics-address", "127.0.0.1:0", "--lease-namespace", lease_namespace),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        preexec_fn=die_with_parent(),
    )
    said: list[str] = []
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            assert process.stdout is not None
            async for line in process.stdout:
                text = line.decode().rstrip()
                log: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
                if log.get("msg") == "standing for election":
                    return Start(None, tuple(said))
                if "missing_permissions" in log:
                    said.append(f"{log['level']}: {log['msg']}: {log['missing_permissions']}")
                elif not log:
                    said.append(text)
            return Start(await process.wait(), tuple(said))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def starts_without(
    control_plane: ControlPlane, roles: Mapping[str, Object], rights: list[Right]
) -> dict[str, Start]:
    """How the controller starts without each of the rights, keyed by the right's words. Key "": with all rights."""
    variants = {f"without-{number}": right for number, right in enumerate([None, *rights])}
    await apply(
        control_plane, None, *(each for name, right in variants.items() for each in account_without(name, roles, right))
    )
    slots = asyncio.Semaphore(AT_ONCE)

    async def start(name: str, right: Right | None) -> tuple[str, Start]:
        async with slots:
            kubeconfig = await control_plane.kubeconfig_for_service_account(SYSTEM, name)
            return (right.words if right else ""), await started(kubeconfig)

    return dict(await asyncio.gather(*(start(name, right) for name, right in variants.items())))


async def test_each_missing_verb_ends_or_warns_with_one_line_that_names_it_and_no_other(bare: ControlPlane) -> None:
    await apply_folder(bare, "default")
    roles = await shipped_roles(bare, "default", "recovery-observe", "recovery-leader", *WARNS_WITHOUT)
    needed = [right for name in ("recovery-observe", "recovery-leader") for right in rights_of(roles[name])]
    withheld = {name: rights_of(roles[name]) for name in WARNS_WITHOUT}
    starts = await starts_without(bare, roles, [*needed, *(right for rights in withheld.values() for right in rights)])

    assert starts.pop("") == Start(None, ()), "the shipped roles are all that it asks for"
    assert len(starts) == len(needed) + sum(map(len, withheld.values())) > 30
    spared = [right for right in needed if (right.verb, right.resource) in CAN_DO_WITHOUT]
    assert len(spared) == len(CAN_DO_WITHOUT)
    for right in spared:
        said = CAN_DO_WITHOUT[right.verb, right.resource]
        assert starts[right.words] == Start(None, (f"warning: {said}: {right.words}",))
    for right in (right for right in needed if right not in spared):
        start = starts[right.words]
        assert start.exit_code == 1, right
        [line] = start.said
        assert line.startswith("recovery: permissions are missing, in "), right
        assert line.endswith(f": {right.words}"), right
    for name, rights in withheld.items():
        for right in rights:
            assert starts[right.words] == Start(None, (f"warning: {WARNS_WITHOUT[name]}: {right.words}",))


async def test_the_overlay_observe_leaves_every_action_to_be_refused_by_the_api_server(bare: ControlPlane) -> None:
    await apply_folder(bare, "overlays/observe")
    # As docs/install.md says: applying the overlay over another one does not delete the binding.
    await bare.kubectl("delete", "clusterrolebinding", "recovery-enforce", "--ignore-not-found")
    await bare.kubectl("create", "job", "one", "--image=none", "-n", "default")
    kubeconfig = await bare.kubeconfig_for_service_account(SYSTEM, "recovery-controller")
    as_controller = (f"--kubeconfig={kubeconfig}", "-n", "default")
    for operation in (("delete", "job", "one"), ("patch", "job", "one", "-p", '{"spec": {"suspend": true}}')):
        with pytest.raises(KubectlError, match=r"recovery-controller\" cannot "):
            await bare.kubectl(*operation, *as_controller)

    roles = await shipped_roles(bare, "overlays/observe", "recovery-enforce", "recovery-admission")
    granted = {right.words for right in rights_of(roles["recovery-admission"])}  # the verdict on a RecoveryConfig
    operations = "; ".join(right.words for right in rights_of(roles["recovery-enforce"]) if right.words not in granted)
    start = await started(kubeconfig)
    assert start.exit_code is None, "observing needs none of it"
    [warning] = start.said
    assert words_of(warning.removeprefix("warning: policies in mode Enforce will be refused: ")) == words_of(operations)

    await apply_folder(bare, "enforce")

    async def may_act() -> bool:
        try:
            await bare.kubectl("delete", "job", "one", "--dry-run=server", *as_controller)
        except KubectlError:
            return False
        return True

    async with asyncio.timeout(GUARD_SECONDS):
        while not await may_act():
            await asyncio.sleep(0.1)
    assert await started(kubeconfig) == Start(None, ())


def words_of(permissions: str) -> set[tuple[str, str]]:
    """Verb and resource of each permission in a text like `delete, patch jobs.batch; delete pods`."""
    parts = [part.rsplit(" ", 1) for part in permissions.split("; ")]
    return {(verb, target) for verbs, target in parts for verb in verbs.split(", ")}


async def test_in_another_namespace_the_controller_has_its_rights_and_creates_no_job(
    bare: ControlPlane, tmp_path: Path
) -> None:
    elsewhere = "ml-infra"
    mine = {
        "namespace": elsewhere,
        "resources": [os.path.relpath(REPOSITORY / "manifests" / "default", tmp_path)],
        "components": [os.path.relpath(REPOSITORY / "manifests" / "components" / "birth-settings", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    await bare.kubectl("apply", "--server-side", "-k", str(tmp_path))
    await bare.kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd", "--all")
    kubeconfig = await bare.kubeconfig_for_service_account(elsewhere, "recovery-controller")
    assert await started(kubeconfig, elsewhere) == Start(None, ()), "nothing is missing"

    create = ("create", "job", "any", "--image=none", "-n", "default", f"--kubeconfig={kubeconfig}")

    async def refused() -> bool:
        try:
            await bare.kubectl(*create)
        except KubectlError as error:
            return "recovery-dry-runs-only" in error.stderr
        await bare.kubectl("delete", "job", "any", "-n", "default")
        return False

    async with asyncio.timeout(GUARD_SECONDS):  # the API server notices the policy a little later
        while not await refused():
            await asyncio.sleep(0.2)
    await bare.kubectl(*create, "--dry-run=server")
    await bare.kubectl("delete", "-k", str(tmp_path))


# --- the objects ---------------------------------------------------------------------------------------------------


async def test_two_pods_are_admitted_into_a_namespace_that_refuses_others(bare: ControlPlane) -> None:
    await apply_folder(bare, "default")
    with pytest.raises(KubectlError, match='violates PodSecurity "restricted'):
        await bare.kubectl("run", "plain", "--image=none", "-n", SYSTEM, "--dry-run=server")

    async def pods() -> list[Object]:
        found = await bare.kubectl(
            "get", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=controller", "-o=json"
        )
        items: list[Object] = json.loads(found)["items"]
        return items

    async with asyncio.timeout(GUARD_SECONDS):
        while len(await pods()) < 2:
            await asyncio.sleep(0.1)
    for pod in await pods():
        assert [owner["kind"] for owner in pod["metadata"]["ownerReferences"]] == ["ReplicaSet"]
        assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (1_000_000_000, "Never")
        assert pod["spec"]["serviceAccountName"] == "recovery-controller"
    warnings = json.loads(await bare.kubectl("get", "events", "-n", SYSTEM, "-o=json"))["items"]
    assert not [event["message"] for event in warnings if event["reason"] == "FailedCreate"]


async def test_applying_again_changes_nothing(bare: ControlPlane) -> None:
    await apply_folder(bare, "default")
    diff = await bare.kubectl("diff", "--server-side", "-k", str(REPOSITORY / "manifests" / "default"))
    assert diff == ""


@pytest.mark.parametrize(
    ("role", "allowed", "refused"),
    [
        ("view", [("list", "recoverygroups"), ("get", "recoverypolicies")], [("create", "recoverypolicies")]),
        ("edit", [("create", "recoverypolicies"), ("delete", "recoveryincidents")], [("patch", "recoverygroups")]),
        (
            "admin",
            [("patch", "recoverypolicies")],
            [("patch", "recoveryconfigs"), ("create", "clusterrecoverypolicies")],
        ),
    ],
)
async def test_the_roles_of_the_cluster_know_our_objects(
    role: str, allowed: list[tuple[str, str]], refused: list[tuple[str, str]], bare: ControlPlane
) -> None:
    await apply_folder(bare, "default")
    binding = ("clusterrolebinding", f"somebody-{role}", f"--clusterrole={role}", f"--user=somebody-{role}")
    await bare.kubectl("create", *binding)

    async def may(verb: str, plural: str) -> bool:
        asked = {"group": "recovery.trainjob.dev", "resource": plural, "verb": verb}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": f"somebody-{role}", "resourceAttributes": asked},
        }
        answer = await bare.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
        return bool(json.loads(answer)["status"]["allowed"])

    async with asyncio.timeout(GUARD_SECONDS):  # the controller-manager aggregates roles a little later
        while not all([await may(*each) for each in allowed]):
            await asyncio.sleep(0.2)
    assert not any([await may(*each) for each in refused])


async def test_the_parts_can_be_put_together_as_documented(bare: ControlPlane, tmp_path: Path) -> None:
    parts = ("crd", "rbac", "manager", "enforce", "prometheus")
    mine = {
        "resources": [os.path.relpath(REPOSITORY / "manifests" / part, tmp_path) for part in parts],
        "components": [os.path.relpath(REPOSITORY / "manifests" / "admission" / "cert-manager", tmp_path)],
        "images": [{"name": "trainjob-recovery", "newName": "registry.example/recovery", "newTag": "mine"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    rendered = list(yaml.safe_load_all(await bare.kubectl("kustomize", str(tmp_path))))
    [deployment] = [each for each in rendered if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/recovery:mine"
    assert "--admission-certificates=/certificates" in container["args"]
    assert {each["kind"] for each in rendered} >= {"ServiceMonitor", "Certificate", "ValidatingWebhookConfiguration"}


# --- the end -------------------------------------------------------------------------------------------------------


def documented_steps() -> str:
    """The shell block of docs/install.md that uninstalls."""
    text = (REPOSITORY / "docs" / "install.md").read_text()
    [block] = re.findall(r"^## Uninstall\n.*?^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(block)


async def test_the_documented_steps_release_every_suspension_of_ours_and_remove_everything(
    bare: ControlPlane, toolbox: Toolbox, tmp_path: Path
) -> None:
    await apply_folder(bare, "default")
    ours = {"annotations": {SUSPENDED_BY: "inc-1", "recovery.trainjob.dev/resume-at": "2026-11-21T12:00:00Z"}}
    jobs = [suspended("in-backoff", **ours), suspended("by-its-user"), suspended("by-another", annotations={"a": "b"})]
    await apply(bare, "default", *jobs, bare_job_set("alone", **ours))

    async with asyncio.timeout(GUARD_SECONDS):
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", documented_steps()),
            cwd=REPOSITORY,
            env=os.environ
            | {
                "KUBECONFIG": str(bare.kubeconfig),
                "HOME": str(tmp_path),
                "PATH": f"{toolbox.binary('kubectl').parent}:{os.environ['PATH']}",
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            preexec_fn=die_with_parent(),
        )
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()

    found = json.loads(await bare.kubectl("get", "trainjobs,jobsets", "-n", "default", "-o", "json"))["items"]
    state = {
        (each["kind"], each["metadata"]["name"]): (
            each["spec"].get("suspend", False),
            SUSPENDED_BY in each["metadata"].get("annotations", {}),
        )
        for each in found
    }
    assert state["TrainJob", "in-backoff"] == (False, False)
    assert state["JobSet", "alone"] == (False, False)
    assert state["TrainJob", "by-its-user"] == state["TrainJob", "by-another"] == (True, False)
    left = await bare.kubectl(
        "get",
        "crd,clusterroles,clusterrolebindings,namespaces,priorityclasses,validatingwebhookconfigurations",
        *("-l", "app.kubernetes.io/name=trainjob-recovery", "-o", "name"),
    )
    assert left == ""


def suspended(name: str, **metadata: Any) -> Object:
    """A TrainJob that is suspended."""
    job = train_job(name, ranks=1, gpus=1)
    job["metadata"] |= metadata
    job["spec"]["suspend"] = True
    return job


def bare_job_set(name: str, **metadata: Any) -> Object:
    """A suspended JobSet without a TrainJob."""
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}}
    job = {"name": "node", "replicas": 1, "template": {"spec": {"template": pod}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, **metadata},
        "spec": {"suspend": True, "replicatedJobs": [job]},
    }
