"""What is known of a Job and of a group at a moment of the trial, and helpers that read raw objects."""

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
"""The prefix of the actors that are controller processes. The replica's number follows it."""
INITIALIZERS = frozenset({"dataset-initializer", "model-initializer"})
"""ReplicatedJobs that prepare the training. They are no members of the group."""


LONGEST_RECONCILE = timedelta(seconds=90)
"""The longest time from a controller's reads until the write that follows from them arrives. Requests may be late or
repeated."""


BRIEF_SUSPENSION = timedelta(seconds=5)
"""If others undo a suspension within this time, the pods that it deletes look like any other deleted pods."""


NO_POLICY, PAUSED = "no policy", "paused"
"""Excuses (`GroupView.excuse`) that take no rank down."""


def ours(actor: str) -> bool:
    """The actor is a controller process."""
    return actor.startswith(CONTROLLERS)


def controller_uid(body: Body) -> str:
    """UID of the object that controls this one. Empty: none does."""
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
    """This revision requested the deletion of the object, or removed it without an earlier request."""
    asked_before = change.before is not None and "deletionTimestamp" in change.before["metadata"]
    return not asked_before and (change.type == "DELETED" or "deletionTimestamp" in change.body["metadata"])


@dataclass(frozen=True)
class Loss:
    """The loss of a member, as far as the API server shows it."""

    at: datetime
    revision: int
    text: str


class Force(StrEnum):
    """The restarts that a decision rules out."""

    FIRST = "First"
    """Only the first attempt of an incident. A later attempt may have another reason than the loss."""
    EVERY = "Every"
    """Every attempt of ours, but not one that a person requests."""
    SUCCESS = "Success"
    """Every attempt, because the training is finishing."""


@dataclass(frozen=True)
class NativeDecision:
    """What the policies of the Job or the JobSet, or the success of the training, have decided about an incarnation."""

    revision: int
    text: str
    force: Force


@dataclass(frozen=True)
class ClearLoss:
    """A loss that must become part of an incident, unless it is `spoiled`."""

    SETTLED: ClassVar[timedelta] = timedelta(seconds=10)
    """How long the group had trained undisturbed before the loss."""
    NOTICED_WITHIN: ClassVar[timedelta] = timedelta(seconds=30)
    """How long the group must stay undisturbed after the loss."""

    group: GroupKey
    workload_uid: str
    job_uid: str
    at: datetime
    revision: int
    text: str


@dataclass
class JobView:
    """One incarnation: a Job, and the pods of exactly that Job UID."""

    uid: str
    name: str
    group: GroupKey
    body: Body
    began_at: datetime
    """When the Job was created, or last resumed."""
    container: str | None
    """The container of its pods that trains. None: nothing shows a controller which container that is."""
    pods: dict[str, Body] = field(default_factory=dict)
    """The pods that exist, by UID."""
    indexes: set[str] = field(default_factory=set)
    """The indexes that ever had a pod."""
    lost_pods: set[str] = field(default_factory=set)
    """The pods whose end is no loss, because a controller deleted them, or the Job did on purpose."""
    losses: list[Loss] = field(default_factory=list)
    """The losses since the Job was created, or last resumed."""
    late: list[Loss] = field(default_factory=list)
    """Losses from shortly before the last resume: the writes about them may have arrived after it. Also the pods that a
    suspension of a few seconds deletes, because the Job controller may do that after the suspension is over."""
    suspended_at: datetime | None = None
    """When it was last suspended. None: never."""
    taken: list[Loss] = field(default_factory=list)
    """The pods that the Job has deleted on purpose since then."""
    troubles: list[Loss] = field(default_factory=list)
    """What has happened to nodes on which members run. The members themselves may still run."""
    decisions: list[NativeDecision] = field(default_factory=list)
    ran: bool = False
    """All its pods have run at once since the Job was created, or last resumed."""
    deleted_by: str = ""
    """The actor that first requested its deletion. Empty: none has."""
    gone: bool = False

    def begin_again(self, at: datetime) -> None:
        """Notes that the Job is resumed. What happened to the pods of its last run is no loss of this run."""
        self.began_at = at
        self.ran = False
        self.indexes.clear()
        self.late = [loss for loss in self.losses if at - loss.at <= LONGEST_RECONCILE]
        if self.suspended_at is not None and at - self.suspended_at <= BRIEF_SUSPENSION:
            self.late += self.taken
        self.losses = []
        # Nor do decisions of the user's policies apply to it, except success: such a pod is not recreated.
        self.decisions = [each for each in self.decisions if each.force is Force.SUCCESS]
        # Pods that are being deleted may take long to end: a process cannot be killed, or a node does not answer.
        self.lost_pods.update(uid for uid, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"])

    @property
    def resumed(self) -> bool:
        """The Job was suspended and resumed."""
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
        """How many pods the Job has when it is complete."""
        spec = self.body["spec"]
        parallelism: int = spec.get("parallelism", 1)
        completions: int | None = spec.get("completions")
        return parallelism if completions is None else min(parallelism, completions)

    @property
    def ready(self) -> bool:
        """The training container of all its pods is ready. The containers beside it do not count."""
        fit = [pod for pod in self.pods.values() if self._is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
        return len(fit) >= self.wanted

    def _is_ready(self, pod: Body) -> bool:
        if self.container is None:
            return is_true(pod, "Ready") is not None
        found = container_of(pod, self.container)
        return found is not None and found.get("ready") is True

    @property
    def running(self) -> bool:
        """The training container of all its pods runs."""
        if self.container is None:
            states = [(pod.get("status") or {}).get("phase") == "Running" for pod in self.pods.values()]
        else:
            found = [container_of(pod, self.container) or {} for pod in self.pods.values()]
            states = ["running" in (each.get("state") or {}) for each in found]
        return states.count(True) >= self.wanted

    def is_scaled_away(self, pod: Body) -> bool:
        """The index of the pod is beyond the present size of the Job."""
        index = pod["metadata"].get("labels", {}).get(COMPLETION_INDEX_LABEL)
        return index is not None and int(index) >= self.wanted


@dataclass
class GroupView:
    """A workload and all objects that carry its name."""

    key: GroupKey
    since: datetime
    """When its policy, or the policy's mode, last changed."""
    workload: Body | None = None
    workload_resource: Resource | None = None
    facts: WorkloadFacts | None = None
    jobset: Body | None = None
    jobset_made_at: datetime | None = None
    jobs: dict[str, JobView] = field(default_factory=dict)
    """The Jobs that exist, by UID."""
    policy: Policy | None = None
    """None: no policy applies, or the policy is invalid."""
    paused_since: datetime | None = None
    """Since when its annotation or the RecoveryConfig pauses it. None: it is not paused."""
    hit: str = ""
    """What first happened to it, in words. Empty: nothing has."""
    asked: bool = False
    """A person has at some time requested something by an annotation."""
    disturbances: list[datetime] = field(default_factory=list)
    """When a person, a change of the policy, or a client that deletes its Jobs disturbed it."""
    restarts: list[tuple[int, int]] = field(default_factory=list)
    """Revision and new count of each restart that the JobSet made itself."""
    failed_jobsets: set[str] = field(default_factory=set)
    deleted_jobsets: set[str] = field(default_factory=set)
    """Those that no controller process has deleted."""
    removed_at: datetime | None = None
    """When a Job or a pod of it was last removed."""

    @property
    def mode(self) -> str | None:
        """The mode of its policy. None: no policy applies."""
        return str(self.policy.mode) if self.policy is not None else None

    @property
    def suspended(self) -> bool:
        return self.workload is not None and bool(self.workload["spec"].get("suspend"))

    @property
    def going(self) -> bool:
        """All its pods are being deleted. Nothing keeps them, even if they save for longer than a suspension lasts."""
        pods = [pod for job in self.jobs.values() if job.member for pod in job.pods.values()]
        return bool(pods) and all("deletionTimestamp" in pod["metadata"] for pod in pods)

    @property
    def annotations(self) -> dict[str, str]:
        return (self.workload["metadata"].get("annotations") or {}) if self.workload is not None else {}

    def owns(self, job: JobView) -> bool:
        """The Job belongs to this workload, not to an earlier workload of the same name."""
        if self.workload is None or self.jobset is None:
            return False
        jobset_uid, workload_uid = self.jobset["metadata"]["uid"], self.workload["metadata"]["uid"]
        of_workload = bool((controller_uid(self.jobset) or jobset_uid) == workload_uid)
        return of_workload and controller_uid(job.body) == jobset_uid

    @property
    def ended(self) -> str | None:
        """Why it no longer concerns any controller. None: it has not ended."""
        if self.workload is None:
            return "gone"
        if "deletionTimestamp" in self.workload["metadata"]:
            return "being deleted"
        over = is_true(self.workload, "Complete", "Completed", "Failed")
        if over is not None:
            return str(over["type"])
        state = (self.jobset or {}).get("status", {}).get("terminalState")
        return str(state) if state else None

    @property
    def excuse(self) -> str:
        """Why no incident about it is expected, whether its training runs or not. Empty: one is."""
        if self.ended is not None:
            return f"workload {self.ended}"
        if self.suspended:
            return "suspended"
        if self.policy is None:
            return NO_POLICY
        return PAUSED if self.paused_since is not None else ""
