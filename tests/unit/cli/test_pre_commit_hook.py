"""The pre-commit hook: a manifest that pre-commit accepts, and a command that judges the staged files."""

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.manifests import JOB, RUNTIME, TORCH, WORD, written_to

REPOSITORY = Path(__file__).parents[3]
REQUIRED = {"id", "name", "entry", "language"}
OPTIONAL: dict[str, type] = {
    "description": str,
    "files": str,
    "exclude": str,
    "types": list,
    "types_or": list,
    "exclude_types": list,
    "always_run": bool,
    "fail_fast": bool,
    "verbose": bool,
    "pass_filenames": bool,
    "require_serial": bool,
    "language_version": str,
    "minimum_pre_commit_version": str,
    "args": list,
    "stages": list,
}
"""The optional keys that pre-commit 4 accepts in a manifest."""


def hook() -> dict[str, Any]:
    (found,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    assert isinstance(found, dict)
    return found


def test_the_manifest_has_what_pre_commit_requires_and_nothing_that_it_does_not_know() -> None:
    given = hook()
    assert given.keys() >= REQUIRED
    assert all(isinstance(given[name], str) and given[name] for name in REQUIRED)
    rest = {name: value for name, value in given.items() if name not in REQUIRED}
    assert [name for name, value in rest.items() if not isinstance(value, OPTIONAL.get(name, type(None)))] == []


def test_what_it_runs_is_a_script_that_the_installation_makes() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    program, command, *_ = shlex.split(hook()["entry"])
    assert (program in project["scripts"], command) == (True, "lint")
    assert hook()["language"] == "python", "pre-commit installs the package into an environment of its own"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    _git("init", "--quiet")
    return tmp_path


def commit_check(exit_code: int) -> str:
    """Run the hook as a commit would: pre-commit passes the staged files of these types, without deleted ones. Asserts
    the exit code and returns the output."""
    suffixes = {"yaml": (".yaml", ".yml"), "json": (".json",)}
    wanted = tuple(suffix for each in hook()["types_or"] for suffix in suffixes[each])
    staged = [
        each for each in _git("diff", "--cached", "--name-only", "--diff-filter=d").split() if each.endswith(wanted)
    ]
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*shlex.split(hook()["entry"]), *staged],
        env=os.environ | {"PATH": scripts},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == exit_code, done.stderr
    return done.stdout


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_staged_file_with_an_error_stops_the_commit(repository: Path) -> None:
    written_to(Path("training/llama.yaml"), WORD)
    written_to(Path("training/not-staged.yaml"), "kind: [\n")
    _git("add", "training/llama.yaml")
    assert commit_check(1).startswith("training/llama.yaml:15: error: processes-word: ")


def test_staged_files_are_judged_together_and_those_of_other_tools_are_skipped(repository: Path) -> None:
    files = {
        "job.yaml": JOB,
        "runtime.yaml": RUNTIME,
        ".github/workflows/ci.yaml": "on: push\njobs: {}\n",
        "chart/templates/job.yaml": "kind: {{ .Values.kind }}\n",
        "package.json": "{}\n",
    }
    for name, text in files.items():
        written_to(Path(name), text)
    _git("add", ".")
    assert commit_check(0) == ""


def test_a_commit_without_anything_that_is_judged_goes_through(repository: Path) -> None:
    written_to(Path("values.yaml"), "replicas: 3\n")
    _git("add", ".")
    assert commit_check(0) == ""


def test_a_file_that_is_being_deleted_is_not_judged(repository: Path) -> None:
    written_to(Path("llama.yaml"), WORD)
    written_to(Path("mistral.yaml"), TORCH.replace("llama", "mistral"))
    _git("add", ".")
    _git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "a")
    _git("rm", "--quiet", "llama.yaml")
    written_to(Path("mistral.yaml"), TORCH.replace("llama", "other"))
    _git("add", ".")
    assert commit_check(0) == ""
