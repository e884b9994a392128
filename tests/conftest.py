"""What every suite begins with."""

import pwd
import signal

import pytest
from hypothesis import settings


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them, and every command that they start, ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A deadline of an example measures the machine: beside other work it fails what is right.
    settings.register_profile("without a clock", deadline=None)
    settings.load_profile("without a clock")


@pytest.fixture
def nameless_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says what our user is called: a container's UID has no passwd entry, and no variable names it either."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
