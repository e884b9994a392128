"""The members of one barrier, all in this process. Commands come by standard input, and it ends with that.

| command             | what happens                             | what it says                        |
|---------------------|------------------------------------------|-------------------------------------|
| `dial`, with `port` | all dial at once                         | `dialling`, `welcomed`, `permitted` |
| `fail`, with `slot` | the rank of that slot ends with an error | `failed`                            |
| `cut`               | all links are cut at once                | `cut`, `welcomed`                   |
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import time

from recovery.agent._trainjob_recovery.file_limit import links_allowed
from recovery.agent._trainjob_recovery.link import BEAT_SECONDS
from tests.bench.rendezvous.light_agent import LightAgent, Place

_ADDRESSES = 8
"""A pair of addresses has some 28,000 free ports, and a cut link may keep one for a minute."""
_BEATS_EVERY_SECONDS = 0.02


def _say(**event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Members:
    def __init__(self, slots: int, key: str) -> None:
        self._slots = slots
        self._key = key
        self._agents: list[LightAgent] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._awaited = 0
        """How many welcomes are still to come."""

    async def run(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            while line := await reader.readline():
                command = json.loads(line)
                if command["do"] == "dial":
                    self._dial(command["port"])
                elif command["do"] == "fail":
                    _say(at=time.monotonic(), event="failed")
                    self._agents[command["slot"]].fail()
                else:
                    self._cut()
        finally:
            for task in self._tasks:
                task.cancel()

    def _dial(self, port: int) -> None:
        draw = random.Random(1)
        for slot in range(self._slots):
            place = Place(slot, self._slots, self._key, f"127.0.0.{1 + slot % _ADDRESSES}", port)
            self._agents.append(LightAgent(place, draw, self._on_welcome))
            self._agents[-1].begin()
        gc.collect()
        gc.freeze()  # or the members' own collections delay what they answer
        self._awaited = self._slots
        _say(at=time.monotonic(), event="dialling")
        self._tasks = [asyncio.ensure_future(agent.run()) for agent in self._agents]
        self._tasks += [asyncio.ensure_future(self._beat()), asyncio.ensure_future(self._say_permitted())]

    def _cut(self) -> None:
        self._awaited = self._slots
        _say(at=time.monotonic(), event="cut")
        for agent in self._agents:
            assert agent.link is not None, f"slot {agent.place.slot} has a link"
            agent.link.abort()

    def _on_welcome(self) -> None:
        self._awaited -= 1
        if self._awaited == 0:
            _say(at=time.monotonic(), event="welcomed")

    async def _beat(self) -> None:
        """Each member says a beat as often as an agent does, and they are spread evenly."""
        began, said = time.monotonic(), 0
        while True:
            await asyncio.sleep(_BEATS_EVERY_SECONDS)
            due = int((time.monotonic() - began) / BEAT_SECONDS * self._slots)
            for number in range(said, due):
                self._agents[number % self._slots].beat()
            said = due

    async def _say_permitted(self) -> None:
        while not all(agent.permitted for agent in self._agents):
            await asyncio.sleep(0.1)
        _say(at=time.monotonic(), event="permitted")


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rendezvous.members_process")
    parser.add_argument("slots", type=int)
    parser.add_argument("key")
    asked = parser.parse_args()
    assert links_allowed(asked.slots) == asked.slots, "this process may open a file for each link"
    asyncio.run(Members(asked.slots, asked.key).run())


if __name__ == "__main__":
    _main()
