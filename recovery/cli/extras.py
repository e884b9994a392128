"""What the base installation leaves out.

`pip install trainjob-recovery` installs only what judges manifests, so that it is quick to install in CI. The extra
`controller` installs the rest: the client of a cluster, and what the controller needs.
"""

import sys
from typing import Any

from typer.core import TyperGroup

from recovery.cli.exit_codes import EXIT_FAILURE, print_error

CONTROLLER_MODULES = frozenset(
    {"aiohttp", "cryptography", "kopf", "kubernetes_asyncio", "prometheus_client", "tenacity", "yarl"}
)
"""The modules that are imported from the packages of that extra."""


class CommandGroup(TyperGroup):
    """The commands. The base installation has all of them, but can run only a few."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. If it needs the extra and that is not installed: one line, and exit code 1."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in CONTROLLER_MODULES:
                raise
            print_error(f"this needs {missing}, which is not installed: pip install 'trainjob-recovery[controller]'")
            sys.exit(EXIT_FAILURE)
