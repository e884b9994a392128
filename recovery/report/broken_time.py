"""The time in which groups were Broken after an incident had closed. No incident and no record has it, only ledgers."""

from datetime import datetime

import msgspec

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.standing import BROKEN_SECONDS


class BrokenTime(msgspec.Struct, frozen=True):
    """What the group of one workload has lost while it was Broken."""

    job: GroupKey
    idle_gpu_seconds: dict[str, float]
    """By class of the incident before; Drill: it was a drill. Up to now if the group is Broken."""
    counts_at: datetime | None
    """Now, or else the end of the latest incident that closed although ranks hung. None: its summary was dropped."""


def broken_time_of(group: LedgerObject, now: datetime) -> BrokenTime | None:
    """None: the group has never been Broken."""
    ledger = group.ledger
    idle = {
        name: phases[BROKEN_SECONDS]
        for name, phases in ledger.totals.idle_gpu_seconds_by_class.items()
        if phases.get(BROKEN_SECONDS)
    }
    if ledger.broken is not None:
        seconds = max(0.0, (now - ledger.broken.booked_from).total_seconds())
        name = ledger.broken.disruption_class
        idle[name] = round(idle.get(name, 0.0) + seconds * ledger.broken.gpus, 3)
    if not idle:
        return None
    closed = max((each.ended_at for each in ledger.history if each.still_broken), default=None)
    return BrokenTime(GroupKey(group.namespace, group.group), idle, closed if ledger.broken is None else now)
