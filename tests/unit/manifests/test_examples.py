"""The manifests of the example trainings fit their scripts, their runtime and each other, and lint finds nothing."""

import ast
import re
from typing import Any

import pytest
import yaml

from recovery.core.model.annotations import JOINED_PROBE_ANNOTATION
from recovery.launch.documents import Document, documents
from recovery.launch.lint import lint
from tests.unit.manifests.kustomize import REPOSITORY, Object, files, kustomization

TRAINING = REPOSITORY / "examples" / "training"
RUNTIME = REPOSITORY / "policies" / "runtime-joined-probe.yaml"
TRAIN_JOBS = ["ddp.yaml", "fsdp.yaml"]


def load(name: str) -> Object:
    body: Object = yaml.safe_load((TRAINING / name).read_text())
    return body


def pod_patch(job: Object) -> Object:
    [patch] = job["spec"]["runtimePatches"]
    [replicated] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod: Object = replicated["template"]["spec"]["template"]["spec"]
    return pod


def flags(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words if word.startswith("--"))}


@pytest.mark.parametrize("name", TRAIN_JOBS)
def test_lint_finds_nothing(name: str) -> None:
    given: list[Document] = []
    for path in (TRAINING / name, RUNTIME):
        given += documents(path.read_text(), file=path.name, first=len(given))
    assert [finding.message for finding in lint(given)] == []


@pytest.mark.parametrize("name", TRAIN_JOBS)
def test_the_command_runs_a_script_that_is_mounted_with_flags_that_it_knows(name: str) -> None:
    job = load(name)
    trainer, pod = job["spec"]["trainer"], pod_patch(job)
    [container] = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    sources: dict[str, Any] = {volume["name"]: volume for volume in pod["volumes"]}
    folder, _, script = trainer["command"][-1].rpartition("/")
    [generated] = kustomization(TRAINING)["configMapGenerator"]
    assert folder == mounts["scripts"]
    assert sources["scripts"]["configMap"]["name"] == generated["name"]
    assert script in generated["files"]

    text = (TRAINING / script).read_text()
    given = flags(trainer["args"])
    assert given.keys() <= set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', text))
    written = [given["--checkpoint-dir"], given["--loss-log"], flags(trainer["command"])["--log-dir"]]
    assert all(path.startswith(f"{mounts['checkpoints']}/") for path in written), "on the volume"
    assert sources["checkpoints"]["persistentVolumeClaim"]["claimName"] == load("checkpoints.yaml")["metadata"]["name"]
    ranks = trainer["numNodes"] * trainer["numProcPerNode"]
    share, uneven = divmod(int(given["--batch-size"]), ranks)
    assert (share, uneven) == (int(given["--micro-batch-size"]), 0), "all nodes train in one piece, fewer in several"


@pytest.mark.parametrize("name", TRAIN_JOBS)
def test_the_joined_file_is_the_one_that_the_runtime_probes(name: str) -> None:
    job, runtime = load(name), yaml.safe_load(RUNTIME.read_text())
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    [replicated] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    template = replicated["template"]["spec"]["template"]
    assert JOINED_PROBE_ANNOTATION in template["metadata"]["annotations"]
    probed = template["spec"]["containers"][0]["readinessProbe"]["exec"]["command"][-1]
    assert flags(job["spec"]["trainer"]["args"])["--joined-file"] == probed


def test_the_policy_selects_these_jobs_and_all_is_applied_together() -> None:
    selected = load("policy.yaml")["spec"]["selector"]["matchLabels"]
    for name in TRAIN_JOBS:
        assert selected.items() <= load(name)["metadata"]["labels"].items()
    assert {path.name for path in files(TRAINING)} == {"checkpoints.yaml", "policy.yaml", *TRAIN_JOBS}


def definitions(script: str) -> dict[str, str]:
    """The source of each function and class of a script, by name."""
    text = (TRAINING / script).read_text()
    defined = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return {node.name: ast.get_source_segment(text, node) or "" for node in defined}


def test_the_scripts_differ_only_in_how_they_store_and_shard() -> None:
    """tests/examples runs only one of the scripts for what is the same in both."""
    ddp, fsdp = definitions("ddp.py"), definitions("fsdp.py")
    differ = {name for name in ddp.keys() & fsdp.keys() if ddp[name] != fsdp[name]}
    assert differ == {"arguments", "Checkpoints", "resume", "train"}
    assert {"batches", "Termination", "check_settings", "main"} <= ddp.keys() & fsdp.keys()
