"""Decodes TrainJobs, JobSets and Jobs."""

from datetime import datetime
from sys import intern
from typing import Annotated

import msgspec

from recovery.core.model.annotations import (
    BIRTH_SETTINGS_ANNOTATION,
    NODES_ANNOTATION,
    OWN_ANNOTATION_PREFIX,
    OWN_BACKOFF_LIMIT_ANNOTATION,
    TORN_DOWN_BY_ANNOTATION,
    TOUCHED_ANNOTATION,
)
from recovery.core.model.facts import Condition, GroupKey, JobFacts, JobSetFacts, ReplicatedJobFacts, WorkloadFacts
from recovery.core.model.ledger_bounds import EARLIEST
from recovery.core.model.native_policy_facts import (
    ExitCodesRequirement,
    FailurePolicyFacts,
    FailurePolicyRule,
    PodConditionPattern,
    PodFailureRule,
)
from recovery.core.model.progress import Progress
from recovery.kube.projections.containers import ContainerSpec, templates
from recovery.kube.projections.metadata import (
    Date,
    Metadata,
    ObjectEntry,
    RawCondition,
    clamped,
    conditions,
    whole_number,
)
from recovery.kube.projections.pod_templates import (
    KUEUE_TOPOLOGY_GATE,
    JobPodTemplate,
    agent_image_of,
    demand_of_pods,
    gang_of,
)
from recovery.ports import JOB_SETS, TRAIN_JOBS, Resource
from recovery.workloads.jobset import (
    COMPLETED_CONDITION,
    DEPENDENCY_COMPLETE,
    JOBSET_NAME_LABEL,
    REPLICATED_JOB_LABEL,
    RESTART_ATTEMPT_LABEL,
)
from recovery.workloads.trainjob import ANCESTOR_LABEL


class _WorkloadMetadata(Metadata, frozen=True, rename="camel"):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _JobSetSpecPatch(msgspec.Struct, frozen=True, rename="camel"):
    replicated_jobs: list[msgspec.Raw] = []


class _JobSetPatch(msgspec.Struct, frozen=True):
    spec: _JobSetSpecPatch = _JobSetSpecPatch()


class _RuntimeSpecPatch(msgspec.Struct, frozen=True):
    template: _JobSetPatch = _JobSetPatch()


class _RuntimePatch(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    training_runtime_spec: _RuntimeSpecPatch = _RuntimeSpecPatch()


class _TrainJobSpec(msgspec.Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    active_deadline_seconds: int | None = None
    runtime_patches: list[_RuntimePatch] = []


class _TrainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    last_updated_time: Date
    progress_percentage: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None


class _TrainJobStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[RawCondition] = []
    trainer_status: msgspec.Raw = msgspec.Raw(b"null")


class _TrainJob(msgspec.Struct, frozen=True):
    metadata: _WorkloadMetadata
    spec: _TrainJobSpec = _TrainJobSpec()
    status: _TrainJobStatus = _TrainJobStatus()


_decode_train_job = msgspec.json.Decoder(_TrainJob).decode
_decode_trainer_status = msgspec.json.Decoder(_TrainerStatus | None).decode


def decode_train_job(raw: bytes | msgspec.Raw) -> ObjectEntry[WorkloadFacts]:
    job = _decode_train_job(raw)
    met = conditions(job.status.conditions)
    facts = _workload(TRAIN_JOBS, job.metadata, job.spec, met)
    entries = [each for each in job.spec.runtime_patches if each.training_runtime_spec.template.spec.replicated_jobs]
    managers = tuple(intern(each.manager) for each in entries)
    progress = _progress(job.status.trainer_status)
    if managers or progress is not None:
        facts = msgspec.structs.replace(facts, patched_by=managers, progress=progress)
    return job.metadata.entry(facts)


def _progress(raw: msgspec.Raw) -> Progress | None:
    """The reported progress. None: the job reports none, or the report makes no sense.

    Progress is an optional signal that a training process writes. A wrong one must not make the job unreadable.
    """
    try:
        found = _decode_trainer_status(raw)
    except ValueError:
        return None
    if found is None or clamped(found.last_updated_time) <= EARLIEST:  # Go's zero time means no time
        return None
    percentage = found.progress_percentage
    return Progress(clamped(found.last_updated_time), None if percentage is None else percentage / 100)


def _workload(
    resource: Resource, meta: _WorkloadMetadata, spec: "_TrainJobSpec | _JobSetSpec", met: tuple[Condition, ...]
) -> WorkloadFacts:
    """Keeps all labels, because policies select by them, but only our annotations: others may hold whole manifests."""
    return WorkloadFacts(
        kind=resource.kind,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        created_at=meta.created_at,
        suspended=bool(spec.suspend),
        active_deadline_seconds=spec.active_deadline_seconds or None,
        labels=meta.labels,
        annotations={key: value for key, value in meta.annotations.items() if key.startswith(OWN_ANNOTATION_PREFIX)},
        conditions=met,
        deleting_since=meta.deleting_since,
    )


class JobSetRecord(msgspec.Struct, frozen=True):
    """A JobSet and its owner. `owner_uid` is empty for a JobSet that a user created."""

    owner_uid: str
    facts: JobSetFacts
    workload: WorkloadFacts | None = None
    """The JobSet as a workload of its own. None: something controls it."""


class _AncestorLabels(msgspec.Struct, frozen=True):
    ancestor: str = msgspec.field(name=ANCESTOR_LABEL, default="")


class _AncestorMetadata(msgspec.Struct, frozen=True):
    labels: _AncestorLabels = _AncestorLabels()


class _PodTemplateSpec(msgspec.Struct, frozen=True):
    containers: list[ContainerSpec] = []


class _PodTemplate(msgspec.Struct, frozen=True):
    metadata: _AncestorMetadata = _AncestorMetadata()
    spec: _PodTemplateSpec = _PodTemplateSpec()


class _JobTemplateSpec(msgspec.Struct, frozen=True):
    template: _PodTemplate = _PodTemplate()
    parallelism: int | None = None
    completions: int | None = None


class _JobTemplate(msgspec.Struct, frozen=True):
    metadata: _AncestorMetadata = _AncestorMetadata()
    spec: _JobTemplateSpec = _JobTemplateSpec()


class _DependsOn(msgspec.Struct, frozen=True):
    name: str
    status: str


class _ReplicatedJob(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    replicas: int = 1
    template: _JobTemplate = _JobTemplate()
    depends_on: tuple[_DependsOn, ...] = ()

    def facts(self) -> ReplicatedJobFacts:
        """Runtimes put the step label on the Job template. A label on the pod template is accepted as well."""
        ancestor = self.template.metadata.labels.ancestor or self.template.spec.template.metadata.labels.ancestor
        waits_for = tuple(each.name for each in self.depends_on if each.status == DEPENDENCY_COMPLETE)
        return ReplicatedJobFacts(
            name=self.name,
            replicas=self.replicas,
            ancestor=ancestor,
            waits_for_complete=waits_for,
            size_known=True,
            parallelism=self.template.spec.parallelism,
            completions=self.template.spec.completions,
            accelerators=sum(each.accelerators for each in templates(self.template.spec.template.spec.containers)),
        )


class _FailureRule(msgspec.Struct, frozen=True, rename="camel"):
    action: str
    name: str = ""
    on_job_failure_reasons: tuple[str, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()
    target_replicated_jobs: tuple[str, ...] = ()

    def facts(self) -> FailurePolicyRule:
        return FailurePolicyRule(
            name=self.name,
            action=self.action,
            on_job_failure_reasons=self.on_job_failure_reasons,
            on_job_failure_message_patterns=self.on_job_failure_message_patterns,
            target_replicated_jobs=self.target_replicated_jobs,
        )


class _FailurePolicy(msgspec.Struct, frozen=True, rename="camel"):
    max_restarts: int = 0
    rules: list[_FailureRule] = []

    def facts(self) -> FailurePolicyFacts:
        return FailurePolicyFacts(max_restarts=self.max_restarts, rules=tuple(rule.facts() for rule in self.rules))


class _SuccessPolicy(msgspec.Struct, frozen=True, rename="camel"):
    target_replicated_jobs: tuple[str, ...] = ()


class _JobSetSpec(msgspec.Struct, frozen=True, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] = []
    suspend: bool | None = None
    success_policy: _SuccessPolicy | None = None
    failure_policy: _FailurePolicy | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None


class _JobSetStatus(msgspec.Struct, frozen=True, rename="camel"):
    restarts: int = 0
    restarts_count_towards_max: int = 0
    terminal_state: str = ""
    conditions: list[RawCondition] = []


class _JobSet(msgspec.Struct, frozen=True):
    metadata: _WorkloadMetadata
    spec: _JobSetSpec = _JobSetSpec()
    status: _JobSetStatus = _JobSetStatus()


_decode_job_set = msgspec.json.Decoder(_JobSet).decode


def decode_job_set(raw: bytes | msgspec.Raw) -> ObjectEntry[JobSetRecord]:
    jobset = _decode_job_set(raw)
    meta, spec, status = jobset.metadata, jobset.spec, jobset.status
    facts = JobSetFacts(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        created_at=meta.created_at,
        replicated_jobs=tuple(each.facts() for each in spec.replicated_jobs),
        suspended=bool(spec.suspend),
        restarts=status.restarts,
        restarts_counted=status.restarts_count_towards_max,
        terminal_state=status.terminal_state,
        failure_policy=spec.failure_policy.facts() if spec.failure_policy is not None else None,
        success_targets=spec.success_policy.target_replicated_jobs if spec.success_policy is not None else (),
        active_deadline_seconds=spec.active_deadline_seconds or None,
        ttl_seconds=spec.ttl_seconds_after_finished,
        conditions=conditions(status.conditions),
        deleting_since=meta.deleting_since,
    )
    owner = meta.controller
    if owner is not None:
        return meta.entry(JobSetRecord(owner.uid, facts))
    met = tuple(map(_as_core_calls_it, facts.conditions))
    return meta.entry(JobSetRecord("", facts, _workload(JOB_SETS, meta, spec, met)))


def _as_core_calls_it(condition: Condition) -> Condition:
    if condition.type != COMPLETED_CONDITION:
        return condition
    return msgspec.structs.replace(condition, type="Complete")


class JobRecord(msgspec.Struct, frozen=True):
    """A Job and its group."""

    group: GroupKey
    facts: JobFacts
    ready: int = 0
    """`status.ready`: pods that are Ready and not being deleted, by the last count of the Job controller."""


class _JobLabels(msgspec.Struct, frozen=True):
    group: str = msgspec.field(name=JOBSET_NAME_LABEL, default="")
    replicated_job: str = msgspec.field(name=REPLICATED_JOB_LABEL, default="")
    restart_attempt: str = msgspec.field(name=RESTART_ATTEMPT_LABEL, default="")


class _JobAnnotations(msgspec.Struct, frozen=True):
    touched: str = msgspec.field(name=TOUCHED_ANNOTATION, default="")
    own_backoff_limit: str = msgspec.field(name=OWN_BACKOFF_LIMIT_ANNOTATION, default="")
    torn_down_by: str = msgspec.field(name=TORN_DOWN_BY_ANNOTATION, default="")
    birth_revision: str = msgspec.field(name=BIRTH_SETTINGS_ANNOTATION, default="")
    nodes: str = msgspec.field(name=NODES_ANNOTATION, default="")


class _Written(msgspec.Struct, frozen=True):
    """The write of one manager, by its entry in managedFields."""

    time: Date | None = None
    subresource: str = ""


class _JobMetadata(Metadata, frozen=True, rename="camel"):
    labels: _JobLabels = _JobLabels()
    annotations: _JobAnnotations = _JobAnnotations()
    managed_fields: tuple[_Written, ...] = ()

    @property
    def status_written_at(self) -> datetime | None:
        times = (each.time for each in self.managed_fields if each.subresource == "status")
        return max((time for time in times if time is not None), default=None)


class _OnExitCodes(msgspec.Struct, frozen=True, rename="camel"):
    operator: str
    values: tuple[int, ...] = ()
    container_name: str | None = None


class _OnPodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str = "True"


class _PodFailureRule(msgspec.Struct, frozen=True, rename="camel"):
    action: str
    on_exit_codes: _OnExitCodes | None = None
    on_pod_conditions: list[_OnPodCondition] = []

    def facts(self) -> PodFailureRule:
        codes = self.on_exit_codes
        return PodFailureRule(
            action=self.action,
            on_exit_codes=(
                ExitCodesRequirement(operator=codes.operator, values=codes.values, container_name=codes.container_name)
                if codes is not None
                else None
            ),
            on_pod_conditions=tuple(
                PodConditionPattern(type=each.type, status=each.status) for each in self.on_pod_conditions
            ),
        )


class _PodFailurePolicy(msgspec.Struct, frozen=True):
    rules: list[_PodFailureRule] = []


class _JobSpec(msgspec.Struct, frozen=True, rename="camel"):
    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    suspend: bool | None = None
    template: JobPodTemplate = JobPodTemplate()
    pod_failure_policy: _PodFailurePolicy = _PodFailurePolicy()


def _number(text: str) -> int | None:
    """The number in the annotation. None: the Job has no such annotation, or its value is no such number."""
    try:
        return whole_number(text, "") if text else None
    except ValueError:
        return None


class _JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    active: int = 0
    failed_indexes: str = ""
    ready: int = 0
    failed: int = 0
    succeeded: int = 0
    conditions: list[RawCondition] = []


class _Job(msgspec.Struct, frozen=True):
    metadata: _JobMetadata
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


_decode_job = msgspec.json.Decoder(_Job).decode


def decode_job(raw: bytes | msgspec.Raw) -> ObjectEntry[JobRecord]:
    job = _decode_job(raw)
    meta, spec, status = job.metadata, job.spec, job.status
    owner = meta.controller
    facts = JobFacts(
        name=meta.name,
        uid=intern(meta.uid),
        resource_version=meta.resource_version,
        jobset_uid=owner.uid if owner is not None else "",
        replicated_job=meta.labels.replicated_job,
        created_at=meta.created_at,
        restart_attempt=whole_number(meta.labels.restart_attempt or "0", f"labels['{RESTART_ATTEMPT_LABEL}']"),
        deleting_since=meta.deleting_since,
        suspended=bool(spec.suspend),
        parallelism=spec.parallelism,
        completions=spec.completions,
        backoff_limit=spec.backoff_limit,
        own_backoff_limit=_number(meta.annotations.own_backoff_limit),
        backoff_limit_per_index=spec.backoff_limit_per_index,
        failed_indexes=status.failed_indexes,
        active_deadline_seconds=spec.active_deadline_seconds,
        pod_restart_policy=spec.template.spec.restart_policy,
        containers=templates(spec.template.spec.containers),
        demand=demand_of_pods(spec.template),
        training_container=spec.template.metadata.annotations.training_container,
        collective=spec.template.metadata.annotations.collective,
        pod_failure_rules=tuple(rule.facts() for rule in spec.pod_failure_policy.rules),
        active=status.active,
        failed=status.failed,
        succeeded=status.succeeded,
        status_written_at=meta.status_written_at,
        conditions=conditions(status.conditions),
        touched=meta.annotations.touched,
        torn_down_by=meta.annotations.torn_down_by,
        birth_revision=meta.annotations.birth_revision,
        born_nodes=_number(meta.annotations.nodes),
        gang=gang_of(spec.template),
        agent_image=agent_image_of(spec.template),
        pinned=any(gate.name == KUEUE_TOPOLOGY_GATE for gate in spec.template.spec.scheduling_gates),
    )
    return meta.entry(JobRecord(GroupKey(namespace=meta.namespace, name=meta.labels.group), facts, status.ready))
