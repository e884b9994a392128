"""What is known of a Job and of a group at a moment of the trial, and small questions to raw objects."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.policy.resolved import Policy
from recovery.ports import Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.member_losses import container_of
from recovery.workloads.jobset import COMPLETION_INDEX_LABEL, REPLICATED_JOB_LABEL, RESTART_ATTEMPT_LABEL

CONTROLLERS = "controller-"
"""How the actors that are controller processes are called, followed by the replica's number."""
INITIALIZERS = frozenset({"dataset-initializer", "model-initializer"})
"""ReplicatedJobs that prepare: no members of the group."""


LONGEST_RECONCILE = timedelta(seconds=90)
"""From a controller's reads until the write that follows from them has arrived, at most: requests may be late, or sent
again."""


BRIEF_SUSPENSION = timedelta(seconds=5)
"""A suspension that others undo within this time: its deletions of pods look like any others."""


def ours(actor: str) -> bool:
    """A controller process did it."""
    return actor.startswith(CONTROLLERS)


def controller_uid(body: Body) -> str:
    """UID of the object that manages this one; empty: none does."""
    owners = body["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def is_true(body: Body, *types: str) -> Body | None:
    """The first of these conditions whose status is True."""
    return _condition(body, types, "True")


def is_unknown(body: Body, *types: str) -> bool:
    """One of these conditions has the status Unknown."""
    return _condition(body, types, "Unknown") is not None


def is_false(body: Body, *types: str) -> Body | None:
    """The first of these conditions whose status is False."""
    return _condition(body, types, "False")


def _condition(body: Body, types: tuple[str, ...], status: str) -> Body | None:
    found = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each["type"] in types and each["status"] == status), None)


def deletion_begins(change: ObjectChange) -> bool:
    """The object was asked to go in this revision, or went without having been asked."""
    asked_before = change.before is not None and "deletionTimestamp" in change.before["metadata"]
    return not asked_before and (change.type == "DELETED" or "deletionTimestamp" in change.body["metadata"])


@dataclass(frozen=True)
class Loss:
    """A member was lost, as far as the API server shows."""

    at: datetime
    revision: int
    text: str


class Force(StrEnum):
    """What a decision stands against."""

    FIRST = "First"
    """The first attempt of an incident only: a later one may be for another reason than the loss."""
    EVERY = "Every"
    """Every attempt of ours, but not what a person wants."""
    SUCCESS = "Success"
    """Everything: the training is finishing."""


@dataclass(frozen=True)
class NativeDecision:
    """What the Job's or the JobSet's own policies, or success, have decided about an incarnation."""

    revision: int
    text: str
    force: Force


@dataclass(frozen=True)
class ClearLoss:
    """A loss that must become part of an incident, unless `spoiled` comes true."""

    SETTLED: ClassVar[timedelta] = timedelta(seconds=10)
    """So long before it the group had trained undisturbed."""
    NOTICED_WITHIN: ClassVar[timedelta] = timedelta(seconds=30)
    """So long after it the group must stay undisturbed."""

    group: GroupKey
    workload_uid: str
    job_uid: str
    at: datetime
    revision: int
    text: str


@dataclass
class JobView:
    """One incarnation: a Job, and the pods of that very UID."""

    uid: str
    name: str
    group: GroupKey
    body: Body
    began_at: datetime
    """When it was made, or last resumed."""
    container: str | None
    """The container of its pods that trains. None: nothing shows a controller which one that is."""
    pods: dict[str, Body] = field(default_factory=dict)
    """Those that exist, by UID."""
    indexes: set[str] = field(default_factory=set)
    """Those that ever had a pod."""
    lost_pods: set[str] = field(default_factory=set)
    """Those whose end is no loss any more: a controller deleted them, or the Job did on purpose."""
    losses: list[Loss] = field(default_factory=list)
    """Since it was made, or last resumed."""
    late: list[Loss] = field(default_factory=list)
    """From shortly before it was last resumed: what was on its way then may have arrived after it. So are the pods that
    a suspension of a few seconds deletes: the Job controller may do that after it is over."""
    suspended_at: datetime | None = None
    """When it was last suspended. None: never."""
    taken: list[Loss] = field(default_factory=list)
    """The pods that it has deleted on purpose since then."""
    troubles: list[Loss] = field(default_factory=list)
    """What has happened to nodes that members run on: the members themselves may live."""
    decisions: list[NativeDecision] = field(default_factory=list)
    ran: bool = False
    """All its pods have run at once, since it was made or last resumed."""
    deleted_by: str = ""
    """The actor that first asked for it to go; empty: none has."""
    gone: bool = False

    def begin_again(self, at: datetime) -> None:
        """It is resumed: what the pods of its last run did is no loss of this one."""
        self.began_at = at
        self.ran = False
        self.indexes.clear()
        self.late = [loss for loss in self.losses if at - loss.at <= LONGEST_RECONCILE]
        if self.suspended_at is not None and at - self.suspended_at <= BRIEF_SUSPENSION:
            self.late += self.taken
        self.losses = []
        # Nor do the user's policies decide about it. A pod that has succeeded is not made again, so that stands.
        self.decisions = [each for each in self.decisions if each.force is Force.SUCCESS]
        # What is on its way out by now may take long to end: a process that cannot be killed, or a node that is away.
        self.lost_pods.update(uid for uid, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"])

    @property
    def resumed(self) -> bool:
        """It has been suspended, and runs again."""
        return self.suspended_at is not None and self.began_at > self.suspended_at

    @property
    def member(self) -> bool:
        return self.body["metadata"]["labels"].get(REPLICATED_JOB_LABEL) not in INITIALIZERS

    @property
    def suspended(self) -> bool:
        return bool(self.body["spec"].get("suspend"))

    @property
    def restart_attempt(self) -> int:
        return int(self.body["metadata"]["labels"].get(RESTART_ATTEMPT_LABEL, 0))

    @property
    def wanted(self) -> int:
        """How many pods make it whole."""
        spec = self.body["spec"]
        parallelism: int = spec.get("parallelism", 1)
        completions: int | None = spec.get("completions")
        return parallelism if completions is None else min(parallelism, completions)

    @property
    def ready(self) -> bool:
        """The training of all its pods runs and is ready; the containers beside it hold nothing up."""
        fit = [pod for pod in self.pods.values() if self._is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
        return len(fit) >= self.wanted

    def _is_ready(self, pod: Body) -> bool:
        if self.container is None:
            return is_true(pod, "Ready") is not None
        found = container_of(pod, self.container)
        return found is not None and found.get("ready") is True

    @property
    def running(self) -> bool:
        """The training of all its pods runs."""
        if self.container is None:
            states = [(pod.get("status") or {}).get("phase") == "Running" for pod in self.pods.values()]
        else:
            found = [container_of(pod, self.container) or {} for pod in self.pods.values()]
            states = ["running" in (each.get("state") or {}) for each in found]
        return states.count(True) >= self.wanted

    def is_scaled_away(self, pod: Body) -> bool:
        """Its Job is to have fewer pods than that by now."""
        index = pod["metadata"].get("labels", {}).get(COMPLETION_INDEX_LABEL)
        return index is not None and int(index) >= self.wanted


@dataclass
class GroupView:
    """A workload with all that carries its name."""

    key: GroupKey
    since: datetime
    """When its policy last became what it is."""
    workload: Body | None = None
    workload_resource: Resource | None = None
    facts: WorkloadFacts | None = None
    jobset: Body | None = None
    jobset_made_at: datetime | None = None
    jobs: dict[str, JobView] = field(default_factory=dict)
    """Those that exist, by UID."""
    policy: Policy | None = None
    """None: none applies, or it cannot be used."""
    paused_since: datetime | None = None
    """By its annotation or by the RecoveryConfig. None: it is not."""
    hit: str = ""
    """What first happened to it, in words; empty: nothing has."""
    asked: bool = False
    """A person has asked for something by an annotation, ever."""
    disturbances: list[datetime] = field(default_factory=list)
    """When a person, a change of the policy, or a client that deletes its Jobs disturbed it."""
    restarts: list[tuple[int, int]] = field(default_factory=list)
    """Revision and new count of each of the JobSet's own restarts."""
    failed_jobsets: set[str] = field(default_factory=set)
    removed_at: datetime | None = None
    """When a Job or a pod of it was last gone."""

    @property
    def mode(self) -> str | None:
        """None: no policy applies."""
        return str(self.policy.mode) if self.policy is not None else None

    @property
    def suspended(self) -> bool:
        return self.workload is not None and bool(self.workload["spec"].get("suspend"))

    @property
    def annotations(self) -> dict[str, str]:
        return (self.workload["metadata"].get("annotations") or {}) if self.workload is not None else {}

    def owns(self, job: JobView) -> bool:
        """It is a Job of this very workload, not one that an earlier one of the same name has left behind."""
        if self.workload is None or self.jobset is None:
            return False
        jobset_uid, workload_uid = self.jobset["metadata"]["uid"], self.workload["metadata"]["uid"]
        of_workload = bool((controller_uid(self.jobset) or jobset_uid) == workload_uid)
        return of_workload and controller_uid(job.body) == jobset_uid

    @property
    def ended(self) -> str | None:
        """Why it no longer concerns any controller. None: it lives."""
        if self.workload is None:
            return "gone"
        if "deletionTimestamp" in self.workload["metadata"]:
            return "being deleted"
        over = is_true(self.workload, "Complete", "Completed", "Failed")
        if over is not None:
            return str(over["type"])
        state = (self.jobset or {}).get("status", {}).get("terminalState")
        return str(state) if state else None
