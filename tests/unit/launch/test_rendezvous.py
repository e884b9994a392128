"""How the pods of torchrun meet, and whether a range of nodes is elastic."""

import pytest

from recovery.launch.rendezvous import check
from tests.unit.launch.manifests import group, told

C10D = "--rdzv-backend=c10d"
ENDPOINT = "--rdzv-endpoint=llama-node-0-0.llama:29500"
STATIC = "the static rendezvous, which is torchrun's default, takes a range for its larger number"
FIX = f"add {C10D} {ENDPOINT}, or remove --nnodes"


def commanded(*flags: str, env: str = "") -> str:
    """A job of 16 nodes."""
    words = ", ".join(f'"{word}"' for word in ("torchrun", *flags, "train.py"))
    return f"kind: TrainJob\nspec: {{trainer: {{command: [{words}], env: [{env}]}}}}"


@pytest.mark.parametrize("static", [(), ("--rdzv-backend=static",), ("--rdzv_backend", "static", ENDPOINT)])
def test_a_static_range_waits_for_its_larger_number(static: tuple[str, ...]) -> None:
    assert told(check, group(commanded("--nnodes=12:20", *static))) == [
        f"range-waits: with --nnodes=12:20 the 16 pods wait for 4 more that never come: {STATIC} ({FIX})"
    ]


def test_a_static_range_up_to_the_number_of_pods_is_not_elastic() -> None:
    assert told(check, group(commanded("--nnodes=12:16"))) == [
        f"range-not-elastic: with --nnodes=12:16 the group never goes on with fewer than 16 nodes: {STATIC} ({FIX})"
    ]


@pytest.mark.parametrize("range_of_nodes", ["8:12", "20:32"])
def test_a_range_without_the_number_of_pods_is_told_of_elsewhere(range_of_nodes: str) -> None:
    assert told(check, group(commanded(f"--nnodes={range_of_nodes}"))) == []


@pytest.mark.parametrize("nodes", [(), ("--nnodes=16",), ("--nnodes=12:16",)])
def test_each_pod_of_c10d_without_an_endpoint_is_alone(nodes: tuple[str, ...]) -> None:
    assert told(check, group(commanded(*nodes, C10D))) == [
        "endpoint-missing: --rdzv-backend=c10d without an endpoint takes localhost: each of the 16 pods waits for the "
        f"others in a rendezvous of its own (add {ENDPOINT})"
    ]


def test_variables_count_where_no_flag_does() -> None:
    backend, endpoint = "{name: PET_RDZV_BACKEND, value: c10d}", "{name: PET_RDZV_ENDPOINT, value: 'llama:29500'}"

    def codes(*flags: str, env: str) -> list[str]:
        return [finding.code.name for finding in check(group(commanded("--nnodes=12:16", *flags, env=env)))]

    assert codes(env=f"{backend}, {endpoint}") == []
    assert codes(env=backend) == ["endpoint-missing"]
    assert codes(ENDPOINT, env=backend) == []
    assert codes("--rdzv-backend=static", env=f"{backend}, {endpoint}") == ["range-not-elastic"]
    # A value from a ConfigMap may be right.
    assert codes(env="{name: PET_RDZV_BACKEND, valueFrom: {configMapKeyRef: {name: a, key: b}}}") == []
    assert codes(C10D, env="{name: PET_RDZV_ENDPOINT, valueFrom: {configMapKeyRef: {name: a, key: b}}}") == []


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--nnodes=16",),
        ("--nnodes=16:16",),
        ("--nnodes=$NODES",),
        ("--nnodes=12:16", C10D, ENDPOINT),
        ("--nnodes=12:16", "--rdzv-backend=$BACKEND"),
        ("--nnodes=12:16", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=etcd:2379"),
        ("--standalone", "--nnodes=1:2"),
        ("--nnodes=12:16", "$RDZV_FLAGS"),
        (C10D, "{{ .Values.endpoint }}"),
    ],
)
def test_what_is_right_or_not_known_is_not_told_of(flags: tuple[str, ...]) -> None:
    assert told(check, group(commanded(*flags))) == []


@pytest.mark.parametrize(
    "script",
    [
        "PET_RDZV_ENDPOINT=llama-node-0-0.llama:29500 torchrun --rdzv-backend=c10d train.py",
        "export PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=a:1; exec torchrun --nnodes=12:20 train.py",
    ],
)
def test_a_shell_that_sets_the_variables_itself_is_not_judged(script: str) -> None:
    assert told(check, group(f"kind: TrainJob\nspec: {{trainer: {{command: [bash, -c, '{script}']}}}}")) == []


@pytest.mark.parametrize("flags", [("--nnodes=12:20",), (C10D,)])
def test_variables_from_elsewhere_may_be_right(flags: tuple[str, ...]) -> None:
    """They reach the runtime's container through envFrom. Admission must not refuse a job that would train."""
    runtime = """---
kind: ClusterTrainingRuntime
spec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [
  {name: node, envFrom: [{configMapRef: {name: rendezvous}}]}]}}}}}]}}}
"""
    assert told(check, group(f"{commanded(*flags)}\n{runtime}")) == []


def test_one_pod_by_itself_needs_no_endpoint() -> None:
    alone = "kind: TrainJob\nspec: {trainer: {numNodes: 1, command: [torchrun, --rdzv-backend=c10d, train.py]}}"

    assert told(check, group(alone)) == []


@pytest.mark.parametrize(("flag", "variable"), [('"--nnodes=4:8",', ""), ("", '{name: PET_NNODES, value: "4:8"}')])
def test_a_jobset_without_trainer_is_judged_too(flag: str, variable: str) -> None:
    container = f"{{name: trainer, command: [torchrun, {flag} train.py], env: [{variable}], args: null}}"
    pods = f"{{template: {{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}}}"
    jobs = f"{{replicatedJobs: [{{name: worker, {pods[1:-1]}}}]}}"
    launch = group(f"kind: JobSet\nspec: {jobs}", base="jobset")

    (line,) = told(check, launch)
    assert line.startswith("range-not-elastic: ")
    assert "--rdzv-endpoint=vision-worker-0-0.vision:29500" in line
