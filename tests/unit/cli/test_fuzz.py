"""Whatever an object contains, a command prints lines, or one line about what it cannot read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recovery.cli.main import app
from recovery.ports import Resource
from tests.unit.cli.cluster import connect_to
from tests.unit.kube.fuzzing import WATCHED, Serving, mutated

COMMANDS = (
    ["status", "-o", "wide"],
    ["status", "-A", "-o", "json"],
    ["explain", "llm"],
    ["explain", "llm", "-o", "yaml"],
    ["report", "llm"],
    ["report", "--fleet", "-o", "html"],
    ["restart", "llm", "--yes", "--reason", "x", "--wait", "0"],
    ["retry", "llm", "--wait", "0"],
    ["reset-budget", "llm", "--wait", "0"],
    ["pause", "llm"],
    ["resume", "--all"],
    ["quarantine", "gpu-0001", "--reason", "x"],
    ["release", "gpu-0001"],
    ["reset-breaker"],
)


async def chosen_namespace(*_: object) -> str:
    return "default"


async def context_user(*_: object) -> str:
    return "jane"


@settings(max_examples=120)
@given(mutated(WATCHED), st.sampled_from(COMMANDS))
def test_no_command_ends_in_an_error_of_its_own(drawn: tuple[Resource, bytes], command: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for module in ("status", "explain", "several_jobs", "pause", "requests", "quarantine", "report"):
            patched.setattr(f"recovery.cli.{module}.connect", connect_to(Serving(*drawn)))
            patched.setattr(f"recovery.cli.{module}.chosen_namespace", chosen_namespace, raising=False)
            patched.setattr(f"recovery.cli.{module}.context_user", context_user, raising=False)
        error = CliRunner().invoke(app, command).exception
    assert error is None or isinstance(error, SystemExit), repr(error)
