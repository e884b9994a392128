"""What `pip install trainjob-recovery` can do without the extra `controller`, and what it says about the rest."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recovery.cli.extras import CONTROLLER_MODULES
from tests.unit.cli.manifests import JOB, TORCH, WORD, written_to

REPOSITORY = Path(__file__).parents[3]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
REMEDY = "pip install 'trainjob-recovery[controller]'"
_GUARD = """
import sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

FORBIDDEN = frozenset(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Guard())
"""
_RECOVERY = f"{_GUARD}\nfrom recovery.cli.entry import main\nmain()\n"
_EACH = f"""{_GUARD}
import contextlib, io, json
from recovery.cli.main import app

ends = []
for arguments in json.loads(sys.argv[1]):
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            app(arguments, prog_name="recovery")
            code = 0
        except SystemExit as error:
            code = error.code
    ends.append((code, stdout.getvalue(), stderr.getvalue()))
print(json.dumps(ends))
"""
_COMPLETE = f"{_GUARD}\nfrom recovery.cli.entry import complete_plugin\ncomplete_plugin()\n"


def closure(named: Iterable[str]) -> set[str]:
    """The distributions that pip installs for these requirements."""
    found: set[str] = set()
    waiting = [Requirement(each) for each in named]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting.extend(map(Requirement, requires(name) or ()))
    return found


@cache
def forbidden() -> str:
    """The modules of all distributions here that the base installation lacks."""
    base = closure(PROJECT["dependencies"]) | {canonicalize_name(PROJECT["name"])}
    return ",".join(
        module
        for module, distributions in packages_distributions().items()
        if not base & {canonicalize_name(each) for each in distributions}
    )


def base(*arguments: str, program: str = _RECOVERY, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the program without the modules that the base installation lacks."""
    return subprocess.run(
        [sys.executable, "-c", program, forbidden(), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_extra_is_what_its_modules_say() -> None:
    named = {Requirement(each).name for each in PROJECT["optional-dependencies"]["controller"]}
    assert {name.lower().replace("-", "_") for name in named} == CONTROLLER_MODULES
    assert set(forbidden().split(",")) >= CONTROLLER_MODULES


def test_the_lock_of_the_image_has_the_extra() -> None:
    lock = (REPOSITORY / "requirements-runtime.lock").read_text()
    locked = {canonicalize_name(name) for name in re.findall(r"^([A-Za-z0-9_.-]+)==", lock, re.MULTILINE)}
    wanted = (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["controller"])
    assert closure(wanted) <= locked


FORMATS = ("text", "json", "github", "gitlab", "sarif")
PRINTING = (("--help",), ("--version",), ("run", "--help"), ("lint", "--explain", "no-retry"))
NEEDING = (
    ("status",),
    ("explain", "llm"),
    ("report", "llm"),
    ("report", "--fleet"),
    ("pause", "llm"),
    ("resume", "llm"),
    ("restart", "llm", "--reason", "a"),
    ("retry", "llm"),
    ("reset-budget", "llm"),
    ("quarantine", "gpu-7", "--reason", "a"),
    ("release", "gpu-7"),
    ("reset-breaker",),
    ("run",),
    ("simulate", "--seed", "7"),
    ("lint", "llama.yaml", "--cluster"),
    ("explain-launch", "llama.yaml", "--cluster"),
)
Ends = Mapping[tuple[str, ...], tuple[int, str, str]]
"""Exit code, stdout and stderr of each command."""


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """Run all commands in one process. No command may import a forbidden module, so none affects the next."""
    folder = tmp_path_factory.mktemp("base")
    written_to(folder / "llama.yaml", JOB)
    written_to(folder / "word.yaml", WORD)
    linted = [("lint", "word.yaml", "--format", output) for output in FORMATS]
    commands = [*NEEDING, *PRINTING, *linted]
    done = base(json.dumps(commands), program=_EACH, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {command: tuple(end) for command, end in zip(commands, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("output", FORMATS)
def test_lint_judges_jobs_in_every_format(ends: Ends, output: str) -> None:
    code, stdout, stderr = ends["lint", "word.yaml", "--format", output]
    assert (code, "processes-word" in stdout) == (1, True), stderr


def test_lint_judges_policies(tmp_path: Path) -> None:
    text = "apiVersion: recovery.trainjob.dev/v1alpha1\nkind: RecoveryPolicy\nmetadata: {name: a}\nspec: {mode: On}\n"
    done = base("lint", written_to(tmp_path / "policy.yaml", text), "--format", "json", cwd=tmp_path)
    assert [each["code"] for each in json.loads(done.stdout)] == ["policy-refused"], done.stderr


def test_explain_launch_explains_and_logs_its_decisions(tmp_path: Path) -> None:
    file = written_to(tmp_path / "llama.yaml", TORCH)
    done = base("explain-launch", file, "--log-level", "debug", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PET_NNODES" in done.stdout
    assert "PET_NNODES" in done.stderr


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_what_only_prints_works(ends: Ends, arguments: tuple[str, ...]) -> None:
    code, stdout, stderr = ends[arguments]
    assert (code, stderr, bool(stdout)) == (0, "", True)


@pytest.mark.parametrize("arguments", NEEDING, ids=" ".join)
def test_what_needs_the_extra_says_so_in_a_line(ends: Ends, arguments: tuple[str, ...]) -> None:
    code, stdout, stderr = ends[arguments]
    assert (code, stdout, stderr.count("\n")) == (1, "", 1), stderr
    assert stderr.startswith("recovery: ")
    assert stderr.endswith(f"{REMEDY}\n")


def test_the_script_says_it_and_ends_with_1(tmp_path: Path) -> None:
    done = base("status", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"{REMEDY}\n")


def test_another_module_that_is_missing_is_no_matter_of_an_extra(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RECOVERY, "recovery.launch,yaml", "lint", "x.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert REMEDY not in done.stderr
    assert "No module named 'yaml'" in done.stderr


def test_tab_offers_no_names_of_the_cluster_and_says_nothing(tmp_path: Path) -> None:
    done = base("explain", "", program=_COMPLETE, cwd=tmp_path)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [":4"], "")
