"""Which requests and limits the API server refuses: resources in, messages out."""

import pytest

from recovery.launch.places import written
from recovery.launch.resources import check, check_volcano
from tests.unit.launch.manifests import group, runtime_alone, told, volcano_job

REFUSED = "the API server refuses that, and no pod is ever made"


JOB_SET = """
kind: JobSet
spec: {replicatedJobs: [{name: worker, template: {spec: {template: {spec: {
  containers: [{name: trainer, resources: RESOURCES}]}}}}}]}
"""


def job_set(resources: str) -> str:
    """A JobSet whose first container has these resources."""
    return JOB_SET.replace("RESOURCES", resources)


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        (
            "{requests: {nvidia.com/gpu: 8}, limits: null}",
            f"container trainer requests 8 nvidia.com/gpu and has no limit of it: {REFUSED} "
            "(write nvidia.com/gpu: 8 under limits too)",
        ),
        (
            "{requests: {nvidia.com/gpu: 4}, limits: {nvidia.com/gpu: 8}}",
            "container trainer requests 4 nvidia.com/gpu with a limit of 8, and the request must equal the limit: "
            f"{REFUSED} (write the same nvidia.com/gpu under requests and limits)",
        ),
        (
            "{limits: {nvidia.com/gpu: 500m}}",
            f"container trainer has 500m nvidia.com/gpu, of which there are whole ones only: {REFUSED} "
            "(write a whole number)",
        ),
        (
            "{requests: {cpu: 4}, limits: {cpu: 3500m}}",
            "container trainer requests 4 cpu with a limit of 3500m, and the request must not exceed the limit: "
            f"{REFUSED} (write the same cpu under requests and limits)",
        ),
        (
            "{requests: {hugepages-2Mi: 1Gi, memory: 4Gi}, limits: null}",
            f"container trainer requests 1Gi hugepages-2Mi and has no limit of it: {REFUSED} "
            "(write hugepages-2Mi: 1Gi under limits too)",
        ),
    ],
)
def test_what_is_refused(resources: str, sentence: str) -> None:
    assert told(check, group(job_set(resources), base="jobset")) == [f"resources-refused: {sentence}"]


@pytest.mark.parametrize(
    "resources",
    [
        "{limits: {nvidia.com/gpu: 8}}",
        "{requests: {nvidia.com/gpu: 8}, limits: {nvidia.com/gpu: 8}}",
        "{requests: {cpu: 2, memory: 4Gi}, limits: {cpu: 4, memory: 4096Mi}}",
        "{requests: {cpu: 500m, ephemeral-storage: 1Gi}}",
        "{requests: {example.kubernetes.io/thing: 1}}",
        "{}",
    ],
)
def test_what_is_accepted(resources: str) -> None:
    assert told(check, group(job_set(resources), base="jobset")) == []


RUNTIME = """
kind: ClusterTrainingRuntime
spec:
  template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
    containers: [{name: node, resources: RESOURCES}]}}}}}]}}
"""


def test_the_sum_of_job_and_runtime_is_judged_and_the_line_is_of_the_job() -> None:
    trainer = (
        "kind: TrainJob\nspec: {trainer: {resourcesPerNode: {requests: {nvidia.com/gpu: '8'}, limits: null}}}\n---"
    )
    launch = group(trainer + RUNTIME.replace("RESOURCES", "{limits: {nvidia.com/gpu: 1}}"))

    (found,) = check(launch)

    assert found.message.startswith(
        "container node, with resourcesPerNode merged into the runtime's, requests 8 nvidia.com/gpu with a limit of 1"
    )
    assert (found.place.document, written(found.place.path)) == (
        0,
        "spec.trainer.resourcesPerNode.requests.nvidia.com/gpu",
    )


def test_what_the_job_adds_may_fix_what_the_runtime_leaves_out() -> None:
    trainer = (
        "kind: TrainJob\nspec: {trainer: {resourcesPerNode: {requests: null, limits: {nvidia.com/gpu: '8'}}}}\n---"
    )

    assert told(check, group(trainer + RUNTIME.replace("RESOURCES", "{requests: {nvidia.com/gpu: 8}}"))) == []


@pytest.mark.parametrize(
    ("limits", "names"),
    [("{cpu: 96, memory: 9Gi}", "cpu"), ("{cpu: 0.5, nvidia.com/gpu: 8}", "cpu, nvidia.com/gpu")],
)
def test_a_quantity_of_the_job_without_quotes_makes_it_immutable(limits: str, names: str) -> None:
    job = f"kind: TrainJob\nspec: {{trainer: {{resourcesPerNode: {{requests: null, limits: {limits}}}}}}}"

    (found,) = check(group(job))

    assert (found.code.name, found.fix) == ("quantity-unquoted", "write each in quotes")
    assert found.message.startswith(f"{names} of resourcesPerNode is a number: ")
    assert written(found.place.path) == "spec.trainer.resourcesPerNode.limits.cpu"


def test_quotes_matter_in_a_train_job_only() -> None:
    assert told(check, group(job_set("{limits: {nvidia.com/gpu: 8}}"), base="jobset")) == []


def test_a_runtime_by_itself_is_only_half_of_it() -> None:
    """A TrainJob may add the limit."""
    head = "apiVersion: trainer.kubeflow.org/v1alpha1\nmetadata: {name: half}"
    alone = runtime_alone(head + RUNTIME.replace("RESOURCES", "{requests: {nvidia.com/gpu: 8}}"))

    assert told(check, alone) == []


def test_tasks_of_volcano_are_judged_too() -> None:
    container = "{name: pytorch, resources: {requests: {nvidia.com/gpu: 1}, limits: null}}"
    tasks = f"[{{name: worker, template: {{spec: {{containers: [{container}]}}}}}}]"

    (found,) = check_volcano(volcano_job(f"kind: Job\nspec: {{tasks: {tasks}}}"))

    assert found.message == f"container pytorch requests 1 nvidia.com/gpu and has no limit of it: {REFUSED}"
