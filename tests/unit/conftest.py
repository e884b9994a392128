"""What all unit tests begin with."""

import os


def pytest_configure() -> None:
    """No unit test meets a server with a public certificate, and OpenSSL takes 50 ms to read the authorities of the
    machine: for each session to an API server, and at the start of each process that imports aiohttp."""
    os.environ["SSL_CERT_FILE"] = os.devnull
