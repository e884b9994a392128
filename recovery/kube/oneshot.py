"""Reads the cluster once, for commands that answer and end: lists and gets, no watches.

What is read here is decoded and put together by the same projections as the controller's cache. Two things a running
controller may know better: pods that vanished under a living Job, and that a group has trained at a time which its
objects no longer tell of.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from recovery.core.facts import GroupKey, NodeFacts, Snapshot, WorkloadFacts
from recovery.core.ledger import Closing, Incident, LedgerObject
from recovery.core.policy import PolicyFacts
from recovery.kube.incarnations import Incarnations
from recovery.kube.live import LiveReader
from recovery.kube.pages import read_identity, read_page
from recovery.kube.projections.metadata import Entry, Metadata
from recovery.kube.projections.nodes import decode_node
from recovery.kube.projections.recovery import decode_policy, decode_recovery_group
from recovery.kube.projections.workloads import decode_train_job
from recovery.kube.snapshots import snapshot_of
from recovery.ports import (
    NODES,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiClient,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    Resource,
)
from recovery.workloads import WorkloadAdapter

PAGE_OBJECTS_MAX = 500
NODES_MAX = 16
"""Nodes that are asked about one by one; an explanation that names more explains nothing."""

T = TypeVar("T")


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """All objects of a resource, and in words which of them could not be read."""

    entries: tuple[Entry[T], ...]
    unreadable: tuple[str, ...] = ()


class Fleet(msgspec.Struct, frozen=True):
    """What `status` shows, of one namespace or of all."""

    workloads: Mapping[GroupKey, WorkloadFacts]
    groups: Mapping[str, LedgerObject]
    """By the UID of the workload."""
    policies: tuple[PolicyFacts, ...]
    unreadable: tuple[str, ...]


class JobReading(msgspec.Struct, frozen=True):
    """What `explain` tells of. The snapshot's nodes are those of its pods that are not Ready."""

    snapshot: Snapshot
    group: LedgerObject | None
    policies: tuple[PolicyFacts, ...]
    """Of the job's namespace."""
    unreadable: tuple[str, ...]


class _Incident(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: msgspec.Raw


class _IncidentName(msgspec.Struct, frozen=True):
    id: str
    group: str


_decode_record = msgspec.json.Decoder(_Incident).decode
_decode_name = msgspec.json.Decoder(_IncidentName).decode
_decode_incident = msgspec.json.Decoder(Incident).decode
_decode_closing = msgspec.json.Decoder(Closing).decode


async def read_fleet(client: ApiClient, namespace: str | None) -> Fleet:
    """TrainJobs, RecoveryGroups and RecoveryPolicies of the namespace; None: of all. Raises ApiError."""
    jobs, groups, policies = await asyncio.gather(
        _list(client, TRAIN_JOBS, namespace, decode_train_job),
        _list(client, RECOVERY_GROUPS, namespace, decode_recovery_group),
        _list(client, RECOVERY_POLICIES, namespace, decode_policy),
    )
    return Fleet(
        workloads={GroupKey(entry.namespace, entry.name): entry.value for entry in jobs.entries},
        groups={entry.value.workload_uid: entry.value for entry in groups.entries},
        policies=tuple(entry.value for entry in policies.entries),
        unreadable=(*jobs.unreadable, *groups.unreadable, *policies.unreadable),
    )


async def read_job(client: ApiClient, adapter: WorkloadAdapter, key: GroupKey) -> JobReading:
    """One group with everything that a decision about it needs. Raises ApiError."""
    reader = LiveReader(client, adapter)
    parts, policies = await asyncio.gather(
        reader.parts(key), _list(client, RECOVERY_POLICIES, key.namespace, decode_policy)
    )
    group = await reader.ledger(key, parts.workload.uid) if parts.workload is not None else None
    suspicious = sorted({pod.facts.node for pod in parts.pods if pod.facts.node and not pod.facts.ready})
    nodes = await _read_nodes(client, suspicious[:NODES_MAX])
    return JobReading(
        snapshot=snapshot_of(key, parts, adapter=adapter, incarnations=Incarnations(), nodes=nodes, live=True),
        group=group,
        policies=tuple(entry.value for entry in policies.entries),
        unreadable=policies.unreadable,
    )


async def read_incident(client: ApiClient, key: GroupKey, incident_id: str) -> Incident | None:
    """A closed incident from its record, which outlives its job; None: there is none, or no longer. Raises ApiError."""
    records = await _list(client, RECOVERY_INCIDENTS, key.namespace, _decode_spec)
    for entry in records.entries:
        name = _decode_name(entry.value)
        if name.id == incident_id and name.group == key.name:
            try:
                # A record is the incident with the fields of its closing beside its own.
                closing = _decode_closing(entry.value)
                return msgspec.structs.replace(_decode_incident(entry.value), closing=closing)
            except msgspec.ValidationError as error:
                raise RefusedError(f"RecoveryIncident {entry.name} cannot be read: {error}") from error
    return None


def _decode_spec(raw: msgspec.Raw) -> Entry[msgspec.Raw]:
    record = _decode_record(raw)
    return record.metadata.entry(record.spec)


async def _read_nodes(client: ApiClient, names: Iterable[str]) -> Mapping[str, NodeFacts]:
    """Nodes only explain, and users of one namespace may rarely read them: without them the rest is still told."""
    try:
        found = await asyncio.gather(*(_read_node(client, name) for name in names))
    except ForbiddenError:
        return {}
    return {node.name: node for node in found if node is not None}


async def _read_node(client: ApiClient, name: str) -> NodeFacts | None:
    try:
        return decode_node(await client.get(NODES, name)).value
    except NotFoundError:
        return None


async def _list(
    client: ApiClient, resource: Resource, namespace: str | None, decode: Callable[[msgspec.Raw], Entry[T]]
) -> Listing[T]:
    entries: list[Entry[T]] = []
    unreadable: list[str] = []
    token = ""
    while True:
        body = await client.list(resource, namespace=namespace, limit=PAGE_OBJECTS_MAX, continue_token=token)
        page = read_page(resource, body)
        for raw in page.items or ():
            try:
                entries.append(decode(raw))
            except ValueError as error:
                metadata = read_identity(resource, raw)
                unreadable.append(f"{resource.kind} {metadata.namespace}/{metadata.name} cannot be read: {error}")
        token = page.metadata.continue_token
        if not token:
            return Listing(tuple(entries), tuple(unreadable))
