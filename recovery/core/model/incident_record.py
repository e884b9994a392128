"""The record of an incident, as reports read it."""

import msgspec

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident


class IncidentRecord(msgspec.Struct, frozen=True):
    """An incident and the job that it befell: from a RecoveryIncident, which outlives the job, or from a ledger."""

    job: GroupKey
    workload_kind: str
    """Empty: the record does not say."""
    workload_uid: str
    """Empty: the record does not say."""
    incident: Incident
