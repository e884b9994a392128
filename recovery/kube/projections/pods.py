"""Decodes pods, which is the hot path. A pod has some 10 KB, mostly spec and managed fields, and becomes PodFacts.

Values that thousands of pods share (names of nodes, Jobs and containers, demands on a node) are stored once.
"""

from collections.abc import Iterable
from sys import intern

import msgspec

from recovery.core.model.annotations import HOSTNAME_LABEL, JOINED_PROBE_ANNOTATION
from recovery.core.model.demand import Demand, Toleration
from recovery.core.model.facts import Condition, ContainerFacts, ExitFacts, GroupKey, PodFacts
from recovery.kube.projections.accelerators import is_accelerator_device
from recovery.kube.projections.containers import ContainerSpec
from recovery.kube.projections.demands import Affinity, demand_of
from recovery.kube.projections.metadata import (
    INT32_MAX,
    Date,
    Metadata,
    ObjectEntry,
    RawCondition,
    clamped_if_any,
    conditions,
    whole_number,
)
from recovery.workloads.jobset import (
    COMPLETION_INDEX_LABEL,
    INDEX_FAILURES_ANNOTATION,
    JOBSET_NAME_LABEL,
    REPLICATED_JOB_LABEL,
    TRACKING_FINALIZER,
)

_JOINED_BY_READINESS = "readiness"
"""The only value of the joined-probe annotation that has a meaning."""
_ON_ITS_WAY = frozenset({"Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"})
"""Conditions that only show the progress of the pod's start. PodScheduled=True is another."""
_EXIT_MESSAGE_MAX = 4096
"""The kubelet cuts a termination message to this length (`MaxPodTerminationMessageLogLength`); nothing else does."""
_DEVICE_MESSAGE_MAX = 128
_DIGEST_MAX = 256
"""A runtime writes the name of an image and its digest, or only a digest. A digest has 71 characters."""
_KUEUE_PODSET = "kueue.x-k8s.io/podset-"
_MESSAGE_MAX = 1024
"""How much is kept of the messages of a pod, its conditions and waiting containers: enough for a sentence to quote."""


class PodRecord(msgspec.Struct, frozen=True):
    """A pod, with its group and its ReplicatedJob."""

    group: GroupKey
    replicated_job: str
    facts: PodFacts
    tracked: bool = False
    """The Job controller has yet to count its end."""


class _Labels(msgspec.Struct, frozen=True):
    group: str = msgspec.field(name=JOBSET_NAME_LABEL, default="")
    replicated_job: str = msgspec.field(name=REPLICATED_JOB_LABEL, default="")
    index: str = msgspec.field(name=COMPLETION_INDEX_LABEL, default="")


class _Annotations(msgspec.Struct, frozen=True):
    """The topology requests are those of Kueue, as `IsTAS` of its `pkg/util/tas` reads them. Kueue adds the request
    `unconstrained` to pods that it places by topology without a request of the user."""

    index_failures: str = msgspec.field(name=INDEX_FAILURES_ANNOTATION, default="")
    joined_probe: str = msgspec.field(name=JOINED_PROBE_ANNOTATION, default="")
    required: str | None = msgspec.field(name=f"{_KUEUE_PODSET}required-topology", default=None)
    preferred: str | None = msgspec.field(name=f"{_KUEUE_PODSET}preferred-topology", default=None)
    unconstrained: str | None = msgspec.field(name=f"{_KUEUE_PODSET}unconstrained-topology", default=None)
    of_slices: str | None = msgspec.field(name=f"{_KUEUE_PODSET}slice-required-topology", default=None)
    of_layers: str | None = msgspec.field(name=f"{_KUEUE_PODSET}slice-required-topology-constraints", default=None)

    @property
    def placed_by_topology(self) -> bool:
        """Kueue chooses the node of the pod, and names it in the pod's node selector."""
        requests = (self.required, self.preferred, self.unconstrained, self.of_slices, self.of_layers)
        return any(each is not None for each in requests)


class _PodMetadata(Metadata, frozen=True, rename="camel"):
    labels: _Labels = _Labels()
    annotations: _Annotations = _Annotations()
    finalizers: tuple[str, ...] = ()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[ContainerSpec] = []
    init_containers: list[ContainerSpec] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    termination_grace_period_seconds: int = 30
    priority: int | None = None


class _Running(msgspec.Struct, frozen=True, rename="camel"):
    started_at: Date | None = None


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: Date | None = None
    finished_at: Date | None = None


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
    message: str | None = None
    """The DRA driver's message, from Kubernetes 1.36 on (gate ResourceHealthStatusMessage)."""


class _ResourceStatus(msgspec.Struct, frozen=True):
    name: str
    """The resource, or `claim:NAME/REQUEST` for devices of a DRA claim."""
    resources: list[_ResourceHealth] = []


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    restart_count: int = 0
    ready: bool = False
    image_id: str = msgspec.field(name="imageID", default="")
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()
    allocated_resources_status: list[_ResourceStatus] = []


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: Date | None = None
    conditions: list[RawCondition] = []
    container_statuses: list[_ContainerStatus] = []
    init_container_statuses: list[_ContainerStatus] = []
    extended_resource_claim_status: dict[str, msgspec.Raw] | None = None
    """Set where the scheduler has satisfied extended resources by a DRA claim that it created (KEP-5004)."""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMetadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_decode = msgspec.json.Decoder(_Pod).decode


def decode_pod(raw: bytes | msgspec.Raw) -> ObjectEntry[PodRecord]:
    pod = _decode(raw)
    meta, status = pod.metadata, pod.status
    job = meta.controller
    extended = sum(container.resources.gpus for container in pod.spec.containers)
    ready = next((c for c in status.conditions if c.type == "Ready" and c.status == "True"), None)
    scheduled = next((c for c in status.conditions if c.type == "PodScheduled" and c.status == "True"), None)
    containers_ready = any(c.type == "ContainersReady" and c.status == "True" for c in status.conditions)
    sidecars = {container.name for container in pod.spec.init_containers if container.native_sidecar}
    init = tuple(_container(each) for each in status.init_container_statuses)
    facts = PodFacts(
        name=meta.name,
        uid=meta.uid,
        job_uid=intern(job.uid) if job is not None else "",
        job_name=intern(job.name) if job is not None else "",
        index=whole_number(meta.labels.index, f"labels['{COMPLETION_INDEX_LABEL}']") if meta.labels.index else None,
        created_at=meta.created_at,
        resource_version=meta.resource_version,
        node=intern(pod.spec.node_name),
        scheduled_at=clamped_if_any(scheduled.last_transition_time) if scheduled is not None else None,
        accepted_at=clamped_if_any(status.start_time),
        phase=intern(status.phase),
        gpus=extended or _claimed_gpus(pod),
        ready=ready is not None,
        ready_since=clamped_if_any(ready.last_transition_time) if ready is not None else None,
        ready_denied=ready is None and containers_ready,
        deleting_since=meta.deleting_since,
        priority=pod.spec.priority or 0,
        grace_seconds=min(pod.spec.termination_grace_period_seconds, INT32_MAX),
        deletion_grace_seconds=meta.deletion_grace_seconds,
        # Only a pod that a kubelet runs, with a grace period, is deleted twice.
        deletion_dated_again=meta.deletion_grace_seconds == 0
        and bool(pod.spec.node_name)
        and pod.spec.termination_grace_period_seconds > 0,
        containers=tuple(_container(each) for each in status.container_statuses),
        other_containers=tuple(each for each in init if each.name in sidecars),
        init_containers=tuple(each for each in init if each.name not in sidecars),
        conditions=_meaningful(status.conditions),
        reason=intern(status.reason),
        message=status.message[:_MESSAGE_MAX],
        demand=_demand(pod, extended),
        index_failures=whole_number(
            meta.annotations.index_failures or "0", f"annotations['{INDEX_FAILURES_ANNOTATION}']"
        ),
        joined_probe=meta.annotations.joined_probe == _JOINED_BY_READINESS,
    )
    group = GroupKey(namespace=intern(meta.namespace), name=intern(meta.labels.group))
    tracked = TRACKING_FINALIZER in meta.finalizers
    return meta.entry(PodRecord(group, intern(meta.labels.replicated_job), facts, tracked))


def _demand(pod: _Pod, gpus: int) -> Demand:
    """Nodes do not list extended resources that DRA provides, so a pod that got them from it counts as asking for none.

    Where Kueue places pods by topology, it writes the node that it chose for each pod into the pod's node selector. Its
    next choice may be another node, and it replaces a tainted one. As a demand, it would spare each of these nodes from
    quarantine as the last one that fits.
    """
    spec = pod.spec
    chosen = HOSTNAME_LABEL if pod.metadata.annotations.placed_by_topology else None
    selector = {name: value for name, value in spec.node_selector.items() if name != chosen}
    gpus = gpus if pod.status.extended_resource_claim_status is None else 0
    return demand_of(selector, spec.affinity, spec.tolerations, gpus)


def _meaningful(raw: Iterable[RawCondition]) -> tuple[Condition, ...]:
    return tuple(
        msgspec.structs.replace(condition, message=condition.message[:_MESSAGE_MAX])
        if len(condition.message) > _MESSAGE_MAX
        else condition
        for condition in conditions(each for each in raw if _is_meaningful(each))
    )


def _is_meaningful(condition: RawCondition) -> bool:
    if condition.type == "PodScheduled":
        return condition.status != "True"
    return condition.type not in _ON_ITS_WAY


def _container(raw: _ContainerStatus) -> ContainerFacts:
    state, last = raw.state, raw.last_state
    return ContainerFacts(
        name=intern(raw.name),
        restarts=raw.restart_count,
        ready=raw.ready,
        running_since=clamped_if_any(state.running.started_at) if state.running is not None else None,
        exit=_exit(state.terminated),
        last_exit=_exit(last.terminated),
        waiting_reason=intern(state.waiting.reason) if state.waiting is not None else "",
        waiting_message=state.waiting.message[:_MESSAGE_MAX] if state.waiting is not None else "",
        image=intern(raw.image_id.rpartition("@")[2][:_DIGEST_MAX]),
        unhealthy_devices=_unhealthy(raw.allocated_resources_status) if raw.allocated_resources_status else (),
    )


def _unhealthy(raw: Iterable[_ResourceStatus]) -> tuple[str, ...]:
    """Only `Unhealthy` counts. `Unknown` is left by a device plugin that has gone away, and is no fault (KEP-4680)."""
    return tuple(
        f"{resource.name}: {device.id}{f' ({device.message[:_DEVICE_MESSAGE_MAX]})' if device.message else ''}"
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
        started_at=clamped_if_any(raw.started_at),
        finished_at=clamped_if_any(raw.finished_at),
    )


def _claimed_gpus(pod: _Pod) -> int:
    """Accelerators from DRA claims, as the kubelet reports them from Kubernetes 1.36 on.

    Without a report, each claim that a container names counts as one accelerator: only the ResourceClaim holds the
    number of devices.
    """
    claims = {claim for container in pod.spec.containers for claim in container.resources.claims}
    if not claims:
        return 0
    reported = {
        device.id
        for status in pod.status.container_statuses
        for resource in status.allocated_resources_status
        for device in resource.resources
        if resource.name.startswith("claim:")
    }
    return sum(map(is_accelerator_device, reported)) if reported else len(claims)
