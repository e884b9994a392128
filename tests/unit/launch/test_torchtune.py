"""A TrainJob with the command `tune run`: what Trainer's webhook refuses."""

import pytest

from recovery.launch.places import written
from recovery.launch.torchtune import check
from tests.unit.launch.manifests import group


def fields(trainer: str, runtime: str = "torchtune-llama3.2-1b", command: str = "[tune, run]") -> list[str]:
    manifest = f"""
kind: TrainJob
spec: {{runtimeRef: {{name: {runtime}}}, trainer: {{command: {command}, {trainer}}}}}
---
kind: ClusterTrainingRuntime
metadata: {{name: {runtime}}}
"""
    found = list(check(group(manifest)))
    assert {each.code.name for each in found} <= {"torchtune-refused"}
    return [written(each.place.path) for each in found]


@pytest.mark.parametrize(
    "runtime", ["torch-distributed", "torchtune-llama4-scout", "torchtune-llama3.2-90b", "llama3.2-1b"]
)
def test_the_model_comes_from_the_name_of_the_runtime(runtime: str) -> None:
    assert fields("numNodes: 1, args: null", runtime) == ["spec.runtimeRef"]


@pytest.mark.parametrize(
    "runtime", ["torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-llama3.3-70b", "torchtune-qwen2.5-1.5b"]
)
def test_these_are_known(runtime: str) -> None:
    assert fields("numNodes: 1, args: [epochs=1, model.lora_attn_modules=q_proj]", runtime) == []


def test_one_model_runs_on_several_nodes_without_lora() -> None:
    assert fields("numNodes: 2, args: null") == ["spec.trainer.numNodes"]
    assert fields("numNodes: 2, args: null", "torchtune-llama3.3-70b") == []
    for lora in ("model.lora_attn_modules=q_proj", "model.quantize_base=True"):
        assert fields(f"numNodes: 2, args: [{lora}]", "torchtune-llama3.3-70b") == ["spec.trainer.numNodes"]
    dora = "[model.quantize_base=True, model.use_dora=true]"
    assert fields(f"numNodes: 2, args: {dora}", "torchtune-llama3.3-70b") == []


@pytest.mark.parametrize(
    "key", ["output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir"]
)
def test_some_settings_belong_to_the_runtime(key: str) -> None:
    assert fields(f"numNodes: 1, args: [epochs=1, {key}=/a]") == ["spec.trainer.args[1]"]


@pytest.mark.parametrize("command", ["[tune, run, recipe]", "[torchrun, train.py]", "null"])
def test_another_command_is_left_alone(command: str) -> None:
    assert fields("numNodes: 2, args: [output_dir=/a]", "torch-distributed", command) == []
