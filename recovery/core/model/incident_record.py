"""The record of an incident in the form that reports read."""

import msgspec

from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.facts import GroupKey
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.ledger import SCHEMA_VERSION, Closing, Incident
from recovery.core.model.ledger_bounds import check


class IncidentRecord(msgspec.Struct, frozen=True):
    """An incident and its job: from a RecoveryIncident, which outlives the job, or from a ledger."""

    job: GroupKey
    workload_kind: str
    """Empty: the record does not say."""
    workload_uid: str
    """Empty: the record does not say."""
    incident: Incident
    """If several incidents share the record, the first of them."""
    fold: FoldedIncidents | None = None
    """All incidents that share the record. None: it is the record of one incident."""

    @property
    def count(self) -> int:
        """How many incidents the record describes."""
        return 1 if self.fold is None else self.fold.count

    @property
    def enforce_estimate(self) -> EnforceEstimate:
        """The estimate for all incidents of the record."""
        return self.incident.enforce_estimate if self.fold is None else self.fold.enforce_estimate

    def has_id(self, incident_id: str) -> bool:
        """The record describes the incident with that id."""
        return has_id(incident_id, self.incident.id, self.fold)


def has_id(incident_id: str, own_id: str, fold: FoldedIncidents | None) -> bool:
    """The record of the incident `own_id` describes the incident `incident_id`: the same one, or one that shares it.

    An id consists of the beginning of the workload's UID and the number of the incident.
    """
    if own_id == incident_id:
        return True
    whose, _, number = incident_id.rpartition("-")
    shared = fold is not None and whose == own_id.rpartition("-")[0] and number.isdecimal() and len(number) < 20
    return shared and fold is not None and fold.covers(int(number))


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int


_decode_version = msgspec.json.Decoder(_Version).decode
_decode_incident = msgspec.json.Decoder(Incident).decode
_decode_closing = msgspec.json.Decoder(Closing).decode


def decode_recorded(spec: bytes | msgspec.Raw) -> Incident:
    """The incident in the spec of a RecoveryIncident, whose closing has its fields beside those of the incident.

    Raises ValueError or OverflowError as msgspec does, and ValueError if the record has no version or an unknown
    smaller one, or if a number or a date is out of bounds.
    """
    version = _decode_version(spec).schema_version
    if version < SCHEMA_VERSION:
        raise ValueError(f"the record has schemaVersion {version}, the smallest is {SCHEMA_VERSION}")
    incident = msgspec.structs.replace(_decode_incident(spec), closing=_decode_closing(spec))
    check(incident)
    return incident
