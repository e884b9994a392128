"""Reads RecoveryIncidents: the records of closed incidents, which outlive their jobs."""

import msgspec

from recovery.core.model.facts import GroupKey, UndecodableObject
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.incident_record import IncidentRecord, decode_recorded, has_id
from recovery.core.model.ledger import Incident
from recovery.core.model.ledger_bounds import check
from recovery.decoding import decoded
from recovery.kube.cluster_reader import read_all
from recovery.kube.projections.metadata import Date, Metadata, ObjectEntry
from recovery.ports import RECOVERY_INCIDENTS, ApiClient, UndecodableError


class IncidentRecords(msgspec.Struct, frozen=True):
    """The RecoveryIncidents of one namespace, or of all namespaces."""

    records: tuple[IncidentRecord, ...]
    undecodable: tuple[UndecodableObject, ...]
    """The RecoveryIncidents that this version cannot read."""


class _WorkloadReference(msgspec.Struct, frozen=True):
    kind: str = ""
    uid: str = ""


class _Name(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that identify a record, without its content."""

    id: str
    group: str
    started_at: Date
    workload_ref: _WorkloadReference = _WorkloadReference()


class _Object(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: msgspec.Raw
    status: FoldedIncidents | None = None


class _Named(msgspec.Struct, frozen=True):
    """A RecoveryIncident: the fields that identify it, and the whole object undecoded."""

    name: _Name
    whole: msgspec.Raw
    fold: FoldedIncidents | None
    """None: the record is of a single incident."""


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_name = msgspec.json.Decoder(_Name).decode


async def read_incident(client: ApiClient, key: GroupKey, incident_id: str) -> Incident | None:
    """A closed incident from its record. None: there is no such record, or it no longer exists. Raises ApiError.

    Where several incidents share a record, this is the first: the record has no details of the others.

    Ids start from 1 again after a RecoveryGroup was deleted. Where several records have the id, the newest counts.
    """
    records = await read_all(client, RECOVERY_INCIDENTS, key.namespace, _decode_named)
    mine = [
        entry
        for entry in records.entries
        if entry.value.name.group == key.name and has_id(incident_id, entry.value.name.id, entry.value.fold)
    ]
    if not mine:
        if records.undecodable:  # one of these may be the record asked for
            raise UndecodableError(records.undecodable[0])
        return None
    entry = max(mine, key=lambda found: found.value.name.started_at)
    return decoded(RECOVERY_INCIDENTS, _decode_whole_incident, entry.value.whole)


async def read_incidents(client: ApiClient, namespace: str, workload_uid: str) -> tuple[Incident, ...]:
    """The closed incidents of the workload that are recorded, oldest first. Raises ApiError."""
    found = await read_records(client, namespace)
    mine = (each.incident for each in found.records if each.workload_uid == workload_uid)
    return tuple(sorted(mine, key=lambda each: each.number))


async def read_records(client: ApiClient, namespace: str | None) -> IncidentRecords:
    """All records of the namespace. `namespace` None: of all namespaces. Raises ApiError."""
    found = await read_all(client, RECOVERY_INCIDENTS, namespace, decode_record)
    return IncidentRecords(tuple(entry.value for entry in found.entries), found.undecodable)


def decode_record(raw: bytes | msgspec.Raw) -> ObjectEntry[IncidentRecord]:
    """A RecoveryIncident of this version or an earlier one. Raises ValueError or OverflowError as msgspec does."""
    found = _decode_object(raw)
    name = _decode_name(found.spec)
    return found.metadata.entry(
        IncidentRecord(
            job=GroupKey(found.metadata.namespace, name.group),
            workload_kind=name.workload_ref.kind,
            workload_uid=name.workload_ref.uid,
            incident=decode_recorded(found.spec),
            fold=_checked(found.status),
        )
    )


def _checked(fold: FoldedIncidents | None) -> FoldedIncidents | None:
    if fold is not None:
        check(fold, "$.status")
        if not fold.numbers:
            raise ValueError("Expected a range of numbers - at `$.status.numbers`")
    return fold


def _decode_named(raw: msgspec.Raw) -> ObjectEntry[_Named]:
    found = _decode_object(raw)
    return found.metadata.entry(_Named(_decode_name(found.spec), raw, _checked(found.status)))


def _decode_whole_incident(raw: bytes | msgspec.Raw) -> Incident:
    return decode_recorded(_decode_object(raw).spec)
