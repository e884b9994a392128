"""A client has deleted the workload of a group. What its ledger has not ended yet ends with it."""

from datetime import datetime

from recovery.core.incident.standing import no_longer_broken
from recovery.core.model.ledger import Ledger, Outcome
from recovery.core.model.reason import Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.parts import close


def finished(ledger: Ledger, workload_uid: str, at: datetime) -> Ledger:
    """The last state of the ledger: its incident is closed, and the time in which the group was Broken is booked. It is
    not written, because Kubernetes deletes it with the workload."""
    ledger = no_longer_broken(ledger, workload_uid, at)
    if ledger.incident is None or ledger.incident.closing is not None:
        return ledger
    return close(ledger, Outcome.SUPERSEDED, explained(Sentence.JOB_WAS_DELETED, Reason.JOB_DELETED), at).ledger
