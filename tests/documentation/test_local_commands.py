"""Each block of commands that needs no cluster runs as it stands in the documentation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.commands import LOCAL, REPOSITORY, documented

BLOCKS = [block for block in documented() if block.mark == LOCAL]
GUARD_SECONDS = 300


def test_there_are_some() -> None:
    assert len(BLOCKS) > 3


@pytest.mark.parametrize("script", [pytest.param(block.script, id=str(block)) for block in BLOCKS])
def test_the_commands_run(script: str, tmp_path: Path) -> None:
    """In a shell that ends at the first failure. /tmp of the text is a folder of the test."""
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("/tmp/", f"{tmp_path}/")],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=GUARD_SECONDS,
        check=False,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.strip(), "it prints nothing"
