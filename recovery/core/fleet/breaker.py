"""The circuit breaker: it stops all restarts after restarts in many groups at once have been in vain."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from recovery.core.fleet.suspicion import counts_within
from recovery.core.model.fleet_ledger import CLOCK_AHEAD_MAX, REMEMBERED_MAX, Breaker, FleetLedger, FleetLimits, Futile
from recovery.core.model.reason import Reason


def breaker_reset(ledger: FleetLedger, reset_at: datetime | None, now: datetime) -> FleetLedger:
    """The ledger with the breaker closed, if it opened before `reset_at`. Futile recoveries until then are forgotten,
    so that the next single one does not open it again. `reset_at` None: no one has asked."""
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
    """The futile recoveries with those of `more` that still count. The newest are remembered: of one workload only its
    share, and of one namespace as many as may ever count. So a tenant whose jobs crash repeatedly, under one name or
    many, does not push out the recoveries of others."""
    if limits.breaker_recoveries is None:
        return before
    known = {each.incident: each for each in before}
    for each in more:
        if counts_within(each.at, limits.breaker_within_seconds, now):
            known.setdefault(each.incident, each)
    if len(known) == len(before):
        return before
    limit = _reachable(limits.breaker_recoveries)
    kept: list[Futile] = []
    of_workload: Counter[tuple[str, str]] = Counter()
    of_namespace: Counter[str] = Counter()
    for each in sorted(known.values(), key=lambda each: (each.at, each.incident), reverse=True):
        key = each.namespace, each.workload
        if of_workload[key] >= _workload_share(limit) or of_namespace[each.namespace] >= limit:
            continue
        of_workload[key] += 1
        of_namespace[each.namespace] += 1
        kept.append(each)
    return tuple(reversed(kept[:REMEMBERED_MAX]))


def breaker_of(
    futile: tuple[Futile, ...], limits: FleetLimits, only_namespace: str | None, now: datetime
) -> Breaker | None:
    """The open breaker, if enough recoveries were in vain. None: it stays closed.

    At most a third of `recoveries` counts from one workload, and at most half from one namespace, so that one tenant
    cannot stop the recoveries of all others. `only_namespace`: the only namespace in which anything is enforced, which
    may reach the count alone. None: there are several.
    """
    if limits.breaker_recoveries is None:
        return None
    limit = _reachable(limits.breaker_recoveries)
    of_workload = Counter((each.namespace, each.workload) for each in futile)
    of_namespace: Counter[str] = Counter()
    for (namespace, _), recoveries in of_workload.items():
        of_namespace[namespace] += min(recoveries, _workload_share(limit))
    counted = sum(
        recoveries if namespace == only_namespace else min(recoveries, _namespace_share(limit))
        for namespace, recoveries in of_namespace.items()
    )
    if counted < limit:
        return None
    return Breaker(
        now,
        Reason.RECOVERIES_IN_VAIN,
        recoveries=counted,
        within_seconds=limits.breaker_within_seconds,
        limit=limit,
    )


def _reachable(recoveries: int) -> int:
    """The count, limited to what is remembered: a higher one would never be reached."""
    return min(recoveries, REMEMBERED_MAX)


def _workload_share(limit: int) -> int:
    return max(1, limit // 3)


def _namespace_share(limit: int) -> int:
    """Half, rounded up. Rounded down, two namespaces would never reach an odd count."""
    return (limit + 1) // 2
