"""What `decide` returns: the ledger to write, and the actions that follow from it.

Actions are data. Each is keyed by (workload UID, epoch, kind), so that a repeat is recognised. Each carries the UIDs
that it may touch, so that a late action is harmless.
"""

from datetime import datetime

import msgspec

from recovery.core.diagnosis.not_started import NotStarted
from recovery.core.model.birth_settings import BirthSettings
from recovery.core.model.fleet_ledger import FleetChange
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.ledger import Incident, IncidentTotals, Ledger
from recovery.core.model.reason import Reason

MAX_BACKOFF_LIMIT = 2**31 - 1


class ReadLive(msgspec.Struct, frozen=True):
    """Read TrainJob, JobSet, Jobs and pods from the API server and decide again: caches are not enough for this."""


class DeleteJob(msgspec.Struct, frozen=True):
    """The trigger: delete the child Job in the foreground, if its UID and resourceVersion still match."""

    epoch: int
    name: str
    uid: str
    resource_version: str


class ClaimJob(msgspec.Struct, frozen=True):
    """Mark a living Job whose pods are deleted before the Job itself, if its UID and resourceVersion still match.

    A kubelet keeps to the grace period of the first delete that it sees (kubernetes#113606). Once the Job is deleted,
    that may be the garbage collector's delete, with the pod's own grace period. So under a policy with a shorter one
    the pods are deleted first. The deletes count as failures of the Job (`isPodFailed`, Kubernetes 1.36).
    `backoff_limit` is raised by as many, so that the Job survives them and keeps the retries that its user gave it.

    From then on the Job replaces only pods that have ended. The delete of the Job may be refused or delayed, and its
    replacements would run beside the old processes meanwhile.

    When many groups are lost at once, the pods may be deleted long after the claim. Until then no other controller
    touches them: the Job controller only replaces ranks that are gone, ten seconds or more after their loss, and JobSet
    counts no restart (asked of Kubernetes 1.36 and JobSet 0.12, `tests/contract/test_executors.py`).
    """

    epoch: int
    name: str
    uid: str
    resource_version: str
    attempt: str
    """What the annotation `recovery.trainjob.dev/torn-down-by` is set to."""
    backoff_limit: int


class PodRef(msgspec.Struct, frozen=True):
    name: str
    uid: str


class JobRef(msgspec.Struct, frozen=True):
    name: str
    uid: str


class DeletePods(msgspec.Struct, frozen=True):
    """Delete pods of a Job that is being deleted or was claimed. `grace_seconds` None: each pod's own grace period."""

    epoch: int
    pods: tuple[PodRef, ...]
    grace_seconds: int | None


class ForceDeletePods(msgspec.Struct, frozen=True):
    """Delete pods with grace period 0 whose processes count as dead: nothing else can end their deletion.

    Only this action could let two incarnations run side by side. Only `core.incident.fencing` marks pods for it.
    """

    epoch: int
    pods: tuple[PodRef, ...]


class ChangeFleet(msgspec.Struct, frozen=True):
    """Add to the fleet's ledger (RecoveryConfig.status) by compare-and-swap within its caps, then quarantine the nodes.

    Raises ReadAgainError if the ledger has changed and the caps no longer allow the change: decide again.
    """

    epoch: int
    change: FleetChange


class RaiseBackoffLimit(msgspec.Struct, frozen=True):
    """Raise the backoffLimit of a Job that is being deleted, before its pods are deleted.

    The Job controller counts deleted pods as failed. Beyond the limit it may mark the dying Job Failed, and the JobSet
    applies its failure policy to a Failed Job, dying or not: without one it fails (k8s 1.36 `syncJob`, jobset 0.12
    `executeFailurePolicy`). This did not happen in 25 recoveries of 128 pods without this action, but the sources
    allow it, and the job would be lost.
    """

    epoch: int
    name: str
    uid: str


class ExtendBackoffLimit(msgspec.Struct, frozen=True):
    """Raise the backoffLimit of a living Job whose ranks exit because another one waits for a node, if its UID and
    resourceVersion still match. The Job keeps the retries that its user gave it."""

    epoch: int
    name: str
    uid: str
    resource_version: str
    own_limit: int
    """The user's limit, which the annotation `recovery.trainjob.dev/own-backoff-limit` keeps."""
    backoff_limit: int


class TouchJob(msgspec.Struct, frozen=True):
    """Set the watchdog's annotation on a Job without pods, so that the Job controller syncs it again."""

    epoch: int
    name: str
    uid: str
    value: str


class SuspendWorkload(msgspec.Struct, frozen=True):
    """Suspend the TrainJob (or bare JobSet) with our annotation, unless it was suspended or marked meanwhile.

    `resume_at` None: not known yet.
    """

    epoch: int
    incident_id: str
    workload_uid: str
    resume_at: datetime | None


class ResumeWorkload(msgspec.Struct, frozen=True):
    """End a suspension whose annotation by us has exactly this value, and remove our annotations.

    If another client has already resumed the workload, only the annotations are removed.
    """

    workload_uid: str
    suspended_by: str
    suspended: bool
    resume_at: str = ""
    """The value of the annotation that dates the end, as it was read. If it has changed since, the same incident has
    suspended the workload again. Empty: there was none, and it is not compared."""


class DeleteJobSet(msgspec.Struct, frozen=True):
    """Delete a JobSet in terminal state Failed, in the foreground, if its UID and resourceVersion still match."""

    epoch: int
    name: str
    uid: str
    resource_version: str


class FailJobSet(msgspec.Struct, frozen=True):
    """Put the JobSet into terminal state Failed, if its UID still matches and it has not ended.

    It loses its `ttlSecondsAfterFinished` first: Trainer 2.3 would train a job again whose failed JobSet has expired.

    `job` None: through the status of the JobSet, because its failurePolicy might restart it. Else through an expired
    deadline of that child Job (name, UID), which fails a JobSet without a failurePolicy.
    """

    epoch: int
    name: str
    uid: str
    reason: Reason
    message: str
    job: JobRef | None = None


class LeaveOutAgent(msgspec.Struct, frozen=True):
    """Name the JobSet in the parameters of the component, so that its next Jobs are created without the agent.

    A JobSet that they name already changes nothing. Without the parameters no Job gets an agent, so nothing is done.
    """

    epoch: int
    namespace: str
    job_set: str


class TryBirth(msgspec.Struct, frozen=True):
    """Ask the API server in a dry run how the group's Job would look with the birth settings of the ledger.

    The next reconcile finds the answer in its snapshot (`Snapshot.birth_trial`).
    """

    job_set: str
    """Name of the JobSet with the Job's template."""
    settings: BirthSettings


class RecordIncident(msgspec.Struct, frozen=True):
    """Create the RecoveryIncident of a closed incident. One that already exists is the same (its name is its id)."""

    incident: Incident
    fold: FoldedIncidents | None = None
    """The fold whose latest incident this is. They share the record of the first one. None: it has its own record."""


class CountIncidents(msgspec.Struct, frozen=True):
    """Add closed incidents to the fleet's totals. One that is already in them changes nothing.

    Without a RecoveryConfig nothing is done.
    """

    closed: tuple[IncidentTotals, ...]

    @property
    def change(self) -> FleetChange:
        return FleetChange(closed=self.closed)


class EmitEvent(msgspec.Struct, frozen=True):
    """A Kubernetes Event on the workload. `key` determines its name, so that a repeat is recognised.

    `reason` is the Event's own vocabulary (`core.plan.kubernetes_events`), `note` the message.
    """

    key: str
    warning: bool
    reason: str
    note: str


Action = (
    ReadLive
    | DeleteJob
    | ClaimJob
    | RaiseBackoffLimit
    | ExtendBackoffLimit
    | DeletePods
    | ForceDeletePods
    | ChangeFleet
    | TouchJob
    | SuspendWorkload
    | ResumeWorkload
    | DeleteJobSet
    | FailJobSet
    | LeaveOutAgent
    | TryBirth
    | RecordIncident
    | CountIncidents
    | EmitEvent
)


class Plan(msgspec.Struct, frozen=True):
    """The decision of one reconcile of one group."""

    ledger: Ledger
    """Must be written before `actions`. Equal to the ledger that was read: there is nothing to write."""
    reason: Reason
    """Why this was decided, including a decision to do nothing."""
    message: str
    """The same as a sentence."""
    first: tuple[Action, ...] = ()
    """Actions that precede the ledger write, because that write forgets what they need."""
    actions: tuple[Action, ...] = ()
    requeue_at: datetime | None = None
    """None: the next reconcile comes only when something changes."""
    not_started: NotStarted | None = None
    """Why a group without a failure has not started. None: it runs, has run, or is not watched."""
