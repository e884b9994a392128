"""How many deletes may be in flight: as many as the API server answers without a long queue of its own (AIMD).

A rate in requests per second has to be guessed: 400 was too low for 50,000 pods and an idle server, and would be too
high for a slow one. A limit of what is in flight needs no such number, because a slower server answers more slowly. But
behind a server that has fallen behind, the deletes would fill its queue, and triggers would wait in it. So the limit is
halved after a round of late answers, and grows by one after a round in which answers came in time, as in TCP.

A round is as many answers as the limit, to requests that were sent in it. It is late if even its quickest answer is:
a pause of this process delays only some. The API client waits for a `Retry-After` before it returns, so a delete that
was refused with 429 is late too, and no other takes its place until then.
"""

from collections.abc import Callable

from recovery.ports import Clock

IN_FLIGHT_MAX = 48
"""The API client has at most 64 writes in flight. The rest is for triggers and ledgers, which must not wait for an API
server that is slow to delete pods."""
IN_FLIGHT_MIN = 8
"""So few make no queue, so their answers show how fast the server is by itself."""
IN_FLIGHT_BESIDE_TRIGGERS = 2
"""While many groups wait for their triggers. A delete, and the changes of the pod that follow it, take this process as
long as they take the API server: eight at a time took half of its time in a storm of 500 groups."""
LATE_SECONDS = 0.25
"""By how much a late answer takes longer than one that waits behind no other delete. About this long a trigger waits in
the server's queue behind our deletes, at most."""


class InFlightLimit:
    """Counts requests in flight, and adapts their limit to the answers."""

    def __init__(self, clock: Clock, *, triggers_wait: Callable[[], bool]) -> None:
        """`triggers_wait`: many groups wait for their triggers."""
        self._clock = clock
        self._triggers_wait = triggers_wait
        self._limit = IN_FLIGHT_MAX
        self._in_flight = 0
        self._alone_seconds = 0.0
        """How long an answer takes that waits behind no other. It is measured while the limit is at its minimum: a
        server that is slow by itself, as behind a webhook, brings the limit down once, and then up again."""
        self._round_began_seconds = float("-inf")
        self._answers = 0
        """In this round."""
        self._quickest_seconds = float("inf")
        """In this round."""

    @property
    def most(self) -> int:
        """How many may be in flight now."""
        return IN_FLIGHT_BESIDE_TRIGGERS if self._triggers_wait() else self._limit

    @property
    def full(self) -> bool:
        return self._in_flight >= self.most

    def is_late(self, began_seconds: float) -> bool:
        """The request that was sent then is in flight for longer than one in time."""
        return self._clock.monotonic_seconds() - began_seconds > self._alone_seconds + LATE_SECONDS

    def begin(self) -> float:
        """A request is sent. Returns the moment, which `end` needs."""
        self._in_flight += 1
        return self._clock.monotonic_seconds()

    def end(self, began_seconds: float, *, answered: bool, refused: bool = False) -> None:
        """The request is over. `answered` False: it was cancelled. `refused`: the server asked to try later."""
        self._in_flight -= 1
        if not answered or began_seconds < self._round_began_seconds:
            return
        self._answers += 1
        if not refused:
            self._quickest_seconds = min(self._quickest_seconds, self._clock.monotonic_seconds() - began_seconds)
        if self._answers >= self._limit:
            self._end_round()

    def _end_round(self) -> None:
        quickest = self._quickest_seconds
        if self._limit == IN_FLIGHT_MIN and quickest < float("inf"):
            self._alone_seconds = quickest
        self._alone_seconds = min(self._alone_seconds, quickest)
        in_time = quickest <= self._alone_seconds + LATE_SECONDS
        self._limit = min(IN_FLIGHT_MAX, self._limit + 1) if in_time else max(IN_FLIGHT_MIN, self._limit // 2)
        self._round_began_seconds = self._clock.monotonic_seconds()
        self._answers, self._quickest_seconds = 0, float("inf")
