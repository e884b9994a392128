"""Detects a training that is finishing, has lost a member, and does not end.

One rank that ends early with exit code 0 makes the group look almost complete. If another rank is lost then, the rest
may wait for it forever. A restart would discard the finished work, so a person decides.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind, gather
from recovery.core.diagnosis.finishing import done_since, first_done
from recovery.core.diagnosis.freshness import fresh
from recovery.core.model.durations import in_words
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.facts import JobFacts, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because


class LostWhileFinishing(msgspec.Struct, frozen=True):
    """The training is finishing, and these members are lost."""

    done: Explanation
    losses: tuple[Evidence, ...]
    lost_at: datetime
    """The earliest known time of a loss."""
    waits_since: datetime
    """When both the loss and the first end with exit code 0 had happened, as far as that is known. The ranks may have
    trained on for long after the loss, if they do not need each other."""
    key: str
    """The key of the evidence that the training has not ended in time, one for each Job that shows it finishing."""


def lost_while_finishing(
    snapshot: Snapshot, ledger: Ledger, *, since: datetime | None, now: datetime
) -> LostWhileFinishing | None:
    """None: it is not finishing, nothing is lost, no loss has a time, or this has been decided already. `since`: as for
    `fresh`."""
    found = first_done(snapshot)
    if found is None or _key(found[0]) in ledger.handled.keys:
        return None
    job, done = found
    losses = (
        *fresh(snapshot, gather(snapshot), since=since, handled=ledger.handled, now=now),
        *_left(snapshot, ledger, now),
    )
    dated = [item.at for item in losses if item.at is not None]
    if not dated:
        return None
    lost_at = min(dated)
    waits_since = max(lost_at, done_since(snapshot, job) or lost_at)
    return LostWhileFinishing(done, losses, lost_at, waits_since, _key(job))


def _left(snapshot: Snapshot, ledger: Ledger, now: datetime) -> tuple[Evidence, ...]:
    """The losses of the last incident, if it was closed because the training was finishing: nothing has been done about
    them yet. Those of an earlier incident do not matter, because the group has run whole since. Nor does a Job that was
    deleted: what finishes is its successor."""
    closed = ledger.history[0] if ledger.history else None
    if closed is None or closed.outcome_reason is not Reason.JOB_FINISHING:
        return ()
    known = (item for item in gather(snapshot) if item.key in ledger.handled.keys)
    seen = [item for item in known if item.kind is not LossKind.JOB_DELETED]
    lost = fresh(snapshot, seen, since=None, handled=Handled(), now=now)
    began = closed.started_at.replace(microsecond=0)
    return tuple(item for item in lost if item.at is not None and item.at >= began)


def overdue(snapshot: Snapshot, handled: Handled, finish_timeout: timedelta) -> Explanation | None:
    """Why a finishing training takes too long, if that has been decided. Else None."""
    found = first_done(snapshot)
    if found is None or _key(found[0]) not in handled.keys:
        return None
    return because(Reason.FINISH_OVERDUE, done=found[1], timeout=in_words(finish_timeout))


def left_to_finish(snapshot: Snapshot, handled: Handled) -> Explanation | None:
    """Why the group is left alone: its training is finishing, and was not found to take too long. Else None."""
    found = first_done(snapshot)
    return found[1] if found is not None and _key(found[0]) not in handled.keys else None


def _key(job: JobFacts) -> str:
    return f"{job.uid}/finish-overdue"
