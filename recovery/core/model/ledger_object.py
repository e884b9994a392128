"""A ledger as stored in a RecoveryGroup, and the version that it is labelled with."""

import msgspec

from recovery.core.model.ledger import (
    OLDEST_SCHEMA_VERSION,
    SCHEMA_VERSION,
    WITHOUT_RESUMING,
    WITHOUT_SIZES,
    AttemptAction,
    Incident,
    Ledger,
    Phase,
)
from recovery.core.model.rules import RuleAction

_OF_VERSION_6 = frozenset({AttemptAction.AVOID_NODE, AttemptAction.SHRINK, AttemptAction.GROW})
_RULES_OF_VERSION_6 = frozenset({RuleAction.AVOID_NODE, RuleAction.SHRINK})


def schema_version_of(incident: Incident | None, ledger: Ledger | None = None) -> int:
    """The lowest version whose controllers can read a ledger, or a record, with this incident."""
    sized = ledger is not None and bool(ledger.birth_settings or ledger.elastic or ledger.avoided)
    if incident is None:
        return SCHEMA_VERSION if sized else WITHOUT_RESUMING
    if (
        sized
        or any(attempt.action in _OF_VERSION_6 for attempt in incident.attempts)
        or any(rule.action in _RULES_OF_VERSION_6 for rule in incident.pinned.rules)
    ):
        return SCHEMA_VERSION
    return WITHOUT_SIZES if any(span.phase is Phase.RESUMING for span in incident.phases) else WITHOUT_RESUMING


class LedgerObject(msgspec.Struct, frozen=True):
    """A RecoveryGroup as read: its status and the resourceVersion that the next write is swapped against."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    workload_uid: str
    group: str
    """Name of the workload that the group belongs to."""
    ledger: Ledger
    workload_kind: str = "TrainJob"
    schema_version: int = WITHOUT_RESUMING
    """As read. -1: the status cannot be decoded."""
    labelled: bool = False
    """The object has `BIRTH_SETTINGS_LABEL`, by which the API server finds its birth settings."""

    @property
    def readable(self) -> bool:
        """`ledger` is what was written. False: a newer controller wrote it, or it is damaged (`ledger.message`)."""
        return OLDEST_SCHEMA_VERSION <= self.schema_version <= SCHEMA_VERSION
