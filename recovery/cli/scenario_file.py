"""Reads the file of `recovery simulate --scenario` and of `recovery chaos run`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from recovery.cli.exit_codes import EXIT_USAGE, print_error
from recovery.scenario.scenario_text import BadScenarioError

T = TypeVar("T")


def read_scenario_file(path: Path, read: Callable[[str], T]) -> T:
    """What `read` makes of the text. Ends the command with exit code 2, and prints every problem, if it is refused."""
    try:
        return read(path.read_text(encoding="utf-8"))
    except BadScenarioError as error:
        for line, problem in zip(error.lines, error.problems, strict=True):
            print_error(f"{path}:{line}: {problem}")
    except (OSError, UnicodeDecodeError) as error:
        print_error(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")
    sys.exit(EXIT_USAGE)
