"""`recovery status` says which neighbours are newer than any that the tests run beside, where their versions show."""

import pytest

from recovery.cli.neighbour_versions import DEPLOYMENTS
from tests.unit.cli.cluster import PlainCluster, metadata
from tests.unit.cli.test_status import status

TRAINER = "ghcr.io/kubeflow/trainer/trainer-controller-manager"
JOBSET, KUEUE = "registry.k8s.io/jobset/jobset", "registry.k8s.io/kueue/kueue"
PROXY = "gcr.io/kubebuilder/kube-rbac-proxy:v9.9.9"


def deployment(cluster: PlainCluster, name: str, *images: str, version: str = "") -> None:
    labels = {"app.kubernetes.io/name": name} | ({"app.kubernetes.io/version": version} if version else {})
    containers = [{"image": image} for image in images]
    spec = {"template": {"spec": {"containers": containers}}}
    about = metadata(f"{name}-controller-manager", f"{name}-system", f"uid-{name}", labels=labels)
    cluster.put(DEPLOYMENTS, {"metadata": about, "spec": spec})


@pytest.mark.parametrize(
    ("name", "images", "version", "words"),
    [
        (
            "trainer",
            (f"{TRAINER}:v2.4.0",),
            "",
            "Trainer 2.4.0 is untested with this version, which is tested with 2.3",
        ),
        ("jobset", (PROXY, f"{JOBSET}:v0.13.1"), "", "JobSet 0.13.1 is untested"),
        ("kueue", (f"mirror.example:5000/kueue/kueue:v0.20.0@sha256:{'a' * 64}",), "", "Kueue 0.20.0 is untested"),
        ("kueue", ("mirror.example/kueue@sha256:1",), "v0.20.1", "Kueue 0.20.1 is untested"),
        ("kubeflow-trainer", (), "3.0.0", "Trainer 3.0.0 is untested"),
    ],
)
def test_a_newer_version_is_untested(
    name: str, images: tuple[str, ...], version: str, words: str, cluster: PlainCluster
) -> None:
    cluster.add_job("llm")
    deployment(cluster, name, *images, version=version)
    [line] = status().stderr.splitlines()
    assert line.startswith(f"recovery: {words}")
    assert line.endswith(f"(Deployment {name}-system/{name}-controller-manager)")


@pytest.mark.parametrize(
    ("name", "image", "version"),
    [
        ("trainer", f"{TRAINER}:v2.3.7", ""),
        ("jobset", f"{JOBSET}:v0.12.0", "v0.12.0"),
        ("kueue", f"{KUEUE}:v0.9.1", ""),
        ("kueue", f"{KUEUE}:v0.20.0-devel", ""),
        ("kueue", f"{KUEUE}:main", ""),
        ("kueue", "example.com/my-own:v7.0.0", ""),
        ("kueue", "", "chart"),
    ],
)
def test_a_tested_version_or_no_sign_of_one_says_nothing(
    name: str, image: str, version: str, cluster: PlainCluster
) -> None:
    cluster.add_job("llm")
    deployment(cluster, name, image, version=version)
    assert status().stderr == ""


def test_a_user_who_may_not_list_deployments_sees_the_jobs(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    deployment(cluster, "kueue", f"{KUEUE}:v0.20.0")
    cluster.denied = {("list", "deployments")}
    result = status()
    assert (result.stderr, "llm" in result.stdout) == ("", True)
