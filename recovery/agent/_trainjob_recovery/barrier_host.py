"""Runs the barrier in the agent of slot 0: its server, its clock and its reports to the controller."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence

from . import report
from .barrier import Barrier, BarrierSays, Close, Effect, ReportNow, Send
from .messages import FromMember, Hello, Proof, ReportAnswer
from .report import NoAnswer, ReportEndpoint
from .server import Server

TICK_SECONDS = 1.0
BEAT_SECONDS = 5.0
ASKING_EVERY_SECONDS = 1.0
MEETING_EVERY_SECONDS = 5.0
"""While ranks wait for others, the controller hears within 5 s whom they wait for."""
REPORT_SPREAD = (0.8, 1.0)
"""The next report comes after such a share of the time. Reports of many jobs spread, and none is late, so that a new
leader knows all jobs after `everySeconds`."""
OTHER_REPLICA_AFTER_SECONDS = 0.1
OTHER_REPLICAS_TRIED = 4
"""How often in a row a replica that stands by may answer before that counts as no answer."""
LAST_REPORT_SECONDS = 3.0
"""How long the agent's end waits for the report of it."""
_LINGER_SECONDS = {"finished": 5.0, "exiting": 2.0}


class BarrierHost:
    def __init__(
        self,
        *,
        identity: str,
        slots: int,
        key: str,
        controller: ReportEndpoint | None,
        say: Callable[[str], None],
        draw: random.Random,
    ) -> None:
        """`controller` is None: nothing is reported, so nothing is ever permitted."""
        self.barrier = Barrier(identity, slots, time.monotonic())
        self.server = Server(slots, key, self)
        self._controller = controller
        self._say = say
        self._draw = draw
        self._changed = asyncio.Event()
        self._sending = False
        self._every_seconds = 30.0
        self._silent_seconds = 1.0
        self._trouble: str | None = None
        """Why the last report had no answer. None: it had one, or there was none yet."""

    async def listen(self, port: int) -> int:
        """Raises OSError."""
        return await self.server.listen(port)

    async def run(self) -> None:
        """Ends only by being cancelled."""
        jobs = [self._tick(), self._beat()]
        if self._controller is not None:
            jobs.append(self._report(self._controller))
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Say the last words: to the members, and to the controller."""
        await self.server.close(_LINGER_SECONDS.get(self.barrier.state, 0.0))
        deadline = time.monotonic() + LAST_REPORT_SECONDS
        while self._controller is not None and (self._changed.is_set() or self._sending):
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(0.02)

    # ---- what the server reports -------------------------------------------------------------------------------------

    def joined(self, link: int, hello: Hello, proof: Proof) -> None:
        self._perform(self.barrier.on_joined(time.monotonic(), link, hello.slot, hello.inc, proof))

    def said(self, link: int, message: FromMember) -> None:
        self._perform(self.barrier.on_message(time.monotonic(), link, message))

    def lost(self, link: int) -> None:
        self._perform(self.barrier.on_lost(link))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.server.send(effect.link, effect.message)
            elif isinstance(effect, Close):
                self.server.close_link(effect.link)
            elif isinstance(effect, ReportNow):
                self._changed.set()
            elif isinstance(effect, BarrierSays):
                self._say(effect.text)

    # ---- what recurs -------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._perform(self.barrier.tick(time.monotonic()))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self.server.beat()

    async def _report(self, controller: ReportEndpoint) -> None:
        others = 0
        while True:
            self._changed.clear()
            self._sending = True
            epoch = self.barrier.epoch
            result = await report.send(controller, self.barrier.report(time.monotonic()))
            if isinstance(result, ReportAnswer):
                self._perform(self.barrier.on_answer(time.monotonic(), epoch, result))
            self._sending = False
            others = others + 1 if isinstance(result, NoAnswer) and result.stands_by else 0
            if 0 < others <= OTHER_REPLICAS_TRIED:
                await asyncio.sleep(OTHER_REPLICA_AFTER_SECONDS)
                continue
            if isinstance(result, NoAnswer) and result.retry_after_seconds is not None:
                self._note(result)
                await asyncio.sleep(max(ASKING_EVERY_SECONDS, result.retry_after_seconds))
                continue
            wait_seconds = self._note(result)
            if self.barrier.state == "asking":
                wait_seconds = ASKING_EVERY_SECONDS
            elif self.barrier.meeting:
                wait_seconds = min(wait_seconds, MEETING_EVERY_SECONDS)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_seconds * self._draw.uniform(*REPORT_SPREAD))

    def _note(self, result: ReportAnswer | NoAnswer) -> float:
        """Say what is new about the reports. Returns when the next one is due if nothing happens."""
        if isinstance(result, ReportAnswer):
            if self._trouble is not None:
                self._say("the controller answers again")
            self._trouble, self._silent_seconds = None, 1.0
            self._every_seconds = result.every_seconds
            return self._every_seconds
        if result.why != self._trouble:
            self._trouble = result.why
            self._say(f"the controller has not answered a report: {result.why}")
        self._silent_seconds = min(self._every_seconds, self._silent_seconds * 2)
        return self._silent_seconds
