"""Decides which requests of a controller, and which lines of its watches, get a fault."""

from collections.abc import Callable, Iterable

import msgspec

from recovery.kube.http import REQUEST_SECONDS_MAX
from recovery.ports import LEASES, ApiRequest
from recovery.sim.trials.dice import Dice
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import FaultRates

_WITHOUT_ANSWER = frozenset({FaultKind.TIMEOUT, FaultKind.TIMEOUT_APPLIED})

_Spread = tuple[FaultKind, float, float, float]
"""A kind, its weight, and the least and most seconds that it lasts."""

OF_PROCESSES: tuple[_Spread, ...] = (
    (FaultKind.PROCESS_KILL, 3, 0.5, 120),
    (FaultKind.PROCESS_KILL_AFTER, 3, 0.5, 120),
    (FaultKind.PROCESS_FREEZE, 2, 5, 90),
    (FaultKind.CLOCK_JUMP, 1, -90, 90),
)
OF_WRITES: tuple[_Spread, ...] = (
    (FaultKind.CONFLICT, 3, 0, 0),
    (FaultKind.TOO_MANY_REQUESTS, 2, 1, 8),
    (FaultKind.SERVER_ERROR, 2, 0, 0),
    (FaultKind.SERVER_ERROR_APPLIED, 2, 0, 0),
    (FaultKind.TIMEOUT, 2, 0, 0),
    (FaultKind.TIMEOUT_APPLIED, 2, 0, 0),
    (FaultKind.DELAYED, 3, 5, 60),
)
OF_READS: tuple[_Spread, ...] = (
    (FaultKind.TOO_MANY_REQUESTS, 2, 1, 8),
    (FaultKind.SERVER_ERROR, 2, 0, 0),
    (FaultKind.TIMEOUT, 1, 0, 0),
)
OF_LINES: tuple[_Spread, ...] = (
    (FaultKind.WATCH_DISCONNECT, 3, 0, 0),
    (FaultKind.WATCH_STALL, 2, 1, 60),
    (FaultKind.WATCH_EXPIRED, 1, 0, 0),
    (FaultKind.WATCH_DUPLICATE, 2, 0, 0),
    (FaultKind.WATCH_LAG, 2, 0.2, 10),
)
LEASE_SHARE = 0.05
"""The share of the rates that applies to requests for the Lease, because nearly all requests renew or read it."""
HIT_REQUESTS = frozenset(spread[0] for spreads in (OF_PROCESSES, OF_WRITES, OF_READS) for spread in spreads)
HIT_LINES = frozenset(spread[0] for spread in OF_LINES)


class RequestFaults:
    """Finds given faults by their key, and draws others by their rates. No fault lasts into the healing."""

    def __init__(
        self, seed: int, given: Iterable[TrialFault], rates: FaultRates, seconds_left: Callable[[], float]
    ) -> None:
        """`seconds_left`: how long until the healing begins."""
        self._seed = seed
        self._rates = rates
        self._seconds_left = seconds_left
        self._requests: dict[tuple[str, int], TrialFault] = {}
        self._lines: dict[tuple[str, int], TrialFault] = {}
        for fault in given:
            known = self._lines if fault.key.kind in HIT_LINES else self._requests
            known[fault.key.actor, fault.key.number] = fault

    def of_request(self, actor: str, number: int, request: ApiRequest, dice: Dice) -> TrialFault | None:
        given = self._requests.get((actor, number))
        if given is not None:
            return self._in_time(given)
        chance = dice.throw() / (LEASE_SHARE if request.resource == LEASES else 1.0)
        if chance < self._rates.process:
            return self._draw(actor, number, OF_PROCESSES, dice)
        if chance < self._rates.process + self._rates.request:
            return self._draw(actor, number, OF_WRITES if request.writes else OF_READS, dice)
        return None

    def over(self) -> bool:
        """The healing has begun. Faults without a fixed end stop now."""
        return self._seconds_left() <= 0

    def of_line(self, actor: str, number: int) -> TrialFault | None:
        given = self._lines.get((actor, number))
        if given is not None:
            return self._in_time(given)
        if not self._rates.line:
            return None
        dice = Dice(self._seed, f"{actor}'s watches", number)
        return self._draw(actor, number, OF_LINES, dice) if dice.throw() < self._rates.line else None

    def _draw(self, actor: str, number: int, spreads: tuple[_Spread, ...], dice: Dice) -> TrialFault | None:
        mark = dice.throw() * sum(weight for _, weight, _, _ in spreads)
        for kind, weight, least, most in spreads:
            mark -= weight
            if mark < 0:
                return self._in_time(TrialFault(FaultKey(actor, number, kind), round(dice.between(least, most), 3)))
        raise AssertionError("the weights do not add up")

    def _in_time(self, fault: TrialFault) -> TrialFault | None:
        """The fault. None: it would last into the healing. A given one may, after others were removed from the plan."""
        lasts_seconds = REQUEST_SECONDS_MAX if fault.key.kind in _WITHOUT_ANSWER else abs(fault.seconds)
        return fault if lasts_seconds < self._seconds_left() else None


def took_place(fault: TrialFault, at_seconds: float) -> TrialFault:
    """The fault with its moment filled in. The moment is for people to read: a replay uses only the key."""
    return msgspec.structs.replace(fault, at_seconds=round(at_seconds, 3))
