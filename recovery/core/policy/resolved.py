"""A RecoveryPolicy in the form that decisions use: parsed, and limited to what the RecoveryConfig allows."""

from datetime import datetime, timedelta

import msgspec

from recovery.core.model.config import CONFIG_NAME, ConfigFacts, ConfigSpec
from recovery.core.model.durations import parse_duration
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.proof import digest_of
from recovery.core.model.reason import Explanation
from recovery.core.model.rules import Rule
from recovery.core.policy.enforcement import Enforcement, enforcement
from recovery.core.policy.spec import (
    ElasticSpec,
    FencingMode,
    Mode,
    OnExhausted,
    OnNativeIgnore,
    OnTerminalFailure,
    PolicyError,
    PolicySpec,
    ProofSpec,
    Restart,
    Selector,
    WhileWaiting,
)
from recovery.core.policy.validation import config_problems, problems


class Backoff(msgspec.Struct, frozen=True):
    """`backoff` with its durations parsed."""

    initial: timedelta = timedelta(seconds=10)
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=5)
    reset_after: timedelta = timedelta(minutes=30)
    min_interval: timedelta = timedelta()


class InPlace(msgspec.Struct, frozen=True):
    """`inPlace` with its timeout parsed."""

    enabled: bool = False
    alone: int = 3
    max_in_a_row: int = 3
    timeout: timedelta = timedelta(seconds=60)


class PolicyFacts(msgspec.Struct, frozen=True):
    """A RecoveryPolicy or a ClusterRecoveryPolicy, with the dates that decide since when it is in mode Enforce."""

    name: str
    namespace: str
    """Empty: a ClusterRecoveryPolicy."""
    uid: str
    generation: int
    spec: PolicySpec
    created_at: datetime
    mode_since: datetime
    """When an owner of `spec.mode` last wrote any field."""
    deleting: bool = False
    resource_version: str = ""
    recorded: Enforcement = Enforcement()
    """What the status says about the mode."""

    @property
    def enforcement(self) -> Enforcement:
        """What the status should say about the mode."""
        return enforcement(
            self.recorded,
            enforces=self.spec.mode is Mode.ENFORCE,
            generation=self.generation,
            created_at=self.created_at,
            mode_since=self.mode_since,
        )

    @property
    def since(self) -> datetime:
        """Evidence from before this moment is a baseline."""
        return self.enforcement.enforced_since or max(self.created_at, self.mode_since)

    @property
    def title(self) -> str:
        """Kind and name, as a message names it."""
        return (
            f"RecoveryPolicy {self.namespace}/{self.name}" if self.namespace else f"ClusterRecoveryPolicy {self.name}"
        )


class Policy(msgspec.Struct, frozen=True):
    """A policy resolved for decisions: durations parsed, all defaults filled in."""

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
    resume_timeout: timedelta = timedelta(minutes=15)
    """Zero: no incident waits for progress."""
    finish_timeout: timedelta = timedelta(minutes=10)
    on_exhausted: OnExhausted = OnExhausted.HOLD
    on_terminal_failure: OnTerminalFailure = OnTerminalFailure.LEAVE
    while_waiting: WhileWaiting = WhileWaiting.HOLD
    capacity_wait: timedelta = timedelta(minutes=30)
    backoff: Backoff = Backoff()
    global_pause: Explanation | None = None
    """Why RecoveryConfig pauses all recoveries. None: they are not paused."""
    breaker: Explanation | None = None
    """Why the mode is Observe although the policy says Enforce: the circuit breaker is open. None: the mode is the
    policy's own."""
    may_fail_jobs: bool = False
    """RecoveryConfig allows FailJob."""
    rules: tuple[Rule, ...] = ()
    override_native: bool = False
    on_native_ignore: OnNativeIgnore = OnNativeIgnore.RECREATE_GROUP
    settle: timedelta = timedelta(seconds=2)
    fencing: FencingMode = FencingMode.PROVEN
    assume_dead_after: timedelta = timedelta(seconds=60)
    may_assume_dead: bool = False
    """RecoveryConfig allows policies to assume that a pod is dead."""
    limits: FleetLimits = FleetLimits()
    fleet: FleetLedger = FleetLedger()
    """The ledger that spans groups, as it was when this reconcile began."""
    in_place: InPlace = InPlace()
    elastic: PinnedElastic | None = None
    """None: groups always restart with all of their nodes."""
    namespace: str = ""
    """Namespace of the RecoveryPolicy, whose rules a tenant may have written. Empty: a ClusterRecoveryPolicy."""
    digest: str = ""
    """A hash of the fields of the policy that decide about recoveries."""
    proof_max_age: timedelta | None = None
    """`drill.maxAge`. None: a proof never expires."""


def resolve(facts: PolicyFacts, config: ConfigFacts | None = None) -> Policy:
    """Validate what a schema cannot, and parse. Raises PolicyError that names the first invalid field."""
    spec = facts.spec
    for problem in problems(spec):
        raise PolicyError(problem)
    allowed = config.spec if config is not None else ConfigSpec()
    for problem in config_problems(allowed):
        raise PolicyError(f"RecoveryConfig {CONFIG_NAME} cannot be used: {problem}")
    breaker = config.breaker if config is not None and spec.mode is Mode.ENFORCE else None
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
        since=facts.since,
        rendezvous_timeout=parse_duration(spec.timeouts.rendezvous, "spec.timeouts.rendezvous"),
        resume_timeout=parse_duration(spec.timeouts.resume, "spec.timeouts.resume"),
        finish_timeout=parse_duration(spec.timeouts.finish, "spec.timeouts.finish"),
        on_exhausted=spec.budget.on_exhausted,
        on_terminal_failure=spec.on_terminal_failure,
        while_waiting=spec.while_waiting,
        capacity_wait=parse_duration(spec.capacity_wait, "spec.capacityWait"),
        backoff=Backoff(
            initial=parse_duration(spec.backoff.initial, "spec.backoff.initial"),
            factor=spec.backoff.factor,
            longest=parse_duration(spec.backoff.max, "spec.backoff.max"),
            reset_after=parse_duration(spec.backoff.reset_after, "spec.backoff.resetAfter"),
            min_interval=parse_duration(spec.backoff.min_interval, "spec.backoff.minInterval"),
        ),
        global_pause=config.pause if config is not None else None,
        breaker=breaker,
        may_fail_jobs=allowed.allow.fail_job,
        rules=spec.rules,
        override_native=spec.override_native,
        on_native_ignore=spec.on_native_ignore,
        settle=parse_duration(spec.settle, "spec.settle"),
        fencing=spec.teardown.fencing.mode,
        assume_dead_after=parse_duration(
            spec.teardown.fencing.assume_dead_after, "spec.teardown.fencing.assumeDeadAfter"
        ),
        may_assume_dead=allowed.allow.assume_dead,
        limits=fleet_limits(allowed),
        fleet=config.fleet if config is not None else FleetLedger(),
        in_place=InPlace(
            enabled=spec.in_place.enabled,
            alone=spec.in_place.alone,
            max_in_a_row=spec.in_place.max_in_a_row,
            timeout=parse_duration(spec.timeouts.in_place, "spec.timeouts.inPlace"),
        ),
        elastic=_elastic(spec.elastic) if spec.elastic is not None else None,
        namespace=facts.namespace,
        digest=_digest(spec),
        proof_max_age=None if spec.drill.max_age is None else parse_duration(spec.drill.max_age, "spec.drill.maxAge"),
    )


def _digest(spec: PolicySpec) -> str:
    """Which jobs the policy selects, and how old a proof may be, decides about no recovery."""
    return digest_of(msgspec.structs.replace(spec, selector=Selector(), priority=0, drill=ProofSpec()))


def _elastic(spec: ElasticSpec) -> PinnedElastic:
    return PinnedElastic(
        min_nodes=spec.min_nodes,
        max_nodes=spec.max_nodes,
        allowed_sizes=tuple(sorted(spec.allowed_sizes)),
        multiple_of=spec.multiple_of,
        shrink_after_seconds=parse_duration(spec.shrink_after, "spec.elastic.shrinkAfter").total_seconds(),
        grow_back_after_seconds=parse_duration(spec.grow_back_after, "spec.elastic.growBackAfter").total_seconds(),
        charge=spec.charge,
    )


def fleet_limits(allowed: ConfigSpec) -> FleetLimits:
    """The limits in a RecoveryConfig that has been validated."""
    quarantine, suspicion, breaker = allowed.quarantine, allowed.suspicion, allowed.circuit_breaker
    release, within = quarantine.release_after, parse_duration(suspicion.within, "spec.suspicion.within")
    released = None if release is None else parse_duration(release, "spec.quarantine.releaseAfter")
    counted = parse_duration(breaker.within if breaker is not None else "1h", "spec.circuitBreaker.within")
    return FleetLimits(
        may_cordon=allowed.allow.cordon,
        cordons=quarantine.cordon,
        max_nodes=quarantine.max_nodes,
        max_percent=quarantine.max_percent,
        release_after_seconds=None if released is None else released.total_seconds(),
        suspicions=suspicion.suspicions,
        suspected_within_seconds=within.total_seconds(),
        trusted_namespaces=frozenset(quarantine.trusted_namespaces),
        breaker_recoveries=breaker.recoveries if breaker is not None else None,
        breaker_within_seconds=counted.total_seconds(),
    )
