"""Reads, for a listing of many workloads, the groups that are not all Ready. One list of Jobs shows which those are.

The pods of a fully Ready group are never read, because the Job controller counts Ready pods (`status.ready`). The count
is right even for a node that has gone silent: the node controller takes Ready from its pods (`MarkPodsNotReady`,
pkg/controller/util/node/controller_utils.go). So a healthy fleet costs one more list, however many pods it has.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeVar

import msgspec

from recovery.core.diagnosis.membership import member_count
from recovery.core.diagnosis.trained import began_at
from recovery.core.model.facts import GroupKey, JobFacts, NodeFacts, PodFacts, Snapshot, UndecodableObject
from recovery.kube.cluster_reader import Fleet, read_all
from recovery.kube.job_history import JobHistories
from recovery.kube.live_reader import LiveReader
from recovery.kube.projections.events import EventRecord, decode_event
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.pods import PodRecord, decode_pod
from recovery.kube.projections.workloads import JobRecord, decode_job
from recovery.kube.snapshots import Parts, snapshot_of
from recovery.ports import EVENTS, JOBS, PODS, TRAIN_JOBS, ApiClient, ForbiddenError
from recovery.workloads.jobset import GROUPS_SELECTOR, groups_selector

NAMES_MAX = 50
"""Groups named in one request: a name has up to 63 characters, and servers accept request lines of some 8,000."""
NODES_MAX = 64
"""At most this many nodes are read, one by one, for one listing."""


class UnreadyGroups(msgspec.Struct, frozen=True):
    """The groups that are not all Ready, and in words what could not be read."""

    snapshots: Mapping[GroupKey, Snapshot] = {}
    """Their nodes are those of pods that are not Ready: at most `NODES_MAX` in all, nodes of running pods first."""
    ready: Mapping[GroupKey, Snapshot] = {}
    """The other groups, without pods and nodes. Their Jobs show that all members run."""
    unreadable: tuple[str, ...] = ()


async def read_unready_groups(
    client: ApiClient, namespace: str | None, fleet: Fleet, keys: Iterable[GroupKey], now: datetime
) -> UnreadyGroups:
    """Read the unready ones among these groups of the fleet. Raises ApiError.

    `namespace`: the one that the fleet was read for; None: all. If the user may not read Jobs or pods, `unreadable`
    reports it. If the user may not read nodes or Events, they are left out.
    """
    asked = tuple(keys)
    if not asked:
        return UnreadyGroups()
    try:
        listed = await read_all(client, JOBS, namespace, decode_job, label_selector=GROUPS_SELECTOR)
        jobs = _by_group(entry.value for entry in listed.entries)
        undecodable = (*fleet.undecodable, *listed.undecodable)
        doubtful = {each.group for each in undecodable}
        unready = [key for key in asked if key in doubtful or not _all_ready(fleet, key, jobs.get(key, ()))]
        records, unread_pods = await _pods(client, namespace, unready)
    except ForbiddenError as error:
        return UnreadyGroups(unreadable=(f"a job that has not started looks like one that runs: {error}",))
    undecodable = (*undecodable, *unread_pods)
    pods = _by_group(records)
    nodes, about_nodes = await _nodes(client, [[each.facts for each in pods.get(key, ())] for key in unready])
    failed_creates = await _failed_creates(
        client, namespace, (job.facts for key in unready for job in jobs.get(key, ())), records
    )
    snapshots = {}
    for key in unready:
        facts = (job.facts for job in jobs.get(key, ()))
        with_events = tuple(
            msgspec.structs.replace(job, failed_create=failed_creates.get(job.uid, "")) for job in facts
        )
        unread = tuple(each for each in undecodable if each.group == key)
        snapshots[key] = _snapshot(key, fleet, with_events, tuple(pods.get(key, ())), unread, nodes)
    ready = {key: _of_ready(key, fleet, jobs[key], now) for key in asked if key not in snapshots and key in jobs}
    about_pods = (each.sentence for each in unread_pods)
    return UnreadyGroups(snapshots, ready, (*listed.unreadable, *about_pods, *about_nodes))


R = TypeVar("R", JobRecord, PodRecord)


def _by_group(records: Iterable[R]) -> dict[GroupKey, list[R]]:
    found: dict[GroupKey, list[R]] = {}
    for record in records:
        found.setdefault(record.group, []).append(record)
    return found


def _all_ready(fleet: Fleet, key: GroupKey, jobs: Sequence[JobRecord]) -> bool:
    """Counts as JobSet counts its ready Jobs, initializers included. A wrong False only costs a read."""
    jobset = fleet.jobsets.get(key)
    if jobset is None or len(jobs) < sum(each.replicas for each in jobset.facts.replicated_jobs):
        return False
    return all(
        each.facts.deleting_since is None
        and (
            each.facts.condition("Complete") is not None
            or each.ready + each.facts.succeeded >= member_count(each.facts)
        )
        for each in jobs
    )


async def _pods(
    client: ApiClient, namespace: str | None, keys: Iterable[GroupKey]
) -> tuple[list[PodRecord], tuple[UndecodableObject, ...]]:
    """The pods of the groups. If all namespaces are read, groups of the same name in other namespaces are included."""
    names = iter(dict.fromkeys(key.name for key in keys))
    found: list[PodRecord] = []
    undecodable: list[UndecodableObject] = []
    while chunk := tuple(islice(names, NAMES_MAX)):
        listed = await read_all(client, PODS, namespace, decode_pod, label_selector=groups_selector(chunk))
        found += [entry.value for entry in listed.entries]
        undecodable += listed.undecodable
    return found, tuple(undecodable)


async def _nodes(
    client: ApiClient, groups: Iterable[Sequence[PodFacts]]
) -> tuple[Mapping[str, NodeFacts | None], tuple[str, ...]]:
    """Nodes by name; None: the node does not exist. The first node of every group is read before the second of any,
    because one may be enough for a group."""
    wanted: list[tuple[bool, int, str]] = []
    for pods in groups:
        doubtful = sorted((not pod.running, pod.name, pod.node) for pod in pods if pod.node and not pod.ready)
        wanted += ((waits, place, node) for place, (waits, _, node) in enumerate(doubtful))
    names = tuple(dict.fromkeys(node for _, _, node in sorted(wanted)))
    try:
        nodes = await LiveReader(client).nodes(names[:NODES_MAX])
    except ForbiddenError:
        return {}, ()
    more = f"more than {NODES_MAX} nodes have pods that are not Ready: whether the others answer was not asked"
    return nodes, (more,) if len(names) > NODES_MAX else ()


async def _failed_creates(
    client: ApiClient, namespace: str | None, jobs: Iterable[JobFacts], pods: Iterable[PodRecord]
) -> Mapping[str, str]:
    """By UID of a Job without pods: the controller's latest reason why it cannot create any (a quota, a webhook)."""
    with_pods = {pod.facts.job_uid for pod in pods}
    if all(job.uid in with_pods or job.suspended or job.condition("Complete") is not None for job in jobs):
        return {}
    selector = "involvedObject.kind=Job,reason=FailedCreate"
    try:
        listed = await read_all(client, EVENTS, namespace, _decode_event, field_selector=selector)
    except ForbiddenError:
        return {}
    by_age = sorted((entry.value for entry in listed.entries), key=lambda event: event.at)
    return {each.involved_object.uid: each.message for each in by_age if each.involved_object.uid not in with_pods}


def _decode_event(raw: msgspec.Raw) -> ObjectEntry[EventRecord]:
    """The entry has no name: only the object that the Event is about matters."""
    return ObjectEntry("", "", "", "", decode_event(raw))


def _of_ready(key: GroupKey, fleet: Fleet, jobs: Iterable[JobRecord], now: datetime) -> Snapshot:
    """All members are Ready now, so the group has started, even where the local clock lags behind."""
    found = _snapshot(key, fleet, tuple(job.facts for job in jobs), (), (), {})
    return msgspec.structs.replace(found, trained_at={job.uid: max(now, began_at(job)) for job in found.jobs})


def _snapshot(
    key: GroupKey,
    fleet: Fleet,
    jobs: tuple[JobFacts, ...],
    pods: tuple[PodRecord, ...],
    unread: tuple[UndecodableObject, ...],
    nodes: Mapping[str, NodeFacts | None],
) -> Snapshot:
    workload = fleet.workloads[key]
    return snapshot_of(
        key,
        Parts(workload if workload.kind == TRAIN_JOBS.kind else None, fleet.jobsets.get(key), jobs, pods, unread),
        incarnations=JobHistories(),
        nodes={name: node for name, node in nodes.items() if node is not None},
        gone_nodes={name for name, node in nodes.items() if node is None},
        live=True,
    )
