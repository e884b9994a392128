"""The examples of docs/elastic-training.md are accepted as written, and name things that exist."""

import re
from typing import Any

import msgspec
import yaml

from recovery.core.model.annotations import NODES_ANNOTATION
from recovery.core.policy.spec import PolicySpec
from recovery.core.policy.validation import problems
from recovery.launch.documents import documents
from recovery.launch.findings import Severity
from recovery.launch.lint import lint
from tests.unit.manifests.kustomize import REPOSITORY

PAGE = REPOSITORY / "docs" / "elastic-training.md"
TEXT = PAGE.read_text(encoding="utf-8")
POLICY, LAUNCH, CONTAINER = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))


def test_the_policy_is_accepted() -> None:
    spec = msgspec.convert(POLICY["spec"], PolicySpec)
    assert (list(problems(spec)), spec.elastic is not None) == ([], True)


def test_the_container_reads_the_annotation_and_starts() -> None:
    [variable] = CONTAINER["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{NODES_ANNOTATION}']"
    *_, command = CONTAINER["command"]
    assert f"${{{variable['name']}:-16}}" in command, "at the full size there is no annotation"
    assert errors_of(job_set(16)) == []


def test_torchrun_is_left_to_the_variables_of_trainer() -> None:
    assert not [word for word in LAUNCH["command"] if word.startswith("--nnodes")]


def test_links_lead_somewhere_and_lines_are_short() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT) if "://" not in link]
    assert len(links) > 5
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
    anchors = re.findall(r"\]\(#([^)]+)\)", TEXT)
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", TEXT, re.MULTILINE)}
    assert sorted(set(anchors) - headings) == []
    assert [line for line in TEXT.splitlines() if len(line) > 120] == []


def test_the_functions_that_it_names_are_those_of_the_examples() -> None:
    table = TEXT.split("| function |")[1].split("\n\n")[0]
    for name in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE):
        for script in ("ddp.py", "fsdp.py"):
            assert f"def {name}(" in (REPOSITORY / "examples" / "training" / script).read_text()


def job_set(pods: int) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [CONTAINER]}
    job = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llama"},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
    }


def errors_of(manifest: dict[str, Any]) -> list[str]:
    found = lint(list(documents(yaml.safe_dump(manifest), file="page.yaml", first=0)))
    return [finding.message for finding in found if finding.code.severity is Severity.ERROR]
