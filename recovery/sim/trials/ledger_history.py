"""What the controller recorded and did in a trial: each ledger with the ledger that it replaced, and the actions."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from recovery.core.model.annotations import (
    OWN_ANNOTATION_PREFIX,
    OWN_BACKOFF_LIMIT_ANNOTATION,
    SUSPENDED_BY_ANNOTATION,
    TORN_DOWN_BY_ANNOTATION,
    TOUCHED_ANNOTATION,
)
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Ledger
from recovery.core.plan import actions
from recovery.ports import (
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    TRAIN_JOBS,
)
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence

_SUSPENDED_BY = SUSPENDED_BY_ANNOTATION.removeprefix(OWN_ANNOTATION_PREFIX).encode()
_TTL = b"ttlSecondsAfterFinished"
_BY_FORCE = b'"gracePeriodSeconds":0'
_OWN_BACKOFF_LIMIT = OWN_BACKOFF_LIMIT_ANNOTATION.removeprefix(OWN_ANNOTATION_PREFIX).encode()
_TORN_DOWN_BY = TORN_DOWN_BY_ANNOTATION.removeprefix(OWN_ANNOTATION_PREFIX).encode()
_TOUCHED = TOUCHED_ANNOTATION.removeprefix(OWN_ANNOTATION_PREFIX).encode()
"""Without the prefix, because a patch spells the whole name in two ways: as a key, and as part of a path."""


@dataclass(frozen=True)
class LedgerWrite:
    at: datetime
    group: GroupKey
    workload_uid: str
    actor: str
    before: Ledger
    """Empty if there was none."""
    after: Ledger


def ledger_writes(evidence: TrialEvidence) -> Iterator[LedgerWrite]:
    """All writes of ledgers, in order. A workload that was recreated under its name starts with an empty ledger."""
    known: dict[str, Ledger] = {}
    for change, at in zip(evidence.changes, evidence.change_times, strict=True):
        if change.resource != RECOVERY_GROUPS or change.type == "DELETED" or "status" not in change.body:
            continue
        reference, metadata = change.body["spec"]["workloadRef"], change.body["metadata"]
        after = msgspec.convert(change.body["status"], Ledger)
        before = known.get(reference["uid"], Ledger())
        known[reference["uid"]] = after
        if after != before:
            group = GroupKey(metadata["namespace"], reference["name"])
            yield LedgerWrite(at, group, reference["uid"], change.actor, before, after)


_CREATES = {EVENTS: actions.EmitEvent, RECOVERY_INCIDENTS: actions.RecordIncident}
_PATCHES = {RECOVERY_CONFIGS: actions.ChangeFleet, CONFIG_MAPS: actions.LeaveOutAgent}
_DELETES = {JOBS: actions.DeleteJob, PODS: actions.DeletePods, JOB_SETS: actions.DeleteJobSet}


def action_of(record: RequestRecord) -> type | None:
    """The action of `core.plan.actions` that a request carries out. None: it carries out none, or was not applied."""
    request = record.request
    body = request.body or b""
    if request.verb == "list":
        return actions.ReadLive if request.resource == JOBS and request.namespace is not None else None
    if not record.applied:
        tries = (request.verb, request.resource) == ("create", JOBS) and bool(request.parameter("dryRun"))
        return actions.TryBirth if tries else None
    match request.verb:
        case "create":
            return _CREATES.get(request.resource)
        case "delete":
            forced = request.resource == PODS and _BY_FORCE in body
            return actions.ForceDeletePods if forced else _DELETES.get(request.resource)
        case "patch" if request.resource in _PATCHES:
            return _PATCHES[request.resource]
        case "patch" if request.resource == JOBS:
            return _of_job_patch(body)
        case "patch" if request.resource == JOB_SETS and (request.subresource or _TTL in body):
            return actions.FailJobSet
        case "patch" if request.resource in (TRAIN_JOBS, JOB_SETS) and _SUSPENDED_BY in body:
            return actions.ResumeWorkload if b'"remove"' in body else actions.SuspendWorkload
    return None


def _of_job_patch(body: bytes) -> type | None:
    if _TOUCHED in body:
        return actions.TouchJob
    if _TORN_DOWN_BY in body:
        return actions.ClaimJob
    if _OWN_BACKOFF_LIMIT in body:
        return actions.ExtendBackoffLimit
    return actions.RaiseBackoffLimit if b"backoffLimit" in body else actions.FailJobSet
