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
    """Observe: full decisions, no write to any workload. Enforce: act."""

    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class Restart(StrEnum):
    """What a lost member calls for where no rule says otherwise.

    RecreateGroupOnPodRestart: all pods of the group are recreated. RecreateGroupAfterStart: the same, but not while a
    pod of the group is Pending; the restart waits until the group has started. None: nothing is done about the failure,
    which is accounted for all the same.
    """

    RECREATE_GROUP_ON_POD_RESTART = "RecreateGroupOnPodRestart"
    RECREATE_GROUP_AFTER_START = "RecreateGroupAfterStart"
    NONE = "None"


class OnExhausted(StrEnum):
    """What an exhausted budget means for a group that has lost a member.

    Hold: nothing more is written, its pods stay. Suspend: the workload is suspended, so that its GPUs are free, until
    the window lets the next attempt through; under Kueue, or with a deadline of the TrainJob or the JobSet, this is
    Hold. FailJob: the JobSet is made to fail, where RecoveryConfig allows it.
    """

    HOLD = "Hold"
    SUSPEND = "Suspend"
    FAIL_JOB = "FailJob"


class OnTerminalFailure(StrEnum):
    """What to do about a JobSet that the platform gave up.

    Leave: it stays as it is, and the incident ends as Failed. RecreateJobSet: a TrainJob's JobSet is deleted, so that
    Trainer creates it again; that is an attempt like any other. A JobSet without a TrainJob would not come back.
    """

    LEAVE = "Leave"
    RECREATE_JOB_SET = "RecreateJobSet"


class FencingMode(StrEnum):
    """When the processes of a pod on a lost node count as dead, so that it may be force-deleted.

    Proven: once its Node object is gone, or carries the out-of-service taint. AssumeDead: also when the node has not
    answered for `assumeDeadAfter`, its Lease included, and RecoveryConfig allows to assume that.
    """

    PROVEN = "Proven"
    ASSUME_DEAD = "AssumeDead"


class PolicyError(ValueError):
    """A policy that cannot be read; the message starts with the path of the field."""


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """Which workloads: of the policy's namespace, or of every namespace where it is the cluster's.

    Where several policies match, one of the namespace goes before one of the cluster, then the higher priority, then
    the older, then the first by name. The annotation recovery.trainjob.dev/policy on the workload beats all of that.
    """

    match_labels: dict[str, str] = {}
    """Labels that a workload must carry; none match all."""


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many incidents may be charged within a rolling window."""

    limit: int = 10
    """0 allows no recovery at all."""
    window: str = "24h"
    """How long a charge counts; longer than 0s."""
    on_exhausted: OnExhausted = OnExhausted.HOLD


class BackoffSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The delay before attempt n of a row: 0 for the first, then min(max, initial x factor^(n-2)).

    The workload is suspended for that long, so that its GPUs are free. Under Kueue, which owns the suspension, and with
    a deadline of the TrainJob or the JobSet, which a suspension would reset, the restart waits instead.
    """

    initial: str = "10s"
    """The delay before the second attempt; 0s: no backoff at all."""
    factor: float = 2.0
    """By how much each further delay is longer."""
    max: str = "5m"
    """The longest delay; not shorter than `initial`."""
    reset_after: str = "30m"
    """A group that has run whole for that long begins again at its first attempt. The time counts from the end of the
    last incident. For a job that reports progress, that is the end of phase Resuming."""


class FencingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """When a pod on a lost node counts as dead."""

    mode: FencingMode = FencingMode.PROVEN
    assume_dead_after: str = "60s"
    """From when the node stopped answering. 0s: at once; its processes may still write then."""


class TeardownSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How the old pods of a recreated group are removed."""

    grace_seconds: int | None = None
    """Grace period of the controller's own deletes; 0 would force-delete pods that may still write. None: each pod's
    own."""
    fencing: FencingSpec = FencingSpec()


class TimeoutsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How long a phase of an attempt may last. After `start` and `rendezvous` a new attempt is made."""

    start: str = "15m"
    """From when all pods of the attempt have a node until all run. Waiting for capacity does not count, pulling images
    does."""
    rendezvous: str = "15m"
    """From when all pods run until all ranks have joined; counts only where a joined probe reports it, and had reported
    a member when the incident began."""
    resume: str = "15m"
    """From when all ranks have joined until the training reports progress in `TrainJob.status.trainerStatus`; counts
    only where it had reported progress before the incident. Then the incident closes as Recovered, and says that no
    progress was seen; nothing is restarted for it. 0s: an incident does not wait for progress."""
    finish: str = "10m"
    """How long a pod may stay Running after its training container has failed for good, because another container of it
    runs on; then a condition names that container. Nothing is restarted for it."""


class ElasticSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Lets a group go on with fewer nodes where lost ones are not replaced. Absent: it waits for all of its nodes.

    A size is a number of pods of the one Job that trains. It is never larger than the size that the job asks for. It
    takes the component `birth-settings`, by which the API server creates the Job with its size.
    """

    min_nodes: int
    """The group never goes on with fewer."""
    max_nodes: int
    """The largest size that it is shrunk to, or grown to. The size that the job asks for is allowed in any case."""
    allowed_sizes: tuple[int, ...] = ()
    """The sizes between both that the training can run with. Empty: every one, or those of `multipleOf`."""
    multiple_of: int = 1
    """Every size is a multiple of it, such as the nodes of one model replica."""
    shrink_after: str = "2m"
    """How long lost nodes may take to be replaced. It counts from the failure. A rule that says Shrink does not wait
    for it."""
    grow_back_after: str = "5m"
    """How long there must have been room without a break before the group grows. A growth that fails doubles it."""
    charge: bool = False
    """Does a change of the size cost budget."""


class PolicySpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a RecoveryPolicy or a ClusterRecoveryPolicy, as far as this version acts on it."""

    selector: Selector = Selector()
    priority: int = 0
    """The higher wins where several policies match a workload."""
    mode: Mode = Mode.OBSERVE
    restart: Restart = Restart.RECREATE_GROUP_ON_POD_RESTART
    rules: tuple[Rule, ...] = ()
    """The first that matches decides; where none does, `restart`."""
    override_native: bool = False
    """Act where the Job's or the JobSet's own policy decides, instead of standing aside."""
    settle: str = "2s"
    """How long a verdict that late evidence could change waits for it: only where a rule says Ignore or FailJob."""
    on_terminal_failure: OnTerminalFailure = OnTerminalFailure.LEAVE
    budget: BudgetSpec = BudgetSpec()
    backoff: BackoffSpec = BackoffSpec()
    teardown: TeardownSpec = TeardownSpec()
    timeouts: TimeoutsSpec = TimeoutsSpec()
    elastic: ElasticSpec | None = None
    """None: the group always comes back with all of its nodes."""
