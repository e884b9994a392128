"""The record of an incident, as reports read it."""

import msgspec

from recovery.core.model import ledger_v3
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Closing, Incident
from recovery.core.model.ledger_bounds import check


class IncidentRecord(msgspec.Struct, frozen=True):
    """An incident and the job that it befell: from a RecoveryIncident, which outlives the job, or from a ledger."""

    job: GroupKey
    workload_kind: str
    """Empty: the record does not say."""
    workload_uid: str
    """Empty: the record does not say."""
    incident: Incident


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int = ledger_v3.NEWEST_VERSION
    """Records of ledgers up to that version carry none."""


_decode_version = msgspec.json.Decoder(_Version).decode
_decode_incident = msgspec.json.Decoder(Incident).decode
_decode_closing = msgspec.json.Decoder(Closing).decode


def decode_recorded(spec: bytes | msgspec.Raw) -> Incident:
    """The spec of a RecoveryIncident of this version or an earlier one: the incident, with its closing beside it.

    Raises ValueError or OverflowError as msgspec does, and ValueError where a figure is out of bounds.
    """
    incident = (
        ledger_v3.decode_record(spec)
        if _decode_version(spec).schema_version <= ledger_v3.NEWEST_VERSION
        else msgspec.structs.replace(_decode_incident(spec), closing=_decode_closing(spec))
    )
    check(incident)
    return incident
