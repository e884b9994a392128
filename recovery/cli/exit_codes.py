"""How commands end: with an exit code, and with one line on stderr where something went wrong.

Apart from `connection`, so that a command which needs no cluster does not load what talks to one. The ends that no
command decides about, such as Ctrl-C, are in `recovery.program`.
"""

import sys

from recovery.cli.formatting import printable

EXIT_FAILURE = 1
EXIT_USAGE = 2


def print_error(line: str) -> None:
    """One line on stderr, whatever line breaks and control characters others have put into it."""
    print(f"recovery: {printable(' '.join(line.split()))}", file=sys.stderr)
