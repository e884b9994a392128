"""Reads the cluster once, for commands that answer and exit: lists and gets, no watches.

The same projections as for the controller's cache decode and combine the objects. A running controller may know two
things better: that pods have vanished while their Job still exists, and that a group trained at a time that its objects
no longer show.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from recovery import api_verbs
from recovery.core.model.config import CONFIG_NAME, ConfigFacts
from recovery.core.model.facts import GroupKey, NodeFacts, Room, Snapshot, UndecodableObject, WorkloadFacts
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.plan.parts import message_of
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.decoding import decoded
from recovery.kube.capacity import Capacity
from recovery.kube.fleet_facts import LostNodes, fleet_facts
from recovery.kube.gpus_in_use import free_gpus
from recovery.kube.job_history import JobHistories
from recovery.kube.live_reader import LiveReader
from recovery.kube.node_uses import NODES_LOOKED_AT_MAX, NodeUses
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.nodes import decode_node
from recovery.kube.projections.recovery import decode_config, decode_policy, decode_recovery_group
from recovery.kube.projections.workloads import JobSetRecord, decode_job_set, decode_train_job
from recovery.kube.response_envelopes import read_page
from recovery.kube.room import places, room_in, wish_of
from recovery.kube.snapshots import Parts, snapshot_of
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    JOB_SETS,
    NODES,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiClient,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    Resource,
    UndecodableError,
)

PAGE_OBJECTS_MAX = 500
NODES_MAX = 16
"""At most this many nodes are read, one by one. An explanation that names more explains nothing."""

T = TypeVar("T")


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """All objects of a resource, and in words which of them could not be read."""

    entries: tuple[ObjectEntry[T], ...]
    unreadable: tuple[str, ...] = ()
    undecodable: tuple[UndecodableObject, ...] = ()
    """The objects whose content cannot be decoded."""


class Fleet(msgspec.Struct, frozen=True):
    """The facts that `status` shows, of one namespace or of all."""

    workloads: Mapping[GroupKey, WorkloadFacts]
    """TrainJobs, and the JobSets that nothing controls."""
    groups: Mapping[str, LedgerObject]
    """RecoveryGroups by the UID of their workload."""
    policies: tuple[PolicyFacts, ...]
    """The policies of the namespace (or of all) and of the cluster, as far as the user may read them."""
    config: ConfigFacts | None
    """None: there is no RecoveryConfig, or the user may not read it. `unreadable` reports the latter."""
    unreadable: tuple[str, ...]
    jobsets: Mapping[GroupKey, JobSetRecord] = {}
    """All JobSets, including those of TrainJobs."""
    undecodable: tuple[UndecodableObject, ...] = ()
    """TrainJobs and JobSets that cannot be read."""

    def policy_set(self, namespace: str) -> PolicySet:
        """The policies and the RecoveryConfig for the workloads of that namespace."""
        return PolicySet(tuple(each for each in self.policies if each.namespace in ("", namespace)), self.config)


class JobReading(msgspec.Struct, frozen=True):
    """The facts that `explain` shows. The snapshot has at most `NODES_MAX` nodes, nodes of unready pods first."""

    snapshot: Snapshot
    group: LedgerObject | None
    policies: PolicySet
    """The policies and the RecoveryConfig for the job's namespace, as far as the user may read them."""
    unreadable: tuple[str, ...]


class _LaidDown(msgspec.Struct, frozen=True):
    """Policies and RecoveryConfig, and in words which of them could not be read."""

    policies: tuple[PolicyFacts, ...]
    config: ConfigFacts | None
    unreadable: tuple[str, ...]


class _Workloads(msgspec.Struct, frozen=True):
    """TrainJobs and JobSets, and in words which of them could not be read."""

    workloads: Mapping[GroupKey, WorkloadFacts]
    jobsets: Mapping[GroupKey, JobSetRecord]
    unreadable: tuple[str, ...]
    undecodable: tuple[UndecodableObject, ...]


async def read_fleet(client: ApiClient, namespace: str | None) -> Fleet:
    """The workloads of the namespace with RecoveryGroups and policies. `namespace` None: of all. Raises ApiError."""
    found, groups, laid_down = await asyncio.gather(
        _workloads(client, namespace),
        read_all(client, RECOVERY_GROUPS, namespace, decode_recovery_group),
        _laid_down(client, namespace),
    )
    return Fleet(
        workloads=found.workloads,
        groups={entry.value.workload_uid: entry.value for entry in groups.entries},
        policies=laid_down.policies,
        config=laid_down.config,
        unreadable=(*found.unreadable, *groups.unreadable, *laid_down.unreadable),
        jobsets=found.jobsets,
        undecodable=found.undecodable,
    )


async def read_workloads(
    client: ApiClient, namespace: str | None
) -> tuple[Mapping[GroupKey, WorkloadFacts], tuple[str, ...]]:
    """TrainJobs and the JobSets that nothing controls, and in words which could not be read. Raises ApiError."""
    found = await _workloads(client, namespace)
    return found.workloads, found.unreadable


async def read_job(client: ApiClient, key: GroupKey) -> JobReading:
    """One group, with all facts that a decision about it needs. Raises ApiError."""
    parts, laid_down = await asyncio.gather(_parts(client, key), _laid_down(client, key.namespace))
    workload = parts.workload
    group = await LiveReader(client).ledger(key, workload.uid) if workload is not None else None
    named = {pod.facts.node: pod.facts.ready for pod in parts.pods if pod.facts.node}
    # Nodes of pods that are not Ready come first: the pods of a lost node are not Ready.
    asked = sorted(named, key=lambda name: (named[name], name))[:NODES_MAX]
    nodes = await _read_nodes(LiveReader(client), asked)
    return JobReading(
        snapshot=snapshot_of(
            key,
            parts,
            incarnations=JobHistories(),
            nodes={name: node for name, node in nodes.items() if node is not None},
            gone_nodes={name for name, node in nodes.items() if node is None},
            live=True,
        ),
        group=group,
        policies=PolicySet(laid_down.policies, laid_down.config),
        unreadable=laid_down.unreadable,
    )


async def with_fleet(client: ApiClient, snapshot: Snapshot, now: datetime, *, room: bool = False) -> Snapshot:
    """The snapshot with the facts about all nodes that a verdict needs: caps, storms, where the group could run. The
    nodes are listed for it; if the user may not list them, the snapshot is unchanged. `room`: also find the room for
    more of its pods. Raises ApiError.

    A running controller knows more: here, nodes that are gone or have returned are not lost, and no other group waits.
    """
    try:
        listed = await read_all(client, NODES, None, decode_node)
    except ForbiddenError:
        return snapshot
    lost = LostNodes()
    for entry in sorted(listed.entries, key=lambda entry: entry.value.ready_since or now):
        lost.seen(None, entry.value, now, listed=True)
    nodes = {entry.name: entry.value for entry in listed.entries}
    capacity = Capacity(nodes)
    capacity.index_some(capacity.nodes)  # a command has nothing else to do meanwhile
    facts = fleet_facts(snapshot, capacity, lost.of_late(now), ())
    if room:
        facts = msgspec.structs.replace(facts, room=await _room(client, snapshot, capacity, nodes))
    return msgspec.structs.replace(snapshot, fleet=facts)


async def _room(
    client: ApiClient, snapshot: Snapshot, capacity: Capacity, nodes: Mapping[str, NodeFacts]
) -> Room | None:
    """The room, by the pods on the nodes that would take a pod of the group. None: these nodes are too many to read one
    by one, or their pods could not be read, or the room is not known."""
    wish = wish_of(snapshot)
    found = places(wish, capacity) if wish is not None else None
    if wish is None or found is None:
        return None
    if wish.gpus:
        names = [name for _, having in found for name in capacity.names(having)]
        if len(names) > NODES_LOOKED_AT_MAX:
            return None
        seen = await NodeUses(client).read(names)
        found = places(wish, capacity, free_gpus(seen, nodes))
        if len(seen) < len(names) or found is None:
            return None
    return room_in(found, wish, capacity, ())


async def _workloads(client: ApiClient, namespace: str | None) -> _Workloads:
    train_jobs, listed = await asyncio.gather(
        _train_jobs(client, namespace), read_all(client, JOB_SETS, namespace, decode_job_set)
    )
    jobsets = {GroupKey(each.namespace, each.name): each.value for each in listed.entries}
    workloads = {key: jobset.workload for key, jobset in jobsets.items() if jobset.workload is not None}
    workloads |= {GroupKey(entry.namespace, entry.name): entry.value for entry in train_jobs.entries}
    return _Workloads(
        workloads,
        jobsets,
        (*train_jobs.unreadable, *listed.unreadable),
        (*train_jobs.undecodable, *listed.undecodable),
    )


async def _train_jobs(client: ApiClient, namespace: str | None) -> Listing[WorkloadFacts]:
    """All TrainJobs. A cluster without Trainer has none."""
    try:
        return await read_all(client, TRAIN_JOBS, namespace, decode_train_job)
    except NoSuchResourceError:
        return Listing(())


async def _parts(client: ApiClient, key: GroupKey) -> Parts:
    try:
        return await LiveReader(client).parts(key)
    except NoSuchResourceError:  # a cluster without Trainer; if JobSet is missing, the next call raises again
        return await LiveReader(client, train_jobs=False).parts(key)


async def _laid_down(client: ApiClient, namespace: str | None) -> _LaidDown:
    own, of_cluster, (config, about_config) = await asyncio.gather(
        read_all(client, RECOVERY_POLICIES, namespace, decode_policy), _cluster_policies(client), _config(client)
    )
    return _LaidDown(
        policies=tuple(entry.value for entry in (*own.entries, *of_cluster.entries)),
        config=config,
        unreadable=(*own.unreadable, *of_cluster.unreadable, *about_config),
    )


async def _cluster_policies(client: ApiClient) -> Listing[PolicyFacts]:
    """Users of one namespace may rarely read cluster-wide policies. Without them the rest is still shown."""
    try:
        return await read_all(client, CLUSTER_RECOVERY_POLICIES, None, decode_policy)
    except ForbiddenError as error:
        return Listing((), (f"ClusterRecoveryPolicies may not be read, so none is taken into account: {error}",))


async def _config(client: ApiClient) -> tuple[ConfigFacts | None, tuple[str, ...]]:
    """The RecoveryConfig, and in words why it or its spec could not be read."""
    try:
        config = decoded(
            RECOVERY_CONFIGS, decode_config, await api_verbs.get(client, RECOVERY_CONFIGS, CONFIG_NAME)
        ).value
    except NotFoundError:
        return None, ()
    except ForbiddenError as error:
        return None, (
            f"RecoveryConfig {CONFIG_NAME} may not be read, so a pause of all recoveries is not seen: {error}",
        )
    return config, (message_of(config.pause),) if config.unreadable and config.pause is not None else ()


async def _read_nodes(reader: LiveReader, names: Iterable[str]) -> Mapping[str, NodeFacts | None]:
    """Nodes by name; None: the node does not exist. Empty if the user may not read nodes: the rest is still shown."""
    try:
        return await reader.nodes(names)
    except ForbiddenError:
        return {}


async def read_all(
    client: ApiClient,
    resource: Resource,
    namespace: str | None,
    decode: Callable[[msgspec.Raw], ObjectEntry[T]],
    *,
    label_selector: str = "",
    field_selector: str = "",
) -> Listing[T]:
    """All selected objects of the namespace, page by page. `namespace` None: of all namespaces. Raises ApiError."""
    entries: list[ObjectEntry[T]] = []
    undecodable: list[UndecodableObject] = []
    token = ""
    while True:
        body = await api_verbs.list_page(
            client,
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=PAGE_OBJECTS_MAX,
            continue_token=token,
        )
        page = read_page(resource, body)
        for raw in page.items or ():
            try:
                entries.append(decoded(resource, decode, raw))
            except UndecodableError as error:
                undecodable.append(error.found)
        token = page.metadata.continue_token
        if not token:
            return Listing(tuple(entries), tuple(each.sentence for each in undecodable), tuple(undecodable))
