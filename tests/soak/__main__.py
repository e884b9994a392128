"""`make soak`: runs seeds on all cores; with ARGS=walks walks, with ARGS=neighbours trials with all other controllers.

SEEDS: how many. FIRST: the number of the first. LIMIT_SECONDS: how long one may take.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from tests.soak.attempt import Campaign
from tests.soak.neighbours import NEIGHBOURS
from tests.soak.seeds import SEEDS
from tests.soak.soak import soak
from tests.soak.walks import WALKS

CAMPAIGNS: Mapping[str, Campaign] = {"seeds": SEEDS, "walks": WALKS, "neighbours": NEIGHBOURS}


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("campaign", nargs="?", default="seeds", choices=list(CAMPAIGNS))
    campaign = CAMPAIGNS[parser.parse_args(arguments).campaign]

    def whole(name: str, otherwise: int, least: int) -> int:
        text = environment.get(name) or str(otherwise)
        if not text.isdecimal() or int(text) < least:
            parser.error(f"{name}={text}: a whole number of at least {least} is needed")
        return int(text)

    first = whole("FIRST", 0, 0)
    numbers = range(first, first + whole("SEEDS", campaign.attempts, 1))
    limit_seconds = whole("LIMIT_SECONDS", int(campaign.limit_seconds), 1)
    return soak(campaign, numbers, workers=os.cpu_count() or 1, limit_seconds=limit_seconds, say=_say)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    # A shell that runs it in the background has it ignore Ctrl-C, and `kill -INT` could not end a night's soak.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:], os.environ))
