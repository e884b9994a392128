"""The circuit breaker: restarts that were in vain, in many groups at once, stop all of them."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from recovery.core.fleet.suspicion import counts_within
from recovery.core.model.fleet_ledger import CLOCK_AHEAD_MAX, REMEMBERED_MAX, Breaker, FleetLedger, FleetLimits, Futile
from recovery.core.model.reason import Reason


def breaker_reset(ledger: FleetLedger, reset_at: datetime | None, now: datetime) -> FleetLedger:
    """The ledger with the breaker closed, if it opened before that moment, and what it had counted until then
    forgotten: the next futile recovery must not open it again by itself. `reset_at` None: nobody has asked."""
    if reset_at is None or reset_at > now + CLOCK_AHEAD_MAX or ledger.breaker is None:
        return ledger
    if ledger.breaker.opened_at > reset_at:
        return ledger
    return msgspec.structs.replace(ledger, breaker=None, futile=since_reset(ledger.futile, reset_at, now))


def since_reset(futile: tuple[Futile, ...], reset_at: datetime | None, now: datetime) -> tuple[Futile, ...]:
    if reset_at is None or reset_at > now + CLOCK_AHEAD_MAX:
        return futile
    return tuple(each for each in futile if each.at > reset_at)


def with_futile(
    before: tuple[Futile, ...], limits: FleetLimits, more: Iterable[Futile], now: datetime
) -> tuple[Futile, ...]:
    if limits.breaker_recoveries is None:
        return before
    known = {each.incident: each for each in before}
    for each in more:
        if counts_within(each.at, limits.breaker_within_seconds, now):
            known.setdefault(each.incident, each)
    if len(known) == len(before):
        return before
    return tuple(sorted(known.values(), key=lambda each: (each.at, each.incident))[-REMEMBERED_MAX:])


def breaker_of(futile: tuple[Futile, ...], limits: FleetLimits, now: datetime) -> Breaker | None:
    if limits.breaker_recoveries is None or len(futile) < limits.breaker_recoveries:
        return None
    return Breaker(
        now,
        Reason.RECOVERIES_IN_VAIN,
        recoveries=len(futile),
        within_seconds=limits.breaker_within_seconds,
        limit=limits.breaker_recoveries,
    )
