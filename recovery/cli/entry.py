"""The console scripts. Each imports its program within `run_program`, which also handles Ctrl-C during the import."""
# ruff: noqa: PLC0415

import os
from typing import NoReturn

from recovery.program import run_program

_COMPLETION = "_RECOVERY_COMPLETE"
"""The variable with which a shell asks `recovery` for completions."""


def main() -> NoReturn:
    """`recovery`."""
    run_program(_recovery, name="" if _COMPLETION in os.environ else "recovery")


def main_of_plugin() -> NoReturn:
    """`kubectl-recovery`."""
    run_program(_plugin, name="recovery")


def complete_plugin() -> NoReturn:
    """`kubectl_complete-recovery`. A person who presses Tab asked for no message."""
    run_program(_complete, name="")


def _recovery() -> None:
    from recovery.cli.main import app

    app(prog_name="recovery")


def _plugin() -> None:
    from recovery.cli.plugin import main

    main()


def _complete() -> None:
    from recovery.cli.plugin import complete

    complete()


if __name__ == "__main__":
    main()
