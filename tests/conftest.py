"""What every suite begins with."""

import pwd
import signal

import pytest


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them, and every command that they start, ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def nameless_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says what our user is called: a container's UID has no passwd entry, and no variable names it either."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
