"""How commands end: with an exit code, and with one line on stderr where something went wrong.

Apart from `connection`, so that a command which needs no cluster does not load what talks to one.
"""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from recovery.cli.formatting import printable

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""128 and the number of SIGINT: what a shell expects of a command that ended by Ctrl-C."""


def print_error(line: str) -> None:
    """One line on stderr, whatever line breaks and control characters others have put into it."""
    print(f"recovery: {printable(' '.join(line.split()))}", file=sys.stderr)


def run_and_exit(work: Callable[[], int]) -> NoReturn:
    """Do the work of a command that needs no cluster, and exit with the code that it returns."""
    try:
        code = work()
        print(end="", flush=True)  # a reader that has gone away (`| head`) is typer's to handle; at exit nobody would
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk; what was to be read has been dealt with where it is read
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        print_error(f"the output cannot be written: {error.strerror or error}")
        sys.exit(EXIT_FAILURE)
    sys.exit(code)
