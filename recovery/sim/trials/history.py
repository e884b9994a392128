"""What the controller wrote down during a trial: each ledger with the one that it replaced."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from recovery.core.facts import GroupKey
from recovery.core.ledger import Ledger
from recovery.ports import RECOVERY_GROUPS
from recovery.sim.trials.evidence import Evidence


@dataclass(frozen=True)
class LedgerWrite:
    at: datetime
    group: GroupKey
    workload_uid: str
    actor: str
    before: Ledger
    """Empty if there was none."""
    after: Ledger


def ledger_writes(evidence: Evidence) -> Iterator[LedgerWrite]:
    """In order. A workload that was made again under its name begins with an empty ledger."""
    known: dict[str, Ledger] = {}
    for change, at in zip(evidence.changes, evidence.change_times, strict=True):
        if change.resource != RECOVERY_GROUPS or change.type == "DELETED" or "status" not in change.body:
            continue
        reference, metadata = change.body["spec"]["workloadRef"], change.body["metadata"]
        after = msgspec.convert(change.body["status"], Ledger)
        before = known.get(reference["uid"], Ledger())
        known[reference["uid"]] = after
        if after != before:
            group = GroupKey(metadata["namespace"], reference["name"])
            yield LedgerWrite(at, group, reference["uid"], change.actor, before, after)
