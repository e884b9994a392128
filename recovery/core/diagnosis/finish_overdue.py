"""A training that is finishing and has lost a member, and does not end.

One rank that ends early with exit code 0 makes the group look as if it were about to be complete. If another rank is
lost then, the rest may wait for it without end. A restart would throw away what is done, so a person decides.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.evidence import Evidence, gather
from recovery.core.diagnosis.finishing import first_done
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
    """The first of them whose time is known."""
    key: str
    """Of the evidence that it has not ended in time; once for each Job by which the training is finishing."""


def lost_while_finishing(
    snapshot: Snapshot, ledger: Ledger, *, since: datetime | None, now: datetime
) -> LostWhileFinishing | None:
    """None: it is not finishing, nothing is lost, nothing shows when, or it has been decided on. `since`: as for
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
    return LostWhileFinishing(done, losses, min(dated), _key(job)) if dated else None


def _left(snapshot: Snapshot, ledger: Ledger, now: datetime) -> tuple[Evidence, ...]:
    """The losses of the last incident, if it was closed because the training was finishing: they are not dealt with
    yet. Those of an earlier one are over: the group has run whole since."""
    closed = ledger.history[0] if ledger.history else None
    if closed is None or closed.outcome_reason is not Reason.JOB_FINISHING:
        return ()
    seen = [item for item in gather(snapshot) if item.key in ledger.handled.keys]
    lost = fresh(snapshot, seen, since=None, handled=Handled(), now=now)
    began = closed.started_at.replace(microsecond=0)
    return tuple(item for item in lost if item.at is not None and item.at >= began)


def overdue(snapshot: Snapshot, handled: Handled, finish_timeout: timedelta) -> Explanation | None:
    """The training is finishing, and it has been decided that it takes too long. None: not so."""
    found = first_done(snapshot)
    if found is None or _key(found[0]) not in handled.keys:
        return None
    return because(Reason.FINISH_OVERDUE, done=found[1], timeout=in_words(finish_timeout))


def left_to_finish(snapshot: Snapshot, handled: Handled) -> Explanation | None:
    """The training is finishing, and nothing says that this takes too long: the group is left alone. None: not so."""
    found = first_done(snapshot)
    return found[1] if found is not None and _key(found[0]) not in handled.keys else None


def _key(job: JobFacts) -> str:
    return f"{job.uid}/finish-overdue"
