"""The image as shipped: reproducible, complete, and able to run under any user on a read-only root."""

import importlib.util
import json
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from recovery.generated_files import REPOSITORY
from tests.image.base import EPOCH_SECONDS
from tests.image.build import build, digest, inputs, reference
from tests.image.rootfs import NAMELESS, Rootfs

NO_EXTRA_FILES = ("setuptools", "pip", "hatchling", "pytest")
CHECKED_HASH = 0b11
UNCHECKED_HASH = 0b01


# --- inputs ----------------------------------------------------------------------------------------------------------


def test_two_builds_are_equal_and_nothing_beside_the_inputs_matters(archive: Path, tmp_path: Path) -> None:
    """The second build has another folder, other times and modes of the files, and extra files that no build reads."""
    for name in inputs():
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, copy)
        copy.chmod(0o600)
    for name in (
        "docs/new.md",
        "tests/unit/test_new.py",
        "manifests/rbac/new.yaml",
        "recovery/__pycache__/new.pyc",
        ".env",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("new")
    again = tmp_path / "again.tar"
    build(tmp_path, again)
    assert digest(again) == digest(archive)
    again.unlink()


def test_the_archive_holds_the_image_that_the_deployment_runs(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        manifest = opened.extractfile("manifest.json")
        assert manifest is not None
        [image] = json.load(manifest)
    assert image["RepoTags"] == [reference()]


def test_its_user_is_that_of_the_deployment_and_has_a_name(rootfs: Rootfs) -> None:
    deployment = yaml.safe_load((REPOSITORY / "manifests/manager/deployment.yaml").read_text())
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert rootfs.user == f"{context['runAsUser']}:{context['runAsGroup']}"
    asked = rootfs.run("-c", "import getpass; print(getpass.getuser())", entrypoint=["python"])
    assert (asked.stdout, asked.stderr) == ("recovery\n", "")


def test_it_holds_neither_what_only_builds_nor_what_only_tests(rootfs: Rootfs) -> None:
    packages = {path.name.partition("-")[0] for path in _site_packages(rootfs).iterdir()}
    assert packages.isdisjoint(NO_EXTRA_FILES)
    assert {"recovery", "kopf"} <= packages


def test_it_names_neither_the_mirror_nor_the_index_that_it_was_made_from(rootfs: Rootfs) -> None:
    """Addresses of the build machine would not work elsewhere, and would reveal where it was."""
    sources = Path("/etc/apt").glob("sources.list*/*")
    hosts = {host for path in sources for host in re.findall(r"https?://([^/\s]+)", path.read_text(errors="replace"))}
    assert hosts, "apt knows a mirror here, or the base could not be made"
    official = {"deb.debian.org", "security.debian.org"}
    for folder in ("etc", "var", "root", "home", "opt"):
        for path in _files(rootfs.folder / folder):
            assert not [host for host in hosts - official if host in str(path) or host.encode() in path.read_bytes()], (
                path
            )
    for name in ("etc/pip.conf", "etc/resolv.conf", "etc/hostname", "etc/apt/sources.list", "wheels"):
        assert not (rootfs.folder / name).exists()


# --- bytecode ------------------------------------------------------------------------------------------------------


def test_no_bytecode_is_stale_and_none_of_ours_is_missing(rootfs: Rootfs) -> None:
    """Stale bytecode is compiled again at every start: nothing can be written to a read-only root."""
    stale = [str(path) for path in _files(rootfs.folder) if path.suffix == ".pyc" and not _is_fresh(path)]
    assert stale == []
    sources = list(_site_packages(rootfs).rglob("*.py"))
    compiled = [path for path in sources if Path(importlib.util.cache_from_source(str(path))).exists()]
    assert len(sources) > 1000
    assert len(compiled) / len(sources) > 0.99, "a few templates of packages are no Python"


def _is_fresh(bytecode: Path) -> bool:
    """Whether Python's own import would use it."""
    source = Path(importlib.util.source_from_cache(str(bytecode)))
    if not source.exists():
        return False
    header = bytecode.read_bytes()[:16]
    if header[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags = int.from_bytes(header[4:8], "little")
    if flags == UNCHECKED_HASH:
        return True
    if flags == CHECKED_HASH:
        return header[8:16] == importlib.util.source_hash(source.read_bytes())
    found = source.stat()
    dated = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
    return flags == 0 and dated == (int(found.st_mtime), found.st_size)


def test_every_file_of_ours_has_the_date_of_the_build(rootfs: Rootfs) -> None:
    assert {path.stat().st_mtime for path in _files(rootfs.folder / "opt")} == {EPOCH_SECONDS}


# --- at work -------------------------------------------------------------------------------------------------------

JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: llm, namespace: team-a}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {numNodes: 2}
"""


@pytest.fixture(params=[None, NAMELESS], ids=["own user", "user without a name"])
def user(request: pytest.FixtureRequest) -> str | None:
    chosen: str | None = request.param
    return chosen


def test_it_tells_its_version(rootfs: Rootfs, user: str | None) -> None:
    done = rootfs.run("--version", user=user)
    assert (done.returncode, done.stderr) == (0, "")
    assert reference().rpartition(":")[2] in done.stdout


def test_it_reads_manifests(rootfs: Rootfs, user: str | None) -> None:
    done = rootfs.run("lint", "-", stdin=JOB, user=user)
    assert done.returncode == 0, done.stderr
    assert "unknown-runtime" in done.stdout


def test_it_has_what_a_simulated_trial_needs(rootfs: Rootfs, user: str | None) -> None:
    done = rootfs.run("simulate", "--seed", "1", user=user)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_cluster_the_controller_says_so_and_ends(rootfs: Rootfs, user: str | None) -> None:
    done = rootfs.run("run", user=user)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "getpwuid" not in done.stderr


def test_its_root_cannot_be_written(rootfs: Rootfs) -> None:
    """Otherwise the tests above would not show that nothing needs to be written."""
    write = "import pathlib; pathlib.Path('/tmp/a').touch(); pathlib.Path('/opt/recovery/a').touch()"
    done = rootfs.run("-c", write, entrypoint=["python"], user="0:0")
    assert "Read-only file system: '/opt/recovery/a'" in done.stderr


# --- figures -------------------------------------------------------------------------------------------------------


def test_size_and_start_up_are_recorded(
    archive: Path, rootfs: Rootfs, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Written to build/test-image.xml, for docs/benchmarks.md. There is no bound: machines differ."""
    record_testsuite_property("image megabytes", round(archive.stat().st_size / 1e6))
    began = time.monotonic()
    done = rootfs.run("-c", "import recovery.cli.run, recovery.admission.serve", entrypoint=["python"])
    assert done.returncode == 0, done.stderr
    record_testsuite_property("start-up seconds", round(time.monotonic() - began, 2))


def _site_packages(rootfs: Rootfs) -> Path:
    [found] = (rootfs.folder / "opt/recovery/lib").glob("python3*/site-packages")
    return found


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
