"""Each block of commands that needs no cluster runs as it stands in the documentation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.commands import LOCAL, Block, documented, linked_checkout, prints

BLOCKS = [block for block in documented() if block.mark == LOCAL]
GUARD_SECONDS = 300


def test_there_are_some() -> None:
    assert len(BLOCKS) > 3


@pytest.mark.parametrize("block", [pytest.param(block, id=str(block)) for block in BLOCKS])
def test_the_commands_run(block: Block, tmp_path: Path) -> None:
    """In a shell that ends at the first failure. /tmp of the page is a folder of the test."""
    folder = f"{tmp_path}/"
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.script.replace("/tmp/", folder)],
        cwd=linked_checkout(tmp_path),
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=GUARD_SECONDS,
        check=False,
        text=True,
    )
    printed = ended.stdout.replace(folder, "/tmp/")
    assert ended.returncode == 0, printed
    assert printed.strip(), "it prints nothing"
    assert prints(block.output, printed), f"the page says\n{block.output}\nand it prints\n{printed}"
