"""Runs one launch with `Ranks` alone, as the agent does without a barrier.

With RESTARTS in its environment it forks or executes the ranks again after a failure, as in a restart in place. With
SHOW, it prints what the ranks of each epoch have shown.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recovery.agent._trainjob_recovery import flags, stock
    from recovery.agent._trainjob_recovery.rank_environment import without_agent
    from recovery.agent._trainjob_recovery.ranks import RankExit, Ranks
else:
    from _trainjob_recovery import flags, stock
    from _trainjob_recovery.rank_environment import without_agent
    from _trainjob_recovery.ranks import RankExit, Ranks


async def epochs(options: flags.LaunchOptions) -> int:
    ranks = Ranks(options, termination_log=Path(os.environ.get("TERMINATION_LOG", "/dev/null")))
    loop = asyncio.get_running_loop()
    terminated: asyncio.Future[int] = loop.create_future()
    for number in options.ending_signals:
        loop.add_signal_handler(number, resolve, terminated, number)
    restarts = int(os.environ.get("RESTARTS", "0"))
    code = 1
    for epoch in range(1, restarts + 2):
        await ranks.start(epoch, fork=epoch > 1)
        if restarts:
            await ranks.begin_zygote()
        ending = asyncio.ensure_future(until_end(ranks, epoch, options.ranks_per_node))
        both: list[asyncio.Future[Any]] = [ending, terminated]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if terminated.done():
            ending.cancel()
            await ranks.stop(grace_seconds=options.shutdown_timeout_seconds, signal_number=terminated.result())
            break
        assert await ranks.stop(grace_seconds=30)
        if "SHOW" in os.environ:
            shown = {"step of the end": ending.result().step, "ranks": [asdict(each) for each in ranks.progress[1]]}
            print("SHOWN", json.dumps(shown), flush=True)
        if not ending.result().failed:
            code = 0
            break
        while epoch <= restarts and ranks._zygote and ranks._zygote._imports and not ranks._zygote.forks:
            await asyncio.sleep(0.05)
    ranks.report_failure()
    await ranks.close()
    return code


def resolve(terminated: "asyncio.Future[int]", number: int) -> None:
    if not terminated.done():
        terminated.set_result(number)


async def until_end(ranks: Ranks, epoch: int, count: int) -> RankExit:
    """The first failure of the epoch, or its last end. Two ranks may have ended the epoch before."""
    while count:
        ended = await ranks.exits.get()
        if ended.epoch != epoch:
            continue
        count -= 1
        if ended.failed:
            break
    return ended


def main() -> None:
    try:
        options = flags.launch_options(sys.argv[1:], without_agent(os.environ))
    except flags.LeftToTorchrunError as error:
        stock.become_torchrun(sys.argv[1:], str(error))
    sys.exit(asyncio.run(epochs(options)))


if __name__ == "__main__":
    main()
