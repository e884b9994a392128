"""Dry runs that show what the API server would make of a Job of the group with the settings in its ledger.

The Job is the one that JobSet would create (jobset v0.12 `pkg/controllers/jobset_controller.go`, constructJob), in all
that matters to the admission policy that applies the settings, to the API server's own validation, and to webhooks of
others. It lacks what exclusive placement adds, and the marks that only serve pods to find each other.

JobSet's feature gate ElasticJobSet would undo a size. Only with that gate does JobSet admit a new size in its template.
"""

from hashlib import sha256
from itertools import chain
from typing import Any

import msgspec

from recovery import api_verbs
from recovery.core.model.annotations import BIRTH_SETTINGS_ANNOTATION
from recovery.core.model.birth_settings import BirthOutcome, BirthSettings, BirthTrial
from recovery.core.plan.actions import TryBirth
from recovery.decoding import decoded
from recovery.ports import (
    JOB_SETS,
    JOBS,
    ApiClient,
    ConflictError,
    ForbiddenError,
    NamespaceTerminatingError,
    PatchKind,
    RefusedError,
    UnauthorizedError,
)
from recovery.workloads.jobset import (
    GROUP_NAME_LABEL,
    JOB_INDEX_LABEL,
    JOBSET_NAME_LABEL,
    JOBSET_UID_LABEL,
    REPLICAS_LABEL,
    REPLICATED_JOB_LABEL,
    RESTART_ATTEMPT_LABEL,
)

_NAME_PREFIX = "birth-trial-"
_NAME_MIN = 32
"""So that the hash in the name has at least 80 bits."""

_Fields = dict[str, Any]
"""Part of an object as decoded JSON. It is passed on, not interpreted."""


class _ReplicatedJob(msgspec.Struct, rename="camel"):
    name: str
    template: _Fields
    replicas: int = 1
    group_name: str = ""


class _ClaimMetadata(msgspec.Struct):
    name: str = ""


class _ClaimTemplate(msgspec.Struct):
    metadata: _ClaimMetadata = msgspec.field(default_factory=_ClaimMetadata)


class _ClaimPolicy(msgspec.Struct):
    templates: list[_ClaimTemplate] = []


class _Network(msgspec.Struct, rename="camel"):
    enable_dns_hostnames: bool = msgspec.field(name="enableDNSHostnames", default=False)
    subdomain: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] = []
    suspend: bool | None = None
    network: _Network | None = None
    volume_claim_policies: list[_ClaimPolicy] = []


class _Status(msgspec.Struct):
    restarts: int = 0


class _Metadata(msgspec.Struct):
    name: str
    uid: str


class _JobSet(msgspec.Struct, rename="camel"):
    api_version: str
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _JobMetadata(msgspec.Struct):
    annotations: dict[str, str] = {}


class _JobSpec(msgspec.Struct):
    parallelism: int | None = None


class _Job(msgspec.Struct):
    metadata: _JobMetadata = msgspec.field(default_factory=_JobMetadata)
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


_decode_job_set = msgspec.json.Decoder(_JobSet).decode
_decode_job = msgspec.json.Decoder(_Job).decode


async def try_birth(api: ApiClient, namespace: str, action: TryBirth) -> BirthTrial:
    """Ask the API server what the group's Job would be like. Nothing is created.

    Raises ReadAgainError subclasses if the JobSet is gone or was replaced, and other ApiErrors if there is no verdict.
    """
    settings = action.settings
    found = decoded(JOB_SETS, _decode_job_set, await api_verbs.get(api, JOB_SETS, action.job_set, namespace=namespace))
    if found.metadata.uid != settings.job_set_uid:
        raise ConflictError(
            f"JobSet {namespace}/{action.job_set} is another one by now: uid {found.metadata.uid}, not "
            f"{settings.job_set_uid}"
        )
    replicated = next((each for each in found.spec.replicated_jobs if each.name == settings.replicated_job), None)
    if replicated is None:
        raise ConflictError(f"JobSet {namespace}/{action.job_set} has no ReplicatedJob {settings.replicated_job}")
    body = _job(namespace, found, replicated)
    try:
        answer = await api_verbs.create(api, JOBS, body, namespace=namespace, dry_run=True)
    except ForbiddenError as error:
        return BirthTrial(settings, BirthOutcome.NOT_ALLOWED, str(error))
    except (UnauthorizedError, NamespaceTerminatingError):
        raise  # neither says anything about the Job
    except RefusedError as error:
        return BirthTrial(settings, BirthOutcome.REFUSED, str(error))
    outcome = _outcome(settings, decoded(JOBS, _decode_job, answer))
    if outcome is BirthOutcome.APPLIED and await _is_undone(api, namespace, found, settings):
        outcome = BirthOutcome.OVERRULED
    return BirthTrial(settings, outcome)


async def _is_undone(api: ApiClient, namespace: str, jobset: _JobSet, settings: BirthSettings) -> bool:
    """Whether JobSet would reset the Job to the size in its template. A dry run that changes that size shows it.

    Without the gate JobSet's webhook refuses the change (jobset v0.12 `pkg/webhooks/jobset_webhook.go`,
    ValidateUpdate).
    """
    names = [each.name for each in jobset.spec.replicated_jobs]
    path = f"/spec/replicatedJobs/{names.index(settings.replicated_job)}/template/spec"
    if settings.nodes is None:
        return False
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": settings.job_set_uid},
        {"op": "add", "path": f"{path}/parallelism", "value": settings.nodes},
        {"op": "add", "path": f"{path}/completions", "value": settings.nodes},
    ]
    name = jobset.metadata.name
    try:
        await api_verbs.patch(api, JOB_SETS, name, patch, kind=PatchKind.JSON, namespace=namespace, dry_run=True)
    except UnauthorizedError:
        raise
    except RefusedError:
        return False
    return True


def _outcome(settings: BirthSettings, job: _Job) -> BirthOutcome:
    applied = job.metadata.annotations.get(BIRTH_SETTINGS_ANNOTATION) == settings.revision_text
    sized = settings.nodes is None or job.spec.parallelism == settings.nodes
    return BirthOutcome.APPLIED if applied and sized else BirthOutcome.NOT_APPLIED


def _job(namespace: str, jobset: _JobSet, replicated: _ReplicatedJob) -> _Fields:
    """The first Job of that ReplicatedJob, under another name: the current Job may still exist."""
    template = replicated.template
    spec: _Fields = template.get("spec") or {}
    pods: _Fields = spec.get("template") or {}
    marks = _marks(jobset, replicated)
    metadata = _marked(template.get("metadata") or {}, marks)
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": _name(jobset, replicated),
            "namespace": namespace,
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            # Webhooks look at the owner of a Job. Not blockOwnerDeletion: with OwnerReferencesPermissionEnforcement it
            # needs a permission on the JobSet's finalizers, and no deletion has to wait for a Job that does not exist.
            "ownerReferences": [
                {
                    "apiVersion": jobset.api_version,
                    "kind": JOB_SETS.kind,
                    "name": jobset.metadata.name,
                    "uid": jobset.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            **spec,
            "suspend": bool(jobset.spec.suspend),
            "template": {
                **pods,
                "metadata": _marked(pods.get("metadata") or {}, marks),
                "spec": _pod_spec(pods.get("spec") or {}, jobset),
            },
        },
    }


def _pod_spec(pods: _Fields, jobset: _JobSet) -> _Fields:
    network, added = jobset.spec.network, _claimed_volumes(pods, jobset)
    changes: _Fields = {}
    if network is not None and network.enable_dns_hostnames:
        changes["subdomain"] = network.subdomain or jobset.metadata.name
    if added:
        changes["volumes"] = [*(pods.get("volumes") or ()), *added]
    return {**pods, **changes}


def _claimed_volumes(pods: _Fields, jobset: _JobSet) -> list[_Fields]:
    """The volumes of the JobSet's `volumeClaimPolicies`. A container that mounts one would be invalid without it."""
    containers = [*(pods.get("containers") or ()), *(pods.get("initContainers") or ())]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or ()}
    claims = chain.from_iterable(policy.templates for policy in jobset.spec.volume_claim_policies)
    names = [claim.metadata.name for claim in claims if claim.metadata.name in mounted]
    return [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{jobset.metadata.name}"}} for name in names]


def _marks(jobset: _JobSet, replicated: _ReplicatedJob) -> dict[str, str]:
    return {
        JOBSET_NAME_LABEL: jobset.metadata.name,
        JOBSET_UID_LABEL: jobset.metadata.uid,
        REPLICATED_JOB_LABEL: replicated.name,
        RESTART_ATTEMPT_LABEL: str(jobset.status.restarts),
        REPLICAS_LABEL: str(replicated.replicas),
        JOB_INDEX_LABEL: "0",
        GROUP_NAME_LABEL: replicated.group_name,
    }


def _marked(metadata: _Fields, marks: dict[str, str]) -> _Fields:
    """JobSet sets the same marks on Job and pods, both as labels and as annotations."""
    labels = {**(metadata.get("labels") or {}), **marks}
    return {**metadata, "labels": labels, "annotations": {**(metadata.get("annotations") or {}), **marks}}


def _name(jobset: _JobSet, replicated: _ReplicatedJob) -> str:
    """At least as long as the real name: pod hostnames begin with it, and the dry run must find one that is too long.

    It must not be in use, because a dry run with a name in use only reports the conflict.
    """
    real = f"{jobset.metadata.name}-{replicated.name}-0"
    unique = sha256(f"{jobset.metadata.uid}/{replicated.name}".encode()).hexdigest()
    length = max(len(real), _NAME_MIN)
    return f"{_NAME_PREFIX}{unique}".ljust(length, "0")[:length]
