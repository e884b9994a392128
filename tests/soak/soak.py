"""Runs the attempts of a soak, says sparsely how it goes, and explains what broke."""

import time
from collections.abc import Callable, Iterable
from contextlib import closing

from recovery.sim.trials.parallel_trials import NoResult, tried_in_processes
from tests.soak.attempt import Attempt, Campaign
from tests.soak.tally import Tally

EXIT_BROKEN = 1
EXIT_INTERRUPTED = 130
PROGRESS_SECONDS = 60.0
MOST_EXPLAINED = 5
"""One number for each of so many invariants. To shrink a walk takes as long as a hundred of them."""

Say = Callable[[str], None]


def soak(campaign: Campaign, numbers: range, *, workers: int, limit_seconds: float, say: Say) -> int:
    """Runs all numbers in processes, and returns the exit code. Ctrl-C ends it with the summary so far."""
    tally = Tally(campaign, numbers)
    interrupted = False
    try:
        with closing(tried_in_processes(campaign.attempt, numbers, workers, limit_seconds=limit_seconds)) as tried:
            count(tally, tried, say)
        explain(tally, workers=workers, limit_seconds=MOST_EXPLAINED * limit_seconds, say=say)
    except KeyboardInterrupt:
        interrupted = True
    for line in tally.summary():
        say(line)
    if interrupted:
        say("interrupted")
        return EXIT_INTERRUPTED
    return 0 if tally.all_held else EXIT_BROKEN


def count(
    tally: Tally,
    tried: Iterable[tuple[int, Attempt | NoResult]],
    say: Say,
    seconds: Callable[[], float] = time.monotonic,
) -> None:
    """Adds up the results, and says what is new."""
    said_seconds = seconds()
    for number, result in tried:
        news = tally.add(number, result)
        if news:
            say(news)
        if seconds() - said_seconds >= PROGRESS_SECONDS:
            say(tally.progress())
            said_seconds = seconds()


def explain(tally: Tally, *, workers: int, limit_seconds: float, say: Say) -> None:
    """Shows the first number of each invariant, and the first one that hung."""
    campaign = tally.campaign
    broken = sorted({min(numbers) for numbers in tally.by_invariant.values()})[:MOST_EXPLAINED]
    with closing(tried_in_processes(campaign.explain, broken, workers, limit_seconds=limit_seconds)) as explained:
        for number, found in explained:
            _show(campaign, number, found.why if isinstance(found, NoResult) else found, say)
    for number in (*tally.hung[:1], *tally.failed[:1]):
        _show(campaign, number, campaign.describe(number), say)


def _show(campaign: Campaign, number: int, text: str, say: Say) -> None:
    say(f"\n{campaign.noun} {number}")
    for line in text.splitlines():
        say(f"  {line}")
    say(f"  Again: {campaign.command.format(number=number)}")
