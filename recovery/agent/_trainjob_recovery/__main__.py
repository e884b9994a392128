"""Takes the place of torchrun. What it does not know goes to stock torchrun."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from .agent import BARRIER_PORT_OFFSET, Agent, Settings, from_admission
from .console import flush_all, say_on_stderr
from .flags import LaunchOptions, LeftToTorchrunError, launch_options
from .joined_file import joined_path
from .ranks import Ranks
from .stock import become_torchrun


def settings_of(options: LaunchOptions, environ: Mapping[str, str]) -> Settings:
    key, pod, node, controller = from_admission(environ)
    return Settings(
        slot=options.node_rank,
        slots=options.nodes,
        local_ranks=options.ranks_per_node,
        master_addr=options.master_addr,
        barrier_port=options.master_port + BARRIER_PORT_OFFSET,
        grace_seconds=options.shutdown_timeout_seconds,
        signals=tuple(number.name for number in options.ending_signals),
        key=key,
        pod=pod,
        node=node,
        controller=controller,
        joined_file=joined_path(environ, say_on_stderr),
    )


async def _run(options: LaunchOptions, settings: Settings) -> int:
    return await Agent(settings, Ranks(options, say=say_on_stderr)).run()


def main(arguments: Sequence[str]) -> NoReturn:
    try:
        options = launch_options(arguments, os.environ)
    except LeftToTorchrunError as error:
        become_torchrun(arguments, str(error))
    code = asyncio.new_event_loop().run_until_complete(_run(options, settings_of(options, os.environ)))
    flush_all()
    # A thread that waits for a name server or a controller would keep an ordinary exit.
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
