"""What all unit tests begin with."""

import gc
import os

from hypothesis import settings

# No test fails because a machine is slow.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


def pytest_configure() -> None:
    """No unit test meets a server with a public certificate, and OpenSSL takes 50 ms to read the authorities of the
    machine: for each session to an API server, and at the start of each process that imports aiohttp."""
    os.environ["SSL_CERT_FILE"] = os.devnull


def pytest_collection_finish() -> None:
    """Every full garbage collection would visit 12,000 collected tests and all modules again: a tenth of the time."""
    gc.collect()
    gc.freeze()
