"""What every suite begins with."""

import signal


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them, and every command that they start, ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
