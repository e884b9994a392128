import logging
from collections.abc import Iterator
from functools import cache

import pytest
import structlog
import typer.main
import typer.testing

from recovery.ports import LEASES
from tests.unit.cli.cluster import PlainCluster, connect_to, lease

_built = cache(typer.main.get_command)


@pytest.fixture(autouse=True)
def _commands_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, `CliRunner` builds all commands of the app for each call, which takes longer than most calls."""
    monkeypatch.setattr(typer.testing, "_get_command", _built)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Restore logging: a command logs to the stderr that it finds, and that of a test ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PlainCluster:
    """The cluster that commands talk to. The context has namespace team-a and user jane. A controller leads."""

    async def chosen_namespace(_server: object, namespace: str | None) -> str:
        return namespace or "team-a"

    async def context_user(_kubeconfig: object, _context: object) -> str:
        return "jane"

    plain = PlainCluster()
    plain.put(LEASES, lease())
    for module in ("status", "explain", "several_jobs", "pause", "requests", "cluster_runtimes", "report"):
        monkeypatch.setattr(f"recovery.cli.{module}.connect", connect_to(plain))
        monkeypatch.setattr(f"recovery.cli.{module}.chosen_namespace", chosen_namespace)
    monkeypatch.setattr("recovery.cli.requests.context_user", context_user)
    return plain
