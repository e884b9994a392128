"""`recovery lint`: what it reads, and its exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recovery.cli.cluster_runtimes import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from recovery.cli.main import app
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.manifests import JOB, RUNTIME, SEVEN, TORCH, WORD, recovery, runtime_object, told, written_to


def lint(*arguments: str, stdin: str | bytes = "", exit_code: int = 0) -> list[str]:
    """The findings, one line each."""
    return told(recovery("lint", *arguments, stdin=stdin, exit_code=exit_code).stdout)


def problems(*arguments: str, stdin: str | bytes = "") -> list[str]:
    """The lines on stderr of a run that could judge nothing."""
    result = recovery("lint", *arguments, stdin=stdin, exit_code=2)
    assert result.stdout == ""
    return result.stderr.splitlines()


# --- findings ------------------------------------------------------------------------------------------------------


def test_nothing_wrong_is_no_line_and_exit_code_0(tmp_path: Path) -> None:
    result = recovery("lint", written_to(tmp_path / "llama.yaml"))
    assert (result.stdout, result.stderr) == ("", "no findings in 1 file\n")


@pytest.mark.parametrize(("text", "code", "exit_code"), [(SEVEN, "processes-not-gpus", 0), (WORD, "processes-word", 1)])
def test_errors_alone_make_the_exit_code_1(text: str, code: str, exit_code: int) -> None:
    (line,) = lint("-", stdin=text, exit_code=exit_code)
    assert code in line


def test_the_summary_counts_findings_by_severity_and_files(tmp_path: Path) -> None:
    for name, text in (("a.yaml", SEVEN), ("b.yaml", WORD), ("c.yaml", TORCH)):
        written_to(tmp_path / name, text.replace("name: llama", f"name: {name[0]}"))
    written_to(tmp_path / "values.yaml", "replicas: 3\n")
    said = recovery("lint", str(tmp_path), exit_code=1).stderr
    assert said == "1 error, 1 warning in 4 files, 1 of them with nothing that is judged\n"


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "recovery.cli.entry", "lint", written_to(tmp_path / "llama.yaml", WORD)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        assert "Traceback" not in started.stderr.read()
        assert started.wait(60) == 141


def test_what_this_repository_ships_is_clean() -> None:
    """The one finding is about a runtime that Trainer ships."""
    shipped = [str(Path(__file__).parents[3] / folder) for folder in ("examples", "policies")]
    (line,) = lint(*shipped)
    assert ": unknown-runtime: the ClusterTrainingRuntime torch-distributed " in line


# --- input ---------------------------------------------------------------------------------------------------------


def test_files_are_judged_together_so_that_a_runtime_is_found_in_another_one(tmp_path: Path) -> None:
    job, runtime = written_to(tmp_path / "job.yaml", JOB), written_to(tmp_path / "runtime.yaml", RUNTIME)
    (alone,) = lint(job)
    assert "unknown-runtime" in alone
    assert lint(job, runtime) == []
    assert lint(runtime, "-", stdin=JOB) == []


def test_a_folder_is_its_manifests_at_any_depth_in_their_order_and_nothing_hidden(tmp_path: Path) -> None:
    for name in ("b/c/two.yml", "a/one.yaml", "b/three.json", ".git/x.yaml", "a/.y.yaml", "a/notes.txt"):
        written_to(tmp_path / name, "{" if name.endswith("json") else WORD)
    found = json.loads(recovery("lint", str(tmp_path), "--format", "json", exit_code=1).stdout)
    assert [os.path.relpath(each["file"], tmp_path) for each in found] == [
        "a/one.yaml",
        "b/c/two.yml",
        "b/three.json",
    ]


def test_what_is_named_twice_is_judged_once(tmp_path: Path) -> None:
    file = written_to(tmp_path / "llama.yaml", WORD)
    (tmp_path / "link.yaml").symlink_to(file)
    assert len(lint(file, str(tmp_path), file, exit_code=1)) == 1


@pytest.mark.parametrize(
    "text", ["replicas: 3\n", "- 1\n", "apiVersion: v2\nname: chart\n", "kind: Secret\napiVersion: v1\n"]
)
def test_of_a_folder_only_what_is_meant_as_an_object_of_ours_is_told(tmp_path: Path, text: str) -> None:
    written_to(tmp_path / "llama.yaml")
    file = written_to(tmp_path / "other.yaml", text)
    assert lint(str(tmp_path)) == []
    assert len(told(CliRunner().invoke(app, ["lint", file]).stdout)) == 1, "a file that is named is asked about"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("kind: TrainJob\nspec: {}\n", "not-an-object"),
        ("apiVersion: trainer.kubeflow.org/v1alpha1\nspec: {}\n", "not-an-object"),
        ("kind: TrainJob\napiVersion: trainer.kubeflow.org/v2\n", "wrong-api-version"),
        ("kind: [\n", "not-yaml"),
    ],
)
def test_what_is_half_an_object_is_reported_a_folder_too(tmp_path: Path, text: str, code: str) -> None:
    written_to(tmp_path / "llama.yaml", text)
    (line,) = told(CliRunner().invoke(app, ["lint", str(tmp_path)]).stdout)
    assert f": {code}: " in line


def test_a_byte_order_mark_and_carriage_returns_are_no_part_of_the_text() -> None:
    assert lint("-", stdin=b"\xef\xbb\xbf" + TORCH.replace("\n", "\r\n").encode()) == []


def test_a_text_that_is_too_long_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("recovery.cli.manifest_files", "recovery.launch.documents"):
        monkeypatch.setattr(f"{module}.CHARACTERS_MAX", len(TORCH) - 1)
    (line,) = lint("-", stdin=TORCH, exit_code=1)
    assert line.startswith("<stdin>:1: error: too-large: ")


# --- what cannot be judged -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "---\n---\n", "# nothing\n"])
def test_an_empty_input_is_no_success(text: str) -> None:
    assert problems("-", stdin=text) == [
        "recovery: there is nothing to judge in -: no object of a kind that is known here"
    ]


def test_each_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = written_to(tmp_path / "weights.bin", b"\x80\x02\x00\xff")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert problems(f"{tmp_path}/none.yaml", binary, str(empty)) == [
        f"recovery: {tmp_path}/none.yaml cannot be read: No such file or directory",
        f"recovery: {binary} is not UTF-8 text: save it as UTF-8, or leave it out if it is no manifest",
        f"recovery: {empty} is a folder without files *.yaml, *.yml, *.json",
    ]


def test_a_file_that_cannot_be_read_makes_the_exit_code_2_and_the_others_are_judged(tmp_path: Path) -> None:
    file = written_to(tmp_path / "llama.yaml", WORD)
    result = recovery("lint", file, f"{tmp_path}/none.yaml", exit_code=2)
    assert "processes-word" in result.stdout
    assert "none.yaml cannot be read" in result.stderr


def test_without_a_file_it_is_wrong_usage() -> None:
    assert "Missing argument 'FILE'" in recovery("lint", exit_code=2).stderr


def test_ctrl_c_is_130_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recovery.cli.lint.lint_all", interrupted)
    assert recovery("lint", "-", stdin=TORCH, exit_code=130).output == ""


BAD = {
    "quantity": ("resourcesPerNode: {limits: {nvidia.com/gpu: 8 GPUs}}", {"bad-quantity"}),
    "negative": ("resourcesPerNode: {limits: {cpu: -1}}", {"bad-quantity"}),
    "absurd": ("numNodes: 99999999999999999999", {"bad-number"}),
    "zero": ("numNodes: 0", {"bad-number"}),
    "words for numbers": ('numNodes: "8"', {"wrong-type"}),
    "a list for an object": ("resourcesPerNode: []", {"wrong-type"}),
}


@pytest.mark.parametrize(("field", "codes"), BAD.values(), ids=BAD)
def test_bad_input_is_a_clear_error(field: str, codes: set[str]) -> None:
    text = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: llama}}
spec:
  runtimeRef: {{name: torch-distributed}}
  trainer: {{image: a, {field.replace(": ", ": ", 1)}}}
"""
    found = lint("-", stdin=text, exit_code=1)
    assert {line.split(": ")[2] for line in found if ": error: " in line} == codes
    assert all(line.startswith("<stdin>:7: ") for line in found if ": error: " in line)


@pytest.mark.parametrize("quantity", ["1500m", '"8"', "8", "1e1", "2Gi"])
def test_quantities_as_kubernetes_writes_them_are_none(quantity: str) -> None:
    text = RUNTIME + f"---\n{JOB.replace('cpu: 96', f'cpu: {quantity}')}"
    assert lint("-", stdin=text) == []


def test_anchors_and_several_documents() -> None:
    tolerations = "tolerations: &patient\n"
    text = TORCH.replace("tolerations:\n", tolerations) + "---\n" + SEVEN.replace("name: llama", "name: other")
    (line,) = lint("-", stdin=text)
    assert line.startswith(f"<stdin>:{TORCH.count(chr(10)) + 1 + 15}: warning: processes-not-gpus: ")


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet="{}[]:-&*!|>#'\",% \nakndpiVersio\t0", max_size=80)))
def test_no_input_ends_in_a_traceback(text: bytes | str) -> None:
    result = CliRunner().invoke(app, ["lint", "-"], input=text)
    assert result.exit_code in {0, 1, 2}, result.output
    assert isinstance(result.exception, SystemExit | None)
    assert result.output, "something is said of everything"


# --- runtimes of a cluster -----------------------------------------------------------------------------------------


def test_with_cluster_the_runtime_that_no_file_has_is_read(cluster: PlainCluster) -> None:
    cluster.put(CLUSTER_TRAINING_RUNTIMES, runtime_object())
    assert lint("-", "--cluster", stdin=JOB) == []
    assert cluster.plurals("get") == ["clustertrainingruntimes"]


def test_a_runtime_of_5000_levels_is_judged_by_those_that_count(cluster: PlainCluster) -> None:
    cluster.put(CLUSTER_TRAINING_RUNTIMES, runtime_object() | {"deep": "~"})
    cluster.raw["~"] = "[" * 5000 + "]" * 5000
    assert lint("-", "--cluster", stdin=JOB) == []


@pytest.mark.parametrize("runtime", ["[]", "1", '{"metadata"'])
def test_a_runtime_that_is_no_object_is_one_line_and_1(
    cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    cluster.put(CLUSTER_TRAINING_RUNTIMES, runtime_object())
    monkeypatch.setattr(cluster, "send", AsyncMock(return_value=runtime.encode()))
    result = recovery("lint", "-", "--cluster", stdin=JOB, exit_code=1)
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert "ClusterTrainingRuntime without a name cannot be read: " in result.stderr


def test_without_it_no_cluster_is_asked(cluster: PlainCluster) -> None:
    (line,) = lint("-", stdin=JOB)
    assert "unknown-runtime" in line
    assert cluster.plurals("get") == []


def test_without_it_nothing_that_talks_to_a_cluster_is_loaded(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.argv = ['recovery', 'lint', {written_to(tmp_path / 'llama.yaml', JOB)!r}]\n"
        "from recovery.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print(sorted({'kubernetes_asyncio', 'kopf', 'aiohttp', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stderr == "1 note in 1 file\n[]\n"
    assert "unknown-runtime" in ended.stdout


def test_a_runtime_that_a_file_has_is_not_asked_for_and_one_of_two_jobs_once(cluster: PlainCluster) -> None:
    cluster.put(CLUSTER_TRAINING_RUNTIMES, runtime_object("other"))
    others = [JOB.replace("name: torch-prepared", "name: other").replace("name: llama", f"name: {n}") for n in "ab"]
    assert lint("-", "--cluster", stdin="---\n".join([TORCH, *others])) == []
    assert cluster.plurals("get") == ["clustertrainingruntimes"]


@pytest.mark.parametrize(
    ("of_job", "option", "lies_in"),
    [("  namespace: research\n", (), "research"), ("", (), "team-a"), ("", ("-n", "team-b"), "team-b")],
)
def test_a_training_runtime_is_of_the_namespace_of_its_job(
    cluster: PlainCluster, of_job: str, option: tuple[str, ...], lies_in: str
) -> None:
    cluster.put(TRAINING_RUNTIMES, runtime_object(namespace=lies_in))
    job = JOB.replace("  namespace: research\n", of_job)
    job = job.replace("name: torch-prepared", "name: torch-prepared\n    kind: TrainingRuntime")
    assert recovery("lint", "-", "--cluster", *option, stdin=job).output == "no findings in 1 file\n"


def test_a_finding_in_a_runtime_of_the_cluster_names_object_and_field(cluster: PlainCluster) -> None:
    found = runtime_object()
    pods = found["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pods["restartPolicy"] = "OnFailure"
    cluster.put(CLUSTER_TRAINING_RUNTIMES, found)
    field = "spec.template.spec.replicatedJobs[0].template.spec.template.spec.restartPolicy"
    (line,) = lint("-", "--cluster", stdin=JOB)
    assert line.startswith(f"ClusterTrainingRuntime/torch-prepared:{field}: warning: restarted-in-place: ")
    (data,) = json.loads("".join(lint("-", "--cluster", "--format", "json", stdin=JOB)))
    assert (data["file"], data["line"], data["kind"], data["path"]) == (None, None, "ClusterTrainingRuntime", field)
    (command,) = lint("-", "--cluster", "--format", "github", stdin=JOB)
    assert command.startswith(f"::warning title=restarted-in-place::ClusterTrainingRuntime/torch-prepared:{field}: ")
    run = json.loads("".join(lint("-", "--cluster", "--format", "sarif", stdin=JOB)))["runs"][0]
    (result,) = run["results"]
    assert result["locations"] == [
        {"logicalLocations": [{"fullyQualifiedName": f"ClusterTrainingRuntime/torch-prepared:{field}"}]}
    ]


def test_a_runtime_that_is_not_there_is_said_and_stays_unknown(cluster: PlainCluster) -> None:
    result = recovery("lint", "-", "--cluster", stdin=JOB)
    assert "unknown-runtime" in result.stdout
    assert result.stderr.splitlines()[0] == "recovery: the cluster has no ClusterTrainingRuntime torch-prepared"
    assert "(correct runtimeRef, or pass its file too: the cluster has none of that name)" in told(result.stdout)[0]
    assert "--cluster" not in result.stdout


def test_a_cluster_that_does_not_answer_for_it_is_one_line_and_1(cluster: PlainCluster) -> None:
    cluster.denied = {("get", "clustertrainingruntimes")}
    result = recovery("lint", "-", "--cluster", stdin=JOB, exit_code=1)
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert "a permission is missing: get clustertrainingruntimes" in result.stderr
    cluster.absent = {"clustertrainingruntimes"}
    result = recovery("lint", "-", "--cluster", stdin=JOB, exit_code=1)
    assert result.stderr == "recovery: Kubeflow Trainer is not installed in the cluster, so it has no runtimes\n"


def test_a_kubeconfig_that_is_not_there_is_one_line_and_1(tmp_path: Path) -> None:
    result = recovery("lint", "-", "--cluster", "--kubeconfig", f"{tmp_path}/none", stdin=JOB, exit_code=1)
    assert (result.stdout, result.stderr.count("recovery: ")) == ("", 1)
    assert f"{tmp_path}/none" in result.stderr


@pytest.mark.parametrize(
    "option", [["--kubeconfig", "x"], ["--context", "x"], ["--request-timeout", "5s"], ["-n", "x"]]
)
@pytest.mark.parametrize("command", ["lint", "explain-launch"])
def test_options_of_a_cluster_without_one_are_wrong_usage(command: str, option: list[str]) -> None:
    assert "goes with --cluster" in recovery(command, "-", *option, stdin=TORCH, exit_code=2).stderr


def test_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text("kind: TrainJob\n")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                "from recovery.cli.entry import main; main()",
                "lint",
                str(manifest),
                "--format=json",
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=50,
        )
    assert (ended.returncode, ended.stderr) == (1, "recovery: the output cannot be written: No space left on device\n")


def test_templates_in_a_folder_are_passed_over_and_counted(tmp_path: Path) -> None:
    (tmp_path / "chart.yaml").write_text("kind: {{ .Values.kind }}\n")
    (tmp_path / "job.yaml").write_text("kind: TrainJob\n")
    told = recovery("lint", str(tmp_path), exit_code=1)
    assert "chart.yaml" not in told.stdout
    assert "2 files, 1 of them with nothing that is judged" in told.stderr
    assert f"{tmp_path}/chart.yaml is a template" in told.stderr
    assert "helm template . | recovery lint -" in told.stderr
