"""Agents of torchrun's c10d rendezvous, without workers: a thread with a handler each. Python has torch there.

Each does what torchrun's agent does about the rendezvous: it joins, then it asks every 0.1 s whether others wait, and
joins again if so. `agent`, a number, on standard input makes that one join again, as after the end of its worker. The
process says when each agent has joined for which time, and ends with its standard input.
"""

import argparse
import json
import os
import sys
import threading
import time

from torch.distributed.elastic.rendezvous import (  # type: ignore[import-not-found]  # the examples' environment has it
    RendezvousParameters,
    registry,
)

MONITOR_SECONDS = 0.1
"""torchrun's default of `--monitor-interval`."""
_speaks = threading.Lock()


def _say(**event: object) -> None:
    with _speaks:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


class Agent:
    def __init__(self, number: int, agents: int, endpoint: str) -> None:
        self.number = number
        self.fails = threading.Event()
        self._agents = agents
        self._endpoint = endpoint

    def run(self) -> None:
        handler = registry.get_rendezvous_handler(
            RendezvousParameters(
                backend="c10d",
                endpoint=self._endpoint,
                run_id="bench",
                min_nodes=self._agents,
                max_nodes=self._agents,
                local_addr="127.0.0.1",
                is_host=self.number == 0,
            )
        )
        joined = 0
        while True:
            handler.next_rendezvous()
            joined += 1
            _say(at=time.monotonic(), agent=self.number, joined=joined)
            while not self.fails.wait(MONITOR_SECONDS):
                if handler.num_nodes_waiting() > 0:
                    break
            self.fails.clear()


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("agents", type=int)
    parser.add_argument("endpoint")
    asked = parser.parse_args()
    agents = [Agent(number, asked.agents, asked.endpoint) for number in range(asked.first, asked.first + asked.count)]
    _say(at=time.monotonic(), event="imported")
    sys.stdin.readline()  # the word to begin
    _say(at=time.monotonic(), event="begins")
    for agent in agents:
        threading.Thread(target=agent.run, daemon=True).start()
    for line in sys.stdin:
        command = json.loads(line)
        _say(at=time.monotonic(), event="failed")
        agents[command["agent"] - asked.first].fails.set()
    os._exit(0)  # threads wait within torch


if __name__ == "__main__":
    _main()
