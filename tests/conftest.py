"""Setup for all suites."""

import pwd
import signal

import pytest
from hypothesis import settings

from tests.outcome import Outcome


def pytest_configure(config: pytest.Config) -> None:
    """Restore SIGINT: a shell that runs the tests in the background has them, and their children, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A deadline of an example measures the machine. Beside other work it would fail correct code.
    settings.register_profile("without a clock", deadline=None)
    settings.load_profile("without a clock")
    config.pluginmanager.register(Outcome(config))


@pytest.fixture
def nameless_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has no name, like a container's UID: there is no passwd entry, and no environment variable names it."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
