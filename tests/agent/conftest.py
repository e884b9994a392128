"""Fixtures of the agent's tests."""

from pathlib import Path

import pytest

from tests.agent.launches import Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)
