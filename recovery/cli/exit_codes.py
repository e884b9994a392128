"""How commands end: with an exit code, and after a failure with one line on stderr.

This is apart from `connection`, so that a command that needs no cluster does not load the client of one.
`recovery.program` has the ends that no command decides about, such as Ctrl-C.
"""

import sys

from recovery.cli.formatting import printable

EXIT_FAILURE = 1
EXIT_USAGE = 2


def print_error(line: str) -> None:
    """Print one line on stderr. Line breaks and control characters in the text become spaces."""
    print(f"recovery: {printable(' '.join(line.split()))}", file=sys.stderr)
