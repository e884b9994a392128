"""The record of an incident, as reports read it."""

import msgspec

from recovery.core.model import ledger_v3
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.facts import GroupKey
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.ledger import Closing, Incident
from recovery.core.model.ledger_bounds import check


class IncidentRecord(msgspec.Struct, frozen=True):
    """An incident and its job: from a RecoveryIncident, which outlives the job, or from a ledger."""

    job: GroupKey
    workload_kind: str
    """Empty: the record does not say."""
    workload_uid: str
    """Empty: the record does not say."""
    incident: Incident
    """Of several that share the record the first."""
    fold: FoldedIncidents | None = None
    """All that share the record. None: it is the record of one."""

    @property
    def count(self) -> int:
        """How many incidents it describes."""
        return 1 if self.fold is None else self.fold.count

    @property
    def enforce_estimate(self) -> EnforceEstimate:
        """Of all of them."""
        return self.incident.enforce_estimate if self.fold is None else self.fold.enforce_estimate

    def has_id(self, incident_id: str) -> bool:
        """It describes the incident of that id."""
        return has_id(incident_id, self.incident.id, self.fold)


def has_id(incident_id: str, own_id: str, fold: FoldedIncidents | None) -> bool:
    """The record of the incident `own_id` describes that incident: it is the same, or one that shares the record.

    An id is the beginning of the workload's UID, and the number of the incident.
    """
    if own_id == incident_id:
        return True
    whose, _, number = incident_id.rpartition("-")
    shared = fold is not None and whose == own_id.rpartition("-")[0] and number.isdecimal() and len(number) < 20
    return shared and fold is not None and fold.covers(int(number))


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
