"""One image for the whole suite, built from this working tree and unpacked."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.controlplane.build import cache_folder
from tests.image.build import provide_image
from tests.image.rootfs import Rootfs, unpack


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Assert that no mount and no build folder is left."""
    before = _mounts()
    yield
    assert _mounts() == before
    assert [path.name for path in cache_folder().glob("unfinished-image*")] == []


@pytest.fixture(scope="session")
def archive() -> Path:
    """Fails, rather than skips, if the image cannot be built: a skip would hide that nothing was tested."""
    return provide_image()


@pytest.fixture(scope="session")
def rootfs(archive: Path) -> Iterator[Rootfs]:
    with tempfile.TemporaryDirectory(prefix="image-rootfs-", dir=cache_folder()) as folder:
        # The mode of a root file system: users other than root look into it.
        os.chmod(folder, 0o755)
        yield unpack(archive, Path(folder))


def _mounts() -> list[str]:
    return sorted(Path("/proc/self/mounts").read_text().splitlines())
