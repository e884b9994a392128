"""Options of `recovery lint`: what fails, what is ignored, what is skipped, and the page of a code."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from recovery.cli.formatting import LintFormat
from recovery.cli.main import app
from recovery.launch.findings import Code
from recovery.launch.lint import CODES
from tests.unit.cli.manifests import JOB, SEVEN, TORCH, WORD, recovery, written_to

REPOSITORY = Path(__file__).parents[3]
NOTE = JOB
"""One note."""


def codes(*arguments: str, stdin: str = "", exit_code: int = 0) -> list[str]:
    found = recovery("lint", *arguments, "--format", "json", stdin=stdin, exit_code=exit_code).stdout
    return [each["code"] for each in json.loads(found)]


def refused(*arguments: str) -> str:
    """The message about wrong usage, on one line."""
    result = recovery("lint", *arguments, stdin=TORCH, exit_code=2)
    assert result.stdout == ""
    return " ".join(result.stderr.split())


# --- --fail-on -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fail_on", "exit_codes"),
    [("error", [1, 0, 0, 0]), ("warning", [1, 1, 0, 0]), ("note", [1, 1, 1, 0])],
)
def test_findings_fail_from_the_chosen_severity_on(fail_on: str, exit_codes: list[int]) -> None:
    for text, exit_code in zip((WORD, SEVEN, NOTE, TORCH), exit_codes, strict=True):
        recovery("lint", "-", "--fail-on", fail_on, stdin=text, exit_code=exit_code)


def test_a_file_that_cannot_be_read_stays_2(tmp_path: Path) -> None:
    recovery("lint", written_to(tmp_path / "a.yaml", SEVEN), "gone.yaml", "--fail-on", "warning", exit_code=2)


def test_there_are_no_other_severities() -> None:
    assert "'notice' is not one of" in refused("-", "--fail-on", "notice")


# --- --ignore ------------------------------------------------------------------------------------------------------


def test_an_ignored_code_is_not_told_and_does_not_fail() -> None:
    assert codes("-", stdin=WORD, exit_code=1) == ["processes-word"]
    assert codes("-", "--ignore", "processes-word", stdin=WORD) == []
    assert codes("-", "--ignore", "processes-not-gpus", stdin=WORD, exit_code=1) == ["processes-word"]


@pytest.mark.parametrize(
    "options",
    [
        ["--ignore", "processes-word", "--ignore", "processes-not-gpus"],
        ["--ignore", "processes-not-gpus,processes-word"],
        ["--ignore=processes-word, processes-not-gpus,processes-word"],
    ],
)
def test_several_codes_are_ignored(tmp_path: Path, options: list[str]) -> None:
    files = [
        written_to(tmp_path / f"{name}.yaml", text.replace("llama", name)) for name, text in (("a", WORD), ("b", SEVEN))
    ]
    assert codes(*files, *options) == []


def test_the_summary_says_how_many_were_left_out() -> None:
    said = recovery("lint", "-", "--ignore", "processes-word", stdin=WORD).stderr
    assert said == "no findings in 1 file; 1 finding left out by --ignore\n"


def test_our_own_kinds_are_ignored_alike() -> None:
    text = "apiVersion: recovery.trainjob.dev/v1alpha1\nkind: RecoveryPolicy\nmetadata: {name: a}\nspec: {mode: On}\n"
    assert codes("-", stdin=text, exit_code=1) == ["policy-refused"]
    assert codes("-", "--ignore", "policy-refused", stdin=text) == []


# --- codes that do not exist ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--ignore", "--explain"])
@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("processes-wrod", "processes-word"),
        ("No-Resume", "no-resume"),
        ("resume", "no-resume"),
        ("gang", "gang-scheduler-unnamed or gang-starts-half or gang-waits-for-itself"),
    ],
)
def test_an_unknown_code_is_refused_with_the_nearest_one(option: str, given: str, near: str) -> None:
    assert f"there is no code '{given}'; did you mean {near}?" in refused("-", option, given)


@pytest.mark.parametrize("given", ["", "xyzzy"])
def test_what_is_near_none_is_refused_too(given: str) -> None:
    assert f"there is no code '{given}'; docs/lint/README.md lists all codes" in refused("-", "--ignore", given)


def test_an_unknown_code_is_refused_among_known_ones() -> None:
    assert "there is no code 'no-resum'" in refused("-", "--ignore", "no-retry,no-resum", "--ignore", "no-retry")


# --- --skip-others -------------------------------------------------------------------------------------------------


def test_a_named_file_without_anything_that_is_judged_is_skipped_as_in_a_folder(tmp_path: Path) -> None:
    values = written_to(tmp_path / "values.yaml", "replicas: 3\n")
    template = written_to(tmp_path / "chart.yaml", "kind: {{ .Values.kind }}\n")
    job = written_to(tmp_path / "llama.yaml", SEVEN)
    assert codes(values, template, job, exit_code=1) == ["not-an-object", "template", "processes-not-gpus"]
    assert codes(values, template, job, "--skip-others") == ["processes-not-gpus"]
    said = recovery("lint", values, template, job, "--skip-others").stderr
    assert said == "1 warning in 3 files, 2 of them with nothing that is judged\n"


def test_it_is_no_failure_if_all_are_skipped(tmp_path: Path) -> None:
    values = written_to(tmp_path / "values.yaml", "replicas: 3\n")
    assert codes(values, "--skip-others") == []


def test_what_is_meant_as_an_object_of_ours_is_not_skipped_nor_what_cannot_be_read(tmp_path: Path) -> None:
    half = written_to(tmp_path / "half.yaml", "kind: TrainJob\nspec: {}\n")
    broken = written_to(tmp_path / "broken.yaml", "kind: [\n")
    assert codes(half, broken, "--skip-others", exit_code=1) == ["not-an-object", "not-yaml"]
    assert codes(str(tmp_path / "gone.yaml"), "--skip-others", exit_code=2) == [None]


# --- --explain -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES, ids=[code.name for code in CODES])
def test_the_page_of_each_code_is_rendered(code: Code) -> None:
    first, _, second, _, *rest = recovery("lint", "--explain", code.name).stdout.splitlines()
    assert (first, second) == (code.name, f"{code.severity}: {code.title}")
    assert {"Bad:", "Good:"} <= set(rest)
    assert not [line for line in rest if line.startswith(("```", "#")) or "](" in line or "# base: " in line]
    assert not [line for line in rest if line != line.rstrip() or (len(line) > 80 and not line.startswith("    "))]


def test_examples_can_be_copied_from_it() -> None:
    page = recovery("lint", "--explain", "range-not-elastic").stdout
    text = (REPOSITORY / "docs/lint/range-not-elastic.md").read_text()
    blocks = re.findall(r"^```yaml\n# base: \w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        indented = "\n".join(f"    {line}".rstrip() for line in block.rstrip().splitlines())
        assert f"\n{indented}\n" in page


def test_it_needs_no_file_and_reads_none() -> None:
    assert recovery("lint", "--explain", "no-resume", "gone.yaml").stdout.startswith("no-resume\n")


def test_codes_are_completed_with_what_they_say() -> None:
    environment = {"_RECOVERY_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    offered = [f"{code.name}\t{code.title}" for code in CODES if code.name.startswith("no-re")]
    assert len(offered) > 1
    for option in ("--explain", "--ignore"):
        words = {"_TYPER_COMPLETE_ARGS": f"recovery lint {option} no-re"}
        result = CliRunner().invoke(app, [], prog_name="recovery", env=environment | words)
        assert result.stdout.splitlines() == sorted(offered)


def test_what_is_already_on_the_line_does_not_stop_completion() -> None:
    environment = {"_RECOVERY_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    words = {"_TYPER_COMPLETE_ARGS": "recovery lint --explain no-resume --ignore wrong --fail-on "}
    result = CliRunner().invoke(app, [], prog_name="recovery", env=environment | words)
    assert result.stdout.splitlines() == ["error", "warning", "note"]


# --- the page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["docs/lint/README.md", "docs/commands.md"])
def test_the_docs_name_options_and_formats_that_exist(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    help_text = recovery("lint", "--help").stdout
    lines = [line for line in text.splitlines() if re.search(r"recovery lint [^|]*--|\| `lint |\| `--", line)]
    assert lines
    named = {option for line in lines for option in re.findall(r"(?<![\w-])--[a-z-]+", line)}
    assert sorted(option for option in named if f"{option} " not in help_text) == []


def test_the_snippets_for_ci_can_be_read_and_name_formats_that_exist() -> None:
    section = (REPOSITORY / "docs/lint/README.md").read_text().split("\n## Lint in CI\n")[1].split("\n## ")[0]
    snippets = [
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    ]
    assert len(snippets) == 4
    formats = re.findall(r"recovery lint --format (\w+) training/", section)
    assert formats == ["sarif", "github", "gitlab"]
    assert set(formats) < set(LintFormat)
