"""Reads a group and what is allowed from the API server itself: what a decision stands on before it is written down.

Consistent reads all (no resourceVersion): an answer is not older than the question. The pods are asked for first and
their owners after them, because whatever removes pods on purpose (a deletion, a suspension, a restart by JobSet) is
written on an owner before the pods go. Read the other way round, or all at once, a purpose could look like a failure.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
import structlog

from recovery.core.config import CONFIG_NAME, ConfigFacts
from recovery.core.facts import GroupKey, JobFacts, NodeFacts, WorkloadFacts
from recovery.core.ledger import LedgerObject
from recovery.core.policy import PolicyFacts, PolicySet
from recovery.kube.pages import read_identity, read_page
from recovery.kube.projections.events import EventRecord, decode_event
from recovery.kube.projections.metadata import Entry
from recovery.kube.projections.nodes import decode_node, decode_renewal
from recovery.kube.projections.pods import decode_pod
from recovery.kube.projections.recovery import decode_config, decode_policy, decode_recovery_group
from recovery.kube.projections.workloads import decode_job, decode_job_set, decode_train_job
from recovery.kube.snapshots import Parts
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    EVENTS,
    JOB_SETS,
    JOBS,
    LEASES,
    NODE_LEASE_NAMESPACE,
    NODES,
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
)
from recovery.workloads.jobset import group_selector
from recovery.workloads.naming import recovery_group_name

T = TypeVar("T")
Undecodable = Callable[[Resource, str, str], None]
"""Told the resource, the object's name (`namespace/name`, or the name alone), and what is wrong with it."""

_log = structlog.get_logger("recovery.kube")

NODES_IN_FLIGHT_MAX = 64
"""Of one look: a rack that is lost is some dozen nodes, each read once for each group on it."""


class LiveReader:
    """Consistent reads of one group. All methods raise ApiError; an object that cannot be decoded is a RefusedError."""

    def __init__(self, client: ApiClient, *, train_jobs: bool = True) -> None:
        """`train_jobs` False: Trainer is not installed, so no TrainJob is asked for."""
        self._client = client
        self._train_jobs = train_jobs
        self._leases_refused = False
        """It was said in the log that Leases of nodes may not be read."""

    async def parts(self, key: GroupKey) -> Parts:
        """Every object of the group; a missing TrainJob or JobSet is None, not an error."""
        pods = await self._list(PODS, key, decode_pod)
        train_job, jobset, jobs = await asyncio.gather(
            self._train_job(key),
            self._object(JOB_SETS, key.namespace, key.name, decode_job_set),
            self._list(JOBS, key, decode_job),
        )
        with_pods = {pod.facts.job_uid for pod in pods}
        told = await asyncio.gather(
            *(self._with_failed_create(key, job.facts, empty=job.facts.uid not in with_pods) for job in jobs)
        )
        return Parts(train_job=train_job, jobset=jobset, jobs=tuple(told), pods=pods)

    async def ledger(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        """None: there is none. RefusedError: the object of that name says that it is another workload's."""
        name = recovery_group_name(key.name, workload_uid)
        found = await self._object(RECOVERY_GROUPS, key.namespace, name, decode_recovery_group)
        if found is not None and found.workload_uid != workload_uid:
            raise RefusedError(
                f"RecoveryGroup {key.namespace}/{name}: spec.workloadRef.uid is {found.workload_uid}, but by its name "
                f"it belongs to {workload_uid}: delete it, and it is made anew"
            )
        return found

    async def policies(self, namespace: str, undecodable: Undecodable) -> PolicySet:
        """What can be read of the policies, and the RecoveryConfig; `undecodable` is told of everything else."""
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
        """Nodes by name, with the last sign of life of those that are not reachable. None: it does not exist."""
        slots = asyncio.Semaphore(NODES_IN_FLIGHT_MAX)

        async def read(name: str) -> NodeFacts | None:
            async with slots:
                node = await self.node(name)
                if node is None or node.reachable:
                    return node
                return msgspec.structs.replace(node, lease_renewed_at=await self._lease_renewed_at(name))

        asked = tuple(names)
        return dict(zip(asked, await asyncio.gather(*map(read, asked)), strict=True))

    async def node(self, name: str) -> NodeFacts | None:
        """None: it does not exist."""
        return await self._object(NODES, None, name, decode_node)

    async def _lease_renewed_at(self, node: str) -> datetime | None:
        """None: it has no Lease, or Leases may not be read; then nothing is known beyond the node's own conditions."""
        try:
            body = await self._client.get(LEASES, node, namespace=NODE_LEASE_NAMESPACE)
        except NotFoundError:
            return None
        except ForbiddenError as error:
            if not self._leases_refused:
                _log.warning("Leases of nodes may not be read: AssumeDead goes by Ready alone", error=str(error))
                self._leases_refused = True
            return None
        return _decoded(LEASES, decode_renewal, body)

    async def _policies(self, resource: Resource, namespace: str | None, undecodable: Undecodable) -> list[PolicyFacts]:
        body = await self._client.list(resource, namespace=namespace)
        found: list[PolicyFacts] = []
        for raw in read_page(resource, body).items or ():
            try:
                found.append(decode_policy(raw).value)
            except ValueError as error:
                undecodable(resource, read_identity(resource, raw).title, str(error))
        return found

    async def _train_job(self, key: GroupKey) -> WorkloadFacts | None:
        if not self._train_jobs:
            return None
        return await self._object(TRAIN_JOBS, key.namespace, key.name, decode_train_job)

    async def _object(
        self, resource: Resource, namespace: str | None, name: str, decode: Callable[[bytes], Entry[T]]
    ) -> T | None:
        try:
            body = await self._client.get(resource, name, namespace=namespace)
        except NotFoundError:
            return None
        return _decoded(resource, decode, body).value

    async def _list(
        self, resource: Resource, key: GroupKey, decode: Callable[[msgspec.Raw], Entry[T]]
    ) -> tuple[T, ...]:
        body = await self._client.list(resource, namespace=key.namespace, label_selector=group_selector(key))
        return tuple(_decoded(resource, decode, raw).value for raw in read_page(resource, body).items or ())

    async def _with_failed_create(self, key: GroupKey, job: JobFacts, *, empty: bool) -> JobFacts:
        """A Job without pods, and why: its controller tells in Events what refuses them (a quota, a webhook).

        The watchdog waits for such a Job and does not restart it. Where the role may not read Events it looks like one
        whose controller is stuck: it is touched and then made anew, in vain.
        """
        at_rest = job.suspended or job.deleting_since is not None or job.condition("Complete") is not None
        if not empty or at_rest:
            return job
        selector = f"involvedObject.uid={job.uid},reason=FailedCreate"
        try:
            body = await self._client.list(EVENTS, namespace=key.namespace, field_selector=selector)
        except ForbiddenError:
            return job
        events = [_decoded(EVENTS, decode_event, raw) for raw in read_page(EVENTS, body).items or ()]
        newest = max(events, key=lambda event: event.at, default=EventRecord())
        return msgspec.structs.replace(job, failed_create=newest.message)


B = TypeVar("B", bytes, msgspec.Raw)


def _decoded(resource: Resource, decode: Callable[[B], T], body: B) -> T:
    try:
        return decode(body)
    except ValueError as error:
        raise RefusedError(f"{resource.plural}: an answer of the API server cannot be read: {error}") from error
