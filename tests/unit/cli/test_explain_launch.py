"""`recovery explain-launch`: each value with which a job would start, and where the value is set."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recovery.cli.cluster_runtimes import CLUSTER_TRAINING_RUNTIMES
from recovery.cli.main import app
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.manifests import BASES, JOB, RUNTIME, TORCH, WORD, recovery, runtime_object, told, written_to


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def explain(*arguments: str, stdin: str = TORCH, exit_code: int = 0) -> str:
    return recovery("explain-launch", "-", *arguments, stdin=stdin, exit_code=exit_code).stdout


def section(text: str, title: str) -> list[str]:
    """The lines of a section, without their indentation."""
    _, found, rest = text.partition(f"\n{title}:\n")
    assert found, text
    return [line.strip() for line in rest.split("\n\n")[0].splitlines()]


def row(text: str, title: str, name: str) -> list[str]:
    """Value, rule and source of that setting."""
    (found,) = (line for line in section(text, title) if line.startswith(f"{name}  "))
    return [cell.strip() for cell in found.split("  ") if cell.strip()][1:]


NODE = "container node of ReplicatedJob node"


def test_the_heading_names_job_runtime_and_size() -> None:
    assert explain().splitlines()[0] == (
        "TrainJob/llama (<stdin>:2) with ClusterTrainingRuntime/torch-prepared (<stdin>:26): 16 pods, 128 GPUs"
    )


def test_each_value_stands_with_what_set_it_and_where(tmp_path: Path) -> None:
    job, runtime = written_to(tmp_path / "job.yaml", JOB), written_to(tmp_path / "runtime.yaml", RUNTIME)
    text = recovery("explain-launch", job, runtime).stdout
    assert row(text, NODE, "PET_NNODES") == ["16", "spec.trainer.numNodes of the TrainJob", f"{job}:14"]
    assert row(text, "ReplicatedJob node", "backoffLimit") == ["1000", "the manifest", f"{runtime}:21"]
    assert row(text, "headless Service", "name") == ["llama", "JobSet names it like the job", "-"]


def test_a_value_that_is_set_needs_one_line_for_the_processes() -> None:
    assert section(explain(), "Processes of each node, as the launcher's arguments say") == [
        "8: spec.trainer.numProcPerNode"
    ]


def test_where_torchrun_goes_by_its_flag_both_numbers_are_told() -> None:
    manifest = TORCH.replace("[torchrun, ", "[torchrun, --nproc_per_node=8, ").replace(
        "numProcPerNode: 8", "numProcPerNode: 4"
    )
    text = explain(stdin=manifest)
    assert row(text, NODE, "numProcPerNode")[0] == "8"
    assert row(text, NODE, "PET_NPROC_PER_NODE")[0] == "4"
    command, trainer = section(text, "Processes of each node, as the launcher's arguments say")
    assert command.startswith("torchrun starts 8: ")
    assert trainer == "4: spec.trainer.numProcPerNode"


def test_where_trainer_counts_otherwise_both_numbers_are_told() -> None:
    text = explain(stdin=TORCH.replace("    numProcPerNode: 8\n", "").replace("nvidia.com/gpu", "habana.ai/gaudi"))
    theirs, ours = section(text, "Processes of each node, as the launcher's arguments say")
    assert theirs.startswith("Trainer 2.3 says ")
    assert ours.startswith("by the devices it would be 8: ")


def test_the_outlook_is_three_sentences() -> None:
    lines = section(explain(), "What a failure would do")
    starts = ("If a pod is lost today: ", "If all ranks exit at once: ", "If a node is lost: ")
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [True] * 3


def test_long_and_broken_values_stay_in_their_row_and_json_has_all_of_them() -> None:
    script = "echo begin\\n" + "x" * 200
    text = TORCH.replace("[--resume, --checkpoint-dir=/checkpoints]", f'["{script}", --resume]')
    (line,) = (line for line in section(explain(stdin=text), NODE) if line.startswith("args "))
    assert "echo begin xxx" in line
    assert "x…" in line
    (launch,) = json.loads(explain("--format", "json", stdin=text))["launches"]
    assert any("x" * 200 in each["value"] for each in launch["settings"])


def test_errors_are_told_at_the_end_and_make_the_exit_code_1() -> None:
    text = explain(stdin=WORD, exit_code=1)
    line, fix = section(text, "Findings")
    assert line.startswith("<stdin>:15: error: processes-word: ")
    assert text.rstrip().endswith(fix)


def test_warnings_are_left_to_lint() -> None:
    assert "Findings:" not in explain(stdin=TORCH.replace("numProcPerNode: 8", "numProcPerNode: 7"))


def test_a_job_whose_runtime_is_not_known_says_so() -> None:
    line, _ = section(explain(stdin=JOB), "Findings")
    assert ": note: unknown-runtime: " in line


@pytest.mark.parametrize("options", [(), ("--job", "mix")])
def test_a_runtime_that_the_cluster_has_not_either_is_not_to_be_looked_for_there(
    cluster: PlainCluster, options: tuple[str, ...]
) -> None:
    del cluster
    job = JOB.replace("name: llama", "name: mix", 1)
    _, fix = section(explain("--cluster", *options, stdin=job), "Findings")
    assert fix == "fix: correct runtimeRef, or pass its file too: the cluster has none of that name"


def test_the_runtime_may_be_the_clusters(cluster: PlainCluster) -> None:
    cluster.put(CLUSTER_TRAINING_RUNTIMES, runtime_object())
    text = explain("--cluster", stdin=JOB)
    assert text.splitlines()[0].endswith(
        "with ClusterTrainingRuntime/torch-prepared (as the cluster has it): 16 pods, 128 GPUs"
    )
    assert row(text, "ReplicatedJob node", "backoffLimit")[-1] == "ClusterTrainingRuntime/torch-prepared"


@pytest.mark.parametrize(
    ("base", "heading", "title"),
    [
        ("mpi", "TrainJob/mix", "ConfigMap mix-mpi-hostfile"),
        ("volcano", "Job/speech", "task worker"),
        ("jobset", "JobSet/", "What a failure would do"),
    ],
)
def test_other_kinds_of_jobs(base: str, heading: str, title: str) -> None:
    text = explain(stdin=(BASES / f"{base}.yaml").read_text())
    assert text.startswith(heading)
    assert section(text, title)


# --- several jobs --------------------------------------------------------------------------------------------------

OTHER = WORD.partition("---\n")[0].replace("name: llama", "name: other")
TWO = f"{TORCH}---\n{OTHER}"


def test_each_job_is_reported_and_a_runtime_only_with_its_jobs() -> None:
    text = explain(stdin=TWO, exit_code=1)
    assert re.findall(r"^\w+/\S+", text, re.MULTILINE) == ["TrainJob/llama", "TrainJob/other"]


def test_one_of_them_is_reported_alone_and_with_its_own_errors_alone() -> None:
    assert "TrainJob/other" not in explain("--job", "llama", stdin=TWO)
    assert "processes-word" in explain("--job", "other", stdin=TWO, exit_code=1)


def test_a_job_that_is_not_there_is_wrong_usage() -> None:
    result = recovery("explain-launch", "-", "--job", "lama", stdin=TWO, exit_code=2)
    assert result.output == ("recovery: there is nothing called 'lama' that would start a job; there is llama, other\n")


# --- objects that are no job -----------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_the_finding_alone() -> None:
    (line,) = told(explain(stdin="kind: [", exit_code=1))
    assert ": error: not-yaml: " in line


def test_what_starts_nothing_is_wrong_usage() -> None:
    result = recovery("explain-launch", "-", stdin="apiVersion: v1\nkind: Secret\n", exit_code=2)
    assert result.output == (
        "recovery: nothing in what was given starts a job: no TrainJob, runtime, JobSet or Job of Volcano\n"
    )


FIELDS = [number for number, line in enumerate(TORCH.splitlines()) if ": " in line and not line.startswith("#")]
ODD = st.sampled_from(
    ["", "0", "-1", "1e400", "99999999999999999999", '""', "[]", "{}", "[{}]", "{a: 1}", "1500m", "*x"]
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(FIELDS), ODD, min_size=1, max_size=4))
def test_no_value_of_a_manifest_ends_in_a_traceback(odd: dict[int, str]) -> None:
    lines = TORCH.splitlines()
    for number, value in odd.items():
        lines[number] = f"{lines[number].partition(': ')[0]}: {value}"
    result = CliRunner().invoke(app, ["explain-launch", "-"], input="\n".join(lines))
    assert result.exit_code in {0, 1, 2}, result.output
    assert isinstance(result.exception, SystemExit | None)
    assert result.output, "something is said of everything"


# --- for programs --------------------------------------------------------------------------------------------------


def test_json_has_the_same() -> None:
    found = json.loads(explain("--format", "json", stdin=WORD, exit_code=1))
    (launch,) = found["launches"]
    assert [each["code"] for each in found["findings"]] == ["processes-word"]
    assert {key: launch[key] for key in ("kind", "name", "file", "line", "path", "runtime", "pods", "gpus")} == {
        "kind": "TrainJob",
        "name": "llama",
        "file": "<stdin>",
        "line": 2,
        "path": "",
        "runtime": "ClusterTrainingRuntime/torch-prepared",
        "pods": 16,
        "gpus": 128,
    }
    assert {
        "target": NODE,
        "name": "PET_NNODES",
        "value": "16",
        "rule": "spec.trainer.numNodes of the TrainJob",
        "file": "<stdin>",
        "line": 14,
        "path": "spec.trainer.numNodes",
    } in launch["settings"]
    assert launch["processes"]["count"] == 8
    assert len(launch["outlook"]) == 3


def test_the_debug_log_has_a_line_for_each_decision() -> None:
    quiet = recovery("explain-launch", "-", "--format", "json", stdin=WORD, exit_code=1)
    result = recovery("explain-launch", "-", "--format", "json", "--log-level", "debug", stdin=WORD, exit_code=1)
    assert (result.stdout, quiet.stderr) == (quiet.stdout, "")
    (launch,) = json.loads(result.stdout)["launches"]
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert {line["level"] for line in lines} == {"debug"}
    assert [
        (line["target"], line["name"], line["decision"], line["rule"]) for line in lines if line["msg"] == "setting"
    ] == [(each["target"], each["name"], each["value"], each["rule"]) for each in launch["settings"]]
    told = {
        message: [line for line in lines if line["msg"] == message] for message in ("runtime", "outlook", "finding")
    }
    assert [line["decision"] for line in told["runtime"]] == ["ClusterTrainingRuntime/torch-prepared"]
    assert [line["decision"] for line in told["outlook"]] == launch["outlook"]
    assert [line["code"] for line in told["finding"]] == ["processes-word"]
