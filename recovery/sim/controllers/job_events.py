"""Events of the Job controller. Like pods, each one costs its client a request.

Source: `tools/record` of client-go 0.36. There a further request merges similar Events into one. Here each Event is
written separately, so it costs one request either way.
"""

import asyncio
from collections import deque

from recovery.ports import EVENTS, Clock
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.controllers.request_limiter import Limiter

BURST = 25
"""How many Events one object may have at once. More are dropped: a Job with 128 pods gets Events for the first ones."""
REFILL_SECONDS = 300.0


class JobEvents:
    """A queue of Events. `run` writes them one by one, as the limiter allows."""

    def __init__(self, server: ApiServer, clock: Clock, limiter: Limiter, actor: str) -> None:
        self._server = server
        self._clock = clock
        self._limiter = limiter
        self._actor = actor
        self._unsent: deque[Body] = deque()
        self._some = asyncio.Event()
        self._full_at_seconds: dict[str, float] = {}
        """By UID of the Job: when its full `BURST` is available again."""
        self._serial = 0

    def warn(self, job: Body, reason: str, message: str) -> None:
        self._say(job, "Warning", reason, message)

    def note(self, job: Body, reason: str, message: str) -> None:
        self._say(job, "Normal", reason, message)

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self._some.wait()
            while self._unsent:
                event = self._unsent.popleft()
                await self._limiter.take()
                with self._server.acting(self._actor):
                    self._server.create(EVENTS, event, namespace=event["metadata"]["namespace"])
            self._some.clear()

    def _say(self, job: Body, severity: str, reason: str, message: str) -> None:
        metadata = job["metadata"]
        now = self._clock.monotonic_seconds()
        full_at_seconds = max(self._full_at_seconds.get(metadata["uid"], now), now) + REFILL_SECONDS
        if full_at_seconds - now > BURST * REFILL_SECONDS:
            return
        self._full_at_seconds[metadata["uid"]] = full_at_seconds
        self._serial += 1
        at = timestamp(self._clock.now())
        event: Body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{self._serial:016x}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": severity,
            "reason": reason,
            "message": message,
            "source": {"component": self._actor},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        self._unsent.append(event)
        self._some.set()
