"""All checks together: which objects are judged together, which findings are merged or silenced, and their order."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.launch.documents import Document, document_of, documents
from recovery.launch.findings import LintFinding
from recovery.launch.launch import Launch
from recovery.launch.lint import CODES, IGNORE_ANNOTATION, explain, judge, lint, subjects
from recovery.launch.views import VolcanoJob
from tests.unit.launch.pages import BASES, merged

PLAIN = ("restarted-in-place", "cascade-ends-job", "node-loss-noticed-late", "no-termination-message")
"""The findings of Trainer's torch-distributed, which sets none of these fields."""


def runtime(name: str = "plain", kind: str = "ClusterTrainingRuntime", **changed: Any) -> dict[str, Any]:
    """A runtime like Trainer's torch-distributed."""
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pods = {"spec": {"containers": [{"name": "node", "image": "torch:2"}]}}
    node = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
    }
    return dict(merged(body, changed))


def train_job(name: str = "llama", **changed: Any) -> dict[str, Any]:
    """A job of 16 nodes with the plain runtime."""
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "research"},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": {"numNodes": 16}},
    }
    return dict(merged(body, changed))


def given_documents(*bodies: dict[str, Any]) -> tuple[Document, ...]:
    return documents(yaml.safe_dump_all(bodies, sort_keys=False))


def told(found: tuple[LintFinding, ...]) -> list[tuple[int, str]]:
    """Document and code of each finding."""
    return [(finding.place.document, finding.code.name) for finding in found]


def test_a_job_is_judged_with_its_runtime_and_the_finding_lies_where_the_line_is() -> None:
    found = lint(given_documents(train_job(), runtime()))

    assert sorted(told(found)) == sorted((1, name) for name in PLAIN)
    cascade = next(finding for finding in found if finding.code.name == "cascade-ends-job")
    assert "16 pods" in cascade.message or "all 16" in cascade.message


def test_the_order_of_the_documents_does_not_matter() -> None:
    found = lint(given_documents(runtime(), train_job()))

    assert sorted(told(found)) == sorted((0, name) for name in PLAIN)


def test_findings_come_in_the_order_of_documents_and_lines() -> None:
    given = given_documents(runtime(), train_job(spec={"trainer": {"numNodes": "16"}, "trianer": {}}))

    places = [(each.place.document, given[each.place.document].line_of(each.place.path)) for each in lint(given)]

    assert places == sorted(places)
    assert [document for document, _ in places][-2:] == [1, 1]


def test_a_job_whose_runtime_is_not_given_is_told_once_and_nothing_is_guessed() -> None:
    found = lint(given_documents(train_job()))

    assert told(found) == [(0, "unknown-runtime")]
    assert found[0].message == (
        "the ClusterTrainingRuntime plain is not known here, so what its settings decide is not judged"
    )


@pytest.mark.parametrize(
    ("reference", "given", "known"),
    [
        ({}, runtime(), True),
        ({"kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"}, runtime(), True),
        ({"kind": "TrainingRuntime"}, runtime(), False),
        ({"name": "other"}, runtime(), False),
        ({"kind": "TrainingRuntime"}, runtime(kind="TrainingRuntime", metadata={"namespace": "research"}), True),
        ({"kind": "TrainingRuntime"}, runtime(kind="TrainingRuntime", metadata={"namespace": "other"}), False),
        ({}, runtime(kind="TrainingRuntime", metadata={"namespace": "research"}), False),
    ],
)
def test_which_runtime_a_job_means(reference: dict[str, Any], given: dict[str, Any], known: bool) -> None:
    found = lint(given_documents(train_job(spec={"runtimeRef": reference}), given))

    assert ((0, "unknown-runtime") not in told(found)) is known


@pytest.mark.parametrize("reference", [{"apiGroup": "example.com"}, {"kind": "clustertrainingruntime"}])
def test_a_kind_that_is_no_runtime_is_refused_and_not_looked_for(reference: dict[str, Any]) -> None:
    found = lint(given_documents(train_job(spec={"runtimeRef": reference})))

    assert told(found) == [(0, "runtime-kind")]


@pytest.mark.parametrize(
    ("given", "message", "fix"),
    [
        (
            runtime(),
            "the TrainingRuntime plain is not known here, so what its settings decide is not judged",
            "write runtimeRef.kind: ClusterTrainingRuntime if the one that was given is meant; else pass its file too",
        ),
        (
            runtime(kind="TrainingRuntime", metadata={"namespace": "other"}),
            "the TrainingRuntime plain is not known here, so what its settings decide is not judged (the one of "
            "that name is in namespace other, the job in research)",
            "pass its file too; recovery lint --cluster reads it from the cluster",
        ),
    ],
)
def test_a_runtime_of_that_name_that_is_another_one_is_named(given: dict[str, Any], message: str, fix: str) -> None:
    found = lint(given_documents(train_job(spec={"runtimeRef": {"kind": "TrainingRuntime"}}), given))

    assert [(each.message, each.fix) for each in found if each.code.name == "unknown-runtime"] == [(message, fix)]


def test_of_two_runtimes_of_one_name_the_last_counts() -> None:
    first, second, job = subjects(given_documents(runtime(), runtime(spec={"mlPolicy": {"numNodes": 4}}), train_job()))

    assert isinstance(job.group, Launch)
    assert job.group.runtime is not None
    assert job.group.runtime.place.document == 1
    assert isinstance(first.group, Launch)
    assert second.group is None


def test_what_two_jobs_find_in_one_runtime_is_told_once() -> None:
    found = lint(given_documents(train_job("a"), train_job("b"), runtime()))

    assert sorted(told(found)) == sorted((2, name) for name in PLAIN)


def test_a_runtime_that_no_job_uses_is_judged_by_itself() -> None:
    found = lint(given_documents(runtime()))

    assert sorted(told(found)) == sorted((0, name) for name in PLAIN)


def test_an_unknown_kind_is_told_once_for_each_kind() -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    secret = {"apiVersion": "v1", "kind": "Secret"}

    found = lint(given_documents(claim, secret, claim, claim))

    assert told(found) == [(0, "unknown-kind"), (1, "unknown-kind")]


def test_what_a_job_silences_is_silent_in_its_runtime_too() -> None:
    silent = {"annotations": {IGNORE_ANNOTATION: "cascade-ends-job, restarted-in-place"}}

    found = lint(given_documents(train_job(metadata=silent), runtime()))

    assert {name for _, name in told(found)} == {"node-loss-noticed-late", "no-termination-message"}


def test_what_one_job_silences_the_other_is_still_told() -> None:
    silent = {"annotations": {IGNORE_ANNOTATION: "cascade-ends-job"}}

    found = lint(given_documents(train_job("a", metadata=silent), train_job("b"), runtime()))

    assert (2, "cascade-ends-job") in told(found)


def test_what_a_runtime_silences_no_job_is_told() -> None:
    silent = {"annotations": {IGNORE_ANNOTATION: "cascade-ends-job"}}

    found = lint(given_documents(train_job(), runtime(metadata=silent)))

    assert "cascade-ends-job" not in {name for _, name in told(found)}


@pytest.mark.parametrize(
    ("written", "message", "fix"),
    [
        ("cascade-end-job", "there is no code cascade-end-job, so nothing is silenced by it", "did you mean "),
        ("zzz, restarted-in-place, qqq", "there is no code zzz, qqq, so nothing is silenced by it", "write the name"),
    ],
)
def test_a_code_that_does_not_exist_is_told(written: str, message: str, fix: str) -> None:
    given = given_documents(train_job(metadata={"annotations": {IGNORE_ANNOTATION: written}}), runtime())

    finding = next(each for each in lint(given) if each.code.name == "unknown-code")

    assert finding.message == message
    assert finding.fix.startswith(fix)
    assert given[0].line_of(finding.place.path) == 7


def test_admission_judges_one_object_and_tells_what_lies_in_its_runtime() -> None:
    job = document_of(train_job(spec={"trianer": {}}), number=0)
    template = document_of(runtime(spec={"mlPolicy": {"tensorflow": {}}}), number=1)

    found = told(judge(job, [template]))

    assert (0, "unknown-field") in found
    assert (1, "cascade-ends-job") in found
    assert (1, "unknown-field") not in found, "what is wrong with the runtime itself is not the job's"


def test_admission_judges_a_runtime_by_itself_whoever_uses_it() -> None:
    found = judge(document_of(runtime(), number=0), [document_of(train_job(), number=1)])

    assert sorted(told(found)) == sorted((0, name) for name in PLAIN)


def test_admission_says_the_same_as_lint() -> None:
    given = given_documents(train_job(), runtime())

    assert judge(given[0], given[1:]) == lint(given)


def test_a_document_that_cannot_be_read_does_not_hide_the_others() -> None:
    given = documents(yaml.safe_dump(runtime()) + "---\nkind: x\n---\na: 'b\n")

    assert told(lint(given))[-2:] == [(1, "not-an-object"), (2, "not-yaml")]


def test_explain_tells_every_value_with_its_rule() -> None:
    job, template = subjects(documents((BASES / "torch.yaml").read_text()))

    assert isinstance(job.group, Launch)
    assert template.group is None
    told_of = {setting.name: (setting.value, setting.rule) for setting in explain(job.group)}
    assert told_of["PET_NNODES"] == ("16", "spec.trainer.numNodes of the TrainJob")
    assert all(setting.target and setting.rule for setting in explain(job.group))


def test_explain_tells_of_volcano_too() -> None:
    (job,) = subjects(documents((BASES / "volcano.yaml").read_text()))

    assert isinstance(job.group, VolcanoJob)
    assert "WORLD_SIZE" in {setting.name for setting in explain(job.group)}


def test_every_code_says_what_it_is_without_a_full_stop() -> None:
    assert [code.name for code in CODES if not code.title or code.title.endswith(".")] == []


TEXTS = [path.read_text() for path in sorted(BASES.glob("*.yaml"))]
VALUES = ["", "0", "-1", "99999999999", "x", "true", "[]", "{}", "[[x]]", "{a: b}", "1500m", "'8'", "null", "1e3", "~"]


@settings(max_examples=300)
@given(st.sampled_from(TEXTS), st.data())
def test_no_value_of_a_field_raises(text: str, data: st.DataObject) -> None:
    lines = text.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(lines) - 1))
        name, colon, _value = lines[number].partition(":")
        lines[number] = f"{name}{colon} {data.draw(st.sampled_from(VALUES))}"
    given = documents("\n".join(lines))

    for finding in lint(given):
        assert finding.message
        assert not finding.message.endswith(".")
        assert 0 < given[finding.place.document].line_of(finding.place.path) <= len(lines) + 1
    for subject in subjects(given):
        if subject.group is not None:
            explain(subject.group)


@given(st.sampled_from(TEXTS), st.data())
def test_no_missing_line_raises(text: str, data: st.DataObject) -> None:
    lines = text.splitlines()
    start = data.draw(st.integers(0, len(lines)))
    kept = lines[:start] + lines[start + data.draw(st.integers(1, 12)) :]

    for finding in lint(documents("\n".join(kept))):
        assert finding.message


def test_a_list_from_kubectl_is_judged_item_by_item() -> None:
    given = documents(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [train_job(), runtime()]}))

    assert sorted(told(lint(given))) == sorted((1, name) for name in PLAIN)
