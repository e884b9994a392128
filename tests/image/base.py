"""The inputs of the image where no registry can be reached: a Debian with Python, and the locked Python packages.

Both are made once and kept in the cache beside the control plane's programs, in a folder named after their inputs. They
come from the mirror that apt uses on this machine and from the index that pip uses on it. Neither address gets into the
image.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from recovery.generated_files import REPOSITORY
from tests.cluster.controlplane.build import cache_folder
from tests.cluster.controlplane.processes import die_with_parent

PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}
"""Each program that a build runs -> the Debian package that contains it."""
LOCKS = ("requirements-build.lock", "requirements-runtime.lock")
SUITE = "bookworm"
PYTHON_VERSION = "3.11"
GLIBC_MINOR = 36
"""Debian bookworm has glibc 2.36: wheels built for a newer one do not load."""
PACKAGES = ("python3", "python3-venv", "python-is-python3", "libstdc++6")
"""libstdc++6 is for google-re2. python-is-python3 adds the command `python`, which the official images have."""
EPOCH_SECONDS = 1767225600
"""The date of everything that is built. No file of the packages is younger, so few files need another date."""
BASE_NAME = "localhost/python:3.11-debian"
_UNWANTED = ("man", "locale", "doc", "info")
_LAST_LINES = 20

Report = Callable[[str], None]


class ImageError(Exception):
    """The image cannot be built here; the text says why and what to do."""


@dataclass(frozen=True)
class Ingredients:
    base: Path
    """A docker-archive of Debian with Python."""
    wheels: Path
    """A folder with a wheel of every package in the locks."""


def check_preconditions() -> None:
    """Raises ImageError."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise ImageError(
            "building the image with buildah needs Linux and root, for chroot and mounts. Elsewhere build it with"
            " podman or docker: docs/install.md"
        )
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        raise ImageError(f"{', '.join(missing)} not installed: apt-get install {' '.join(missing)}")


def provide_ingredients(report: Report) -> Ingredients:
    """The inputs from the cache, made if they are missing. Raises ImageError."""
    return Ingredients(
        base=_kept("image-base", _base_key(), report, _make_base) / "base.tar",
        wheels=_kept("image-wheels", _wheels_key(), report, _make_wheels),
    )


def run(command: Sequence[str], *, environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """The output of the command. It dies with this process. Raises ImageError with its last lines."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=die_with_parent(),
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_LAST_LINES:])
        raise ImageError(f"`{command[0]}` ended with {done.returncode}. Its last lines:\n{tail}")
    return done.stdout


@contextmanager
def only_one(name: str, report: Report) -> Iterator[None]:
    """Admits one process on this machine at a time. The kernel releases the lock when its holder dies, in any way."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{name}: another run is building it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kept(name: str, key: str, report: Report, make: Callable[[Path], None]) -> Path:
    finished = cache_folder() / f"{name}-{key}"
    if finished.exists():
        return finished
    with only_one(name, report):
        if finished.exists():
            return finished
        began = time.monotonic()
        # We hold the lock, so anything found here was left by a run that was killed.
        unfinished = cache_folder() / f"unfinished-{name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(finished)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        report(f"{name}: made in {time.monotonic() - began:.0f} s, {finished}")
    return finished


def _base_key() -> str:
    return _hash(*_base_command(Path("layer.tar")), Path(__file__).read_text(), platform.machine())


def _base_command(target: Path) -> list[str]:
    return [
        "mmdebstrap",
        "--mode=root",
        "--variant=essential",
        f"--include={','.join(PACKAGES)}",
        "--format=tar",
        *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in _UNWANTED),
        # The lists name the mirror, which belongs to this machine.
        '--customize-hook=rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d',
        # mmdebstrap copies these from this machine for the programs that it runs inside.
        '--customize-hook=rm -f "$1"/etc/resolv.conf "$1"/etc/hostname',
        SUITE,
        str(target),
    ]


def _make_base(folder: Path) -> None:
    """Run mmdebstrap. Without a mirror in the command, it uses the mirrors of this machine's apt."""
    layer = folder / "layer.tar"
    run(_base_command(layer), environment={"SOURCE_DATE_EPOCH": str(EPOCH_SECONDS)})
    _write_archive(layer, folder / "base.tar")
    layer.unlink()


def _write_archive(layer: Path, target: Path) -> None:
    """Write a docker-archive whose only layer is that tar."""
    with layer.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    created = "1970-01-01T00:00:00Z"
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "created": created,
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["python3"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": created, "created_by": "mmdebstrap"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": [BASE_NAME], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        archive.add(layer, "layer.tar")
        for name, content in (("config.json", config), ("manifest.json", manifest)):
            encoded = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(encoded)
            archive.addfile(entry, BytesIO(encoded))


def _wheels_key() -> str:
    return _hash(*_wheels_command(Path("wheels"), LOCKS[0]), *((REPOSITORY / lock).read_text() for lock in LOCKS))


def _wheels_command(target: Path, lock: str) -> list[str]:
    """Downloads wheels for the Python of the base, whatever Python this machine has."""
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 4, -1)]
    platforms += [f"{each}_{machine}" for each in ("manylinux2014", "manylinux2010", "manylinux1")]
    return [
        *("-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--require-hashes", "--no-deps"),
        *("--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON_VERSION}"),
        *(f"--platform={each}" for each in platforms),
        *("--dest", str(target), "-r", lock),
    ]


def _make_wheels(folder: Path) -> None:
    for lock in LOCKS:
        run([sys.executable, *_wheels_command(folder, lock)], cwd=REPOSITORY)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
