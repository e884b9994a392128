"""Reads a group and its policies from the API server itself, as the basis of a decision before it is recorded.

All reads are consistent (no resourceVersion): an answer is not older than the question. The pods are read first, then
their owners, because an intended removal (a deletion, a suspension, a restart by JobSet) is written on an owner before
its objects go. In the other order, or all at once, an intended removal could look like a failure.

The Jobs and what has created them are read at once. If the Jobs show that something above them is changing, what has
created them is read again: so an intended removal of a Job is seen too. At a loss the Jobs usually show nothing of the
kind, and the whole group takes two round trips instead of three.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from recovery import api_verbs
from recovery.core.model.config import CONFIG_NAME, ConfigFacts
from recovery.core.model.facts import (
    GroupKey,
    JobFacts,
    NodeFacts,
    ReplicatedJobFacts,
    UndecodableObject,
    WorkloadFacts,
)
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.decoding import decoded
from recovery.kube.node_reads import NodeReads
from recovery.kube.projections.events import EventRecord, decode_event
from recovery.kube.projections.metadata import ObjectEntry, decode_version
from recovery.kube.projections.pods import PodRecord, decode_pod
from recovery.kube.projections.recovery import decode_config, decode_policy, decode_recovery_group
from recovery.kube.projections.workloads import JobSetRecord, decode_job, decode_job_set, decode_train_job
from recovery.kube.response_envelopes import read_page
from recovery.kube.snapshots import Parts
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    EVENTS,
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiClient,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    Resource,
    UndecodableError,
)
from recovery.workloads.jobset import JOB_CREATION_FAILED, group_selector
from recovery.workloads.naming import recovery_group_name

T = TypeVar("T")
ReadOrNot = tuple[T | None, tuple[UndecodableObject, ...]]
"""What was read, and the object that cannot be decoded."""

PAGE_OBJECTS = 500
"""As in kubectl. A thousand pods have 8.4 MB, and a page half of that."""
_WITHOUT_PAUSE = 100
"""So many objects are decoded in about 10 ms. Then other groups get their turn."""
Undecodable = Callable[[Resource, str, str], None]
"""Called with the resource, the object's name (`namespace/name`, or the name alone), and the problem."""


class LiveReader:
    """Consistent reads of one group. All methods raise ApiError. An object that cannot be decoded raises
    UndecodableError, unless a method says otherwise."""

    def __init__(self, client: ApiClient, *, train_jobs: bool = True) -> None:
        """`train_jobs` False: Trainer is not installed, so no TrainJob is read."""
        self._client = client
        self._train_jobs = train_jobs
        self._nodes = NodeReads(client)

    async def parts(self, key: GroupKey, known: Iterable[PodRecord] = ()) -> Parts:
        """Every object of the group. A missing TrainJob or JobSet is None, not an error.

        Objects that cannot be decoded are listed in `undecodable`. `known`: pods as a cache has them. Those whose
        version is still the same are not decoded again, which is most of the work for a large group.
        """
        versions = {(pod.facts.uid, pod.facts.resource_version): pod for pod in known if pod.facts.gone_at is None}
        pods, unread_pods = await self._list(PODS, key, partial(_decode_unless_known, versions))
        (jobs, unread_jobs), (train_job, unread_train_job), (jobset, unread_jobset) = await asyncio.gather(
            self._list(JOBS, key, decode_job), *self._above_jobs(key)
        )
        if unread_jobs or not _at_rest([job.facts for job in jobs], jobset):
            (train_job, unread_train_job), (jobset, unread_jobset) = await asyncio.gather(*self._above_jobs(key))
        if train_job is not None and (jobset is None or jobset.facts.deleting_since is not None):
            train_job, unread_train_job = await _or_undecodable(partial(self._train_job, key))
        with_pods = {pod.facts.job_uid for pod in pods}
        with_events = await asyncio.gather(
            *(self._with_failed_create(key, job.facts, empty=job.facts.uid not in with_pods) for job in jobs)
        )
        if jobset is not None and not unread_jobs:
            jobset = await self._with_failed_job(key, jobset, (job.facts for job in jobs))
        undecodable = (*unread_train_job, *unread_jobset, *unread_jobs, *unread_pods)
        return Parts(train_job=train_job, jobset=jobset, jobs=tuple(with_events), pods=pods, undecodable=undecodable)

    def _above_jobs(
        self, key: GroupKey
    ) -> tuple[Awaitable[ReadOrNot[WorkloadFacts]], Awaitable[ReadOrNot[JobSetRecord]]]:
        """Reads of the TrainJob and the JobSet."""
        return (
            _or_undecodable(partial(self._train_job, key)),
            _or_undecodable(partial(self._object, JOB_SETS, key.namespace, key.name, decode_job_set)),
        )

    async def ledger(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        """The workload's ledger. None: there is none. Raises RefusedError if it names another workload."""
        name = recovery_group_name(key.name, workload_uid)
        found = await self._object(RECOVERY_GROUPS, key.namespace, name, decode_recovery_group)
        if found is not None and found.workload_uid != workload_uid:
            raise RefusedError(
                f"RecoveryGroup {key.namespace}/{name}: spec.workloadRef.uid is {found.workload_uid}, but by its name "
                f"it belongs to {workload_uid}: delete it, and the controller creates it again"
            )
        return found

    async def policies(self, namespace: str, undecodable: Undecodable) -> PolicySet:
        """The readable policies and the RecoveryConfig. Those that cannot be read are reported to `undecodable`."""
        own, of_cluster, config = await asyncio.gather(
            self._policies(RECOVERY_POLICIES, namespace, undecodable),
            self._policies(CLUSTER_RECOVERY_POLICIES, None, undecodable),
            self.config(undecodable),
        )
        return PolicySet((*own, *of_cluster), config)

    async def config(self, undecodable: Undecodable) -> ConfigFacts | None:
        """The RecoveryConfig, marked if it cannot be read. None: there is none."""
        config = await self._object(RECOVERY_CONFIGS, None, CONFIG_NAME, decode_config)
        if config is not None and config.unreadable:
            undecodable(RECOVERY_CONFIGS, config.name, config.unreadable)
        return config

    async def nodes(self, names: Iterable[str]) -> Mapping[str, NodeFacts | None]:
        """Nodes by name, with the last Lease renewal of unreachable ones. None: the node does not exist.

        A node that cannot be decoded, or whose Lease cannot, is left out: nothing is known about it.
        """
        return await self._nodes.read(names)

    async def node(self, name: str) -> NodeFacts | None:
        """The node. None: it does not exist."""
        return await self._nodes.node(name)

    async def _policies(self, resource: Resource, namespace: str | None, undecodable: Undecodable) -> list[PolicyFacts]:
        body = await api_verbs.list_page(self._client, resource, namespace=namespace)
        found: list[PolicyFacts] = []
        for raw in read_page(resource, body).items or ():
            try:
                found.append(decoded(resource, decode_policy, raw).value)
            except UndecodableError as error:
                undecodable(resource, error.found.title, error.found.problem)
        return found

    async def _train_job(self, key: GroupKey) -> WorkloadFacts | None:
        if not self._train_jobs:
            return None
        return await self._object(TRAIN_JOBS, key.namespace, key.name, decode_train_job)

    async def _object(
        self, resource: Resource, namespace: str | None, name: str, decode: Callable[[msgspec.Raw], ObjectEntry[T]]
    ) -> T | None:
        try:
            body = await api_verbs.get(self._client, resource, name, namespace=namespace)
        except NotFoundError:
            return None
        return decoded(resource, decode, body).value

    async def _list(
        self, resource: Resource, key: GroupKey, decode: Callable[[msgspec.Raw], ObjectEntry[T]]
    ) -> tuple[tuple[T, ...], tuple[UndecodableObject, ...]]:
        """The group's objects that can be decoded, and those that cannot. All pages show the state at the first one."""
        found: list[T] = []
        undecodable: list[UndecodableObject] = []
        token, more = "", True
        while more:
            body = await api_verbs.list_page(
                self._client,
                resource,
                namespace=key.namespace,
                label_selector=group_selector(key),
                limit=PAGE_OBJECTS,
                continue_token=token,
            )
            page = read_page(resource, body)
            for number, raw in enumerate(page.items or (), start=1):
                try:
                    found.append(decoded(resource, decode, raw).value)
                except UndecodableError as error:
                    undecodable.append(error.found)
                if number % _WITHOUT_PAUSE == 0:
                    await asyncio.sleep(0)
            token = page.metadata.continue_token
            more = bool(token)
        return tuple(found), tuple(undecodable)

    async def _with_failed_create(self, key: GroupKey, job: JobFacts, *, empty: bool) -> JobFacts:
        """The Job, and if it has no pods, why: its controller reports in Events what refuses them (a quota, a webhook).

        The watchdog waits for such a Job and does not restart it. If the role may not read Events, the Job looks as if
        its controller were stuck: it is touched and then created again, in vain.
        """
        at_rest = job.suspended or job.deleting_since is not None or job.condition("Complete") is not None
        if not empty or at_rest:
            return job
        newest = await self._newest_event(key, job.uid, "FailedCreate")
        return job if newest is None else msgspec.structs.replace(job, failed_create=newest.message)

    async def _with_failed_job(self, key: GroupKey, jobset: JobSetRecord, jobs: Iterable[JobFacts]) -> JobSetRecord:
        """The JobSet, and if it has no unfinished Job, the reason: its controller reports in Events what refuses Jobs.
        It retries with a doubling backoff, so most of the time nothing happens."""
        facts = jobset.facts
        at_rest = facts.suspended or facts.deleting_since is not None or bool(facts.terminal_state)
        if at_rest or any(job.condition("Complete") is None for job in jobs):
            return jobset
        newest = await self._newest_event(key, facts.uid, JOB_CREATION_FAILED)
        if newest is None:
            return jobset
        with_event = msgspec.structs.replace(facts, failed_create=newest.message, failed_create_at=newest.at)
        return msgspec.structs.replace(jobset, facts=with_event)

    async def _newest_event(self, key: GroupKey, uid: str, reason: str) -> EventRecord | None:
        """The newest Event about the object of that UID. None: there is none, or the role may not read Events."""
        selector = f"involvedObject.uid={uid},reason={reason}"
        try:
            body = await api_verbs.list_page(self._client, EVENTS, namespace=key.namespace, field_selector=selector)
        except ForbiddenError:
            return None
        return max(_events(body), key=lambda event: event.at, default=None)


def _decode_unless_known(known: Mapping[tuple[str, str], PodRecord], raw: msgspec.Raw) -> ObjectEntry[PodRecord]:
    version = decode_version(raw).metadata
    pod = known.get((version.uid, version.resource_version))
    if pod is None:
        return decode_pod(raw)
    return ObjectEntry(pod.group.namespace, pod.facts.name, version.uid, version.resource_version, pod)


def _at_rest(jobs: Sequence[JobFacts], jobset: JobSetRecord | None) -> bool:
    """No Job shows a change by what has created it: each belongs to this JobSet and its present restart, runs, has the
    size of its template, and none is missing. Then a JobSet and a TrainJob that were read beside the Jobs show all that
    could have removed a pod: it would have reached the pod through its Job.
    """
    if jobset is None or jobset.facts.deleting_since is not None or jobset.facts.terminal_state:
        return False
    facts = jobset.facts
    templates = {each.name: each for each in facts.replicated_jobs}
    return len(jobs) == sum(each.replicas for each in facts.replicated_jobs) and all(
        job.jobset_uid == facts.uid
        and job.restart_attempt == facts.restarts
        and job.deleting_since is None
        and job.suspended == facts.suspended
        and not job.torn_down_by
        and not any(each.status == "True" for each in job.conditions)
        and job.replicated_job in templates
        and _has_size_of(job, templates[job.replicated_job])
        for job in jobs
    )


def _has_size_of(job: JobFacts, template: ReplicatedJobFacts) -> bool:
    return template.size_known and (job.parallelism, job.completions) == (template.parallelism, template.completions)


async def _or_undecodable(read: Callable[[], Awaitable[T]]) -> ReadOrNot[T]:
    """The result of the read, and the object that could not be decoded.

    Called here: a coroutine that is made before its task starts is never awaited if the task is cancelled at once.
    """
    try:
        return await read(), ()
    except UndecodableError as error:
        return None, (error.found,)


def _events(body: bytes) -> Iterator[EventRecord]:
    """The Events that can be decoded. A user who may write Events must not be able to block decisions about jobs."""
    for raw in read_page(EVENTS, body).items or ():
        with suppress(UndecodableError):
            yield decoded(EVENTS, decode_event, raw)
