"""Runs the failures of the demo with each restarter, in separate clusters and in virtual time.

As a program it prints the result as JSON. The demo waits most of the time, so another process does this meanwhile.
The demo is in virtual time too, so it does not matter which of the two is slowed down by the other.
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from recovery.program import run_program
from recovery.sim.demo.objects import Restarter
from recovery.sim.demo.stage import RANKS, Stage, StageFailure
from recovery.sim.virtual_time import VirtualClock, run_in_virtual_time
from recovery.telemetry.logs import configure_logs

WATCHED_SECONDS = 3600.0
"""How long to wait until all ranks train again."""
CALM_SECONDS = 5.0
POLL_SECONDS = 1.0
WAITED_SECONDS = 0.05
"""How long the demo waits before it looks again whether the other process has ended."""

Downtimes = Mapping[tuple[StageFailure, Restarter], float | None]
"""Seconds from the failure until all ranks train again. None: longer than WATCHED_SECONDS."""


class _Downtime(msgspec.Struct):
    """One result, sent between processes."""

    failure: StageFailure
    restarter: Restarter
    seconds: float | None


@contextmanager
def downtimes_meanwhile(*, ranks: int = RANKS) -> Iterator[Callable[[], Awaitable[Downtimes]]]:
    """Runs `downtimes` in another process, which ends with the context. Yields a function that waits for the result."""
    # The process has its own session, so Ctrl-C reaches only the demo, which ends the process.
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", __name__, str(ranks)], stdout=subprocess.PIPE, start_new_session=True
    )
    output = process.stdout
    assert output is not None

    async def found() -> Downtimes:
        # A loop in virtual time cannot wait for a process. The result is short, so it fits into the pipe.
        while process.poll() is None:  # noqa: ASYNC110 - a process sets no event
            await asyncio.sleep(WAITED_SECONDS)
        if process.returncode:
            raise RuntimeError(f"the process of the comparison ended with exit code {process.returncode}")
        lines = msgspec.json.decode(output.read(), type=list[_Downtime])
        return {(line.failure, line.restarter): line.seconds for line in lines}

    try:
        yield found
    finally:
        process.kill()  # does nothing to a process that has ended
        process.wait()
        output.close()


def downtimes(*, ranks: int = RANKS) -> Downtimes:
    """The downtime of each failure with each restarter."""
    found: dict[tuple[StageFailure, Restarter], float | None] = {}
    for restarter in Restarter:
        # A restart of the whole job leaves nothing behind. A single failed pod makes the next one wait longer.
        several = restarter is not Restarter.NONE
        for failures in (tuple(StageFailure),) if several else ((failure,) for failure in StageFailure):
            seconds = run_in_virtual_time(_downtimes_seconds(failures, restarter, ranks))
            found |= {(failure, restarter): each for failure, each in zip(failures, seconds, strict=True)}
    return found


async def _downtimes_seconds(
    failures: Sequence[StageFailure], restarter: Restarter, ranks: int
) -> Sequence[float | None]:
    """Of one job with these failures one after the other. None: it did not recover from this failure or an earlier
    one."""
    clock = VirtualClock()
    stage = Stage(clock, random.Random(1), restarter, ranks=ranks)
    found: list[float | None] = [None] * len(failures)
    async with stage.running():
        await stage.set_up()
        await _met(stage, clock, rounds=1)
        for number, failure in enumerate(failures):
            await clock.sleep(CALM_SECONDS)
            failed_at, rounds = clock.now(), len(stage.rounds())
            stage.strike(failure)
            if not await _met(stage, clock, rounds=rounds + 1):
                break
            found[number] = (stage.rounds()[rounds].formed_at - failed_at).total_seconds()
    return found


async def _met(stage: Stage, clock: VirtualClock, *, rounds: int) -> bool:
    """Waits until all ranks have met that many times. False: they have not met within `WATCHED_SECONDS`."""
    no_later_than_seconds = clock.monotonic_seconds() + WATCHED_SECONDS
    while len(stage.rounds()) < rounds:
        if clock.monotonic_seconds() >= no_later_than_seconds:
            return False
        await clock.sleep(POLL_SECONDS)
    return True


def main() -> None:
    """What `downtimes_meanwhile` runs. Its argument is the number of ranks."""
    configure_logs("error")
    found = downtimes(ranks=int(sys.argv[1]))
    lines = [_Downtime(failure, restarter, seconds) for (failure, restarter), seconds in found.items()]
    sys.stdout.buffer.write(msgspec.json.encode(lines))


if __name__ == "__main__":
    run_program(main, name="")  # An interrupted demo closes the pipe, perhaps while this writes to it.
