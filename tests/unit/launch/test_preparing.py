"""What admission sets in a TrainJob whose owner asks for it: numProcPerNode, if a field shows the intended number."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.preparing import prepare
from recovery.launch.resolving import launch_of, launch_of_runtime
from tests.unit.launch.manifests import group


def job(trainer: str) -> Launch:
    """The TrainJob of `bases/torch.yaml` with these fields of spec.trainer and without numProcPerNode."""
    return group(f"kind: TrainJob\nspec:\n  trainer:\n    numProcPerNode: null\n{trainer}")


def resources(requests: str, limits: str) -> str:
    """resourcesPerNode with these requests and limits instead of the base's."""
    none = "memory: null, nvidia.com/gpu: null"
    return f"    resourcesPerNode:\n      requests: {{{none}, {requests}}}\n      limits: {{{none}, {limits}}}\n"


CHANGES = {
    "a CPU request below the limit, by which Trainer counts": (
        resources("cpu: 4", "cpu: 8"),
        "spec.trainer.numProcPerNode=8 (one for each CPU of the limit of 8, rounded up)",
    ),
    "accelerators whose name has no gpu in it": (
        resources("cpu: 96", "cpu: null, habana.ai/gaudi: 8"),
        "spec.trainer.numProcPerNode=8 (one for each of the 8 habana.ai/gaudi)",
    ),
}


@pytest.mark.parametrize(("trainer", "record"), CHANGES.values(), ids=CHANGES.keys())
def test_where_trainer_would_count_otherwise_the_number_is_set(trainer: str, record: str) -> None:
    assert [str(change) for change in prepare(job(trainer))] == [record]


UNCHANGED = {
    "Trainer counts the same": "",
    "no CPU limit says how many are meant": resources("cpu: 16", "cpu: null"),
    "torchrun has a flag of its own": (
        "    command: [torchrun, --nproc-per-node=4, train.py]\n" + resources("cpu: 4", "cpu: 8")
    ),
}


@pytest.mark.parametrize("trainer", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_nothing_else_is_set(trainer: str) -> None:
    assert prepare(job(trainer)) == ()


CLAIMS = """\
kind: TrainJob
spec: {trainer: {numProcPerNode: null, resourcesPerNode: null}}
---
kind: ClusterTrainingRuntime
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template: {spec: {template: {spec: {containers: [{name: node, resources: {claims: [{name: a}, {name: b}]}}]}}}}
"""


def test_how_many_devices_a_claim_gives_is_not_known() -> None:
    assert prepare(group(CLAIMS)) == ()


def test_a_word_is_left_to_the_api_server_which_refuses_it() -> None:
    assert prepare(job("    numProcPerNode: gpu\n" + resources("cpu: 4", "cpu: 8"))) == ()


def test_a_number_that_is_given_wins_even_where_it_is_wrong() -> None:
    assert prepare(group("kind: TrainJob\nspec: {trainer: {numProcPerNode: 3}}")) == ()


def test_without_spec_trainer_there_is_nothing_to_set_it_in() -> None:
    assert prepare(group("kind: TrainJob\nspec: {trainer: null}")) == ()


def test_without_the_runtime_nothing_is_known() -> None:
    known = job(resources("cpu: 4", "cpu: 8")).train_job
    assert known is not None
    assert prepare(launch_of(known, None)) == ()


def test_a_runtime_by_itself_is_no_train_job() -> None:
    runtime = job(resources("cpu: 4", "cpu: 8")).runtime
    assert runtime is not None
    assert prepare(launch_of_runtime(runtime)) == ()


def test_once_set_there_is_nothing_more_to_set() -> None:
    assert prepare(job("    numProcPerNode: 8\n" + resources("cpu: 4", "cpu: 8"))) == ()
