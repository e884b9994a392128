"""Each suite is a target of the Makefile, and `make test-all` has a stage for each Kubernetes that the tests build."""

import re
from pathlib import Path

import pytest

from tests.stages.suites import ON_REAL_COMPONENTS, SUITES

ROOT = Path(__file__).parents[3]
MODULES = ROOT / "tests/cluster/tools"
MAKEFILE = (ROOT / "Makefile").read_text()
ON_ANOTHER_KUBERNETES = sorted(name for name in ON_REAL_COMPONENTS if re.fullmatch(r"test-cluster-[0-9.]+", name))


def stages(target: str) -> set[str]:
    """The stages that the recipe of that target names."""
    (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n|  .*\n)+)", MAKEFILE, re.MULTILINE)
    return set(re.split(r"[\s~+,\\]+", recipe))


def test_each_suite_is_a_target() -> None:
    targets = {
        name for names in re.findall(r"^([^\s:#][^:=#]*):(?!=)", MAKEFILE, re.MULTILINE) for name in names.split()
    }
    assert sorted(SUITES - targets) == []


@pytest.mark.parametrize("suite", ON_ANOTHER_KUBERNETES)
def test_another_kubernetes_is_a_stage_of_test_all_and_none_of_ci(suite: str) -> None:
    assert suite in stages("test-all")
    assert suite not in stages("test-ci")


def test_each_kubernetes_that_the_tests_build_has_its_stage() -> None:
    """Otherwise a version is pinned that no test runs on."""
    built = {path.name.removeprefix("kubernetes-") for path in MODULES.glob("kubernetes-[0-9]*")}
    assert {f"test-cluster-{version}" for version in built} == set(ON_ANOTHER_KUBERNETES)
    for version in built:
        assert f"\ntest-cluster-{version}: export RECOVERY_CLUSTER_KUBERNETES := {version}\n" in MAKEFILE


@pytest.mark.parametrize("module", sorted(path.name for path in MODULES.glob("kubernetes*")))
def test_the_readme_names_each_kubernetes_that_the_tests_run_on(module: str) -> None:
    (version,) = re.findall(r"^\tk8s\.io/kubernetes v(\S+)", (MODULES / module / "go.mod").read_text(), re.MULTILINE)
    assert re.search(rf"^\| {re.escape(version)} \|", (ROOT / "README.md").read_text(), re.MULTILINE)
