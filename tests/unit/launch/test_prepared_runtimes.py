"""The runtimes of policies/ are prepared for recovery, so lint finds nothing in them."""

from pathlib import Path

import pytest

from recovery.launch.documents import documents
from recovery.launch.lint import lint

RUNTIMES = sorted((Path(__file__).parents[3] / "policies").glob("runtime-*.yaml"))


@pytest.mark.parametrize("path", RUNTIMES, ids=[path.stem for path in RUNTIMES])
def test_a_prepared_runtime_is_clean(path: Path) -> None:
    assert lint(documents(path.read_text())) == ()


def test_they_are_found() -> None:
    assert len(RUNTIMES) == 4
