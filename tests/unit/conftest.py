"""The setup of all unit tests."""

import gc
import os

MEMORY = "/dev/shm"
"""The folder of `tmp_path` where possible. At its end pytest removes 3,000 files and folders of earlier runs and does
nothing else: 4 to 8 s on a disk whose file system waits for each removal."""
FREE_BYTES_MIN = 256 * 1024 * 1024
"""One run leaves 17 MB, and pytest keeps the files of three runs."""


def pytest_configure() -> None:
    """No unit test needs a server with a public certificate. OpenSSL takes 50 ms to read the machine's authorities, for
    each session to an API server and at the start of each process that imports aiohttp."""
    os.environ["SSL_CERT_FILE"] = os.devnull
    if _takes_files(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def _takes_files(folder: str) -> bool:
    """Whether the folder has room and its files can be executed. Not every container allows both."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    free = found.f_bavail * found.f_frsize
    return os.access(folder, os.W_OK) and not found.f_flag & os.ST_NOEXEC and free >= FREE_BYTES_MIN


def pytest_collection_finish() -> None:
    """Otherwise each full garbage collection would visit 12,000 tests and all modules again: a tenth of the time."""
    gc.collect()
    gc.freeze()
