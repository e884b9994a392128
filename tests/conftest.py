"""Setup for all suites."""

import pwd
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.drawn_constants import draw_none_of_loaded_modules
from tests.outcome import Outcome


def pytest_configure(config: pytest.Config) -> None:
    """Restore SIGINT: a shell that runs the tests in the background has them, and their children, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Outcome(config))
    draw_the_same_in_every_run()


def draw_the_same_in_every_run() -> None:
    """The one profile of all tests: a test sets only how many examples it draws. `make soak` explores at random.

    Neither the machine's speed nor what an earlier run found decides a verdict. So there is no deadline of an example,
    no check of how long draws take, and no database.
    """
    draw_none_of_loaded_modules()
    settings.register_profile(
        "the same in every run",
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("the same in every run")


@pytest.fixture
def nameless_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has no name, like a container's UID: there is no passwd entry, and no environment variable names it."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
