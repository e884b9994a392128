"""The RecoveryPolicy as data: what a team's SRE allows to be done, its defaults, which policy applies to a workload.

Only what this version acts on stands here. The CRD (`manifests/crd`) declares the whole spec and refuses by name,
through CEL, what is not built yet, so that a policy never promises in silence what the controller does not do.
"""

from enum import StrEnum

import msgspec

from recovery.core.model.rules import Rule

SETTLE_MAX = "30s"
"""The longest `settle`: the shipped runtimes give a whole job up some seconds after a cascade of exits."""
ASSUME_DEAD_AFTER_MAX = "24h"
"""The longest `assumeDeadAfter`; a user who would wait longer means Proven."""


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


class OnTerminalFailure(StrEnum):
    """What the controller does about a JobSet that has failed for good.

    Leave: the JobSet stays as it is, and the incident ends as Failed. RecreateJobSet: the controller deletes the JobSet
    of a TrainJob, and Trainer creates it again; this counts as an attempt. It leaves a JobSet without a TrainJob.
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
    """A policy that cannot be read; the message starts with the path of the field."""


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """The workloads that the policy applies to: those of its namespace, or of every namespace if it is cluster-scoped.

    If several policies match a workload, the annotation recovery.trainjob.dev/policy on the workload decides. Without
    it a RecoveryPolicy goes before a ClusterRecoveryPolicy, then the highest priority, the oldest, the first by name.
    """

    match_labels: dict[str, str] = {}
    """Labels that a workload must have. Without any, all workloads match."""


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many incidents the policy may be charged for within a rolling window."""

    limit: int = 10
    """0 allows only recoveries that use no budget."""
    window: str = "24h"
    """How long a charge counts. Longer than 0s."""
    on_exhausted: OnExhausted = OnExhausted.HOLD


class BackoffSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The delay before attempt n in a row: 0 for the first, then min(max, initial x factor^(n-2)).

    The controller suspends the workload for that time, which frees its GPUs. It delays the restart instead under Kueue,
    which owns the suspension, and if the TrainJob or the JobSet has a deadline, which a suspension would reset.
    """

    initial: str = "10s"
    """The delay before the second attempt. 0s: no backoff."""
    factor: float = 2.0
    """How many times as long each further delay is."""
    max: str = "5m"
    """The longest delay. Not shorter than `initial`."""
    reset_after: str = "30m"
    """After the group has run whole for this time, the next attempt counts as the first. The time counts from the end
    of the last incident. For a job that reports progress, that is the end of phase Resuming."""


class FencingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """When a pod on a lost node counts as dead."""

    mode: FencingMode = FencingMode.PROVEN
    assume_dead_after: str = "60s"
    """Counts from when the node stopped answering. 0s: at once; processes of the pod may then still write."""


class TeardownSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How the controller removes the old pods of a group that it recreates."""

    grace_seconds: int | None = None
    """The grace period of the controller's deletes. 0 is refused: it would force-delete pods that may still write.
    None: the grace period of each pod."""
    fencing: FencingSpec = FencingSpec()


class TimeoutsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How long a phase of an attempt may last. After `start` and `rendezvous` the controller makes a new attempt."""

    start: str = "15m"
    """From when all pods of the attempt have a node until all run. Pulling images counts. Waiting for capacity does
    not. Also from when a pod fails on the way until its Job creates the next one, which a Job delays after failures."""
    rendezvous: str = "15m"
    """From when all pods run until all ranks have joined. Counts only if a joined probe reports that, and had reported
    a member when the incident began."""
    resume: str = "15m"
    """From when all ranks have joined until the training reports progress in `TrainJob.status.trainerStatus`. Counts
    only if the training had reported progress before the incident. After it the incident closes as Recovered, with
    reason ProgressNotSeen, and the group is not restarted. 0s: incidents do not wait for progress."""
    finish: str = "10m"
    """How long a pod may stay Running after its training container has failed for good, because another container still
    runs. After it a condition names that container, and the group is not restarted."""


class ElasticSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Lets a group continue with fewer nodes if lost ones are not replaced. Absent: it waits for all of its nodes.

    A size is the number of pods of the one Job that trains. It is never larger than the size that the job asks for. The
    component `birth-settings` must be installed: with it the API server creates the Job with its size.
    """

    min_nodes: int
    """The group never continues with fewer."""
    max_nodes: int
    """The largest size to shrink or grow to. The size that the job asks for is always allowed."""
    allowed_sizes: tuple[int, ...] = ()
    """The sizes from `minNodes` to `maxNodes` that the training can run with. Empty: all, or those of `multipleOf`."""
    multiple_of: int = 1
    """Each size is a multiple of this, such as the nodes of one model replica."""
    shrink_after: str = "2m"
    """How long the group waits for lost nodes to be replaced, from the failure on. A rule with action Shrink does not
    wait."""
    grow_back_after: str = "5m"
    """How long there must be room without a break before the group grows. A growth that fails doubles the time."""
    charge: bool = False
    """Whether a change of the size is charged to the budget."""


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
    """Act even if the policy of the Job or the JobSet decides about the failure, instead of standing aside."""
    settle: str = "2s"
    """How long the controller waits for late evidence that could change a verdict. It waits only if a rule has action
    Ignore or FailJob."""
    on_terminal_failure: OnTerminalFailure = OnTerminalFailure.LEAVE
    budget: BudgetSpec = BudgetSpec()
    backoff: BackoffSpec = BackoffSpec()
    teardown: TeardownSpec = TeardownSpec()
    timeouts: TimeoutsSpec = TimeoutsSpec()
    elastic: ElasticSpec | None = None
    """None: the group always comes back with all of its nodes."""
