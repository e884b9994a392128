"""The manifests in another namespace, as kustomize renders a user's overlay. These tests need only kubectl."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.scene import REPOSITORY, Object

pytestmark = pytest.mark.central

NAMESPACE = "ml-infra"
MANIFESTS = REPOSITORY / "manifests"


def rendered(toolbox: Toolbox, folder: Path, **overlay: Any) -> list[Object]:
    """What `kubectl kustomize` renders from an overlay in that folder, which has `manifests` below it."""
    (folder / "manifests").symlink_to(MANIFESTS)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    command = [str(toolbox.binary("kubectl")), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "", "no warning"
    return list(yaml.safe_load_all(done.stdout))


BIRTH_SETTINGS = ("components/birth-settings", "admission/birth-settings/self-made")
"""By the API server's own policy, or by a webhook. Only one of them is installed at a time."""


def everything(toolbox: Toolbox, folder: Path, birth_settings: str = BIRTH_SETTINGS[0]) -> list[Object]:
    """Everything that can be installed together, with a certificate that the controller makes."""
    parts = ("admission/launch/self-made", birth_settings, "components/pod-logs", "network-policy")
    return rendered(
        toolbox,
        folder,
        namespace=NAMESPACE,
        resources=[f"manifests/{part}" for part in ("default", "prometheus", "prometheus/pod-monitor")],
        components=[f"manifests/{part}" for part in parts],
    )


@pytest.mark.parametrize(("birth_settings", "webhooks"), [(BIRTH_SETTINGS[0], 7), (BIRTH_SETTINGS[1], 8)])
def test_one_line_moves_all_that_has_a_namespace_and_leaves_no_trace_of_the_shipped_one(
    birth_settings: str, webhooks: int, toolbox: Toolbox, tmp_path: Path
) -> None:
    found = everything(toolbox, tmp_path, birth_settings)
    assert {each["metadata"].get("namespace") for each in found} == {None, NAMESPACE}
    assert [each["metadata"]["name"] for each in found if each["kind"] == "Namespace"] == [NAMESPACE]
    assert "recovery-system" not in yaml.safe_dump_all(found, width=10_000)
    bound = [subject for each in found for subject in each.get("subjects", ())]
    assert bound
    assert all(
        subject == {"kind": "ServiceAccount", "name": "recovery-controller", "namespace": NAMESPACE}
        for subject in bound
    )
    called = [webhook["clientConfig"]["service"] for each in found for webhook in each.get("webhooks", ())]
    assert len(called) == webhooks
    assert {service["namespace"] for service in called} == {NAMESPACE}


def test_no_right_moves_away_from_what_it_is_for(toolbox: Toolbox, tmp_path: Path) -> None:
    """kustomize would move a Role of another namespace with the others, and it would grant something else there."""
    roles = [each for each in everything(toolbox, tmp_path) if each["kind"] == "Role"]
    assert {each["metadata"]["name"] for each in roles} == {"recovery-leader", "recovery-admission-certificate"}


@pytest.mark.parametrize(("further", "configurations"), [((), 1), (("launch",), 3), (("launch", "birth-settings"), 4)])
def test_the_certificate_of_cert_manager_follows_with_one_more_line(
    further: tuple[str, ...], configurations: int, toolbox: Toolbox, tmp_path: Path
) -> None:
    ways = ["admission/cert-manager", *(f"admission/{each}/cert-manager" for each in further)]
    found = rendered(
        toolbox,
        tmp_path,
        namespace=NAMESPACE,
        resources=[f"manifests/{part}" for part in ("crd", "rbac", "manager", "enforce")],
        components=[f"manifests/{way}" for way in ways],
        transformers=["manifests/admission/cert-manager/namespace"],
    )
    assert "recovery-system" not in yaml.safe_dump_all(found, width=10_000)
    [certificate] = [each for each in found if each["kind"] == "Certificate"]
    assert certificate["spec"]["dnsNames"] == [f"recovery-admission.{NAMESPACE}.svc"]
    described = [each["metadata"] for each in found if "webhooks" in each]
    assert len(described) == configurations
    for metadata in described:
        assert metadata["annotations"] == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/recovery-admission"}


def documented(heading: str) -> list[Object]:
    """The kustomizations of that section of docs/install.md, and patches to put into one."""
    section = (REPOSITORY / "docs" / "install.md").read_text().split(f"\n### {heading}\n")[1].partition("\n#")[0]
    return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", section, re.DOTALL | re.MULTILINE)]


def test_what_the_guide_shows_renders(toolbox: Toolbox, tmp_path: Path) -> None:
    """A shared namespace is neither labelled nor deleted, and Leases may be read in only one namespace."""
    overlay, of_others, narrow = documented("In another namespace")
    overlay["resources"] = [part.removeprefix("trainjob-recovery/") for part in overlay["resources"]]
    overlay["patches"] = [*of_others["patches"], *narrow["patches"]]
    found = rendered(toolbox, tmp_path, **overlay)
    assert "Namespace" not in {each["kind"] for each in found}
    bindings = {each["metadata"]["name"]: each for each in found if each["kind"] == "ClusterRoleBinding"}
    assert "recovery-node-leases" not in bindings
    assert bindings["recovery-observe"]["subjects"][0]["namespace"] == overlay["namespace"] == NAMESPACE
