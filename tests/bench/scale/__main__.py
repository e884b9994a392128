"""`python -m tests.bench.scale`: the benchmark with other fleets, or against the controller of another commit."""

import argparse

from tests.bench.scale.measure import Options, measure, table
from tests.bench.scale.scenarios import SCENARIOS


def _main() -> None:
    default = Options()
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale")
    parser.add_argument("--fleet", default=default.fleet, help=f"groups x pods of each; {default.fleet} if not set")
    parser.add_argument("--big-fleet", default=default.big_fleet, help="the fleet of the scenario big; empty: none")
    parser.add_argument(
        "--scenarios", nargs="*", choices=[each for each in SCENARIOS if each != "big"], default=default.scenarios
    )
    parser.add_argument("--trials", type=int, default=default.trials, help="losses at rest for each size of group")
    parser.add_argument("--bursts", type=int, default=default.bursts, help="how often a burst is repeated")
    parser.add_argument("--events", type=int, default=default.events, help="pod changes of a burst, in 5 s")
    parser.add_argument("--against", default="", metavar="COMMIT", help="also run the controller of this commit")
    print(table(measure(Options(**vars(parser.parse_args())))), flush=True)


if __name__ == "__main__":
    _main()
