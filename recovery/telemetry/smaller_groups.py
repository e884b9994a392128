"""What metrics show of a group with fewer nodes than wanted, from its ledger and the clock."""

import math
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import Ledger
from recovery.telemetry.idle_cells import BOOKED_WITHIN, open_incident

FAILURES_SEEN_WITHIN = timedelta(minutes=2)
"""From the date of a failure's evidence until the ledger books what the group ran before it. A node that stops
answering takes longest to notice. If that takes longer than this, a change of leader then may let a counter fall."""


class SmallerRun(msgspec.Struct, frozen=True):
    """What a group has run with fewer nodes."""

    seconds: float
    gpu_seconds: float


def smaller_run(ledger: Ledger, now: datetime) -> SmallerRun:
    """What is booked, plus the certain part of the time since then: a failure not seen yet may have ended the run."""
    totals, state = ledger.totals, ledger.elastic
    if state is None or state.running_since is None:
        return SmallerRun(totals.reduced_seconds, totals.gained_gpu_seconds)
    until = now - FAILURES_SEEN_WITHIN - BOOKED_WITHIN
    # Rounded up it could exceed what is booked later.
    seconds = math.floor(max(0.0, (until - state.running_since).total_seconds()) * 1000) / 1000
    return SmallerRun(totals.reduced_seconds + seconds, totals.gained_gpu_seconds + seconds * state.gpus)


def smaller_group(ledger: Ledger) -> ElasticState | None:
    """The size of a group that has fewer nodes than wanted, even during a restart that is to change that.

    None: it has all of them, it is not elastic, or it does not run because it is suspended.
    """
    state = ledger.elastic
    if state is None or (state.running_since is None and open_incident(ledger) is None):
        return None
    return state
