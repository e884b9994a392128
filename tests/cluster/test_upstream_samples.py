"""What `recovery lint` says of the manifests that Trainer and JobSet ship, read from their Go modules.

Each row was judged by reading the manifest and the sources of its version. A row that changes with a new version or a
new check must be judged again. An error on a sample that works is a mistake of the lint. No control plane is needed.
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
"""One code for each finding, in the order of lines."""

IN_PLACE, CASCADE = "restarted-in-place", "cascade-ends-job"
NODE_LOSS, SILENT = "node-loss-noticed-late", "no-termination-message"

# The shipped runtimes leave out everything that a recovery depends on. JobSet defaults restartPolicy to OnFailure
# (jobset_webhook.go), so a failed rank restarts alone. A Job fails at its 6th restart, and there is no failurePolicy.
# Nothing shortens the default toleration of 300 s for a lost node. Nothing keeps the last log lines. All four findings
# are true of each runtime, and one more line corrects each of them.
PLAIN = (CASCADE, IN_PLACE, NODE_LOSS, SILENT)
# mpirun ends all ranks when it loses one, and its launcher restarts them all. So no rank restarts alone, and a failure
# of all ranks is one restart of the launcher. Both launcher and node need a shorter toleration.
MPI = (NODE_LOSS, NODE_LOSS, SILENT)
# A TrainJob whose runtime is not among the files. The lint does not guess what the runtime decides.
ALONE = ("unknown-runtime",)

TRAINER: dict[str, Codes] = {
    "manifests/base/runtimes/torch_distributed.yaml": PLAIN,
    # Its initializer ends before the group starts, and is not judged as a member of it.
    "manifests/base/runtimes/data-cache/torch_distributed_with_cache.yaml": PLAIN,
    "manifests/base/runtimes/jax_distributed.yaml": PLAIN,
    "manifests/base/runtimes/xgboost_distributed.yaml": PLAIN,
    "manifests/base/runtimes/deepspeed_distributed.yaml": MPI,
    "manifests/base/runtimes/mlx_distributed.yaml": MPI,
    # They have one node, but a TrainJob may ask for several: then all findings hold. Both initializers end before.
    "manifests/base/runtimes/torchtune/llama3_2/llama3_2_1B.yaml": PLAIN,
    "manifests/base/runtimes/torchtune/llama3_2/llama3_2_3B.yaml": PLAIN,
    "manifests/base/runtimes/torchtune/qwen2_5/qwen2_5_1.5B.yaml": PLAIN,
    # Flux starts the ranks of all pods from its first broker, so no pod starts its own rank.
    "examples/flux/flux-runtime.yaml": (NODE_LOSS, SILENT),
    "examples/flux/flux-interactive.yaml": ALONE,
    "examples/flux/lammps-train-gpus.yaml": ALONE,
    "examples/flux/lammps-train-job.yaml": ALONE,
    "examples/yaml/01-multi-node.yaml": ALONE,
    "examples/yaml/02-runtime-patches.yaml": ALONE,
    "examples/yaml/03-kueue-integration.yaml": ALONE,
    # 4 nodes stay below the 6 restarts that end a Job. Trainer's volcano plugin makes the PodGroup but sets no
    # schedulerName. The cluster's administrator decides on that, hence a note. Its `python3 -c` starts one process
    # whatever PET_NPROC_PER_NODE says, so there is no finding about that.
    "examples/yaml/04-volcano-integration.yaml": ("gang-scheduler-unnamed", IN_PLACE, NODE_LOSS, SILENT),
    # Like 04, with 2 nodes and no gang. Its initializer mounts no volume, and Trainer's own webhook refuses such a job.
    # In test_launch_reality the real webhook refuses the page's Bad example, which has the same mistake.
    "examples/yaml/05-multi-step.yaml": (IN_PLACE, NODE_LOSS, SILENT, "initializer-nowhere"),
}
JOBSET: dict[str, Codes] = {
    # An empty JobSet. It is valid, and there is nothing in it to judge.
    "config/samples/batch_v1alpha2_jobset.yaml": (),
}
FLUX, TORCH = "examples/flux/flux-runtime.yaml", "manifests/base/runtimes/torch_distributed.yaml"
TOGETHER: dict[tuple[str, str], Codes] = {
    # 3 nodes are below 6, so a cascade does not end the Job.
    ("examples/yaml/01-multi-node.yaml", TORCH): (IN_PLACE, NODE_LOSS, SILENT),
    # It calls torchrun, requests 2 CPUs and may use 4. Trainer counts the request (runtime.go), which differs from the
    # limit. The finding is true but a matter of taste on CPUs, hence a warning that a person may ignore.
    ("examples/yaml/02-runtime-patches.yaml", TORCH): ("processes-differ", IN_PLACE, NODE_LOSS, SILENT),
    # Kueue admits all pods together, so there is no finding about gangs.
    ("examples/yaml/03-kueue-integration.yaml", TORCH): (IN_PLACE, NODE_LOSS, SILENT),
    ("examples/flux/flux-interactive.yaml", FLUX): (NODE_LOSS, SILENT),
    ("examples/flux/lammps-train-job.yaml", FLUX): (NODE_LOSS, SILENT),
    # It has GPUs. Nothing schedules its two pods together, and without a volume the results are lost with a pod.
    ("examples/flux/lammps-train-gpus.yaml", FLUX): ("no-gang-scheduling", NODE_LOSS, SILENT, "checkpoint-lost"),
}
WHERE = ("manifests/base/runtimes", "examples", "config/samples")


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    """The sources of Trainer and JobSet, by name."""
    return {tool.name: source_folder(tool) for tool in TOOLS if tool.name in ("trainer", "jobset")}


def _files(folder: Path) -> Iterator[str]:
    """Every shipped runtime or sample manifest with an object of a kind that the lint judges."""
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
