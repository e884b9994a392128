"""Fields that Trainer 2.3 no longer has, each with its fix."""

import pytest

from recovery.launch.documents import documents
from recovery.launch.lint import lint
from recovery.launch.places import Place, written
from recovery.launch.removed import fix_of
from tests.unit.launch.manifests import line
from tests.unit.launch.pages import Example


@pytest.mark.parametrize(
    ("kind", "path", "fix"),
    [
        ("ClusterTrainingRuntime", "spec.mlPolicy.torch.numProcPerNode", "spec.trainer.numProcPerNode"),
        ("TrainingRuntime", "spec.mlPolicy.torch.elasticPolicy", "torchrun --nnodes=min:max"),
        ("TrainJob", "spec.podTemplateOverrides", "spec.runtimePatches[]"),
        ("TrainJob", "spec.podSpecOverrides", "spec.runtimePatches[]"),
        ("TrainJob", "spec.labels", "template.metadata.labels"),
        ("TrainJob", "spec.annotations", "template.metadata.annotations"),
        ("TrainJob", "spec.modelConfig", "spec.initializer.model"),
        ("TrainJob", "spec.datasetConfig", "spec.initializer.dataset"),
        ("TrainJob", "spec.trainingRuntimeRef", "spec.runtimeRef"),
        ("TrainJob", "spec.pytorchReplicaSpecs", "spec.runtimeRef.name and spec.trainer.numNodes"),
        ("TrainJob", "spec.nprocPerNode", "spec.trainer.numProcPerNode"),
        ("TrainJob", "spec.elasticPolicy", "torchrun --nnodes=min:max"),
        ("TrainJob", "spec.runPolicy", "activeDeadlineSeconds"),
    ],
)
def test_each_has_its_fix(kind: str, path: str, fix: str) -> None:
    found = fix_of(kind, Place(0, tuple(path.split("."))))

    assert found is not None
    assert found.message.startswith(f"{path} does nothing: it is ")
    assert fix in found.fix


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("TrainJob", ("spec", "trainer")),
        ("TrainJob", ("spec", "podTemplateOverride")),
        ("TrainJob", ("metadata", "labels")),
        ("TrainJob", ("spec", "trainer", "labels")),
        ("JobSet", ("spec", "labels")),
    ],
)
def test_other_fields_never_were(kind: str, path: tuple[str, ...]) -> None:
    assert fix_of(kind, Place(0, path)) is None


def test_a_manifest_of_trainer_2_1() -> None:
    text = Example(
        "torch",
        """
kind: TrainJob
spec:
  labels: {team: research}
  podTemplateOverrides: [{targetJobs: [{name: node}], spec: {serviceAccountName: training}}]
---
kind: ClusterTrainingRuntime
spec: {mlPolicy: {torch: {numProcPerNode: auto, elasticPolicy: {minNodes: 8, maxNodes: 16}}}}
""",
    ).manifest()
    found = lint(documents(text))

    assert {each.code.name for each in found} == {"removed-field"}
    assert sorted(written(each.place.path) for each in found) == [
        "spec.labels",
        "spec.mlPolicy.torch.elasticPolicy",
        "spec.mlPolicy.torch.numProcPerNode",
        "spec.podTemplateOverrides",
    ]
    assert line(next(each for each in found if "labels" in each.message)) == (
        "removed-field: spec.labels does nothing: it is gone since Trainer 2.2 (write "
        "spec.runtimePatches[].trainingRuntimeSpec.template.metadata.labels, with a manager like example.com/team)"
    )


def _run_policy(text: str) -> list[str]:
    manifest = Example("torch", f"kind: TrainJob\nspec: {{runPolicy: {text}}}\n").manifest()
    return [f"{each.code.name} {written(each.place.path)}" for each in lint(documents(manifest))]


def test_a_failure_policy_of_the_draft_kep_4162_is_no_run_policy_of_v1() -> None:
    assert _run_policy("{failurePolicy: {maxRestarts: 3}}") == ["draft-failure-policy spec.runPolicy.failurePolicy"]
    assert _run_policy("{backoffLimit: 3}") == ["removed-field spec.runPolicy"]
    assert "removed-field spec.runPolicy" in _run_policy("{backoffLimit: 3, failurePolicy: {}}")
