"""Which failures are drills, and what a drill leaves out of the accounts of real failures.

A drill runs through the same decisions as a real failure. But it costs no budget, makes no node suspect, opens no
circuit breaker, and leaves the next real failure no backoff.
"""

from datetime import datetime

import msgspec

from recovery.core.diagnosis.evidence import Evidence
from recovery.core.model.drill import DrillFacts, DrillRef, NamedPod
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import JOB_TRIGGERS, AttemptAction, Ledger


def ref_of(snapshot: Snapshot, root: Evidence, now: datetime) -> DrillRef | None:
    """The drill that caused the loss. None: no drill has named its pod before."""
    found = _naming(snapshot, root, now)
    if found is None:
        return None
    drill, named = found
    return DrillRef(name=drill.name, uid=drill.uid, repeat=named.repeat)


def caused(ledger: Ledger, snapshot: Snapshot, root: Evidence, now: datetime) -> bool:
    """The drill of the open incident caused this loss."""
    open_ = ledger.current_incident
    if open_.drill is None:
        return False
    if root.key == open_.opened_by:  # the time of the drill may be over by now
        return True
    found = _naming(snapshot, root, now)
    return found is not None and found[0].uid == open_.drill.uid


def _naming(snapshot: Snapshot, root: Evidence, now: datetime) -> tuple[DrillFacts, NamedPod] | None:
    if root.pod is None:
        return None
    for drill in snapshot.drills:
        named = drill.names(root.pod.uid, now)
        if named is not None:
            return drill, named
    return None


def out_of_the_rows(ledger: Ledger) -> Ledger:
    """The ledger without the restarts of its closed incident in the rows that the next backoff depends on, if it was a
    drill and nothing else was charged in it."""
    closed = ledger.current_incident
    if closed.drill is None or closed.charged:
        return ledger
    recreated = sum(each.action in JOB_TRIGGERS for each in closed.attempts)
    in_place = sum(each.action is AttemptAction.RESTART_IN_PLACE for each in closed.attempts)
    return msgspec.structs.replace(
        ledger,
        attempts_in_row=max(0, ledger.attempts_in_row - recreated),
        in_place_in_row=max(0, ledger.in_place_in_row - in_place),
    )
