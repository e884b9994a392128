"""What `decide` answers: the ledger as it must be written, and the actions that follow from it.

Actions are data. Each is keyed by (workload UID, epoch, kind), so that doing one twice is recognisable. Each carries
the UIDs that it may touch, so that doing one late is harmless.
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
    """The trigger: delete the child Job in the foreground, if it still is this very object in this very version."""

    epoch: int
    name: str
    uid: str
    resource_version: str


class ClaimJob(msgspec.Struct, frozen=True):
    """Mark a living Job whose pods are deleted before it is, if it still is this very object in this very version.

    A kubelet keeps to the grace period of the first delete that it sees (kubernetes#113606). Once the Job is deleted,
    that may be the garbage collector's delete, with the pod's own grace period. So a policy with a shorter one has the
    pods deleted first. The deletes count as failures of the Job (`isPodFailed`, Kubernetes 1.36); `backoff_limit` is
    higher by as many, so that the Job survives them and keeps the retries that its user gave it.
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
    """Delete pods at once (grace 0) whose processes are dead, or may be taken for dead: nothing is left to end them.

    The one action that could let two incarnations run side by side; asked for by `core.incident.fencing` alone.
    """

    epoch: int
    pods: tuple[PodRef, ...]


class ChangeFleet(msgspec.Struct, frozen=True):
    """Add to the fleet's ledger (RecoveryConfig.status) by compare-and-swap within its caps, then quarantine the nodes.

    Raises ReadAgainError where the ledger has changed so that the caps no longer admit it: decide again.
    """

    epoch: int
    change: FleetChange


class RaiseBackoffLimit(msgspec.Struct, frozen=True):
    """Lift the backoffLimit of a Job that is being deleted, before its pods are.

    The Job controller goes on counting: deleted pods are failed pods, beyond the limit the dying Job may turn Failed,
    and a JobSet that sees a Failed Job, dying or not, ends (k8s 1.36 `syncJob`, jobset 0.12 `executeFailurePolicy`).
    Not seen to happen in 25 recoveries of 128 pods without this; the sources allow it, and the job would be lost.
    """

    epoch: int
    name: str
    uid: str


class TouchJob(msgspec.Struct, frozen=True):
    """Set the watchdog's annotation on a Job that got no pods, so that its controller syncs it again."""

    epoch: int
    name: str
    uid: str
    value: str


class SuspendWorkload(msgspec.Struct, frozen=True):
    """Suspend the TrainJob (or bare JobSet) in our name, if no one has suspended it or marked it meanwhile.

    `resume_at` None: not known yet.
    """

    epoch: int
    incident_id: str
    workload_uid: str
    resume_at: datetime | None


class ResumeWorkload(msgspec.Struct, frozen=True):
    """End a suspension that carries our annotation with this very value, and remove our annotations.

    Where the workload is not suspended any more, only the annotations go: others have resumed it.
    """

    workload_uid: str
    suspended_by: str
    suspended: bool
    resume_at: str = ""
    """The annotation that says until when, as it was read: with another the same incident has suspended again. Empty:
    there was none, and none is asked for."""


class DeleteJobSet(msgspec.Struct, frozen=True):
    """Delete a JobSet that has failed for good, in the foreground, if it still is this object in this version."""

    epoch: int
    name: str
    uid: str
    resource_version: str


class FailJobSet(msgspec.Struct, frozen=True):
    """Make the JobSet fail for good, if it is this one and has not ended.

    `job` None: by its own status, because a failurePolicy might restart it; else by letting that child Job (name, UID)
    run out of time, which fails a JobSet that has no failurePolicy.
    """

    epoch: int
    name: str
    uid: str
    reason: Reason
    message: str
    job: JobRef | None = None


class TryBirth(msgspec.Struct, frozen=True):
    """Ask the API server, by a dry run, what the group's Job would be like with the birth settings of the ledger.

    The reconcile that follows finds the answer in its snapshot (`Snapshot.birth_trial`).
    """

    job_set: str
    """Name of the JobSet whose template the Job is made of."""
    settings: BirthSettings


class RecordIncident(msgspec.Struct, frozen=True):
    """Create the RecoveryIncident of a closed incident; one that exists already is this one (its name is its id)."""

    incident: Incident
    fold: FoldedIncidents | None = None
    """It is the latest of these, and shares the record of the first. None: it has a record of its own."""


class CountIncidents(msgspec.Struct, frozen=True):
    """Add closed incidents to the totals of the fleet; one that is in them already changes nothing.

    Without a RecoveryConfig nothing is done.
    """

    closed: tuple[IncidentTotals, ...]

    @property
    def change(self) -> FleetChange:
        return FleetChange(closed=self.closed)


class EmitEvent(msgspec.Struct, frozen=True):
    """A Kubernetes Event on the workload. `key` makes its name, so that a repeat is recognised.

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
    | DeletePods
    | ForceDeletePods
    | ChangeFleet
    | TouchJob
    | SuspendWorkload
    | ResumeWorkload
    | DeleteJobSet
    | FailJobSet
    | TryBirth
    | RecordIncident
    | CountIncidents
    | EmitEvent
)


class Plan(msgspec.Struct, frozen=True):
    """The answer to one reconcile of one group."""

    ledger: Ledger
    """As it must be written before `actions`; equal to the ledger given: nothing to write."""
    reason: Reason
    """Why, "do nothing" included."""
    message: str
    """The same as a sentence."""
    first: tuple[Action, ...] = ()
    """Actions that precede the ledger write, because that write forgets what they need."""
    actions: tuple[Action, ...] = ()
    requeue_at: datetime | None = None
    """None: only when something changes."""
    not_started: NotStarted | None = None
    """Said of a group in which nothing has failed. None: it runs, or has run, or is not watched."""
