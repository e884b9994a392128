"""A ledger that decisions can be based on, or why there is none."""

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.core.model.ledger_object import LedgerObject


class LedgerUnreadableError(Exception):
    """The RecoveryGroup was written by a newer controller, or is damaged: nothing is decided without it."""


def readable(newest: LedgerObject | None) -> LedgerObject | None:
    """The ledger, if it can be read. Raises LedgerUnreadableError."""
    if newest is not None and not newest.readable:
        raise LedgerUnreadableError(unreadable(newest))
    return newest


def unreadable(found: LedgerObject) -> str:
    """Why nothing is decided by that ledger, and how to fix it."""
    title = f"RecoveryGroup {found.namespace}/{found.name}"
    if found.schema_version <= SCHEMA_VERSION:
        how = "correct its status, or delete it: its counts then begin at zero"
        return f"{title}: {found.ledger.message}: it holds; {how}"
    return (
        f"{title} has schemaVersion {found.schema_version}, this controller knows {SCHEMA_VERSION}: it holds; "
        "run the controller version that wrote it"
    )
