"""What explain-launch says about the training containers: each value, and the field that set it."""

from typing import Any

import yaml

from recovery.launch.containers import settings
from recovery.launch.documents import documents
from recovery.launch.launch import Launch
from recovery.launch.lint import subjects
from recovery.launch.places import written
from tests.unit.launch.pages import BASES, merged


def told(base: str, *fragments: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Value and rule, by target and name."""
    objects = list(yaml.safe_load_all((BASES / f"{base}.yaml").read_text()))
    for fragment in fragments:
        objects = [merged(each, fragment) if each["kind"] == fragment["kind"] else each for each in objects]
    group = subjects(documents(yaml.safe_dump_all(objects)))[0].group
    assert isinstance(group, Launch)
    return {f"{each.target}: {each.name}": (each.value, each.rule) for each in settings(group)}


def of_node(found: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    prefix = "container node of ReplicatedJob node: "
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def runtime_container(**fields: Any) -> dict[str, Any]:
    pods = {"spec": {"containers": [{"name": "node", **fields}]}}
    node = {"name": "node", "template": {"spec": {"template": pods}}}
    return {"kind": "ClusterTrainingRuntime", "spec": {"template": {"spec": {"replicatedJobs": [node]}}}}


def test_what_the_train_job_sets_is_told_with_its_field() -> None:
    found = of_node(told("torch"))

    assert found["image"] == ("registry.example/llama:1.0", "spec.trainer.image of the TrainJob")
    assert found["args"] == ("--resume --checkpoint-dir=/checkpoints", "spec.trainer.args of the TrainJob")
    assert found["limits nvidia.com/gpu"] == ("8", "spec.trainer.resourcesPerNode.limits of the TrainJob")
    assert found["requests memory"] == ("900Gi", "spec.trainer.resourcesPerNode.requests of the TrainJob")


def test_what_the_train_job_leaves_out_is_the_runtimes() -> None:
    bare = {"kind": "TrainJob", "spec": {"trainer": {"image": None, "command": None, "args": None}}}

    found = of_node(told("torch", bare, runtime_container(command=["torchrun", "train.py"])))

    assert found["image"] == (
        "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
        "the image of the runtime's container",
    )
    assert found["command"] == ("torchrun train.py", "the command of the runtime's container")
    assert "args" not in found


def test_every_variable_is_told_with_where_it_comes_from() -> None:
    trainer = {"kind": "TrainJob", "spec": {"trainer": {"env": [{"name": "A", "value": "mine"}]}}}
    node_name = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    variables = [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}, {"name": "C", "valueFrom": node_name}]
    variables.append({"name": "PET_NNODES", "value": "overridden by Trainer"})

    found = of_node(told("torch", trainer, runtime_container(env=variables)))

    assert {name: found[name] for name in "ABC"} == {
        "A": ("mine", "spec.trainer.env of the TrainJob"),
        "B": ("b", "the env of the runtime's container"),
        "C": ("known only in the cluster (valueFrom)", "the env of the runtime's container"),
    }
    assert "PET_NNODES" not in found, "its value is Trainer's, and told as such"


def test_a_resource_that_only_the_runtime_names_stays() -> None:
    found = of_node(told("torch", runtime_container(resources={"limits": {"rdma/hca": 4, "cpu": 2}})))

    assert found["limits rdma/hca"] == (
        "4",
        "the runtime: spec.trainer.resourcesPerNode.limits of the TrainJob does not name it",
    )
    assert found["limits cpu"] == ("96", "spec.trainer.resourcesPerNode.limits of the TrainJob")


def test_a_job_set_tells_of_its_pods_and_of_its_own_fields() -> None:
    found = told("jobset")

    assert found["ReplicatedJob worker: pods"] == ("8", "replicas 1, each with 8 pods at once")
    value, rule = found["container trainer of ReplicatedJob worker: image"]
    assert (value, rule.endswith("containers[0].image of the JobSet")) == ("registry.example/vision:1.0", True)


def test_the_place_is_that_of_the_field() -> None:
    group = subjects(documents((BASES / "torch.yaml").read_text()))[0].group
    assert isinstance(group, Launch)

    places = {each.name: each.place for each in settings(group)}

    assert {
        name: place and written(place.path) for name, place in places.items() if name in ("image", "limits cpu")
    } == {
        "image": "spec.trainer.image",
        "limits cpu": "spec.trainer.resourcesPerNode.limits.cpu",
    }
