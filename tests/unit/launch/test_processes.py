"""How many processes each node starts: manifest in, numbers and messages out."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.places import written
from recovery.launch.processes import check, devices_of, gpus_of, processes_of, settings, trained_by
from recovery.launch.views import Resources
from tests.unit.launch.manifests import group, told, values

RUNTIME_WITH_GPUS = """
kind: ClusterTrainingRuntime
spec:
  template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [
    {name: node, resources: {limits: {cpu: 64, nvidia.com/gpu: 8}}}]}}}}}]}}
"""


def node(resources: str, trainer: str = "") -> Launch:
    """A torch job whose runtime's container has these resources. The TrainJob has none."""
    return group(
        f"""
kind: TrainJob
spec: {{trainer: {{resourcesPerNode: null, numProcPerNode: null, {trainer}}}}}
---
kind: ClusterTrainingRuntime
spec:
  template: {{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {{spec: {{
    resourceClaims: [{{name: gpus}}, {{name: more}}],
    containers: [{{name: node, resources: {resources}}}]}}}}}}}}}}]}}}}
"""
    )


@pytest.mark.parametrize(
    ("resources", "count", "device", "trainer_count"),
    [
        ("{limits: {nvidia.com/gpu: 8}}", 8, "nvidia.com/gpu", 8),
        ('{limits: {nvidia.com/gpu: "8"}, requests: {nvidia.com/gpu: "8"}}', 8, "nvidia.com/gpu", 8),
        ("{requests: {amd.com/gpu: 4}}", 4, "amd.com/gpu", 4),
        ("{limits: {nvidia.com/gpu.shared: 2}}", 2, "nvidia.com/gpu.shared", 2),
        ("{limits: {gpu.intel.com/i915: 2, cpu: 8}}", 2, "gpu.intel.com/i915", 2),
        # One process for each device. Trainer does not know these as devices: it counts CPUs or finds nothing.
        ("{limits: {habana.ai/gaudi: 8, cpu: 96}}", 8, "habana.ai/gaudi", 96),
        ("{limits: {nvidia.com/mig-1g.10gb: 7}}", 7, "nvidia.com/mig-1g.10gb", 1),
        ("{limits: {google.com/tpu: 4, cpu: 24}}", 4, "google.com/tpu", 24),
        ("{claims: [{name: gpus}, {name: more}], limits: {cpu: 8}}", 2, "resource claim", 8),
        ("{limits: {amd.com/gpu: 1, habana.ai/gaudi: 2}}", 3, "amd.com/gpu and habana.ai/gaudi", 3),
        # Without a device: the CPU limit, rounded up. Trainer prefers the request.
        ("{limits: {cpu: 4}}", 4, "cpu", 4),
        ("{limits: {cpu: 1500m}}", 2, "cpu", 2),
        ("{limits: {cpu: 100m}}", 1, "cpu", 1),
        ("{limits: {cpu: 0}}", 1, "cpu", 1),
        ("{limits: {cpu: 8}, requests: {cpu: 2500m}}", 8, "cpu", 3),
        ("{limits: {cpu: 8}, requests: {cpu: 0}}", 8, "cpu", 8),
        # Never the cores of the host.
        ("{requests: {cpu: 4}}", 1, "cpu", 4),
        ("{limits: {memory: 64Gi}}", 1, "cpu", 1),
        ("{}", 1, "cpu", 1),
        # No device, and a resource that is only part of one.
        ("{limits: {nvidia.com/gpu: 0, cpu: 2}}", 2, "cpu", 2),
        ("{limits: {gpu.intel.com/memory.max: 8, cpu: 2}}", 2, "cpu", 2),
    ],
)  # fmt: skip
def test_processes_by_device(resources: str, count: int, device: str, trainer_count: int) -> None:
    found = processes_of(node(resources))

    assert found is not None
    assert (found.count, found.device, found.trainer_count) == (count, device, trainer_count)


@pytest.mark.parametrize("explicit", [1, 4, 8, 16])
def test_an_explicit_number_wins_and_is_left_alone(explicit: int) -> None:
    found = processes_of(node("{limits: {nvidia.com/gpu: 8}}", f"numProcPerNode: {explicit}"))

    assert found is not None
    assert (found.count, found.trainer_count, found.rule) == (explicit, explicit, "spec.trainer.numProcPerNode")


@pytest.mark.parametrize(
    ("word", "resources", "count"),
    [
        ("auto", "{limits: {nvidia.com/gpu: 8, cpu: 96}}", 8),
        ("gpu", "{limits: {nvidia.com/gpu: 8, cpu: 96}}", 8),
        ("cpu", "{limits: {nvidia.com/gpu: 8, cpu: 96}}", 96),
        ("tpu", "{limits: {google.com/tpu: 4, cpu: 24}}", 4),
        ("gpu", "{limits: {cpu: 24}}", 24),
    ],
)
def test_a_word_means_a_device(word: str, resources: str, count: int) -> None:
    found = processes_of(node(resources, f"numProcPerNode: {word}"))

    assert found is not None
    assert found.count == count


def test_resources_per_node_are_merged_into_those_of_the_runtime() -> None:
    launch = group(
        f"""
kind: TrainJob
spec: {{trainer: {{numProcPerNode: null, resourcesPerNode: {{requests: null, limits: {{nvidia.com/gpu: null}}}}}}}}
---
{RUNTIME_WITH_GPUS}"""
    )
    found = processes_of(launch)

    assert found is not None
    assert (found.count, found.trainer_count) == (8, 96)  # 8 GPUs of the runtime, 96 CPUs of the TrainJob
    assert told(check, launch) == [
        "resources-replaced: the runtime's container has 8 nvidia.com/gpu, which resourcesPerNode does not name: "
        "Trainer 2.3 counts processes in resourcesPerNode alone, and each node starts 96 processes (add to "
        "resourcesPerNode.limits: nvidia.com/gpu: 8)"
    ]


@pytest.mark.parametrize(
    "trainer", ["resourcesPerNode: {limits: {cpu: 8}}", "resourcesPerNode: {claims: [{name: gpus}]}"]
)
def test_resource_claims_are_lost_where_resources_per_node_is_set(trainer: str) -> None:
    (finding,) = check(node("{claims: [{name: gpus}]}", trainer))

    assert finding.code.name == "resources-replaced"
    assert "drops the resource claims (gpus)" in finding.message
    assert written(finding.place.path) == "spec.trainer.resourcesPerNode"


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        (
            "{limits: {habana.ai/gaudi: 8, cpu: 96}}",
            "processes-differ: each node starts 96 processes, because Trainer counts 96 by the CPU limit of the "
            "container's resources; by what its container gets it would be 8 (one for each of the 8 habana.ai/gaudi) "
            "(write spec.trainer.numProcPerNode: 8)",
        ),
        (
            "{requests: {cpu: 4}}",
            "processes-differ: each node starts 4 processes, because Trainer counts 4 by the CPU request of the "
            "container's resources; by what its container gets it would be 1 (no accelerator and no CPU limit: one "
            "process) (write spec.trainer.numProcPerNode: 1)",
        ),
        (
            "{claims: [{name: gpus}], limits: {cpu: 8}}",
            "processes-differ: each node starts 8 processes, because Trainer counts 8 by the CPU limit of the "
            "container's resources; by what its container gets it would be 1 (one for the resource claim, if it gives "
            "one device) (write the number of devices that the claims give as spec.trainer.numProcPerNode)",
        ),
    ],
)
def test_it_is_told_where_trainer_counts_otherwise(resources: str, sentence: str) -> None:
    assert told(check, node(resources)) == [sentence]


@pytest.mark.parametrize(
    "resources",
    [
        "{limits: {nvidia.com/gpu: 8, cpu: 96}}",
        "{limits: {cpu: 4}, requests: {cpu: 4}}",
        "{}",
        "{limits: {cpu: 1500m}}",
    ],
)
def test_nothing_is_told_where_both_agree(resources: str) -> None:
    assert told(check, node(resources)) == []


@pytest.mark.parametrize("command", ["[python, -c, print()]", "[python, train.py]", "[./start.sh]", "null"])
def test_a_command_that_may_not_start_one_for_each_cpu_is_left_alone(command: str) -> None:
    assert told(check, node("{requests: {cpu: 2}, limits: {cpu: 4}}", f"command: {command}, args: null")) == []


@pytest.mark.parametrize(
    ("explicit", "follows"),
    [
        (4, "4 of them are idle (write numProcPerNode: 8, or ask for 4 devices)"),
        (12, "4 processes find no device of their own (write numProcPerNode: 8, or ask for 12 devices)"),
    ],
)
def test_a_number_that_is_not_the_number_of_gpus(explicit: int, follows: str) -> None:
    launch = node("{limits: {nvidia.com/gpu: 8}}", f"numProcPerNode: {explicit}")

    assert told(check, launch) == [
        f"processes-not-gpus: spec.trainer.numProcPerNode is {explicit} and each node has 8 nvidia.com/gpu: {follows}"
    ]


def test_a_claim_may_give_several_devices_so_that_no_number_is_wrong_for_it() -> None:
    assert told(check, node("{claims: [{name: gpus}]}", "numProcPerNode: 8")) == []


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("auto", "remove it: left out, it means auto"),
        ("gpu", "write numProcPerNode: 8 (one for each of the 8 nvidia.com/gpu)"),
        ("cpu", "write numProcPerNode: 96 (one for each CPU of the limit of 96, rounded up)"),
        ('"8"', "write numProcPerNode: 8, without quotes"),
        ("eight", "write numProcPerNode: 8 (one for each of the 8 nvidia.com/gpu)"),
    ],
)
def test_a_word_is_refused(word: str, fix: str) -> None:
    launch = node("{limits: {nvidia.com/gpu: 8, cpu: 96}}", f"numProcPerNode: {word}")
    quoted = word.strip('"')

    assert told(check, launch) == [
        f"processes-word: numProcPerNode is '{quoted}', and Trainer 2.3 takes a whole number only: the API server "
        f"refuses it ({fix})"
    ]


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("[torchrun, train.py]", ["processes-differ"]),
        # torchrun uses its flag, so Trainer's count does not matter.
        ("[torchrun, --nproc-per-node=8, train.py]", []),
        ("[torchrun, --nproc_per_node, auto, train.py]", []),
    ],
)
def test_a_flag_of_torchrun_makes_trainers_count_irrelevant(command: str, codes: list[str]) -> None:
    launch = node("{limits: {habana.ai/gaudi: 8, cpu: 96}}", f"command: {command}")

    assert [finding.code.name for finding in check(launch)] == codes


@pytest.mark.parametrize(
    ("runtime", "trainer", "count", "trainer_count"),
    [
        # The runtime's number, unless it is 1: Trainer then uses the number of GPUs.
        ("4", "numProcPerNode: null", 4, 4),
        ("1", "numProcPerNode: null", 8, 8),
        ("null", "numProcPerNode: null", 8, 8),
        ("4", "numProcPerNode: 2", 2, 2),
        ("1", "numProcPerNode: null, resourcesPerNode: {limits: {nvidia.com/gpu: 1}}", 1, 1),
        # Slots are never CPUs.
        ("1", "numProcPerNode: null, resourcesPerNode: {limits: {nvidia.com/gpu: 0}}", 1, 1),
    ],
)
def test_slots_of_mpi(runtime: str, trainer: str, count: int, trainer_count: int) -> None:
    found = processes_of(
        group(
            f"""
kind: TrainJob
spec: {{trainer: {{{trainer}}}}}
---
kind: ClusterTrainingRuntime
spec: {{mlPolicy: {{mpi: {{numProcPerNode: {runtime}}}}}}}
""",
            base="mpi",
        )
    )

    assert found is not None
    assert (found.count, found.trainer_count) == (count, trainer_count)


def test_of_mpi_the_processes_are_those_of_node() -> None:
    member = trained_by(group(base="mpi"))

    assert member is not None
    assert (member.job.name, member.pods) == ("node", 3)


@pytest.mark.parametrize(
    "policy", ["null", "{numNodes: 16, torch: null, jax: {}}"], ids=["no policy", "another framework"]
)
def test_nothing_is_counted_where_neither_torch_nor_mpi_starts_processes(policy: str) -> None:
    launch = group(f"kind: ClusterTrainingRuntime\nspec: {{mlPolicy: {policy}}}")

    assert processes_of(launch) is None
    assert told(check, launch) == []


def test_without_a_trainer_torchrun_starts_one_and_the_finding_is_left_to_torch_env() -> None:
    launch = group("kind: TrainJob\nspec: {trainer: null}\n---\n" + RUNTIME_WITH_GPUS)
    found = processes_of(launch)

    assert found is not None
    assert (found.count, found.trainer_count) == (8, 1)
    assert told(check, launch) == []


def test_the_setting_names_both_numbers_where_they_differ() -> None:
    (setting,) = settings(node("{limits: {habana.ai/gaudi: 8, cpu: 96}}"))

    assert (setting.target, setting.value) == ("container node of ReplicatedJob node", "96")
    assert setting.rule == (
        "Trainer counts 96 by the CPU limit of the container's resources; by the devices it would be 8: one for each "
        "of the 8 habana.ai/gaudi"
    )


def test_the_setting_of_a_plain_number() -> None:
    assert values(settings(group())) == {("container node of ReplicatedJob node", "numProcPerNode"): "8"}


def test_no_resources_no_devices() -> None:
    assert (devices_of(None), gpus_of(None), gpus_of(Resources(group().place))) == ({}, 0, 0)


@pytest.mark.parametrize(
    ("flags", "value", "rule"),
    [
        (
            "--nproc_per_node=8",
            "8",
            "--nproc-per-node of torchrun, which wins over 4: spec.trainer.numProcPerNode",
        ),
        (
            "--nproc-per-node, gpu",
            "gpu",
            "--nproc-per-node of torchrun, which wins over 4: spec.trainer.numProcPerNode",
        ),
        (
            "--nproc-per-node=2, --nproc_per_node=8",
            "8",
            "the last --nproc-per-node of torchrun (the first one says 2), which wins over 4: "
            "spec.trainer.numProcPerNode",
        ),
    ],
)
def test_the_command_line_of_torchrun_wins(flags: str, value: str, rule: str) -> None:
    launch = group(f"kind: TrainJob\nspec: {{trainer: {{numProcPerNode: 4, command: [torchrun, {flags}, train.py]}}}}")
    (setting,) = settings(launch)

    assert (setting.value, setting.rule) == (value, rule)
    assert setting.place is not None
    assert written(setting.place.path) == "spec.trainer.command"
