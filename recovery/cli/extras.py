"""What the base installation leaves out.

`pip install trainjob-recovery` brings what judges manifests, so that it is quick to install in CI. The extra
`controller` brings the rest: what talks to a cluster, and what the controller runs on.
"""

import sys
from typing import Any

from typer.core import TyperGroup

from recovery.cli.exit_codes import EXIT_FAILURE, print_error

CONTROLLER_MODULES = frozenset(
    {"aiohttp", "cryptography", "kopf", "kubernetes_asyncio", "prometheus_client", "tenacity", "yarl"}
)
"""What is imported of the packages of that extra."""


class CommandGroup(TyperGroup):
    """The commands, of which the base installation has all, and can run a few."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. One that needs the extra says so in a line, and ends with 1."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in CONTROLLER_MODULES:
                raise
            print_error(f"this needs {missing}, which is not installed: pip install 'trainjob-recovery[controller]'")
            sys.exit(EXIT_FAILURE)
