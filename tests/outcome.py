"""Writes what the JUnit report of a run does not say: pytest's exit status, and how many tests a marker left out.

`tests.stages` reads it. Without `--junitxml` nothing is written.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def outcome_path(report: Path) -> Path:
    return report.with_suffix(".outcome.json")


class Outcome:
    """A plugin of pytest. Beside xdist, its workers collect the tests, and the process that they report to writes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._left_out: Counter[str] = Counter()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._left_out.update(item.nodeid.partition("::")[0] for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended. Each of them has collected all tests."""
        self._left_out |= Counter(getattr(node, "workeroutput", {}).get("left_out", {}))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left_out"] = dict(self._left_out)
        elif report := self._config.getoption("xmlpath"):
            outcome = {"exit_status": int(exitstatus), "left_out": dict(sorted(self._left_out.items()))}
            outcome_path(Path(report)).write_text(json.dumps(outcome, indent=2))
