"""What all unit tests begin with."""

import gc
import os

from hypothesis import settings

# No test fails because a machine is slow.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


MEMORY = "/dev/shm"
"""Where `tmp_path` lies if it can. pytest ends with the removal of 3,000 files and folders of earlier runs, and does
nothing else meanwhile: 4 to 8 s on a disk whose file system waits for each of them."""
FREE_BYTES_MIN = 256 * 1024 * 1024
"""A run leaves 17 MB, and pytest keeps three of them."""


def pytest_configure() -> None:
    """No unit test meets a server with a public certificate, and OpenSSL takes 50 ms to read the authorities of the
    machine: for each session to an API server, and at the start of each process that imports aiohttp."""
    os.environ["SSL_CERT_FILE"] = os.devnull
    if _takes_files(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def _takes_files(folder: str) -> bool:
    """Whether there is room, and what is written there can be run: neither is so in every container."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    free = found.f_bavail * found.f_frsize
    return os.access(folder, os.W_OK) and not found.f_flag & os.ST_NOEXEC and free >= FREE_BYTES_MIN


def pytest_collection_finish() -> None:
    """Every full garbage collection would visit 12,000 collected tests and all modules again: a tenth of the time."""
    gc.collect()
    gc.freeze()
