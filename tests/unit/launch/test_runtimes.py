"""What Trainer's webhooks require of runtimes and of the patches of TrainJobs."""

import pytest

from recovery.launch.places import written
from recovery.launch.runtimes import check
from tests.unit.launch.manifests import group, runtime_alone, told

LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"


def one_job(step: str, container: str, replicas: str = "1") -> str:
    return f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: custom}}
spec:
  template:
    spec:
      replicatedJobs:
      - name: first
        replicas: {replicas}
        template:
          metadata: {{labels: {{{LABEL}: {step}}}}}
          spec: {{template: {{spec: {{containers: [{{name: {container}}}, {{name: sidecar}}]}}}}}}
"""


@pytest.mark.parametrize(
    ("step", "container"),
    [("trainer", "node"), ("dataset-initializer", "dataset-initializer"), ("model-initializer", "model-initializer")],
)
def test_each_step_has_its_container(step: str, container: str) -> None:
    assert told(check, runtime_alone(one_job(step, container))) == []
    assert told(check, runtime_alone(one_job(step, "main"))) == [
        f"missing-container: ReplicatedJob first is marked as {step} and has no container called {container}, so that "
        f"Trainer's webhook refuses the runtime (call its main container {container})"
    ]


def test_another_step_may_have_any_container() -> None:
    assert told(check, runtime_alone(one_job("evaluator", "main", "3"))) == []


@pytest.mark.parametrize(("replicas", "codes"), [("1", []), ("null", []), ("2", ["not-one-replica"])])
def test_one_replica(replicas: str, codes: list[str]) -> None:
    assert [each.code.name for each in check(runtime_alone(one_job("trainer", "node", replicas)))] == codes


def test_the_line_of_the_replicas() -> None:
    (finding,) = check(runtime_alone(one_job("trainer", "node", "2")))

    assert written(finding.place.path) == "spec.template.spec.replicatedJobs[0].replicas"


UNMARKED = (
    "kind: ClusterTrainingRuntime\nspec: {template: {spec: {replicatedJobs: [{name: %s, template: "
    f"{{metadata: {{labels: {{{LABEL}: null}}}}}}}}]}}}}}}"
)


def test_what_the_train_job_sets_goes_nowhere_in_a_runtime_without_a_mark() -> None:
    assert told(check, group(UNMARKED % "node")) == [
        "no-trainer-job: spec.trainer sets image, command, args, numNodes, resourcesPerNode, and no ReplicatedJob of "
        "runtime torch-prepared is marked as trainer, so that Trainer drops all of it (add the label "
        f"{LABEL}: trainer to template.metadata.labels of the ReplicatedJob that trains)"
    ]


def test_of_mpi_only_image_command_and_args_need_the_mark() -> None:
    (finding,) = check(group(UNMARKED % "launcher", base="mpi"))
    without = "kind: TrainJob\nspec: {trainer: {image: null, command: null, args: null}}\n---\n" + UNMARKED % "launcher"

    assert finding.message.startswith("spec.trainer sets image, command, args, and no")
    assert told(check, group(without, base="mpi")) == []


def test_where_nothing_is_set_nothing_is_lost() -> None:
    assert told(check, group("kind: TrainJob\nspec: {trainer: null}\n---\n" + UNMARKED % "node")) == []


def patch(pods: str, job: str = "node") -> str:
    return (
        "kind: TrainJob\nspec: {runtimePatches: [{manager: example.com/team, trainingRuntimeSpec: {template: {spec: "
        f"{{replicatedJobs: [{{name: {job}, template: {{spec: {{template: {{spec: {pods}}}}}}}}}]}}}}}}}}]}}"
    )


@pytest.mark.parametrize(
    ("manifest", "sentences"),
    [
        (patch("{nodeSelector: {pool: h100}}"), []),
        (patch("{containers: [{name: node, volumeMounts: [{name: checkpoints, mountPath: /ckpt}]}]}"), []),
        (
            patch("{nodeSelector: {pool: h100}}", "worker"),
            [
                "patch-nowhere: runtimePatches is for ReplicatedJob worker, which runtime torch-prepared does not "
                "have: Trainer adds it without containers, and the JobSet is refused (write one that it has: node)"
            ],
        ),
        (
            patch("{containers: [{name: sidecar, env: [{name: A, value: b}]}]}"),
            [
                "patch-nowhere: runtimePatches is for container sidecar, which ReplicatedJob node does not have: "
                "Trainer adds it without an image, and no pod can be made (write one that it has: node)"
            ],
        ),
        (
            patch("{containers: [{name: node, env: [{name: A, value: b}]}]}"),
            [
                "patch-refused: runtimePatches sets env of container node, and Trainer's webhook refuses that "
                "(set the variables in spec.trainer.env)"
            ],
        ),
    ],
)
def test_patches(manifest: str, sentences: list[str]) -> None:
    assert told(check, group(manifest)) == sentences


@pytest.mark.parametrize("base", ["torch", "mpi", "jobset"])
def test_nothing_is_reported_a_group_that_is_right(base: str) -> None:
    assert told(check, group(base=base)) == []


MOUNTED = "volumeMounts: [{name: initializer, mountPath: /workspace}]"


def initialized(what: str, job: str, container: str, mount: str) -> str:
    return (
        f"kind: TrainJob\nspec: {{initializer: {{{what}: {{storageUri: hf://x/y}}}}}}\n---\n"
        "kind: ClusterTrainingRuntime\nspec: {template: {spec: {replicatedJobs: [{name: "
        f"{job}, template: {{spec: {{template: {{spec: {{containers: [{{name: {container}, {mount}}}]}}}}}}}}}}]}}}}}}"
    )


@pytest.mark.parametrize("what", ["dataset", "model"])
def test_what_is_to_be_initialized_needs_a_job_for_it(what: str) -> None:
    step = f"{what}-initializer"
    refuses = f"so that Trainer's webhook refuses a TrainJob with spec.initializer.{what}"
    assert told(check, group(initialized(what, step, step, MOUNTED))) == []
    assert told(check, group(initialized(what, "other", step, MOUNTED))) == [
        f"initializer-nowhere: runtime torch-prepared has no ReplicatedJob {step}, {refuses} (remove "
        f"spec.initializer.{what}, or name a runtime that has one; or add ReplicatedJob {step} to this one)"
    ]
    without = (
        f"initializer-nowhere: ReplicatedJob {step} of runtime torch-prepared has no container {step} with a "
        f"volumeMount initializer, {refuses} (mount the volume initializer, which the training reads from, in "
        f"container {step})"
    )
    assert told(check, group(initialized(what, step, "main", MOUNTED))) == [without]
    elsewhere = "volumeMounts: [{name: scratch, mountPath: /workspace}]"
    assert told(check, group(initialized(what, step, step, elsewhere))) == [without]
