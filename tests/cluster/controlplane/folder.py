"""The temporary folder of one control plane. The next start removes a folder that a killed run has left behind."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "trainjob-recovery-cluster-"
_LOCK = "owner.lock"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / "new.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # It is renamed after it is locked, so an unlocked file with the final name marks an abandoned folder.
            (folder / "new.lock").rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Removes the folders of killed runs."""
    for lock_path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with lock_path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_path.parent, ignore_errors=True)
        except OSError:  # its owner is alive, or it belongs to another user, or it is already gone
            continue
