"""Finds what Trainer's webhook refuses in a TrainJob whose command is `tune run`.

Source: pkg/runtime/framework/plugins/torch/torchtune.go of Trainer 2.3. Trainer takes the model from the *name* of the
runtime, `torchtune-<family>-<size>`, and itself writes recipe, config and paths into the command.
"""

from collections.abc import Iterator, Sequence

from recovery.launch.environment import TORCHTUNE
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.places import Place

TORCHTUNE_REFUSED = Code("torchtune-refused", Severity.ERROR, "Trainer refuses this call of torchtune")
CODES = (TORCHTUNE_REFUSED,)

_SEVERAL_NODES = "llama3_3/70B"
_MODELS = ("llama3_2/1B", "llama3_2/3B", _SEVERAL_NODES, "qwen2_5/1.5B")
_RUNTIMES = "torchtune-llama3.2-1b, torchtune-llama3.2-3b, torchtune-llama3.3-70b and torchtune-qwen2.5-1.5b"
_OF_THE_RUNTIME = frozenset({"output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir"})
_PARTS = 3


def check(launch: Launch) -> Iterator[LintFinding]:
    job, runtime = launch.train_job, launch.runtime
    if job is None or job.trainer is None or runtime is None or job.trainer.command != TORCHTUNE:
        return
    if runtime.ml_policy is None or runtime.ml_policy.torch is None:
        return
    model, trainer = _model(job.runtime.name), job.trainer
    if model not in _MODELS:
        yield _refused(
            job.runtime.place,
            f"Trainer takes the model from the name of the runtime, and knows none in {job.runtime.name}",
            f"name one of the runtimes {_RUNTIMES}, or write a command of your own: tune run with a recipe",
        )
    nodes, place = trainer.num_nodes or 1, trainer.place / "numNodes"
    if nodes > 1 and model != _SEVERAL_NODES:
        yield _refused(place, f"Trainer runs torchtune on {nodes} nodes for Llama 3.3 70B only", "write numNodes: 1")
    elif nodes > 1 and (_lora(trainer.args) or _qlora(trainer.args)):
        yield _refused(place, f"Trainer runs no LoRA recipe on {nodes} nodes", "write numNodes: 1")
    for number, argument in enumerate(trainer.args):
        key = argument.partition("=")[0]
        if key in _OF_THE_RUNTIME:
            fix = f"remove it; the runtime's command may have {key}"
            yield _refused(trainer.place / "args" / number, f"{key} of torchtune belongs to the runtime", fix)


def _refused(place: Place, why: str, fix: str) -> LintFinding:
    return LintFinding(TORCHTUNE_REFUSED, place, f"{why}: its webhook refuses the job", fix)


def _model(runtime: str) -> str:
    """`llama3_2/1B` of `torchtune-llama3.2-1b`. Empty: the name has another form."""
    parts = runtime.split("-")
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}" if len(parts) == _PARTS else ""


def _lora(arguments: Sequence[str]) -> bool:
    return any("model.lora_attn_modules" in argument for argument in arguments)


def _qlora(arguments: Sequence[str]) -> bool:
    return not _is_true(arguments, "model.use_dora") and _is_true(arguments, "model.quantize_base")


def _is_true(arguments: Sequence[str], key: str) -> bool:
    pairs = (argument.partition("=") for argument in arguments)
    return any(key in name and value.strip().lower() == "true" for name, _, value in pairs)
