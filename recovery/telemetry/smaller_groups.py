"""What metrics show of a group that has fewer nodes than it is to have, from its ledger and the clock."""

import math
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import Ledger
from recovery.telemetry.idle_cells import BOOKED_WITHIN, open_incident

FAILURES_SEEN_WITHIN = timedelta(minutes=2)
"""From a failure, as its evidence dates it, until the ledger books what the group has run up to then. A node that stops
answering is noticed last. Where it takes longer, a change of leader at that moment may let a counter fall."""


class SmallerRun(msgspec.Struct, frozen=True):
    """What a group has run with fewer nodes."""

    seconds: float
    gpu_seconds: float


def smaller_run(ledger: Ledger, now: datetime) -> SmallerRun:
    """What is booked, and what surely counts of the time since then: a failure that was not seen yet ends it."""
    totals, state = ledger.totals, ledger.elastic
    if state is None or state.running_since is None:
        return SmallerRun(totals.reduced_seconds, totals.gained_gpu_seconds)
    until = now - FAILURES_SEEN_WITHIN - BOOKED_WITHIN
    # Rounded up it could be more than what is booked.
    seconds = math.floor(max(0.0, (until - state.running_since).total_seconds()) * 1000) / 1000
    return SmallerRun(totals.reduced_seconds + seconds, totals.gained_gpu_seconds + seconds * state.gpus)


def smaller_group(ledger: Ledger) -> ElasticState | None:
    """The size of a group that has fewer nodes than it is to have, also while a restart is to change that.

    None: it has all of them, it is not elastic, or it stands still because it is suspended.
    """
    state = ledger.elastic
    if state is None or (state.running_since is None and open_incident(ledger) is None):
        return None
    return state
