"""The image builds from files in the build context, fetches only what a hash pins, and has a wheel that works."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.unit.manifests.image import commands, copies, copy_context, files_below, instructions, let_through
from tests.unit.manifests.kustomize import REPOSITORY

PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
WHEEL = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]


def copied() -> set[str]:
    """The sources that the Containerfile copies from the repository."""
    return {source for copy in copies() for source in copy.sources}


# --- what goes in --------------------------------------------------------------------------------------------------


def test_the_image_is_built_from_what_is_there_and_sent_and_nothing_else() -> None:
    ignore = (REPOSITORY / ".containerignore").read_text().splitlines()
    assert "*" in ignore
    assert {line.removeprefix("!") for line in ignore if line.startswith("!")} == copied()
    assert all((REPOSITORY / source).exists() for source in copied())


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        PYPROJECT["project"]["readme"],
        *PYPROJECT["project"]["license-files"],
        *WHEEL["packages"],
        *WHEEL["force-include"],
        *(words[words.index("-r") + 1] for words in commands("pip") if "-r" in words),
    ],
)
def test_what_the_build_reads_is_copied_and_let_through(name: str) -> None:
    files = [file for file in files_below(name) if "__pycache__" not in file]
    assert files, f"{name} is not in the repository"
    for file in files:
        assert let_through(file), f".containerignore keeps {file} out"
        above = {file, *map(str, Path(file).parents)}
        assert above & copied(), f"no COPY takes {file}"


@pytest.mark.parametrize(
    ("file", "sent"),
    [
        ("recovery/core/decision/decide.py", True),
        ("recovery/core/__pycache__/decide.cpython-311.pyc", False),
        ("policies/default.yaml", True),
        ("docs/lint/no-resume.md", True),
        ("docs/commands.md", False),
        ("manifests/crd/recoverypolicies.yaml", True),
        ("manifests/rbac/observe.yaml", False),
        ("tests/unit/manifests/test_image.py", False),
        ("Containerfile", False),
        (".git/config", False),
    ],
)
def test_the_rest_of_the_repository_is_not_sent(file: str, sent: bool) -> None:
    assert let_through(file) is sent


# --- what is fetched -----------------------------------------------------------------------------------------------


def test_pip_fetches_nothing_that_no_hash_holds() -> None:
    for words in commands("pip"):
        if words[1] == "install":
            held = {"--require-hashes", "-r"} <= set(words) or {"--no-index", "--no-deps"} <= set(words)
            assert held, words
        if words[1] == "wheel":
            assert {"--no-build-isolation", "--no-deps"} <= set(words), f"{words} fetches the build backend by itself"
    assert any("requirements-runtime.lock" in words for words in commands("pip"))


def pins(lock: str) -> dict[str, str]:
    """The hashes of each requirement of a lock file, by what it pins, such as `hatchling==1.33.0`."""
    lines = (REPOSITORY / lock).read_text().splitlines()
    joined = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ")
    return {line.split()[0]: " ".join(sorted(line.split()[1:])) for line in joined.splitlines() if line.strip()}


def test_the_image_is_built_by_the_locked_backend_that_these_tests_build_with() -> None:
    build = pins("requirements-build.lock")
    assert set(PYPROJECT["build-system"]["requires"]) <= build.keys()
    assert build.items() <= pins("requirements.lock").items()


def test_the_base_and_the_index_are_yours_to_choose() -> None:
    assert [each.arguments for each in instructions("FROM")] == ["${BASE} AS build", "${BASE}"]
    [(before_any_stage, _, base)] = [each for each in instructions("ARG") if each.arguments.startswith("BASE=")]
    assert before_any_stage == 0
    assert "/" not in base, "no registry is named"
    assert (1, "PIP_INDEX_URL") in [(each.stage, each.arguments) for each in instructions("ARG")]
    assert not re.search(r"https?://", (REPOSITORY / "Containerfile").read_text())


# --- what comes out ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the Containerfile's command builds, without a network, from what its COPY instructions take."""
    folder = tmp_path_factory.mktemp("image")
    copy_context(folder)
    [build] = [words for words in commands("pip") if "." in words]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *build[1:]]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PIP_NO_INDEX": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [built] = folder.rglob("*.whl")
    return built


def test_the_wheel_holds_the_definitions_and_the_runtimes_of_the_simulation(wheel: Path) -> None:
    held = set(ZipFile(wheel).namelist())
    for source, destination in WHEEL["force-include"].items():
        names = {file.replace(source, destination, 1) for file in files_below(source)}
        assert names == {name for name in held if name.startswith(f"{destination}/")}
    assert not [name for name in held if name.startswith("recovery/crds/")], "it generates files of the repository"


def test_what_is_installed_from_the_wheel_runs_and_finds_its_definitions(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = ("install", "--no-deps", "--no-index", "--no-compile", "--quiet", "--target", str(site), str(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *install], check=True)

    def said(*command: str) -> str:
        environment = {"PATH": "", "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    assert "Usage: recovery " in said(str(site / "bin" / "recovery"), "--help")
    found = said(sys.executable, "-c", "from recovery.sim.api.kinds.recovery import definitions; print(definitions())")
    assert Path(found.strip()) == site / "recovery" / "sim" / "crd"
    assert said(str(site / "bin" / "recovery"), "lint", "--explain", "no-resume").startswith("no-resume\n")
