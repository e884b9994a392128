"""Pods: the hot path. A pod comes in with some 10 KB, most of it spec and managed fields, and leaves as PodFacts.

What thousands of pods share (names of nodes, Jobs and containers, node selectors, tolerations) is kept once.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern

import msgspec

from recovery.core.facts import Condition, ContainerFacts, ExitFacts, GroupKey, PodFacts
from recovery.core.policy import JOINED_PROBE_ANNOTATION
from recovery.kube.projections.accelerators import accelerators
from recovery.kube.projections.metadata import Entry, Metadata, RawCondition, conditions
from recovery.workloads.jobset import COMPLETION_INDEX_LABEL, JOBSET_NAME_LABEL, REPLICATED_JOB_LABEL

_JOINED_BY_READINESS = "readiness"
"""The one value of the joined-probe annotation that means something."""
_ON_ITS_WAY = frozenset({"Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"})
"""Conditions that only tell how far the pod is; PodScheduled=True is one more."""
_EXIT_MESSAGE_MAX = 4096
"""The kubelet cuts a termination message there (`MaxPodTerminationMessageLogLength`); nothing else does."""
_MESSAGE_MAX = 1024
"""Of a pod's message, of its conditions' and of why a container waits: what a sentence quotes, and no more."""


class Toleration(msgspec.Struct, frozen=True, rename="camel"):
    """Which taints the pod puts up with. Empty `key` (with Exists) and empty `effect` mean all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodRecord(msgspec.Struct, frozen=True):
    """A pod, where it belongs, and what decides where it could run besides `facts.node_selector`."""

    group: GroupKey
    replicated_job: str
    facts: PodFacts
    tolerations: tuple[Toleration, ...] = ()


class _Labels(msgspec.Struct, frozen=True):
    group: str = msgspec.field(name=JOBSET_NAME_LABEL, default="")
    replicated_job: str = msgspec.field(name=REPLICATED_JOB_LABEL, default="")
    index: str = msgspec.field(name=COMPLETION_INDEX_LABEL, default="")


class _Annotations(msgspec.Struct, frozen=True):
    joined_probe: str = msgspec.field(name=JOINED_PROBE_ANNOTATION, default="")


class _PodMetadata(Metadata, frozen=True, rename="camel"):
    labels: _Labels = _Labels()
    annotations: _Annotations = _Annotations()


class _Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class _ContainerSpec(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_ContainerSpec] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    termination_grace_period_seconds: int = 30


class _Running(msgspec.Struct, frozen=True, rename="camel"):
    started_at: datetime | None = None


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _ContainerState(msgspec.Struct, frozen=True):
    running: _Running | None = None
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None


class _ResourceHealth(msgspec.Struct, frozen=True):
    id: str = msgspec.field(name="resourceID")
    health: str = ""


class _ResourceStatus(msgspec.Struct, frozen=True):
    name: str
    """The resource, or `claim:NAME/REQUEST` for one that a DRA claim brought."""
    resources: list[_ResourceHealth] = []


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    restart_count: int = 0
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()
    allocated_resources_status: list[_ResourceStatus] = []


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: list[RawCondition] = []
    container_statuses: list[_ContainerStatus] = []
    init_container_statuses: list[_ContainerStatus] = []


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMetadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_decode = msgspec.json.Decoder(_Pod).decode


def decode_pod(raw: bytes | msgspec.Raw) -> Entry[PodRecord]:
    pod = _decode(raw)
    meta, status = pod.metadata, pod.status
    job = meta.controller
    ready = next((c for c in status.conditions if c.type == "Ready" and c.status == "True"), None)
    facts = PodFacts(
        name=meta.name,
        uid=meta.uid,
        job_uid=intern(job.uid) if job is not None else "",
        job_name=intern(job.name) if job is not None else "",
        index=int(meta.labels.index) if meta.labels.index else None,
        created_at=meta.creation_timestamp,
        resource_version=meta.resource_version,
        node=intern(pod.spec.node_name),
        phase=intern(status.phase),
        gpus=sum(_gpus(container.resources) for container in pod.spec.containers),
        ready=ready is not None,
        ready_since=ready.last_transition_time if ready is not None else None,
        deleting_since=meta.deleting_since,
        grace_seconds=pod.spec.termination_grace_period_seconds,
        deletion_grace_seconds=meta.deletion_grace_period_seconds,
        containers=tuple(_container(each) for each in status.container_statuses),
        init_containers=tuple(_container(each) for each in status.init_container_statuses),
        conditions=_telling(status.conditions),
        reason=intern(status.reason),
        message=status.message[:_MESSAGE_MAX],
        node_selector=_shared_selector(tuple(pod.spec.node_selector.items())),
        joined_probe=meta.annotations.joined_probe == _JOINED_BY_READINESS,
    )
    group = GroupKey(namespace=intern(meta.namespace), name=intern(meta.labels.group))
    tolerations = _shared_tolerations(pod.spec.tolerations)
    return meta.entry(PodRecord(group, intern(meta.labels.replicated_job), facts, tolerations))


@lru_cache(maxsize=4096)
def _shared_selector(pairs: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The same mapping for all pods that ask for the same: nobody writes into it."""
    return dict(pairs)


@lru_cache(maxsize=4096)
def _shared_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tolerations


def _telling(raw: Iterable[RawCondition]) -> tuple[Condition, ...]:
    return tuple(
        msgspec.structs.replace(condition, message=condition.message[:_MESSAGE_MAX])
        if len(condition.message) > _MESSAGE_MAX
        else condition
        for condition in conditions(each for each in raw if _tells(each))
    )


def _tells(condition: RawCondition) -> bool:
    if condition.type == "PodScheduled":
        return condition.status != "True"
    return condition.type not in _ON_ITS_WAY


def _container(raw: _ContainerStatus) -> ContainerFacts:
    state, last = raw.state, raw.last_state
    return ContainerFacts(
        name=intern(raw.name),
        restarts=raw.restart_count,
        running_since=state.running.started_at if state.running is not None else None,
        exit=_exit(state.terminated),
        last_exit=_exit(last.terminated),
        waiting_reason=intern(state.waiting.reason) if state.waiting is not None else "",
        waiting_message=state.waiting.message[:_MESSAGE_MAX] if state.waiting is not None else "",
        unhealthy_devices=_unhealthy(raw.allocated_resources_status) if raw.allocated_resources_status else (),
    )


def _unhealthy(raw: Iterable[_ResourceStatus]) -> tuple[str, ...]:
    """`Unknown` is what a device plugin that has gone away leaves behind: no fault (KEP-4680)."""
    return tuple(
        f"{resource.name}: {device.id}"
        for resource in raw
        for device in resource.resources
        if device.health == "Unhealthy"
    )


def _exit(raw: _Terminated | None) -> ExitFacts | None:
    if raw is None:
        return None
    return ExitFacts(
        code=raw.exit_code,
        reason=intern(raw.reason),
        message=raw.message[-_EXIT_MESSAGE_MAX:],
        started_at=raw.started_at,
        finished_at=raw.finished_at,
    )


def _gpus(resources: _Resources) -> int:
    """Accelerators of one container. Limits speak; requests count only where a resource has no limit."""
    return accelerators(resources.requests | resources.limits)
