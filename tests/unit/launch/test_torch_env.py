"""The environment that torchrun gets, and where it cannot work."""

import pytest

from recovery.launch.places import written
from recovery.launch.torch_env import check, settings
from tests.unit.launch.manifests import group, told, values

MAIN = "container node of ReplicatedJob node"
SERVICE = "headless Service"


def runtime(spec: str) -> str:
    return f"kind: ClusterTrainingRuntime\nspec: {spec}"


def network(fields: str) -> str:
    return runtime(f"{{template: {{spec: {{network: {fields}}}}}}}")


def pods(fields: str) -> str:
    return runtime(f"{{template: {{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {{spec: {fields}}}}}}}}}]}}}}}}")  # fmt: skip  # noqa: E501


def test_the_environment_of_a_plain_job() -> None:
    assert values(settings(group())) == {
        ("ReplicatedJob node", "parallelism and completions"): "16",
        (MAIN, "PET_NNODES"): "16",
        (MAIN, "PET_NPROC_PER_NODE"): "8",
        (MAIN, "PET_NODE_RANK"): "0 to 15",
        (MAIN, "PET_MASTER_ADDR"): "llama-node-0-0.llama",
        (MAIN, "PET_MASTER_PORT"): "29500",
        (MAIN, "containerPort"): "29500",
        (SERVICE, "name"): "llama",
        (SERVICE, "DNS names"): "llama-node-0-0.llama to llama-node-0-15.llama",
        (SERVICE, "publishNotReadyAddresses"): "true",
    }


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ("numProcPerNode: 4", "4"),
        # Trainer keeps auto if it finds GPUs, and sets a number otherwise.
        ("numProcPerNode: null", "auto"),
        ("numProcPerNode: null, resourcesPerNode: {requests: null, limits: {nvidia.com/gpu: null, cpu: 12}}", "12"),
        ("numProcPerNode: null, resourcesPerNode: null", "1"),
    ],
)
def test_the_number_of_processes(trainer: str, processes: str) -> None:
    found = values(settings(group(f"kind: TrainJob\nspec: {{trainer: {{{trainer}}}}}")))

    assert found[(MAIN, "PET_NPROC_PER_NODE")] == processes


@pytest.mark.parametrize(
    ("manifest", "nodes", "rule", "place"),
    [
        ("kind: TrainJob", "16", "spec.trainer.numNodes of the TrainJob", "spec.trainer.numNodes"),
        (
            "kind: TrainJob\nspec: {trainer: {numNodes: null}}\n---\n" + runtime("{mlPolicy: {numNodes: 4}}"),
            "4",
            "mlPolicy.numNodes of the runtime, as the TrainJob sets none",
            "spec.mlPolicy.numNodes",
        ),
        (
            "kind: TrainJob\nspec: {trainer: {numNodes: null}}\n---\n" + runtime("{mlPolicy: {numNodes: null}}"),
            "1",
            "the default of Trainer: neither the TrainJob nor the runtime sets numNodes",
            "",
        ),
    ],
)
def test_the_rule_names_the_field_that_set_it(manifest: str, nodes: str, rule: str, place: str) -> None:
    setting = next(each for each in settings(group(manifest)) if each.name == "PET_NNODES")

    assert (setting.value, setting.rule) == (nodes, rule)
    assert (written(setting.place.path) if setting.place is not None else "") == place


def test_torchtune_gets_an_endpoint_in_place_of_the_address() -> None:
    found = values(settings(group("kind: TrainJob\nspec: {trainer: {command: [tune, run]}}")))

    assert found[(MAIN, "--rdzv_endpoint")] == "llama-node-0-0.llama:29500"
    assert (MAIN, "PET_NNODES") in found
    assert not {(MAIN, "PET_MASTER_ADDR"), (MAIN, "PET_MASTER_PORT")} & set(found)


def test_targets_of_env_injection_get_all_of_it_even_without_a_trainer() -> None:
    manifest = "kind: TrainJob\nspec: {trainer: null}\n---\n" + runtime(
        "{mlPolicy: {torch: {envInjection: {targets: [{jobName: node, containerNames: [preflight]}]}}}}"
    )
    found = values(settings(group(manifest)))
    target = "container preflight of ReplicatedJob node"

    assert {name for where, name in found if where == target} == {
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    }
    assert not [name for where, name in found if where == MAIN]


def test_a_subdomain_of_the_runtime_is_in_the_names_but_not_in_the_address() -> None:
    found = values(settings(group(network("{subdomain: training}"))))

    assert found[(SERVICE, "DNS names")] == "llama-node-0-0.training to llama-node-0-15.training"
    assert found[(MAIN, "PET_MASTER_ADDR")] == "llama-node-0-0.llama"


def test_without_host_names_there_is_no_service() -> None:
    found = values(settings(group(network("{enableDNSHostnames: false}"))))

    assert found[(SERVICE, "name")] == "none"
    assert (SERVICE, "DNS names") not in found


NO_TRAINER = "kind: TrainJob\nspec: {trainer: null}\n---\n"


@pytest.mark.parametrize(
    ("spec", "sentences"),
    [
        (
            "{mlPolicy: {numNodes: 16}}",
            [
                "trainer-missing: spec.trainer is missing, so that Trainer sets no PET_ variable, and torchrun in each "
                "of the 16 pods takes itself for the only one and trains by itself (write spec.trainer with numNodes: "
                "16 in it)"
            ],
        ),
        (
            "{template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: "
            "[{name: node, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}}]}}}",
            [
                "trainer-missing: spec.trainer is missing, so that Trainer sets no PET_ variable, and torchrun starts "
                "1 process on 8 accelerators (write spec.trainer with numNodes: 1 in it)"
            ],
        ),
        # A single pod with one process loses nothing.
        ("{mlPolicy: {numNodes: 1}}", []),
        # The runtime sets everything itself.
        (
            "{mlPolicy: {numNodes: 2}, template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: "
            "{spec: {containers: [{name: node, command: [torchrun, --nnodes=2, train.py]}]}}}}}]}}}",
            [],
        ),
        (
            "{mlPolicy: {numNodes: 2}, template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: "
            "{spec: {containers: [{name: node, env: [{name: PET_NNODES, value: '2'}]}]}}}}}]}}}",
            [],
        ),
    ],
)
def test_without_spec_trainer(spec: str, sentences: list[str]) -> None:
    assert told(check, group(NO_TRAINER + runtime(spec))) == sentences


def test_an_empty_trainer_is_enough() -> None:
    empty = "{image: null, command: null, args: null, numNodes: null, numProcPerNode: null, resourcesPerNode: null}"
    manifest = f"kind: TrainJob\nspec: {{trainer: {empty}}}\n---\n" + runtime("{mlPolicy: {numNodes: 16}}")

    assert told(check, group(manifest)) == []
    assert values(settings(group(manifest)))[(MAIN, "PET_NNODES")] == "16"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            "{subdomain: training}",
            "master-nowhere: PET_MASTER_ADDR is llama-node-0-0.llama and network.subdomain gives the pods the domain "
            "training, so that the rendezvous never finds rank 0 (remove network.subdomain from the runtime)",
        ),
        (
            "{enableDNSHostnames: false}",
            "master-nowhere: PET_MASTER_ADDR is llama-node-0-0.llama and network.enableDNSHostnames is false, so that "
            "the rendezvous never finds rank 0 (remove network.enableDNSHostnames, or set it to true)",
        ),
    ],
)
def test_an_address_that_no_one_has(fields: str, sentence: str) -> None:
    assert told(check, group(network(fields))) == [sentence]


RENAMED = runtime("""
  template:
    spec:
      replicatedJobs:
      - {name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: null}}}}
      - name: worker
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node}]}}}
""")


def test_a_replicated_job_of_another_name_has_another_address() -> None:
    (sentence,) = told(check, group(RENAMED))

    assert sentence == (
        "master-nowhere: PET_MASTER_ADDR is llama-node-0-0.llama and the ReplicatedJob that trains is called worker, "
        "so that the rendezvous never finds rank 0 (rename the ReplicatedJob to node)"
    )


@pytest.mark.parametrize(
    "trainer",
    [
        "command: [torchrun, --rdzv-endpoint=store:29400, --rdzv-backend=c10d, train.py]",
        "command: [torchrun, --master-addr=somewhere, train.py]",
        "command: [torchrun, --standalone, train.py]",
        "command: [bash, run.sh]",
        "command: null, args: null",
        "numNodes: 1",
    ],
)
def test_an_address_that_no_one_surely_needs_is_not_told(trainer: str) -> None:
    job = f"kind: TrainJob\nspec: {{trainer: {{{trainer}}}}}\n---\n"

    assert told(check, group(job + network("{subdomain: training}"))) == []


def test_a_subdomain_that_is_the_name_of_the_job_is_right() -> None:
    assert told(check, group(network("{subdomain: llama}"))) == []


def target(job: str, container: str) -> str:
    return (
        f"mlPolicy: {{torch: {{envInjection: {{targets: [{{jobName: {job}, containerNames: [{container}]}}]}}}}}}, "
        "template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: "
        "{initContainers: [{name: preflight}]}}}}}]}}"
    )


@pytest.mark.parametrize(
    ("job", "container", "sentences"),
    [
        ("node", "preflight", []),
        (
            "node",
            "sidecar",
            [
                "injection-target: envInjection names container sidecar of ReplicatedJob node, which the runtime does "
                "not have, so that every TrainJob of this runtime is refused (add a container sidecar there, or remove "
                "the target)"
            ],
        ),
        (
            "worker",
            "preflight",
            [
                "injection-target: envInjection names container preflight of ReplicatedJob worker, which the runtime "
                "does not have, so that every TrainJob of this runtime is refused (add a container preflight there, or "
                "remove the target)"
            ],
        ),
        (
            "node",
            "node",
            [
                "injection-target: envInjection of ReplicatedJob node names container node: the API server refuses "
                "that (remove node: it has the PET_ variables in any case)"
            ],
        ),
    ],
)
def test_targets_of_env_injection(job: str, container: str, sentences: list[str]) -> None:
    assert told(check, group(runtime(f"{{{target(job, container)}}}"))) == sentences


def test_names_that_wait_for_readiness() -> None:
    plain = network("{publishNotReadyAddresses: false}")
    probed = plain + "\n---\n" + pods("{containers: [{name: node, readinessProbe: {tcpSocket: {port: 29500}}}]}")

    assert told(check, group(plain)) == [
        "hidden-until-ready: network.publishNotReadyAddresses is false, so that the name of a pod resolves only "
        "once it is Ready: after a restart the rendezvous waits for that (remove "
        "network.publishNotReadyAddresses: the default is true)"
    ]
    assert (
        "and for ever if the readiness probe of container node waits for the rendezvous"
        in told(check, group(probed))[0]
    )
    assert told(check, group("kind: TrainJob\nspec: {trainer: {numNodes: 1}}\n---\n" + plain)) == []


@pytest.mark.parametrize("base", ["torch", "mpi", "jobset"])
def test_nothing_is_reported_a_group_that_is_right(base: str) -> None:
    assert told(check, group(base=base)) == []


@pytest.mark.parametrize("base", ["mpi", "jobset"])
def test_nothing_is_set_without_torch(base: str) -> None:
    assert values(settings(group(base=base))) == {}


def test_a_variable_that_torchrun_does_not_read_is_told_with_the_flag_that_decides() -> None:
    command = "[torchrun, --nnodes=8, --nproc_per_node=4, train.py]"
    rules = {
        each.name: each.rule for each in settings(group(f"kind: TrainJob\nspec: {{trainer: {{command: {command}}}}}"))
    }

    assert rules["PET_NNODES"].endswith("; torchrun does not read it, as its command has --nnodes=8")
    assert rules["PET_NPROC_PER_NODE"].endswith("; torchrun does not read it, as its command has --nproc-per-node=4")
    assert rules["PET_NODE_RANK"] == "the Job's completion index"
