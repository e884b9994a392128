"""Two candidates never lead at the same time, for any number of candidates and any faults."""

import asyncio
import random
from datetime import timedelta

import pytest

from recovery.ports import TryLaterError
from recovery.sim.virtual_time import virtual_time
from tests.unit.controller.candidates import Candidate, OwnClock
from tests.unit.controller.leases import LeaseServer

pytestmark = pytest.mark.long


class Weather:
    """Everything that can go wrong, drawn from a seed: slow connections, lost answers, no connection, frozen processes,
    wrong dates, stale facts."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = LeaseServer()
        self.candidates: list[Candidate] = []
        self.pinned: list[Candidate] = []
        self.server.judge = self.judge
        self.elections = 0

    def judge(self, holder: str) -> None:
        """No candidate becomes holder, and none releases the Lease, while another one may still act."""
        acting = [candidate.name for candidate in self.candidates if candidate.leads and candidate.name != holder]
        assert not acting, f"{acting} may act, and {holder!r} gets the lease"

    def join(self, number: int) -> Candidate:
        clock = OwnClock(rate=self.chance.uniform(0.95, 1.05), ahead=timedelta(days=self.chance.randint(-9, 9)))
        candidate = Candidate(self.server, f"candidate-{number}", clock=clock, seed=number)
        worst = self.chance.choice([0.01, 0.5, 4.0])
        candidate.way.there = lambda: self.slow(worst)
        candidate.way.back = lambda: self.slow(worst)
        candidate.way.loses_answer = lambda: self.chance.random() < 0.1
        candidate.start()
        self.candidates.append(candidate)
        return candidate

    def slow(self, worst: float) -> float:
        return self.chance.uniform(0, worst) if self.chance.random() > 0.03 else self.chance.uniform(0, 40)

    async def disturb(self, candidate: Candidate) -> None:
        match self.chance.choice(["freeze", "cut", "end", "kill", "date", "annotate", "delete", "stale"]):
            case "freeze":
                candidate.clock.running.clear()
                await asyncio.sleep(self.chance.uniform(0, 40))
                candidate.clock.running.set()
            case "cut":
                candidate.way.refusal = TryLaterError("connection refused")
                await asyncio.sleep(self.chance.uniform(0, 40))
                candidate.way.refusal = None
            case "end" | "kill" as way:
                await (candidate.end() if way == "end" else candidate.kill())
                self.elections += len(candidate.led_at)
                self.candidates.remove(candidate)
                # A killed process no longer acts, but its Lease remains.
                self.join(self.chance.randint(10, 10**6))
            case "date":
                candidate.clock.ahead = timedelta(days=self.chance.randint(-9, 9))
            case "stale":
                candidate.current = not candidate.current
            case "annotate" if self.server.lease is not None:
                self.server.touch()
            case "delete" if all(each.elector._seen is not None for each in self.candidates):
                self.server.delete()
                await asyncio.sleep(60)  # a candidate that joins now has never seen it, and cannot know of a leader
            case _:
                pass


@pytest.mark.parametrize("seed", range(40))
def test_two_controllers_never_lead_at_once(seed: int) -> None:
    @virtual_time
    async def play() -> None:
        weather = Weather(seed)
        for number in range(3):
            weather.join(number)
        for _ in range(60):
            await asyncio.sleep(weather.chance.uniform(0, 20))
            await weather.disturb(weather.chance.choice(weather.candidates))
            assert sum(candidate.leads for candidate in weather.candidates) <= 1
        weather.elections += sum(len(candidate.led_at) for candidate in weather.candidates)
        assert weather.elections > 5, "it is no test if nothing changes hands"
        for candidate in weather.candidates:
            task = candidate._task
            assert task is not None
            assert not task.done(), task.exception()
            await candidate.kill()
        await asyncio.sleep(100)

    play()
