"""`python -m recovery.sim.demo`: what `make demo` runs."""

import argparse
import sys

from recovery.program import run_program


def _play() -> None:
    """Exit codes: 0 all went as it should, 1 not, 2 wrong usage, 130 interrupted, 141 broken pipe, 143 terminated."""
    argparse.ArgumentParser(
        prog="python -m recovery.sim.demo",
        description="A TrainJob of 128 pods and 1,024 GPUs in a modelled cluster, four incidents, and the production"
        " controller that recovers it or stops by its budget. It takes about a minute, and longer where the machine is"
        " slow; its seconds are virtual, so they are always the same.",
        epilog="Exit code 0 only if the training's own trace says that it went as it should.",
    ).parse_args()
    from recovery.sim.demo.run_demo import run  # noqa: PLC0415 - in `run_program`, as Ctrl-C may come while it loads

    sys.exit(run())


if __name__ == "__main__":
    run_program(_play, name="demo")
