"""`python -m recovery.sim.demo`: what `make demo` runs."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Exit codes: 0 as it should be, 1 not, 2 wrong usage, 130 interrupted, 143 terminated."""
    argparse.ArgumentParser(
        prog="python -m recovery.sim.demo",
        description="A TrainJob of 128 pods and 1,024 GPUs in a modelled cluster, four incidents, and the production"
        " controller that recovers it or stops by its budget. It takes about a minute.",
        epilog="Exit code 0 only if the training's own trace says that it went as it should.",
    ).parse_args(arguments)
    try:
        # Not before: Ctrl-C while it loads is an end like any other.
        from recovery.sim.demo.run_demo import run  # noqa: PLC0415

        sys.exit(run())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
