"""What `recovery lint` says of the manifests that Trainer and JobSet ship, read from their Go modules.

Each row was judged by reading the manifest and the sources of its version. A row that changes with a new version, or a
new check, is to be judged again; an error on a sample that works is a mistake of ours. It needs no control plane.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.launch.documents import Document, documents
from recovery.launch.findings import Severity
from recovery.launch.kinds import kind_of
from recovery.launch.lint import lint
from tests.cluster.controlplane.build import TOOLS, source_folder

Codes = tuple[str, ...]
"""One for each finding, in the order of lines."""

IN_PLACE, CASCADE = "restarted-in-place", "cascade-ends-job"
NODE_LOSS, SILENT = "node-loss-noticed-late", "no-termination-message"

# The shipped runtimes leave out all that a recovery depends on. JobSet makes restartPolicy OnFailure of nothing
# (jobset_webhook.go), so that a failed rank comes back alone; a Job fails at its 6th restart, and there is no
# failurePolicy; nothing shortens the 300 s that the API server tolerates a lost node; nothing keeps the last log lines.
# All four are true of each, and each is a line to add.
PLAIN = (CASCADE, IN_PLACE, NODE_LOSS, SILENT)
# mpirun ends all ranks when it loses one, and its launcher starts them all again: no rank is restarted alone, and one
# failure of all is one restart of the launcher. Launcher and node are both to be given up early.
MPI = (NODE_LOSS, NODE_LOSS, SILENT)
# A TrainJob whose runtime is not among the files: nothing that its runtime decides is guessed.
ALONE = ("unknown-runtime",)

TRAINER: dict[str, Codes] = {
    "manifests/base/runtimes/torch_distributed.yaml": PLAIN,
    # Its initializer is over before the group starts, and is not judged as one of it.
    "manifests/base/runtimes/data-cache/torch_distributed_with_cache.yaml": PLAIN,
    "manifests/base/runtimes/jax_distributed.yaml": PLAIN,
    "manifests/base/runtimes/xgboost_distributed.yaml": PLAIN,
    "manifests/base/runtimes/deepspeed_distributed.yaml": MPI,
    "manifests/base/runtimes/mlx_distributed.yaml": MPI,
    # One node today, which a TrainJob may make several of: then all of it holds. Both initializers are over before.
    "manifests/base/runtimes/torchtune/llama3_2/llama3_2_1B.yaml": PLAIN,
    "manifests/base/runtimes/torchtune/llama3_2/llama3_2_3B.yaml": PLAIN,
    "manifests/base/runtimes/torchtune/qwen2_5/qwen2_5_1.5B.yaml": PLAIN,
    # Flux starts the ranks of all pods from its first broker: no rank of it is started by its own pod.
    "examples/flux/flux-runtime.yaml": (NODE_LOSS, SILENT),
    "examples/flux/flux-interactive.yaml": ALONE,
    "examples/flux/lammps-train-gpus.yaml": ALONE,
    "examples/flux/lammps-train-job.yaml": ALONE,
    "examples/yaml/01-multi-node.yaml": ALONE,
    "examples/yaml/02-runtime-patches.yaml": ALONE,
    "examples/yaml/03-kueue-integration.yaml": ALONE,
    # 4 nodes stay below the 6 restarts that end a Job. Trainer's volcano plugin makes the PodGroup and sets no
    # schedulerName: that is left to whoever runs the cluster, hence a note. Its `python3 -c` starts one process
    # whatever PET_NPROC_PER_NODE says, so that nothing is told of that.
    "examples/yaml/04-volcano-integration.yaml": ("gang-scheduler-unnamed", IN_PLACE, NODE_LOSS, SILENT),
    # As 04, with 2 nodes and no gang. Its initializer mounts no volume, and Trainer's own webhook refuses such a job:
    # test_launch_reality has the page's Bad example, which is the same, refused by the real one.
    "examples/yaml/05-multi-step.yaml": (IN_PLACE, NODE_LOSS, SILENT, "initializer-nowhere"),
}
JOBSET: dict[str, Codes] = {
    # An empty JobSet: valid, and nothing is in it that could be judged.
    "config/samples/batch_v1alpha2_jobset.yaml": (),
}
FLUX, TORCH = "examples/flux/flux-runtime.yaml", "manifests/base/runtimes/torch_distributed.yaml"
TOGETHER: dict[tuple[str, str], Codes] = {
    # 3 nodes: below 6, so that a cascade does not end it.
    ("examples/yaml/01-multi-node.yaml", TORCH): (IN_PLACE, NODE_LOSS, SILENT),
    # It calls torchrun, asks for 2 CPUs and may use 4: Trainer counts the request (runtime.go), which differs from the
    # limit. True, and a matter of taste on CPUs: a warning of which a person may say no.
    ("examples/yaml/02-runtime-patches.yaml", TORCH): ("processes-differ", IN_PLACE, NODE_LOSS, SILENT),
    # Kueue admits all pods at once: nothing about gangs.
    ("examples/yaml/03-kueue-integration.yaml", TORCH): (IN_PLACE, NODE_LOSS, SILENT),
    ("examples/flux/flux-interactive.yaml", FLUX): (NODE_LOSS, SILENT),
    ("examples/flux/lammps-train-job.yaml", FLUX): (NODE_LOSS, SILENT),
    # With GPUs: two pods that nothing schedules together, and no volume, so that what is computed is gone with a pod.
    ("examples/flux/lammps-train-gpus.yaml", FLUX): ("no-gang-scheduling", NODE_LOSS, SILENT, "checkpoint-lost"),
}
WHERE = ("manifests/base/runtimes", "examples", "config/samples")


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    """The sources of both, by name."""
    return {tool.name: source_folder(tool) for tool in TOOLS if tool.name in ("trainer", "jobset")}


def _files(folder: Path) -> Iterator[str]:
    """Every manifest that is shipped as a runtime or a sample and holds an object of a kind that is judged."""
    for path in (each for below in WHERE for each in sorted((folder / below).rglob("*.yaml"))):
        if any(kind_of(each.kind, each.api_version) for each in documents(path.read_text())):
            yield str(path.relative_to(folder))


def _read(folder: Path, *names: str) -> tuple[Document, ...]:
    found: list[Document] = []
    for name in names:
        found.extend(documents((folder / name).read_text(), file=name, first=len(found)))
    return tuple(found)


@pytest.mark.parametrize(("tool", "wanted"), [("trainer", TRAINER), ("jobset", JOBSET)])
def test_every_shipped_manifest_was_judged(folders: dict[str, Path], tool: str, wanted: dict[str, Codes]) -> None:
    found = {name: tuple(each.code.name for each in lint(_read(folders[tool], name))) for name in _files(folders[tool])}

    assert found == wanted


@pytest.mark.parametrize(("sample", "runtime"), TOGETHER)
def test_every_sample_was_judged_with_its_runtime(folders: dict[str, Path], sample: str, runtime: str) -> None:
    found = lint(_read(folders["trainer"], sample, runtime))

    assert tuple(each.code.name for each in found) == TOGETHER[sample, runtime]


def test_nothing_that_is_shipped_is_an_error_but_what_trainer_itself_refuses(folders: dict[str, Path]) -> None:
    read = [_read(folder, *_files(folder)) for folder in folders.values()]
    found = [finding.code for each in read for finding in lint(each)]
    severities = Counter(code.severity for code in found)

    assert sum(len(each) for each in read) == len(TRAINER) + len(JOBSET) + 2  # 04 and 05 hold two objects each
    assert [code.name for code in found if code.severity is Severity.ERROR] == ["initializer-nowhere"]
    assert severities[Severity.WARNING] > 0


def test_what_helm_has_not_rendered_is_told_to_be_a_template(folders: dict[str, Path]) -> None:
    """Trainer's chart keeps the same runtimes as templates."""
    templates = sorted((folders["trainer"] / "charts/kubeflow-trainer/files/runtimes").glob("*.yaml"))
    found = [lint(documents(each.read_text())) for each in templates]

    assert len(templates) == 9
    assert {problem.message for (problem,) in found} == {"this is a template that has not been rendered yet"}
