"""The command: `python -m tests.stages [--keep-going | --rerun] STAGE...`."""

import argparse
import sys
import time

from tests.stages.reruns import MOST_IN_ALL, may_rerun, rerun_failed, run_one_test, write_record
from tests.stages.summary import counts, left_out, slowest, table
from tests.stages.targets import Background, Stage, run_side_by_side

BACKGROUND = "~"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stages", description="Runs make targets as one check.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--keep-going", action="store_true", help="run all stages, even after a red one")
    how.add_argument("--rerun", action="store_true", help="run tests once more that fail on real components")
    parser.add_argument(
        "stages", nargs="+", metavar="STAGE", help="a+b: side by side; a,b: a chain; ~a: in the background"
    )
    options = parser.parse_args(arguments)

    began = time.monotonic()
    stages = run_all(options.stages, keep_going=options.keep_going, tolerates=options.rerun)
    if options.rerun:
        stages, reruns = rerun_failed(stages, run_one_test)
        write_record(reruns)
    for stage in stages:
        if stage.report and (lines := slowest(stage.report.cases)):
            print("\n".join((f"\n== {stage.name}: slowest tests", *lines)))
    for paragraph in (left_out(stages), [table(stages, time.monotonic() - began)]):
        if paragraph:
            print("\n".join(("", *paragraph)))
    if options.rerun:
        print("\n".join((*map(str, reruns), f"reruns: {len(reruns)} of at most {MOST_IN_ALL}")))
    print(f"\n{counts(stages)}")
    complaints = [stage.complaint for stage in stages if stage.complaint]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def run_all(names: list[str], *, keep_going: bool, tolerates: bool) -> list[Stage]:
    """All stages up to the first red one. `keep_going`: really all.

    `tolerates`: a stage whose failed tests may run once more does not end the run.
    """
    stages: list[Stage] = []
    background = Background()
    try:
        for name in names:
            if name.startswith(BACKGROUND):
                background.begin(name.removeprefix(BACKGROUND))
                continue
            ended = run_side_by_side([chain.split(",") for chain in name.split("+")])
            stages += ended
            red = [stage for stage in ended if stage.complaint and not (tolerates and may_rerun(stage))]
            if red and not keep_going:
                return stages + background.results(waits=False)
        return stages + background.results(waits=True)
    finally:
        background.end()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
