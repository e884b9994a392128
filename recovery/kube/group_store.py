"""`ports.GroupStore` over informers: the facts about all groups, indexed so that an event costs the same everywhere.

The informers write into one set of indexes, all on one event loop, so that between two awaits the indexes agree with
each other as far as the streams do. The streams themselves are independent: a Job may be seen to go before its pods, or
after. Nothing here depends on their order, and what is decided on absence is read live first.
"""

import asyncio
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from recovery.core.diagnosis.training_container import Selection, assigned, select
from recovery.core.incident.fencing import OUT_OF_SERVICE_TAINT
from recovery.core.model.config import CONFIG_NAME, ConfigFacts
from recovery.core.model.facts import (
    GroupKey,
    JobFacts,
    NodeFacts,
    PodFacts,
    Progress,
    Snapshot,
    UndecodableObject,
    WaitingGroup,
    WorkloadFacts,
)
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.model.ledger import LedgerObject, Phase
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.kube.capacity import Capacity
from recovery.kube.fleet_facts import LostNodes, fleet_facts
from recovery.kube.informer import Informer, nothing
from recovery.kube.job_history import JobHistories
from recovery.kube.live_reader import LiveReader
from recovery.kube.observer import InformerObserver, NoObserver
from recovery.kube.pending_groups import PodsToPlace, waiting_group
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.nodes import decode_node
from recovery.kube.projections.pods import PodRecord, decode_pod
from recovery.kube.projections.recovery import (
    UNREADABLE_SCHEMA_VERSION,
    decode_config,
    decode_policy,
    decode_recovery_group,
)
from recovery.kube.projections.workloads import JobRecord, JobSetRecord, decode_job, decode_job_set, decode_train_job
from recovery.kube.snapshots import Parts, snapshot_of
from recovery.kube.undecodable_objects import UndecodableObjects
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiClient,
    Clock,
    Entropy,
    RefusedError,
    Resource,
)
from recovery.workloads.jobset import GROUPS_SELECTOR
from recovery.workloads.naming import recovery_group_name

T = TypeVar("T")

_CLUSTER = ""
"""The namespace of what has none."""

COLLECTED_SECONDS = 120.0
"""For how long a ledger that vanished in the middle of an incident is remembered: enough for its record to be tried
several times, and an end to trying where the whole namespace is gone."""


class _Collected(msgspec.Struct, frozen=True):
    """The last that was seen of a ledger, and when that was, by the clock's monotonic time."""

    ledger: LedgerObject
    at_seconds: float


class KubeGroupStore:
    """Run it in a task; the methods are described in `ports.GroupStore`."""

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: InformerObserver | None = None,
        train_jobs: bool = True,
    ) -> None:
        """`train_jobs` False: Trainer is not installed, and only JobSets that nothing controls are workloads."""
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._observer: InformerObserver = observer or NoObserver()
        self._live = LiveReader(client, train_jobs=train_jobs)
        self._incarnations = JobHistories()
        self._selections: dict[str, Selection] = {}
        """Which containers train, by Job UID."""
        self._train_jobs: dict[GroupKey, WorkloadFacts] = {}
        self._bare: set[GroupKey] = set()
        """The JobSets that nothing controls: workloads, unless a TrainJob has the name."""
        self._jobsets: dict[GroupKey, JobSetRecord] = {}
        self._jobs: dict[GroupKey, dict[str, JobFacts]] = {}
        self._pods: dict[GroupKey, dict[str, PodRecord]] = {}
        self._to_place = PodsToPlace()
        self._nodes: dict[str, NodeFacts] = {}
        self._capacity = Capacity(self._nodes)
        self._lost_nodes = LostNodes()
        self._pods_on_node: dict[str, dict[GroupKey, int]] = {}
        self._policies: dict[str, dict[str, PolicyFacts]] = {}
        """By namespace; those of the cluster have none."""
        self._config: ConfigFacts | None = None
        self._ledgers_of: dict[GroupKey, dict[str, LedgerObject]] = {}
        """By name and UID of the workload: a copy that was restored into another namespace is not this one's."""
        self._collected: dict[GroupKey, dict[str, _Collected]] = {}
        """Ledgers that vanished in the middle of an incident: nobody else has what is still to be recorded."""
        self._subscribers: list[Callable[[GroupKey], None]] = []
        self._whole: dict[str, GroupKey] = {}
        """Job UIDs of which all members run, as far as the list tells that is being taken over."""
        self._nodes_informer = self._informer(NODES, decode_node, self._put_node, self._drop_node)
        self._pods_informer = self._informer(
            PODS,
            decode_pod,
            self._put_pod,
            self._drop_pod,
            label_selector=GROUPS_SELECTOR,
            taken_over=self._pods_taken_over,
        )
        self._informers = tuple(self._make_informers(train_jobs=train_jobs))
        self._undecodable = UndecodableObjects(self._informers)

    async def run(self) -> None:
        """Keep everything current until cancelled. Raises RefusedError if a resource cannot be listed at the start."""
        refused: RefusedError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for informer in self._informers:
                    tasks.create_task(informer.run())
        except* RefusedError as group:
            refused = next(error for error in group.exceptions if isinstance(error, RefusedError))
        if refused is not None:
            raise refused

    def synced(self) -> bool:
        return all(informer.synced for informer in self._informers)

    def keys(self) -> Iterable[GroupKey]:
        return (*self._train_jobs, *(key for key in self._bare if key not in self._train_jobs))

    def snapshot(self, key: GroupKey) -> Snapshot:
        parts = self._parts(key)
        absent: frozenset[str] = frozenset()
        if self._nodes_informer.synced:
            absent = frozenset(pod.facts.node for pod in parts.pods if pod.facts.node not in self._nodes)
        return snapshot_of(
            key,
            parts,
            incarnations=self._incarnations,
            nodes=self._nodes,
            gone_nodes=absent,
            unknown_nodes=self._undecodable.nodes(),
        )

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
        return self._ledgers_of.get(key, {}).get(workload_uid)

    def progress(self, key: GroupKey) -> Progress | None:
        workload = self._train_jobs.get(key)
        return workload.progress if workload is not None else None

    def ledger_objects(self) -> Iterable[LedgerObject]:
        return tuple(ledger for ledgers in self._ledgers_of.values() for ledger in ledgers.values())

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        workload = self._parts(key).workload
        present = workload.uid if workload is not None else ""
        since = self._clock.monotonic_seconds() - COLLECTED_SECONDS
        collected = {uid: each.ledger for uid, each in self._collected.get(key, {}).items() if each.at_seconds > since}
        orphans = {**collected, **self._ledgers_of.get(key, {})}
        return tuple(ledger for uid, ledger in orphans.items() if uid != present)

    def collected(self) -> Iterable[GroupKey]:
        return tuple(self._collected)

    def undecodable(self) -> Mapping[str, int]:
        counts = self._undecodable.counts()
        if self._config is not None and self._config.unreadable:
            counts[RECOVERY_CONFIGS.plural] += 1
        damaged = (each for each in self.ledger_objects() if each.schema_version == UNREADABLE_SCHEMA_VERSION)
        counts[RECOVERY_GROUPS.plural] += sum(1 for _ in damaged)
        return counts

    def subscribe(self, changed: Callable[[GroupKey], None]) -> None:
        self._subscribers.append(changed)

    async def read_live(self, key: GroupKey) -> Snapshot:
        before, read_at = self._parts(key), self._clock.now()
        parts = (await self._live.parts(key)).filled_from(before)
        # After the pods: a node that is read is not older than the pod that names it.
        doubtful = frozenset(self._doubtful(parts))
        asked = await self._live.nodes(sorted(doubtful))
        found = {name: node for name, node in asked.items() if node is not None}
        snapshot = snapshot_of(
            key,
            parts,
            incarnations=self._incarnations,
            nodes=ChainMap(found, self._nodes),
            gone_nodes=asked.keys() - found.keys(),
            unknown_nodes=doubtful - asked.keys(),
            vanished=self._vanished(before, parts),
            live=True,
        )
        lost = self._lost_nodes.of_late(self._clock.now())
        fleet = fleet_facts(snapshot, self._capacity, lost, tuple(self._waiting_besides(key)))
        return msgspec.structs.replace(snapshot, fleet=fleet, read_at=read_at)

    async def read_config_live(self) -> ConfigFacts | None:
        return await self._live.config(self._report)

    async def read_node_live(self, name: str) -> NodeFacts | None:
        return await self._live.node(name)

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return await self._live.ledger(key, workload_uid)

    async def read_policies_live(self, namespace: str) -> PolicySet:
        return await self._live.policies(namespace, self._report)

    def _make_informers(self, *, train_jobs: bool) -> Iterator[Informer[Any]]:
        if train_jobs:
            yield self._informer(TRAIN_JOBS, decode_train_job, self._put_train_job, self._drop_train_job)
        yield self._informer(JOB_SETS, decode_job_set, self._put_jobset, self._drop_jobset)
        yield self._informer(JOBS, decode_job, self._put_job, self._drop_job, label_selector=GROUPS_SELECTOR)
        yield self._pods_informer
        yield self._nodes_informer
        # A policy that cannot be read allows nothing; a fact that cannot be read stays what it was.
        for policies in (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES):
            yield self._informer(policies, decode_policy, self._put_policy, self._drop_policy, forget_undecodable=True)
        yield self._informer(RECOVERY_CONFIGS, decode_config, self._put_config, self._drop_config)
        yield self._informer(RECOVERY_GROUPS, decode_recovery_group, self._put_ledger, self._drop_ledger)

    def _informer(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], ObjectEntry[T]],
        put: Callable[[ObjectEntry[T]], None],
        drop: Callable[[ObjectEntry[T]], None],
        *,
        label_selector: str = "",
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
            readability_changed=self._readability_changed,
            taken_over=taken_over,
            forget_undecodable=forget_undecodable,
        )

    def _readability_changed(self, found: UndecodableObject) -> None:
        """A group that knows the object by its last readable state is notified when that state is put again."""
        if found.group is not None:
            self._notify(found.group)
        elif found.kind == NODES.kind:
            self._notify_groups_on(found.name)

    def _parts(self, key: GroupKey) -> Parts:
        return Parts(
            train_job=self._train_jobs.get(key),
            jobset=self._jobsets.get(key),
            jobs=tuple(self._jobs.get(key, {}).values()),
            pods=tuple(self._pods.get(key, {}).values()),
            undecodable=self._undecodable.of(key),
        )

    def _waiting_besides(self, own: GroupKey) -> Iterator[WaitingGroup]:
        """The other groups that wait, as the watches tell of them."""
        for key, asking in self._to_place.groups():
            group = waiting_group(key, self._parts(key), asking, self._capacity) if key != own else None
            if group is not None:
                yield group

    def _vanished(self, before: Parts, live: Parts) -> Iterable[PodFacts]:
        """Pods that were known before the reading began, and that it did not find under a Job that lives on.

        The watch will tell of them as well, a little later; a decision on this reading must not miss them.
        """
        found = {pod.facts.uid for pod in live.pods}
        living = {job.uid for job in live.jobs if job.deleting_since is None and not job.suspended}
        now = self._clock.now()
        for pod in before.pods:
            if pod.facts.uid not in found and pod.facts.job_uid in living:
                yield msgspec.structs.replace(pod.facts, gone_at=now)

    def _doubtful(self, parts: Parts) -> Iterable[str]:
        """Nodes of the group whose pods could be dead, as far as the cache knows: only those are worth a request.

        A node that was deleted and made again under its name exists, and is not taken for gone: a kubelet that
        registers again goes on running the pods that it has. If it is another machine, its kubelet reports their end.
        """
        unknown = self._undecodable.nodes()
        for name in sorted({pod.facts.node for pod in parts.pods if pod.facts.node}):
            node = self._nodes.get(name) if name not in unknown else None
            if node is None or not node.ready or any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.taints):
                yield name

    def _notify(self, key: GroupKey) -> None:
        for changed in self._subscribers:
            changed(key)

    def _put_train_job(self, entry: ObjectEntry[WorkloadFacts]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        known = self._train_jobs.get(key)
        self._train_jobs[key] = entry.value
        self._select_again(key)
        if known is None or not _only_progresses(known, entry.value) or self._awaits_progress(key, entry.value):
            self._notify(key)

    def _awaits_progress(self, key: GroupKey, workload: WorkloadFacts) -> bool:
        found = self.ledger_object(key, workload.uid)
        return found is not None and found.ledger.phase is Phase.RESUMING

    def _drop_train_job(self, entry: ObjectEntry[WorkloadFacts]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        self._train_jobs.pop(key, None)
        self._notify(key)

    def _put_jobset(self, entry: ObjectEntry[JobSetRecord]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        self._jobsets[key] = entry.value
        if entry.value.workload is not None:
            self._bare.add(key)
        else:
            self._bare.discard(key)
        self._select_again(key)
        self._notify(key)

    def _drop_jobset(self, entry: ObjectEntry[JobSetRecord]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        self._jobsets.pop(key, None)
        self._bare.discard(key)
        self._notify(key)

    def _put_job(self, entry: ObjectEntry[JobRecord]) -> None:
        key, job = entry.value.group, entry.value.facts
        self._jobs.setdefault(key, {})[entry.name] = job
        whole = self._incarnations.job_seen(job)
        self._select_again(key)
        if whole:
            self._train(key, job)
        self._notify(key)

    def _drop_job(self, entry: ObjectEntry[JobRecord]) -> None:
        key = entry.value.group
        self._incarnations.job_gone(entry.uid)
        self._selections.pop(entry.uid, None)
        _remove(self._jobs, key, entry.name)
        self._notify(key)

    def _put_pod(self, entry: ObjectEntry[PodRecord]) -> None:
        key, pod = entry.value.group, entry.value.facts
        mine = self._pods.setdefault(key, {})
        before = mine.get(entry.name)
        mine[entry.name] = entry.value
        self._to_place.changed(key, before, entry.value)
        before_node = before.facts.node if before is not None else ""
        if before_node != pod.node:
            self._count_on_node(before_node, key, -1)
            self._count_on_node(pod.node, key, 1)
        self._pod_seen(key, pod)
        self._notify(key)

    def _drop_pod(self, entry: ObjectEntry[PodRecord]) -> None:
        key = entry.value.group
        before = _remove(self._pods, key, entry.name)
        if before is not None:
            self._to_place.changed(key, before, None)
            self._count_on_node(before.facts.node, key, -1)
        self._incarnations.pod_gone(entry.value.facts, self._clock.now())
        self._notify(key)

    def _pod_seen(self, key: GroupKey, pod: PodFacts) -> None:
        """Whether it runs is for its training containers to say, which its Job knows."""
        job = next((job for job in self._jobs.get(key, {}).values() if job.uid == pod.job_uid), None)
        selection = self._selections.get(pod.job_uid)
        whole = self._incarnations.pod_seen(pod if selection is None else assigned(pod, selection))
        if not whole or job is None:
            return
        if self._pods_informer.taking_over:
            # The rest of the list may tell of an earlier moment at which all ran: of a pod that ended since.
            self._whole[job.uid] = key
        else:
            self._train(key, job)

    def _pods_taken_over(self) -> None:
        """Groups of which a list of pods has told that all members run have trained, at the earliest since when."""
        whole, self._whole = self._whole, {}
        for job_uid, key in whole.items():
            job = next((job for job in self._jobs.get(key, {}).values() if job.uid == job_uid), None)
            if job is not None:
                self._train(key, job)

    def _select_again(self, key: GroupKey) -> None:
        """The group's Jobs or its workload have changed, and with them, rarely, which containers train."""
        workload = self._parts(key).workload
        for job in self._jobs.get(key, {}).values():
            selection = select(job, workload)
            if self._selections.get(job.uid) == selection:
                continue
            self._selections[job.uid] = selection
            for pod in self._pods.get(key, {}).values():
                if pod.facts.job_uid == job.uid:
                    self._pod_seen(key, pod.facts)

    def _train(self, key: GroupKey, job: JobFacts) -> None:
        pods = [pod.facts for pod in self._pods.get(key, {}).values() if pod.facts.job_uid == job.uid]
        known = (*pods, *self._incarnations.vanished(job.uid))
        selection = self._selections[job.uid]
        self._incarnations.train(job, [assigned(pod, selection) for pod in known])

    def _count_on_node(self, node: str, key: GroupKey, change: int) -> None:
        if not node:
            return
        groups = self._pods_on_node.setdefault(node, {})
        groups[key] = groups.get(key, 0) + change
        if not groups[key]:
            _remove(self._pods_on_node, node, key)

    def _put_node(self, entry: ObjectEntry[NodeFacts]) -> None:
        before, node = self._nodes.get(entry.name), entry.value
        self._nodes[entry.name] = node
        self._capacity.changed(before, node)
        self._lost_nodes.seen(before, node, self._clock.now(), listed=not self._nodes_informer.synced)
        if before is None or _what_counts(before) != _what_counts(node):
            self._notify_groups_on(entry.name)

    def _drop_node(self, entry: ObjectEntry[NodeFacts]) -> None:
        self._capacity.changed(self._nodes.pop(entry.name, None), None)
        self._lost_nodes.gone(entry.value, self._clock.now())
        self._notify_groups_on(entry.name)

    def _notify_groups_on(self, node: str) -> None:
        for key in tuple(self._pods_on_node.get(node, ())):
            self._notify(key)

    def _put_policy(self, entry: ObjectEntry[PolicyFacts]) -> None:
        self._policies.setdefault(entry.namespace, {})[entry.name] = entry.value
        self._notify_governed(entry.namespace)

    def _drop_policy(self, entry: ObjectEntry[PolicyFacts]) -> None:
        _remove(self._policies, entry.namespace, entry.name)
        self._notify_governed(entry.namespace)

    def _put_config(self, entry: ObjectEntry[ConfigFacts]) -> None:
        """One of another name governs nothing: the CRD refuses it, and nobody else would know which one counts."""
        if entry.name != CONFIG_NAME:
            self._report(RECOVERY_CONFIGS, entry.name, f"is ignored: the RecoveryConfig is called {CONFIG_NAME}")
            return
        if entry.value.unreadable:
            self._report(RECOVERY_CONFIGS, entry.name, entry.value.unreadable)
        before, self._config = self._config, entry.value
        # Totals change with every closed incident, and no decision depends on them.
        if before is None or _but_totals(before) != _but_totals(entry.value):
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

    def _put_ledger(self, entry: ObjectEntry[LedgerObject]) -> None:
        """An object without the name that its workload gives it is nobody's ledger: no leader would read it."""
        ledger = entry.value
        name, title = recovery_group_name(ledger.group, ledger.workload_uid), f"{entry.namespace}/{entry.name}"
        if entry.name != name:
            self._report(RECOVERY_GROUPS, title, f"is ignored: the RecoveryGroup of that workload is called {name}")
            return
        if ledger.schema_version == UNREADABLE_SCHEMA_VERSION:
            self._report(RECOVERY_GROUPS, title, ledger.ledger.message)
        key = GroupKey(entry.namespace, ledger.group)
        self._ledgers_of.setdefault(key, {})[ledger.workload_uid] = ledger
        _remove(self._collected, key, ledger.workload_uid)
        self._notify(key)

    def _drop_ledger(self, entry: ObjectEntry[LedgerObject]) -> None:
        ledger = entry.value
        key = GroupKey(entry.namespace, ledger.group)
        known = self.ledger_object(key, ledger.workload_uid)
        if known is not None and known.uid == entry.uid:
            _remove(self._ledgers_of, key, ledger.workload_uid)
            if ledger.readable and ledger.ledger.incident is not None:
                self._remember(key, ledger)
            self._notify(key)

    def _remember(self, key: GroupKey, ledger: LedgerObject) -> None:
        """The garbage collector may take a ledger away in the same moment in which its workload is seen to go."""
        now = self._clock.monotonic_seconds()
        for other, uid in [
            (other, uid)
            for other, collected in self._collected.items()
            for uid, each in collected.items()
            if each.at_seconds <= now - COLLECTED_SECONDS
        ]:
            _remove(self._collected, other, uid)
        self._collected.setdefault(key, {})[ledger.workload_uid] = _Collected(ledger, now)

    def _report(self, resource: Resource, name: str, message: str) -> None:
        self._observer.undecodable(resource.plural, name, message)


def _only_progresses(before: WorkloadFacts, after: WorkloadFacts) -> bool:
    """Training processes report every few seconds: without this each report would reconcile the group."""
    same = msgspec.structs.replace(after, progress=before.progress, resource_version=before.resource_version)
    return after.progress != before.progress and same == before


def _what_counts(node: NodeFacts) -> object:
    """What decisions read of a node. Words of its conditions are not in it: some monitors write times into them."""
    conditions = tuple((each.type, each.status, each.reason, each.since) for each in node.conditions)
    return node.uid, node.ready, node.reachable, node.unschedulable, node.taints, conditions, node.deleting_since


K = TypeVar("K")
N = TypeVar("N")
V = TypeVar("V")


def _remove(index: dict[K, dict[N, V]], key: K, name: N) -> V | None:
    """Take one out of an index of indexes, leaving no empty ones behind."""
    inner = index.get(key)
    if inner is None:
        return None
    found = inner.pop(name, None)
    if not inner:
        del index[key]
    return found


def _but_totals(config: ConfigFacts) -> ConfigFacts:
    fleet = msgspec.structs.replace(config.fleet, totals=FleetTotals())
    return msgspec.structs.replace(config, fleet=fleet, resource_version="")
