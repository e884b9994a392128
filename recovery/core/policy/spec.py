"""The RecoveryPolicy as data: what a team's SRE allows to be done, its defaults, which policy applies to a workload.

Only what this version acts on stands here. The CRD (`manifests/crd`) declares the whole spec and refuses by name,
through CEL, what is not built yet, so that a policy never promises in silence what the controller does not do.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.model.annotations import OWN_ANNOTATION_PREFIX
from recovery.core.model.config import CONFIG_NAME, ConfigFacts, ConfigSpec
from recovery.core.model.durations import parse_duration, unreadable
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits
from recovery.core.model.rules import Rule
from recovery.core.policy import rule_validation

POLICY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}policy"
"""On the workload, set by a person: the policy to use, by name; of the namespace if it has one so called, else the
cluster's."""
PAUSED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}paused"
"""On the workload, set by a person: nothing is done to the job."""
SUSPENDED_BY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}suspended-by"
"""On a workload that we suspended, set with the suspension: the id of the incident. Whoever removes it takes the
suspension over, and we never resume what we did not suspend."""
RESUME_AT_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}resume-at"
"""Beside it: when the suspension is meant to end, RFC 3339; `never` where nobody knows yet. For people to read."""
RESTART_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}restart"
"""On the workload, set by a person: a request to recreate the group now, free of charge. Its value is an RFC 3339 time,
or JSON with `at` and, as wanted, `reason`, `by`, `force` (`core.incident.requests`). The ledger has the answer."""
RETRY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}retry"
"""On the workload, set by a person: a request to leave Held or Backoff now, written as for `restart`."""
RESET_BUDGET_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}reset-budget"
"""On the workload, set by a person: a request to forget what was charged to the budget so far, written as for
`restart`."""
JOINED_PROBE_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}joined-probe"
"""On the pod template of a prepared runtime: `readiness` says that a pod becomes Ready when its rank has joined all
others, so that Ready is the end of Rendezvous and not only of the start."""
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a workload that Kueue admits; there `spec.suspend` is Kueue's, and the controller does not suspend it."""
KUEUE_PATCH_MANAGER = "kueue.x-k8s.io/manager"
"""The manager of Kueue's entry in `spec.runtimePatches` of a TrainJob that it has admitted. Kueue also admits jobs
without a queue label (`manageJobsWithoutQueueName`)."""
TOUCHED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}touched"
"""On a Job that got no pods, set by the watchdog so that the Job controller looks at it again: the attempt for which
that was done, because one attempt touches once."""
SETTLE_MAX = "30s"
"""The longest `settle`: the shipped runtimes give a whole job up some seconds after a cascade of exits."""
ASSUME_DEAD_AFTER_MAX = "24h"
"""The longest `assumeDeadAfter`; whoever would wait longer means Proven."""


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
    Trainer makes it anew; that is an attempt like any other. Nobody would make a JobSet anew that has no TrainJob.
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
    """A group that has run whole for that long begins again at its first attempt."""


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
    """How long a phase of an attempt may last before a new attempt is made; longer than 0s."""

    start: str = "15m"
    """From when all pods of the attempt have a node until all run. Waiting for capacity does not count, pulling images
    does."""
    rendezvous: str = "15m"
    """From when all pods run until all ranks have joined; counts only where a joined probe tells of it, and had told of
    a member when the incident began."""
    finish: str = "10m"
    """How long a pod may stay Running after its training container has failed for good, because another container of it
    runs on; then a condition names that container. Nothing is restarted for it."""


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


class Backoff(msgspec.Struct, frozen=True):
    """`backoff` with its durations parsed."""

    initial: timedelta = timedelta(seconds=10)
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=5)
    reset_after: timedelta = timedelta(minutes=30)


class PolicyFacts(msgspec.Struct, frozen=True):
    """A RecoveryPolicy or a ClusterRecoveryPolicy with what the rules about time need to know of it."""

    name: str
    namespace: str
    """Empty: a ClusterRecoveryPolicy."""
    uid: str
    generation: int
    spec: PolicySpec
    created_at: datetime
    mode_since: datetime
    """When `spec.mode` was last written: evidence from before it is a baseline, never a failure."""
    deleting: bool = False

    @property
    def title(self) -> str:
        """Kind and name, as a message names it."""
        return (
            f"RecoveryPolicy {self.namespace}/{self.name}" if self.namespace else f"ClusterRecoveryPolicy {self.name}"
        )


class PolicySet(msgspec.Struct, frozen=True):
    """What people have laid down for the workloads of one namespace."""

    policies: tuple[PolicyFacts, ...] = ()
    """The namespace's own and the cluster's."""
    config: ConfigFacts | None = None
    """None: there is no RecoveryConfig, and its defaults hold."""


class Policy(msgspec.Struct, frozen=True):
    """A policy resolved for deciding: durations parsed, every default in place."""

    name: str
    title: str
    """Kind and name, as a message names it."""
    uid: str
    generation: int
    mode: Mode
    restart: Restart
    budget_limit: int
    budget_window: timedelta
    grace_seconds: int | None
    start_timeout: timedelta
    since: datetime
    """Evidence from before this moment is a baseline."""
    rendezvous_timeout: timedelta = timedelta(minutes=15)
    finish_timeout: timedelta = timedelta(minutes=10)
    on_exhausted: OnExhausted = OnExhausted.HOLD
    on_terminal_failure: OnTerminalFailure = OnTerminalFailure.LEAVE
    backoff: Backoff = Backoff()
    global_pause: str = ""
    """Why RecoveryConfig pauses all recoveries, in words; empty: it does not."""
    breaker: str = ""
    """Why the mode is Observe although the policy says Enforce: the open circuit breaker, in words, and how to close
    it. Empty: the mode is the policy's own."""
    may_fail_jobs: bool = False
    """RecoveryConfig allows FailJob."""
    rules: tuple[Rule, ...] = ()
    override_native: bool = False
    settle: timedelta = timedelta(seconds=2)
    fencing: FencingMode = FencingMode.PROVEN
    assume_dead_after: timedelta = timedelta(seconds=60)
    may_assume_dead: bool = False
    """RecoveryConfig allows to assume that a pod is dead."""
    limits: FleetLimits = FleetLimits()
    fleet: FleetLedger = FleetLedger()
    """What spans groups, as it was when this look began."""


def resolve(facts: PolicyFacts, config: ConfigFacts | None = None) -> Policy:
    """Validate what a schema cannot, and parse. Raises PolicyError naming the first field that is wrong."""
    spec = facts.spec
    for problem in problems(spec):
        raise PolicyError(problem)
    allowed = config.spec if config is not None else ConfigSpec()
    for problem in config_problems(allowed):
        raise PolicyError(f"RecoveryConfig {CONFIG_NAME} cannot be used: {problem}")
    breaker = config.breaker_words if config is not None and spec.mode is Mode.ENFORCE else ""
    return Policy(
        name=facts.name,
        title=facts.title,
        uid=facts.uid,
        generation=facts.generation,
        mode=Mode.OBSERVE if breaker else spec.mode,
        restart=spec.restart,
        budget_limit=spec.budget.limit,
        budget_window=parse_duration(spec.budget.window, "spec.budget.window"),
        grace_seconds=spec.teardown.grace_seconds,
        start_timeout=parse_duration(spec.timeouts.start, "spec.timeouts.start"),
        since=max(facts.created_at, facts.mode_since),
        rendezvous_timeout=parse_duration(spec.timeouts.rendezvous, "spec.timeouts.rendezvous"),
        finish_timeout=parse_duration(spec.timeouts.finish, "spec.timeouts.finish"),
        on_exhausted=spec.budget.on_exhausted,
        on_terminal_failure=spec.on_terminal_failure,
        backoff=Backoff(
            initial=parse_duration(spec.backoff.initial, "spec.backoff.initial"),
            factor=spec.backoff.factor,
            longest=parse_duration(spec.backoff.max, "spec.backoff.max"),
            reset_after=parse_duration(spec.backoff.reset_after, "spec.backoff.resetAfter"),
        ),
        global_pause=config.pause_words if config is not None else "",
        breaker=breaker,
        may_fail_jobs=allowed.allow.fail_job,
        rules=spec.rules,
        override_native=spec.override_native,
        settle=parse_duration(spec.settle, "spec.settle"),
        fencing=spec.teardown.fencing.mode,
        assume_dead_after=parse_duration(
            spec.teardown.fencing.assume_dead_after, "spec.teardown.fencing.assumeDeadAfter"
        ),
        may_assume_dead=allowed.allow.assume_dead,
        limits=fleet_limits(allowed),
        fleet=config.fleet if config is not None else FleetLedger(),
    )


def fleet_limits(allowed: ConfigSpec) -> FleetLimits:
    """Of a RecoveryConfig without problems."""
    quarantine, suspicion, breaker = allowed.quarantine, allowed.suspicion, allowed.circuit_breaker
    release, within = quarantine.release_after, parse_duration(suspicion.within, "spec.suspicion.within")
    released = None if release is None else parse_duration(release, "spec.quarantine.releaseAfter")
    counted = parse_duration(breaker.within if breaker is not None else "1h", "spec.circuitBreaker.within")
    return FleetLimits(
        may_cordon=allowed.allow.cordon,
        max_nodes=quarantine.max_nodes,
        max_percent=quarantine.max_percent,
        release_after_seconds=None if released is None else released.total_seconds(),
        suspicions=suspicion.suspicions,
        suspected_within_seconds=within.total_seconds(),
        breaker_recoveries=breaker.recoveries if breaker is not None else None,
        breaker_within_seconds=counted.total_seconds(),
    )


def problems(spec: PolicySpec) -> Iterator[str]:
    """Everything that is wrong with the spec: a sentence for each, the field's path first and then how to mend it."""
    if spec.budget.limit < 0:
        yield f"spec.budget.limit: {spec.budget.limit} is negative; 0 allows no recovery at all"
    yield from _no_time(spec.budget.window, "spec.budget.window", "no recovery would ever count")
    yield from _no_time(spec.timeouts.start, "spec.timeouts.start", "every start would be given up at once")
    grace = spec.teardown.grace_seconds
    if grace is not None and grace < 1:
        yield f"spec.teardown.graceSeconds: {grace} would force-delete pods that may still write; use 1 or more"
    yield from _no_time(
        spec.timeouts.rendezvous, "spec.timeouts.rendezvous", "every rendezvous would be given up at once"
    )
    yield from _no_time(spec.timeouts.finish, "spec.timeouts.finish", "every pod that ends would be reported at once")
    backoff = spec.backoff
    wrong = (*unreadable(backoff.initial, "spec.backoff.initial"), *unreadable(backoff.max, "spec.backoff.max"))
    yield from wrong
    if not wrong and parse_duration(backoff.max, "") < parse_duration(backoff.initial, ""):
        yield f"spec.backoff.max: {backoff.max} is shorter than spec.backoff.initial, {backoff.initial}"
    if not 1 <= backoff.factor <= 100:
        yield f"spec.backoff.factor: {backoff.factor} is not between 1 and 100"
    yield from unreadable(backoff.reset_after, "spec.backoff.resetAfter")
    yield from rule_validation.problems(spec.rules, "spec.rules")
    yield from _longer_than(SETTLE_MAX, spec.settle, "spec.settle", "nothing is repaired while the cause settles")
    yield from _longer_than(
        ASSUME_DEAD_AFTER_MAX,
        spec.teardown.fencing.assume_dead_after,
        "spec.teardown.fencing.assumeDeadAfter",
        "the group waits all that time",
    )


def config_problems(spec: ConfigSpec) -> Iterator[str]:
    """Everything that is wrong with the spec of the RecoveryConfig, in the same way."""
    quarantine, suspicion, breaker = spec.quarantine, spec.suspicion, spec.circuit_breaker
    if quarantine.max_nodes is not None and quarantine.max_nodes < 0:
        yield f"spec.quarantine.maxNodes: {quarantine.max_nodes} is negative; 0 allows no quarantine at all"
    if not 0 <= quarantine.max_percent <= 100:
        yield f"spec.quarantine.maxPercent: {quarantine.max_percent} is not between 0 and 100"
    if quarantine.release_after is not None:
        yield from _no_time(
            quarantine.release_after, "spec.quarantine.releaseAfter", "every node would be released at once"
        )
    if suspicion.suspicions < 1:
        yield f"spec.suspicion.suspicions: {suspicion.suspicions} would suspect every node; use 1 or more"
    yield from _no_time(suspicion.within, "spec.suspicion.within", "no suspicion would ever count")
    if breaker is None:
        return
    if breaker.recoveries < 1:
        yield (
            f"spec.circuitBreaker.recoveries: {breaker.recoveries} would open the breaker at once; use 1 or more, "
            "or spec.paused to stop all recoveries"
        )
    yield from _no_time(breaker.within, "spec.circuitBreaker.within", "no recovery would ever count")


def _no_time(text: str, path: str, otherwise: str) -> Iterator[str]:
    """A duration that cannot be read, or that is none; `otherwise` says what would come of that."""
    wrong = unreadable(text, path)
    yield from wrong
    if not wrong and not parse_duration(text, path):
        yield f"{path}: must be longer than 0s, or {otherwise}"


def _longer_than(longest: str, text: str, path: str, because: str) -> Iterator[str]:
    """A duration that cannot be read, or that is longer than is good for a job."""
    wrong = unreadable(text, path)
    yield from wrong
    if not wrong and parse_duration(text, path) > parse_duration(longest, path):
        yield f"{path}: {text} is longer than {longest}, and {because}; use {longest} or less"


def select(policies: Iterable[PolicyFacts], workload: WorkloadFacts) -> PolicyFacts | None:
    """The policy that applies: the workload's annotation, else the highest priority, then the oldest, then by name.

    A policy of the namespace goes before every policy of the cluster, whatever their priorities: the cluster gives the
    default. An annotation that names no existing policy selects none: a user who asked for one policy is not given
    another.
    """
    present = [policy for policy in policies if not policy.deleting]
    wanted = workload.annotations.get(POLICY_ANNOTATION)
    if wanted is not None:
        matching = [policy for policy in present if policy.name == wanted]
    else:
        matching = [
            policy
            for policy in present
            if all(workload.labels.get(key) == value for key, value in policy.spec.selector.match_labels.items())
        ]
    return min(
        matching,
        key=lambda policy: (not policy.namespace, -policy.spec.priority, policy.created_at, policy.name),
        default=None,
    )


def applicable(laid_down: PolicySet, workload: WorkloadFacts) -> Policy | PolicyError | None:
    """The policy that applies, resolved. None: none does; PolicyError: it cannot be used, and which one it is."""
    chosen = select(laid_down.policies, workload)
    if chosen is None:
        return None
    try:
        return resolve(chosen, laid_down.config)
    except PolicyError as error:
        return PolicyError(f"{chosen.title}: {error}")


def paused(workload: WorkloadFacts) -> bool:
    """The `paused` annotation is set to anything but "false"."""
    return workload.annotations.get(PAUSED_ANNOTATION, "false") != "false"
