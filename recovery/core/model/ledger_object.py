"""A ledger as stored in a RecoveryGroup."""

import msgspec

from recovery.core.model.ledger import SCHEMA_VERSION, Ledger


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
    schema_version: int = SCHEMA_VERSION
    """As read. -1: the status cannot be decoded."""
    labelled: bool = False
    """The object has `BIRTH_SETTINGS_LABEL`, by which the API server finds its birth settings."""

    @property
    def readable(self) -> bool:
        """`ledger` is what was written. False: a newer controller wrote it, or it is damaged (`ledger.message`)."""
        return self.schema_version == SCHEMA_VERSION
