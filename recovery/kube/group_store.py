"""Implements `ports.GroupStore` on informers: facts about all groups, indexed so that each event is constant work.

The informers write into one set of indexes on one event loop, so between two awaits the indexes agree with each other
as far as the streams do. The streams themselves are independent: the deletion of a Job may be seen before that of its
pods, or after. Nothing here depends on their order, and a decision that rests on absence reads live first.
"""

import asyncio
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from recovery.background import BackgroundTaskError, endless
from recovery.core.diagnosis.unscheduled import seats, unscheduled
from recovery.core.incident import lifecycle
from recovery.core.incident.preconditions import unread
from recovery.core.model.config import CONFIG_NAME, ConfigFacts
from recovery.core.model.drill import DrillFacts
from recovery.core.model.facts import GroupKey, NodeFacts, PodFacts, Snapshot, UndecodableObject, WorkloadFacts
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.progress import Progress
from recovery.core.model.waits import ROOM_ASKED_EVERY
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.decoding import decoded
from recovery.kube.drill_index import DrillIndex
from recovery.kube.fleet_facts import FleetIndex
from recovery.kube.group_objects import GroupObjects
from recovery.kube.incident_records import read_incidents
from recovery.kube.informer import Informer, nothing
from recovery.kube.job_history import GoneJob
from recovery.kube.ledger_index import LedgerIndex
from recovery.kube.live_reader import LiveReader
from recovery.kube.nested_index import remove
from recovery.kube.observer import InformerObserver, NoObserver
from recovery.kube.projections.drills import decode_drill
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.nodes import decode_node
from recovery.kube.projections.pods import decode_pod
from recovery.kube.projections.recovery import (
    UNREADABLE_SCHEMA_VERSION,
    decode_config,
    decode_policy,
    decode_recovery_group,
)
from recovery.kube.projections.workloads import decode_job, decode_job_set, decode_train_job
from recovery.kube.smaller_groups import RoomCheck, RoomNews
from recovery.kube.snapshots import Parts, doubtful_nodes, snapshot_of
from recovery.kube.undecodable_objects import UndecodableObjects
from recovery.kube.what_counts import but_status, but_totals, what_counts
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_DRILLS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiClient,
    Clock,
    Entropy,
    GroupChanged,
    RefusedError,
    Resource,
)
from recovery.workloads.jobset import GROUPS_SELECTOR

T = TypeVar("T")

_CLUSTER = ""
"""Stands for the namespace of cluster-scoped objects."""


class KubeGroupStore:
    """Runs in a task of its own. `ports.GroupStore` describes the methods."""

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: InformerObserver | None = None,
        train_jobs: bool = True,
        drills: bool = True,
    ) -> None:
        """`train_jobs` False: Trainer is not installed, and only JobSets that nothing controls are workloads.

        `drills` False: RecoveryDrills are not watched, so no failure is a drill.
        """
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._observer: InformerObserver = observer or NoObserver()
        self._live = LiveReader(client, train_jobs=train_jobs)
        self._objects = GroupObjects(
            clock, notify=self._notify, resumes=self._resumes, lists_pods=lambda: self._pods_informer.taking_over
        )
        self._ledgers = LedgerIndex(clock, notify=self._notify, report=self._report)
        self._drills = DrillIndex(notify=self._notify)
        self._nodes: dict[str, NodeFacts] = {}
        self._room_news = RoomNews(self._ledgers.seeking, clock=clock, notify=self._notify_subscribers)
        self._fleet = FleetIndex(
            self._nodes,
            self._objects.to_place,
            self._objects.parts,
            clock=clock,
            known=self._notify,
            in_use=self._objects.in_use,
            room_changed=self._room_news.changed,
            members_to_be=self._members_to_be,
        )
        self._room_check = RoomCheck(client, self._fleet)
        self._policies: dict[str, dict[str, PolicyFacts]] = {}
        """By namespace. ClusterRecoveryPolicies are under `_CLUSTER`."""
        self._config: ConfigFacts | None = None
        self._subscribers: list[GroupChanged] = []
        self._nodes_informer = self._informer(NODES, decode_node, self._put_node, self._drop_node)
        self._pods_informer = self._informer(
            PODS,
            decode_pod,
            self._objects.put_pod,
            self._objects.drop_pod,
            label_selector=GROUPS_SELECTOR,
            replacing=self._objects.replace_pod,
            taken_over=self._objects.pods_taken_over,
        )
        self._informers = tuple(self._make_informers(train_jobs=train_jobs, drills=drills))
        self._undecodable = UndecodableObjects(self._informers)

    async def run(self) -> None:
        """Keep everything current until cancelled.

        Raises RefusedError if a resource cannot be listed at the start, BackgroundTaskError if a bug ends a watch.
        """
        ended: list[Exception] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(endless("index of the fleet", self._fleet.run))
                tasks.create_task(endless("news of room", self._room_news.run))
                for informer in self._informers:
                    tasks.create_task(endless(f"watch of {informer.resource.plural}", informer.run))
        except* (RefusedError, BackgroundTaskError) as group:
            ended.extend(group.exceptions)
        if ended:
            raise ended[0]

    def synced(self) -> bool:
        return all(informer.synced for informer in self._informers)

    def keys(self) -> Iterable[GroupKey]:
        return self._objects.workloads()

    def snapshot(self, key: GroupKey) -> Snapshot:
        snapshot = self._without_fleet(key)
        if not self._lacks(snapshot) and not self._seeks(snapshot) and not self._waits(snapshot):
            return snapshot
        # Room is dated from when it is first seen. Reading live for that would mean a read every few seconds. So would
        # the message that names the groups that wait for each other. All other decisions use fleet facts from live
        # reads only.
        return msgspec.structs.replace(snapshot, fleet=self._fleet.facts(snapshot))

    def _without_fleet(self, key: GroupKey) -> Snapshot:
        parts = self._parts(key)
        absent: frozenset[str] = frozenset()
        if self._nodes_informer.synced:
            absent = frozenset(pod.facts.node for pod in parts.pods if pod.facts.node not in self._nodes)
        return snapshot_of(
            key,
            parts,
            incarnations=self._objects.histories,
            nodes=self._nodes,
            gone_nodes=absent,
            unknown_nodes=self._undecodable.nodes(),
            stale=self.stale(),
            drills=self._drills.of,
        )

    def member(self, namespace: str, pod_name: str) -> tuple[GroupKey, PodFacts] | None:
        """As `rendezvous.endpoint.Members` describes it."""
        return self._objects.member(self._pods_informer.objects.get((namespace, pod_name)))

    def nodes(self) -> Mapping[str, NodeFacts]:
        return MappingProxyType(self._nodes)

    def config(self) -> ConfigFacts | None:
        return self._config

    def policies(self, namespace: str) -> PolicySet:
        own, of_cluster = self._policies.get(namespace, {}), self._policies.get(_CLUSTER, {})
        return PolicySet((*own.values(), *of_cluster.values()), self._config)

    def every_policy(self) -> Iterable[PolicyFacts]:
        return tuple(policy for policies in self._policies.values() for policy in policies.values())

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return self._ledgers.of(key, workload_uid)

    def progress(self, key: GroupKey) -> Progress | None:
        return self._objects.progress(key)

    def ledgers_of(self, key: GroupKey) -> Sequence[LedgerObject]:
        return self._ledgers.of_group(key)

    def ledger_objects(self) -> Iterable[LedgerObject]:
        return self._ledgers.all()

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        workload = self._objects.parts(key).workload
        return self._ledgers.orphans(key, workload.uid if workload is not None else "")

    def collected(self) -> Iterable[GroupKey]:
        return self._ledgers.collected()

    def stale(self) -> Mapping[str, datetime]:
        found = ((informer.resource.plural, informer.stale_since) for informer in self._informers)
        return {plural: since for plural, since in found if since is not None}

    def undecodable(self) -> Mapping[str, int]:
        counts = self._undecodable.counts()
        if self._config is not None and self._config.unreadable:
            counts[RECOVERY_CONFIGS.plural] += 1
        damaged = (each for each in self.ledger_objects() if each.schema_version == UNREADABLE_SCHEMA_VERSION)
        counts[RECOVERY_GROUPS.plural] += sum(1 for _ in damaged)
        return counts

    def unidentified_ledgers(self) -> Sequence[UndecodableObject]:
        return self._undecodable.all_of(RECOVERY_GROUPS)

    def drills(self) -> Iterable[DrillFacts]:
        return self._drills.all()

    def saw_drill(self, body: bytes) -> None:
        self._drills.saw(decoded(RECOVERY_DRILLS, decode_drill, body).value)

    async def read_incidents_live(self, namespace: str, workload_uid: str) -> Sequence[Incident]:
        return await read_incidents(self._client, namespace, workload_uid)

    def subscribe(self, changed: GroupChanged) -> None:
        self._subscribers.append(changed)

    async def read_live(self, key: GroupKey) -> Snapshot:
        before, read_at = self._parts(key), self._clock.now()
        live = (await self._live.parts(key, known=before.pods)).remembering(before)
        parts = msgspec.structs.replace(live.filled_from(before), gone_jobs=self._gone_jobs(key, before, live))
        # The nodes are read after the pods, so that no node is older than a pod that names it.
        doubtful = frozenset(doubtful_nodes(parts, self._nodes, self._undecodable.nodes()))
        asked = await self._live.nodes(sorted(doubtful))
        found = {name: node for name, node in asked.items() if node is not None}
        snapshot = snapshot_of(
            key,
            parts,
            incarnations=self._objects.histories,
            nodes=ChainMap(found, self._nodes),
            gone_nodes=asked.keys() - found.keys(),
            unknown_nodes=doubtful - asked.keys(),
            vanished=self._vanished(before, parts),
            live=True,
            stale=self.stale(),
            drills=self._drills.of,
        )
        if seeks := self._seeks(snapshot):
            self._let_others_first(snapshot)
        facts = self._fleet.facts(snapshot)
        # The check costs a request for each node that seems to have room: only a group that wants room makes it.
        if lacks := self._lacks(snapshot):
            facts = await self._room_check.checked(snapshot, facts, lacks)
        elif facts.room is not None and 0 < seeks <= facts.room.pods:
            self._fleet.reserve(snapshot, facts.room, seeks)
        return msgspec.structs.replace(snapshot, fleet=facts, read_at=read_at)

    async def read_config_live(self) -> ConfigFacts | None:
        return await self._live.config(self._report)

    async def read_node_live(self, name: str) -> NodeFacts | None:
        return await self._live.node(name)

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return await self._live.ledger(key, workload_uid)

    async def read_policies_live(self, namespace: str) -> PolicySet:
        return await self._live.policies(namespace, self._report)

    def _make_informers(self, *, train_jobs: bool, drills: bool) -> Iterator[Informer[Any]]:
        if train_jobs:
            yield self._informer(
                TRAIN_JOBS, decode_train_job, self._objects.put_train_job, self._objects.drop_train_job
            )
        yield self._informer(JOB_SETS, decode_job_set, self._objects.put_jobset, self._objects.drop_jobset)
        yield self._informer(
            JOBS,
            decode_job,
            self._objects.put_job,
            self._objects.drop_job,
            label_selector=GROUPS_SELECTOR,
            replacing=self._objects.replace_job,
        )
        yield self._pods_informer
        yield self._nodes_informer
        # A policy that cannot be read allows nothing. A fact that cannot be read keeps its last readable state.
        for policies in (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES):
            yield self._informer(policies, decode_policy, self._put_policy, self._drop_policy, forget_undecodable=True)
        yield self._informer(RECOVERY_CONFIGS, decode_config, self._put_config, self._drop_config)
        yield self._informer(RECOVERY_GROUPS, decode_recovery_group, self._ledgers.put, self._ledgers.drop)
        if drills:
            yield self._informer(
                RECOVERY_DRILLS, decode_drill, self._drills.put, self._drills.drop, forget_undecodable=True
            )

    def _informer(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], ObjectEntry[T]],
        put: Callable[[ObjectEntry[T]], None],
        drop: Callable[[ObjectEntry[T]], None],
        *,
        label_selector: str = "",
        replacing: Callable[[ObjectEntry[T], ObjectEntry[T]], None] = nothing,
        taken_over: Callable[[], None] = nothing,
        forget_undecodable: bool = False,
    ) -> Informer[T]:
        return Informer(
            self._client,
            resource,
            decode,
            put=put,
            drop=drop,
            clock=self._clock,
            entropy=self._entropy,
            observer=self._observer,
            label_selector=label_selector,
            replacing=replacing,
            readability_changed=self._readability_changed,
            taken_over=taken_over,
            forget_undecodable=forget_undecodable,
            freshness_changed=self._notify_all,
        )

    def _notify_all(self) -> None:
        """The facts about a whole resource have become stale, or are current again."""
        for key in self.keys():
            self._notify(key)

    def _readability_changed(self, found: UndecodableObject) -> None:
        group = self._undecodable.group_of(found)
        if group is not None:
            self._notify(group)
        elif found.kind == NODES.kind:
            self._notify_groups_on(found.name)

    def _parts(self, key: GroupKey) -> Parts:
        return msgspec.structs.replace(self._objects.parts(key), undecodable=self._undecodable.of(key))

    def _vanished(self, before: Parts, live: Parts) -> Iterable[PodFacts]:
        """Pods that were known before the live read and that it did not find, though their Job still exists.

        The watch reports them too, a little later. A decision on this read must not miss them.
        """
        found = {pod.facts.uid for pod in live.pods}
        living = {job.uid for job in live.jobs if job.deleting_since is None and not job.suspended}
        now = self._clock.now()
        for pod in before.pods:
            if pod.facts.uid not in found and pod.facts.job_uid in living:
                yield msgspec.structs.replace(pod.facts, gone_at=now)

    def _gone_jobs(self, key: GroupKey, before: Parts, live: Parts) -> tuple[GoneJob, ...]:
        """The Jobs that are gone and had trained, also those that only this live read did not find, and those that the
        watch reported during it."""
        found = {job.uid for job in live.jobs} | {each.uid for each in live.undecodable}
        now, histories = self._clock.now(), self._objects.histories
        missed = (histories.as_gone(job.uid, now) for job in before.jobs if job.uid not in found)
        # A cache that lists again may have missed a Job that exists.
        known = (*before.gone_jobs, *missed, *self._parts(key).gone_jobs)
        gone = (each for each in known if each is not None and each.facts.uid not in found)
        return tuple({job.facts.name: job for job in gone}.values())

    def _lacks(self, snapshot: Snapshot) -> int:
        """How many pods the group runs below its wanted size. 0: none are missing, or an incident is open: its recovery
        must not wait for the room check."""
        ledger = self._ledger_of(snapshot.key, snapshot.workload)
        size = ledger.elastic if ledger is not None and ledger.incident is None else None
        return max(1, size.wanted_nodes - size.nodes) if size is not None else 0

    def _seeks(self, snapshot: Snapshot) -> int:
        """How many pods a released group looks for room for. 0: the group is not released."""
        ledger = self._ledger_of(snapshot.key, snapshot.workload)
        released = ledger is not None and lifecycle.is_released(ledger)
        return seats(snapshot) if released else 0

    def _let_others_first(self, snapshot: Snapshot) -> None:
        """Reserve the room of the released groups that resume before this one, as far as all of their members fit."""
        uid = snapshot.workload.uid if snapshot.workload is not None else ""
        for key in self._ledgers.released_before(snapshot.key, uid, self._clock.now() + ROOM_ASKED_EVERY):
            other = self._without_fleet(key)
            room, seeks = self._fleet.facts(other).room, self._seeks(other)
            # A group with an object that cannot be read decides nothing, so it would never take its turn.
            if room is not None and unread(other) is None and 0 < seeks <= room.pods:
                self._fleet.reserve(other, room, seeks)
                self._notify_subscribers(key)

    def _waits(self, snapshot: Snapshot) -> bool:
        """Whether no node has room for a member of a group that was restarted."""
        ledger = self._ledger_of(snapshot.key, snapshot.workload)
        return ledger is not None and ledger.phase is Phase.SCHEDULING and bool(unscheduled(snapshot))

    def _members_to_be(self, key: GroupKey) -> int:
        """How many pods the group is to have after the restart that is changing its size. 0: no restart is."""
        ledger = self._ledger_of(key, self._objects.parts(key).workload)
        size = ledger.elastic if ledger is not None and ledger.incident is not None else None
        return size.nodes if size is not None else 0

    def _ledger_of(self, key: GroupKey, workload: WorkloadFacts | None) -> Ledger | None:
        """The workload's ledger. None: there is none, or it cannot be read."""
        found = self._ledgers.of(key, workload.uid) if workload is not None else None
        return found.ledger if found is not None and found.readable else None

    def _notify(self, key: GroupKey, *, loss: bool = False) -> None:
        self._fleet.group_changed(key)
        self._notify_subscribers(key, loss=loss)

    def _notify_subscribers(self, key: GroupKey, *, loss: bool = False) -> None:
        for changed in self._subscribers:
            changed(key, loss=loss)

    def _resumes(self, key: GroupKey, workload_uid: str) -> bool:
        found = self._ledgers.of(key, workload_uid)
        return found is not None and found.ledger.phase is Phase.RESUMING

    def _put_node(self, entry: ObjectEntry[NodeFacts]) -> None:
        before, node = self._nodes.get(entry.name), entry.value
        self._nodes[entry.name] = node
        self._fleet.node_seen(before, node, listed=not self._nodes_informer.synced)
        if before is None or what_counts(before) != what_counts(node):
            self._notify_groups_on(entry.name)

    def _drop_node(self, entry: ObjectEntry[NodeFacts]) -> None:
        self._fleet.node_gone(self._nodes.pop(entry.name, None), entry.value)
        self._notify_groups_on(entry.name)

    def _notify_groups_on(self, node: str) -> None:
        """The node may take its pods with it."""
        for key in self._objects.on_node(node):
            self._notify(key, loss=True)

    def _put_policy(self, entry: ObjectEntry[PolicyFacts]) -> None:
        of_namespace = self._policies.setdefault(entry.namespace, {})
        before, of_namespace[entry.name] = of_namespace.get(entry.name), entry.value
        # Each switch of the mode is followed by a write of the status, for each policy of the fleet.
        if before is None or but_status(before) != but_status(entry.value):
            self._notify_governed(entry.namespace)

    def _drop_policy(self, entry: ObjectEntry[PolicyFacts]) -> None:
        remove(self._policies, entry.namespace, entry.name)
        self._notify_governed(entry.namespace)

    def _put_config(self, entry: ObjectEntry[ConfigFacts]) -> None:
        """A RecoveryConfig of another name is ignored. The CRD refuses it: no user could know which one counts."""
        if entry.name != CONFIG_NAME:
            self._report(RECOVERY_CONFIGS, entry.name, f"is ignored: the RecoveryConfig is called {CONFIG_NAME}")
            return
        if entry.value.unreadable:
            self._report(RECOVERY_CONFIGS, entry.name, entry.value.unreadable)
        before, self._config = self._config, entry.value
        # Totals change with every closed incident, and no decision depends on them.
        if before is None or but_totals(before) != but_totals(entry.value):
            self._notify_governed(_CLUSTER)

    def _drop_config(self, entry: ObjectEntry[ConfigFacts]) -> None:
        if entry.name == CONFIG_NAME:
            self._config = None
            self._notify_governed(_CLUSTER)

    def _notify_governed(self, namespace: str) -> None:
        """Every group that a policy of that namespace may apply to."""
        for key in self.keys():
            if namespace in (_CLUSTER, key.namespace):
                self._notify(key)

    def _report(self, resource: Resource, name: str, message: str) -> None:
        self._observer.undecodable(resource.plural, name, message)
