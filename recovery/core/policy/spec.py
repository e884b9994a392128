"""The RecoveryPolicy as data: its fields and their defaults.

It has only the fields that this version acts on.
"""

from enum import StrEnum

import msgspec

from recovery.core.model.rules import Rule

SETTLE_MAX = "30s"
"""The longest `settle`. The shipped runtimes give up a whole job some seconds after a cascade of exits."""
ASSUME_DEAD_AFTER_MAX = "24h"
"""The longest `assumeDeadAfter`. A user who wants to wait longer should use Proven."""


IN_PLACE_MAX = "10m"
"""The longest `timeouts.inPlace`."""
IN_A_ROW_MAX = 10
"""The most restarts in place in a row."""


class Mode(StrEnum):
    """Observe: the controller decides and reports, and writes to no workload. Enforce: the controller acts."""

    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class Restart(StrEnum):
    """What the controller does about a lost member when no rule matches.

    RecreateGroupOnPodRestart: it recreates all pods of the group. RecreateGroupAfterStart: the same, but while a pod of
    the group is Pending, the restart waits until the group has started. None: it does nothing, and still records the
    incident.
    """

    RECREATE_GROUP_ON_POD_RESTART = "RecreateGroupOnPodRestart"
    RECREATE_GROUP_AFTER_START = "RecreateGroupAfterStart"
    NONE = "None"


class OnExhausted(StrEnum):
    """What the controller does when a group has lost a member and the budget is exhausted.

    Hold: it writes nothing more, and the pods stay. Suspend: it suspends the workload, which frees the GPUs, until the
    window allows the next attempt; under Kueue, or if the TrainJob or the JobSet has a deadline, it holds instead.
    FailJob: it fails the JobSet, if RecoveryConfig allows that.
    """

    HOLD = "Hold"
    SUSPEND = "Suspend"
    FAIL_JOB = "FailJob"


class OnNativeIgnore(StrEnum):
    """What the controller does about a lost pod that a podFailurePolicy rule with action Ignore matches.

    RecreateGroup: if the other ranks hang without the pod, it recreates the group, and does not charge that to the
    budget. Backoff and the limit of attempts apply. StandAside: the Job replaces the pod, and the other ranks may hang.
    A program that heals itself, or whose ranks are independent, is left to its Job in both cases.
    """

    RECREATE_GROUP = "RecreateGroup"
    STAND_ASIDE = "StandAside"


class WhileWaiting(StrEnum):
    """What the controller does with a group that it has restarted while no node has room for one of its members.

    Hold: the other ranks keep their nodes and try again, and their exits do not use up the `backoffLimit` of their Job.
    Release: it suspends the workload, so that others can have the GPUs, until there is room for all members.
    HoldThenRelease: Hold for `capacityWait`, then Release. Under Kueue, or if the TrainJob or the JobSet has a
    deadline, all three mean Hold.
    """

    HOLD = "Hold"
    RELEASE = "Release"
    HOLD_THEN_RELEASE = "HoldThenRelease"


class OnTerminalFailure(StrEnum):
    """What the controller does about a JobSet that has failed permanently.

    Leave: the JobSet stays as it is, and the incident ends as Failed. RecreateJobSet: the controller deletes the JobSet
    of a TrainJob, and Trainer creates it again. This counts as an attempt. A JobSet without a TrainJob stays as it is.
    """

    LEAVE = "Leave"
    RECREATE_JOB_SET = "RecreateJobSet"


class FencingMode(StrEnum):
    """When a pod on a lost node counts as dead, so that the controller may force-delete it.

    Proven: when its Node object has been deleted, or has the out-of-service taint. AssumeDead: also when the node and
    its Lease have been silent for `assumeDeadAfter`, if RecoveryConfig allows AssumeDead.
    """

    PROVEN = "Proven"
    ASSUME_DEAD = "AssumeDead"


class PolicyError(ValueError):
    """A policy that cannot be used. The message starts with the path of the field."""


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """The workloads that the policy applies to: those of its namespace, or of every namespace if it is cluster-scoped.

    If several policies match a workload, the annotation recovery.trainjob.dev/policy on the workload decides. Without
    it a RecoveryPolicy takes precedence over a ClusterRecoveryPolicy. Among policies of one kind, the highest priority
    applies, then the oldest, then the first by name.
    """

    match_labels: dict[str, str] = {}
    """Labels that a workload must have. Without any, all workloads match."""


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many incidents the policy may be charged for within a rolling window."""

    limit: int = 10
    """How many incidents may be charged within `window`. 0 allows only recoveries that use no budget."""
    window: str = "24h"
    """How long a charge counts. Must be longer than 0s."""
    on_exhausted: OnExhausted = OnExhausted.HOLD


class BackoffSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The delay before attempt n in a row: 0 for the first, then min(max, initial x factor^(n-2)), but not less than
    what is left of `minInterval`.

    The controller suspends the workload for that time, which frees its GPUs. It delays the restart instead under Kueue,
    which owns the suspension, and if the TrainJob or the JobSet has a deadline, which a suspension would reset.
    """

    initial: str = "10s"
    """The delay before the second attempt. 0s: no backoff."""
    factor: float = 2.0
    """Each further delay is this many times as long as the one before."""
    max: str = "5m"
    """The longest delay. Must not be shorter than `initial`."""
    reset_after: str = "30m"
    """After the group has run whole for this time, the next attempt counts as the first. The time counts from the end
    of the last incident. For a job that reports progress, that is the end of phase Resuming."""
    min_interval: str = "0s"
    """The shortest time between two restarts: from when all ranks have met after the last one, or it was given up, to
    the next. Restarts by the platform count as well, and the first attempt of an incident waits too. 0s: no limit."""


class FencingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """When a pod on a lost node counts as dead."""

    mode: FencingMode = FencingMode.PROVEN
    assume_dead_after: str = "60s"
    """How long the node must have been silent before AssumeDead applies. 0s: no wait, so processes of the pod may still
    write."""


class TeardownSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How the controller removes the old pods of a group that it recreates."""

    grace_seconds: int | None = None
    """The grace period of the controller's deletes. 0 is refused: it would force-delete pods that may still write.
    None: the grace period of each pod."""
    fencing: FencingSpec = FencingSpec()


class TimeoutsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How long a phase of an attempt may last. After `start` and `rendezvous` the controller makes a new attempt."""

    start: str = "15m"
    """The time from when all pods of the attempt have a node until all run. Pulling images counts, waiting for capacity
    does not. Also the time until a Job replaces a pod that failed while starting, which a Job delays after failures."""
    rendezvous: str = "15m"
    """The time from when all pods run until all ranks have joined. Counts only if a joined probe reports that, and had
    reported a member when the incident began."""
    resume: str = "15m"
    """The time from when all ranks have joined until the training reports progress in `TrainJob.status.trainerStatus`.
    Counts only if the training had reported progress before the incident. When it expires, the incident closes as
    Recovered with reason ProgressNotSeen, and the group is not restarted. 0s: incidents do not wait for progress."""
    in_place: str = "60s"
    """The time within which a restart in place has to bring all processes back. When it expires, the controller
    recreates the group."""
    finish: str = "10m"
    """How long a pod may stay Running after its training container has failed for good, because another container still
    runs. When it expires, a condition names that container, and the group is not restarted."""


class InPlaceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Lets the agents in the pods start the processes of a group again after one of them has ended, without a new pod.

    Applies to jobs whose pods have the agent (`manifests/components/agent`), and only in mode Enforce. The controller
    recreates the group where a restart in place does not help: a pod is lost, the failure is the node's, the same error
    comes back, or the processes do not run again in time.
    """

    enabled: bool = False
    """Whether the agents may start processes again. False: they do what torchrun does."""
    alone: int = 3
    """How many times in a row the agents may begin that before the controller has decided, such as while no controller
    answers. Each one is recorded and charged to the budget once the controller knows of it. 0: never."""
    max_in_a_row: int = 3
    """How many restarts in place may follow one another. The next restart recreates the group. A group that has run
    whole for `backoff.resetAfter` begins a new row."""


class ElasticSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Lets a group continue with fewer nodes if lost ones are not replaced. Absent: it waits for all of its nodes.

    A size is the number of pods of the one Job that trains. It is never larger than the size that the job asks for. The
    component `birth-settings` must be installed: with it the API server creates the Job with its size.
    """

    min_nodes: int
    """The smallest size. The group never continues with fewer nodes."""
    max_nodes: int
    """The largest size to shrink or grow to. The size that the job asks for is always allowed."""
    allowed_sizes: tuple[int, ...] = ()
    """The sizes from `minNodes` to `maxNodes` that the training can run with. Empty: all, or those of `multipleOf`."""
    multiple_of: int = 1
    """Each size must be a multiple of this number, such as the number of nodes of one model replica."""
    shrink_after: str = "2m"
    """How long the group waits for lost nodes to be replaced, from the failure on. A rule with action Shrink does not
    wait."""
    grow_back_after: str = "5m"
    """How long there must be room for more nodes without a break before the group grows. A growth that fails doubles
    the time."""
    charge: bool = False
    """Whether a change of the size is charged to the budget."""


class ProofSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How long the last recovery of a job, from a drill or from a failure, proves that the job recovers.

    It changes no decision. It decides when the condition RecoveryProven, `recovery status` and the alert
    RecoveryNotProven ask for the next drill.
    """

    max_age: str | None = None
    """How long a proof counts, such as 720h for 30 days. Must be longer than 0s. None: proofs never expire, and no
    alert asks for one."""


class PolicySpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a RecoveryPolicy or a ClusterRecoveryPolicy, as far as this version acts on it."""

    selector: Selector = Selector()
    priority: int = 0
    """If several policies match a workload, the one with the highest priority applies."""
    mode: Mode = Mode.OBSERVE
    restart: Restart = Restart.RECREATE_GROUP_ON_POD_RESTART
    rules: tuple[Rule, ...] = ()
    """The first rule that matches decides. If none does, `restart` decides."""
    override_native: bool = False
    """Act even if the podFailurePolicy of the Job or the failurePolicy of the JobSet decides about the failure."""
    on_native_ignore: OnNativeIgnore = OnNativeIgnore.RECREATE_GROUP
    settle: str = "2s"
    """How long the controller waits for late evidence that could change a verdict. It waits only if a rule has action
    Ignore or FailJob."""
    on_terminal_failure: OnTerminalFailure = OnTerminalFailure.LEAVE
    while_waiting: WhileWaiting = WhileWaiting.HOLD
    capacity_wait: str = "30m"
    """How long `whileWaiting: HoldThenRelease` holds the nodes of the group before it releases them."""
    budget: BudgetSpec = BudgetSpec()
    backoff: BackoffSpec = BackoffSpec()
    teardown: TeardownSpec = TeardownSpec()
    timeouts: TimeoutsSpec = TimeoutsSpec()
    in_place: InPlaceSpec = InPlaceSpec()
    elastic: ElasticSpec | None = None
    """Lets a group continue with fewer nodes if lost ones are not replaced. None: it always waits for all of its
    nodes."""
    drill: ProofSpec = ProofSpec()
