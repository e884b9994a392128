"""Names of resources that no container can request, or that no node has."""

import pytest

from recovery.launch.places import written
from recovery.launch.resource_names import check, check_volcano
from tests.unit.launch.manifests import group, told, volcano_job


def asking_for(name: str, part: str = "limits") -> list[str]:
    return told(check, group(f'kind: TrainJob\nspec: {{trainer: {{resourcesPerNode: {{{part}: {{"{name}": 8}}}}}}}}'))


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("gpu", "write nvidia.com/gpu"),
        ("gpus", "write nvidia.com/gpu"),
        ("GPU", "write nvidia.com/gpu"),
        ("nvidia.com", "write nvidia.com/gpu"),
        ("tpu", "write google.com/tpu"),
        ("cpus", "write cpu"),
        ("memroy", "write memory"),
        ("Memory", "write memory"),
        ("storage", "write ephemeral-storage"),
        ("NVIDIA.com/gpu", "write nvidia.com/gpu"),
        ("requests.nvidia.com/gpu", "write nvidia.com/gpu"),
        ("a/b/c", "write one of cpu, memory, ephemeral-storage, or <domain>/<name> of a device"),
        ("nvidia.com/", "write one of cpu, memory, ephemeral-storage, or <domain>/<name> of a device"),
        ("license", "write one of cpu, memory, ephemeral-storage, or <domain>/<name> of a device"),
    ],
)
def test_the_api_server_refuses_it(name: str, fix: str) -> None:
    (line,) = asking_for(name)

    assert line.startswith(f"unknown-resource: there is no resource {name}: ")
    assert line.endswith(f"({fix})")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/GPU", "nvidia.com/gpu"),
        ("nvidea.com/gpu", "nvidia.com/gpu"),
        ("nvdia.com/gpus", "nvidia.com/gpu"),
        ("nvidia/gpu", "nvidia.com/gpu"),
        ("amd.com/gpus", "amd.com/gpu"),
        ("google.com/tpus", "google.com/tpu"),
        ("habana.ai/gaudis", "habana.ai/gaudi"),
    ],
)
def test_it_is_nearly_that_of_a_device(name: str, meant: str) -> None:
    (line,) = asking_for(name)

    assert line == (
        f"resource-misspelt: no device plugin that is known here has {name}: the pods wait for ever for a node with it "
        f"(write {meant}, if that is meant)"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("cpu", "memory", "ephemeral-storage", "hugepages-2Mi"),
        *(
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/gpumem",
            "nvidia.com/gpucores",
        ),
        *(
            "amd.com/gpu",
            "google.com/tpu",
            "habana.ai/gaudi",
            "gpu.intel.com/i915",
            "gpu.intel.com/xe",
            "intel.com/gpu",
        ),
        *(
            "aws.amazon.com/neuron",
            "vpc.amazonaws.com/efa",
            "huawei.com/Ascend910",
            "iluvatar.com/gpu",
            "metax-tech.com/gpu",
        ),
        *(
            "mthreads.com/gpu",
            "aliyun.com/gpu-mem",
            "rdma/rdma_shared_device_a",
            "volcano.sh/vgpu-number",
            "example.com/gpus",
        ),
        "{{ .Values.gpu }}",
    ],
)
def test_what_someone_may_have_is_not_told_of(name: str) -> None:
    assert asking_for(name) == []


def test_it_is_told_once_where_it_stands_in_requests_and_limits() -> None:
    resources = "{requests: {gpu: 8}, limits: {gpu: 8}}"
    (finding,) = check(group(f"kind: TrainJob\nspec: {{trainer: {{resourcesPerNode: {resources}}}}}"))

    assert written(finding.place.path) == "spec.trainer.resourcesPerNode.requests.gpu"


def test_a_name_of_the_runtime_is_told_in_the_runtime() -> None:
    """This holds although the TrainJob's resources are merged into it."""
    container = "{name: node, resources: {limits: {mem: 1Gi}}}"
    (finding,) = check(
        group(f"""
kind: ClusterTrainingRuntime
spec: {{template: {{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {{spec: {{containers: [
  {container}]}}}}}}}}}}]}}}}}}
""")
    )

    assert written(finding.place.path).endswith("containers[0].resources.limits.mem")
    assert finding.place.document == 1


def test_a_task_of_volcano_is_judged_too() -> None:
    task = "{name: worker, template: {spec: {containers: [{name: pytorch, resources: {limits: {gpu: 1}}}]}}}"

    assert [each.code.name for each in check_volcano(volcano_job(f"kind: Job\nspec: {{tasks: [{task}]}}"))] == [
        "unknown-resource"
    ]
