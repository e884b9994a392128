"""A run of pytest leaves its exit status and what a marker left out, with and without xdist."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.long
def test_long(): ...

@pytest.mark.parametrize("number", [1, 2, 3])
def test_fails(number): assert number < 3
"""
CONFTEST = """
import sys
sys.path.insert(0, REPOSITORY)
from tests.outcome import Outcome

def pytest_configure(config):
    config.addinivalue_line("markers", "long: so")
    config.pluginmanager.register(Outcome(config))
"""


@pytest.mark.parametrize("how", [("-n0",), ("-n2", "--dist", "loadfile")], ids=["one process", "workers"])
def test_it_is_written_beside_the_report(tmp_path: Path, how: tuple[str, ...]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    repository = str(Path(__file__).parents[2])
    (tmp_path / "conftest.py").write_text(CONFTEST.replace("REPOSITORY", repr(repository)))
    command = (sys.executable, "-m", "pytest", *how, "-m", "not long", "--junitxml=build/some.xml")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    outcome = json.loads((tmp_path / "build" / "some.outcome.json").read_text())
    assert outcome == {"exit_status": 1, "left_out": {"test_some.py": 1}}
