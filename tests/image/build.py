"""`make image`: builds the Containerfile with buildah, where neither a registry nor a container runtime is available.

The archive has the format of `podman save`: `ctr image import`, `podman load` and `docker load` read it.
"""

import hashlib
import json
import shutil
import sys
import tarfile
import time
import tomllib
from itertools import chain
from pathlib import Path

import yaml

from recovery.generated_files import REPOSITORY
from tests.cluster.controlplane.build import cache_folder
from tests.image.base import (
    BASE_NAME,
    EPOCH_SECONDS,
    ImageError,
    Ingredients,
    Report,
    check_preconditions,
    only_one,
    provide_ingredients,
    run,
)
from tests.unit.manifests.image import copies, files_below, let_through

ARCHIVE = REPOSITORY / "build/image/trainjob-recovery.tar"
KEY = ARCHIVE.with_suffix(".key")
"""The hash of what the archive beside it was built from."""
_PIP_CONF = "[global]\nno-index = true\nfind-links = /wheels\n"


def provide_image(report: Report = lambda _: None) -> Path:
    """The docker-archive of the image. It is built if it is missing or any of its inputs has changed.

    Raises ImageError.
    """
    check_preconditions()
    ingredients = provide_ingredients(report)
    key = _key(ingredients)
    with only_one("image", report):
        if ARCHIVE.exists() and KEY.exists() and KEY.read_text() == key:
            return ARCHIVE
        began = time.monotonic()
        KEY.unlink(missing_ok=True)
        ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
        _build(REPOSITORY, ingredients, ARCHIVE)
        KEY.write_text(key)
        report(f"image: built in {time.monotonic() - began:.0f} s")
    return ARCHIVE


def build(context: Path, target: Path) -> None:
    """Builds the Containerfile in that folder, whether or not it was built before. Raises ImageError."""
    check_preconditions()
    ingredients = provide_ingredients(lambda _: None)
    with only_one("image", lambda _: None):
        _build(context, ingredients, target)


def _build(context: Path, ingredients: Ingredients, target: Path) -> None:
    """Only `target` remains: no layers, no containers, no mounts."""
    # Not below /tmp, which may be in memory: a build needs a gigabyte. We hold the lock, so anything found there was
    # left by a run that was killed.
    scratch = cache_folder() / "unfinished-image"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir()
        pip_conf = scratch / "pip.conf"
        pip_conf.write_text(_PIP_CONF)
        _buildah(scratch, "pull", "--quiet", f"docker-archive:{ingredients.base}")
        _buildah(
            scratch,
            *("bud", "--quiet", "--pull-never", "--no-cache", "--timestamp", str(EPOCH_SECONDS)),
            *("--build-arg", f"BASE={BASE_NAME}", "--build-arg", f"SOURCE_DATE_EPOCH={EPOCH_SECONDS}"),
            *("-v", f"{pip_conf}:/etc/pip.conf:ro", "-v", f"{ingredients.wheels}:/wheels:ro"),
            *("-f", "Containerfile", "-t", reference(), "."),
            context=context,
        )
        archive = scratch / "archive.tar"
        _buildah(scratch, "push", "--quiet", reference(), f"docker-archive:{archive}")
        shutil.move(archive, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _buildah(scratch: Path, *arguments: str, context: Path | None = None) -> None:
    # What it mounts and starts ends with it, even if it is killed.
    alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
    storage = ("--root", f"{scratch}/root", "--runroot", f"{scratch}/run", "--storage-driver", "overlay")
    environment = {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(scratch)}
    run([*alone, "buildah", *storage, *arguments], environment=environment, cwd=context)


def reference() -> str:
    """The name that containerd gives to the image that the Deployment names."""
    deployment = yaml.safe_load((REPOSITORY / "manifests/manager/deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    name, version = container["image"].split(":")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    if (name, version) != (project["name"], project["version"]):
        raise ImageError(f"the Deployment runs {name}:{version}, but this is {project['name']} {project['version']}")
    return f"docker.io/library/{name}:{version}"


def digest(archive: Path) -> str:
    """The image's ID: a hash of its configuration and so of every layer. Images with the same digest are equal."""
    with tarfile.open(archive) as opened:
        manifest = opened.extractfile("manifest.json")
        assert manifest is not None
        [image] = json.load(manifest)
    return str(image["Config"]).removesuffix(".json")


def inputs() -> list[str]:
    """The files of the repository that a build reads: what the Containerfile copies and .containerignore sends."""
    sources = {source for copy in copies() for source in copy.sources}
    return ["Containerfile", ".containerignore", *sorted(filter(let_through, chain(*map(files_below, sources))))]


def _key(ingredients: Ingredients) -> str:
    found = hashlib.sha256()
    for part in (run(["buildah", "--version"]), str(ingredients), reference(), Path(__file__).read_text()):
        found.update(part.encode() + b"\0")
    for name in inputs():
        found.update(name.encode() + b"\0" + (REPOSITORY / name).read_bytes() + b"\0")
    return found.hexdigest()


def main() -> int:
    def say(line: str) -> None:
        print(line, flush=True)

    try:
        archive = provide_image(say)
        megabytes = archive.stat().st_size / 1e6
        say(f"{archive.relative_to(REPOSITORY)}: {reference()}, {megabytes:.0f} MB, sha256:{digest(archive)}")
    except ImageError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
