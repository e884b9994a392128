"""The barrier of slot 0 in a process of its own, with the modules that the agent has loaded beside it.

It writes a line with its port, and one for each change of the barrier's state. It ends with its standard input.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

from recovery.agent._trainjob_recovery import __main__ as agent
from recovery.agent._trainjob_recovery.barrier_host import BarrierHost
from recovery.agent._trainjob_recovery.messages import FromMember, Hello, Proof
from recovery.agent._trainjob_recovery.report import ReportEndpoint

assert agent, "the modules of the agent count in the memory of this process"


def say(**event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class _Watched(BarrierHost):
    """Says at once when the state changes."""

    _last = (1, "gathering")

    def joined(self, link: int, hello: Hello, proof: Proof) -> None:
        super().joined(link, hello, proof)
        self._look()

    def said(self, link: int, message: FromMember) -> None:
        super().said(link, message)
        self._look()

    def _look(self) -> None:
        if (now := (self.barrier.epoch, self.barrier.state)) != self._last:
            self._last = now
            say(at=time.monotonic(), epoch=now[0], state=now[1])


async def _input_ends() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        pass


async def _run(slots: int, key: str, controller: ReportEndpoint) -> None:
    host = _Watched(
        identity="b" * 16,
        slots=slots,
        key=key,
        controller=controller,
        say=lambda text: print(f"barrier: {text}", file=sys.stderr),
        draw=random.Random(1),
    )
    say(port=await host.listen(0))
    running = asyncio.create_task(host.run())
    ending = asyncio.create_task(_input_ends())
    await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    await asyncio.wait({running})


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rendezvous.barrier_process")
    parser.add_argument("slots", type=int)
    parser.add_argument("key")
    parser.add_argument("controller_port", type=int)
    parser.add_argument("controller_folder", type=Path, help="with ca.pem and the file token")
    asked = parser.parse_args()
    folder = asked.controller_folder
    ca_pem = (folder / "ca.pem").read_text()
    controller = ReportEndpoint("127.0.0.1", asked.controller_port, ca_pem, str(folder / "token"))
    asyncio.run(_run(asked.slots, asked.key, controller))


if __name__ == "__main__":
    _main()
