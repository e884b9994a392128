"""Pods: the hot path. A pod comes in with some 10 KB, most of it spec and managed fields, and leaves as PodFacts.

Strings that thousands of pods share (nodes, Jobs, container names) are interned: 50,000 pods then fit in some 60 MB.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from sys import intern

import msgspec

from recovery.core.facts import Condition, ContainerFacts, ExitFacts, GroupKey, PodFacts
from recovery.core.policy import JOINED_PROBE_ANNOTATION
from recovery.kube.projections.metadata import Entry, Metadata, RawCondition, conditions
from recovery.workloads.jobset import COMPLETION_INDEX_LABEL, JOBSET_NAME_LABEL, REPLICATED_JOB_LABEL

_JOINED_BY_READINESS = "readiness"
"""The one value of the joined-probe annotation that means something."""
_TROUBLE = frozenset({("DisruptionTarget", "True"), ("PodScheduled", "False")})


class PodRecord(msgspec.Struct, frozen=True):
    """A pod, and where it belongs."""

    group: GroupKey
    replicated_job: str
    facts: PodFacts


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


class _ContainerState(msgspec.Struct, frozen=True):
    running: _Running | None = None
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    restart_count: int = 0
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
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
        conditions=_trouble(status.conditions),
        joined_probe=meta.annotations.joined_probe == _JOINED_BY_READINESS,
    )
    group = GroupKey(namespace=intern(meta.namespace), name=intern(meta.labels.group))
    return meta.entry(PodRecord(group, intern(meta.labels.replicated_job), facts))


def _trouble(raw: Iterable[RawCondition]) -> tuple[Condition, ...]:
    return conditions(each for each in raw if (each.type, each.status) in _TROUBLE)


def _container(raw: _ContainerStatus) -> ContainerFacts:
    state, last = raw.state, raw.last_state
    return ContainerFacts(
        name=intern(raw.name),
        restarts=raw.restart_count,
        running_since=state.running.started_at if state.running is not None else None,
        exit=_exit(state.terminated),
        last_exit=_exit(last.terminated),
        waiting_reason=intern(state.waiting.reason) if state.waiting is not None else "",
    )


def _exit(raw: _Terminated | None) -> ExitFacts | None:
    if raw is None:
        return None
    return ExitFacts(
        code=raw.exit_code,
        reason=intern(raw.reason),
        message=raw.message,
        started_at=raw.started_at,
        finished_at=raw.finished_at,
    )


def _gpus(resources: _Resources) -> int:
    """Accelerators of one container. Limits speak; requests count only where a resource has no limit."""
    wanted: Mapping[str, str] = resources.requests | resources.limits
    # Such resources come in whole numbers, and the server writes a suffix only from a thousand on.
    return sum(int(count) for resource, count in wanted.items() if count.isdigit() and _is_accelerator(resource))


def _is_accelerator(resource: str) -> bool:
    """GPUs of any vendor (nvidia.com/gpu, amd.com/gpu), Gaudi, and slices of an NVIDIA GPU, each counted as one."""
    return resource.endswith("/gpu") or resource == "habana.ai/gaudi" or resource.startswith("nvidia.com/mig-")
