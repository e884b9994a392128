"""Runs `decide` as the reconciler does, without an API server, and checks every step against the invariants."""

from datetime import timedelta

import msgspec

from recovery.core.decision.decide import decide
from recovery.core.incident.invariants import violations
from recovery.core.model.facts import Snapshot
from recovery.core.model.fleet_ledger import FleetChange, FleetLedger, FleetLimits
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.reason import Reason, as_said
from recovery.core.model.rules import Rule
from recovery.core.plan.actions import (
    Action,
    ChangeFleet,
    ClaimJob,
    DeleteJob,
    DeleteJobSet,
    DeletePods,
    EmitEvent,
    ExtendBackoffLimit,
    FailJobSet,
    ForceDeletePods,
    LeaveOutAgent,
    Plan,
    RaiseBackoffLimit,
    ReadLive,
    RecordIncident,
    ResumeWorkload,
    SuspendWorkload,
    TouchJob,
)
from recovery.core.policy.resolved import Backoff, Policy
from recovery.core.policy.spec import (
    FencingMode,
    Mode,
    OnExhausted,
    OnNativeIgnore,
    OnTerminalFailure,
    PolicyError,
    Restart,
    WhileWaiting,
)
from tests.unit.core.world import World, at

WORKLOAD_ACTIONS = (
    ClaimJob,
    DeleteJob,
    DeletePods,
    ExtendBackoffLimit,
    RaiseBackoffLimit,
    TouchJob,
    SuspendWorkload,
    ResumeWorkload,
    DeleteJobSet,
    FailJobSet,
    ForceDeletePods,
    LeaveOutAgent,
)
LIVE_ONLY = (
    ChangeFleet,
    ForceDeletePods,
    ClaimJob,
    DeleteJob,
    TouchJob,
    SuspendWorkload,
    ResumeWorkload,
    DeleteJobSet,
    FailJobSet,
    LeaveOutAgent,
)
NO_BACKOFF = Backoff(initial=timedelta())
NO_LIMITS = FleetLimits()
EMPTY_FLEET = FleetLedger()


def policy(
    mode: Mode = Mode.ENFORCE,
    *,
    since: float = -86_400,
    restart: Restart = Restart.RECREATE_GROUP_ON_POD_RESTART,
    limit: int = 10,
    window_seconds: float = 86_400,
    start_seconds: float = 900,
    grace_seconds: int | None = None,
    backoff: Backoff = NO_BACKOFF,
    on_exhausted: OnExhausted = OnExhausted.HOLD,
    on_terminal_failure: OnTerminalFailure = OnTerminalFailure.LEAVE,
    global_pause: str = "",
    may_fail_jobs: bool = False,
    rules: tuple[Rule, ...] = (),
    override_native: bool = False,
    on_native_ignore: OnNativeIgnore = OnNativeIgnore.RECREATE_GROUP,
    fencing: FencingMode = FencingMode.PROVEN,
    assume_dead_seconds: float = 60,
    may_assume_dead: bool = False,
    limits: FleetLimits = NO_LIMITS,
    fleet: FleetLedger = EMPTY_FLEET,
    namespace: str = "",
    elastic: PinnedElastic | None = None,
    while_waiting: WhileWaiting = WhileWaiting.HOLD,
) -> Policy:
    """The policy `default`, by default in force since a day before START. `namespace`: that of a RecoveryPolicy, whose
    rules a tenant wrote."""
    return Policy(
        name="default",
        title="RecoveryPolicy ml/default",
        uid="policy-1",
        generation=1,
        mode=mode,
        restart=restart,
        budget_limit=limit,
        budget_window=timedelta(seconds=window_seconds),
        grace_seconds=grace_seconds,
        start_timeout=timedelta(seconds=start_seconds),
        since=at(since),
        backoff=backoff,
        while_waiting=while_waiting,
        on_exhausted=on_exhausted,
        on_terminal_failure=on_terminal_failure,
        global_pause=as_said(Reason.GLOBAL_PAUSE, global_pause) if global_pause else None,
        may_fail_jobs=may_fail_jobs,
        rules=rules,
        override_native=override_native,
        on_native_ignore=on_native_ignore,
        fencing=fencing,
        assume_dead_after=timedelta(seconds=assume_dead_seconds),
        may_assume_dead=may_assume_dead,
        limits=limits,
        fleet=fleet,
        namespace=namespace,
        elastic=elastic,
    )


class Controller:
    """One controller process, as one group sees it. Its ledger is the one that the API server stores."""

    def __init__(self, policy_: Policy | PolicyError | None = None, ledger: Ledger | None = None) -> None:
        self.policy: Policy | PolicyError | None = policy() if policy_ is None else policy_
        self.ledger = Ledger() if ledger is None else ledger
        self.done: list[Action] = []
        self.live_reads = 0

    def plan(self, world: World, seconds: float) -> Plan:
        """The plan for this moment. Reads live facts if the plan asks for them, and writes nothing."""
        return self.plan_on(world.snapshot(), world.snapshot(live=True), seconds)

    def plan_on(self, cached: Snapshot, live: Snapshot, seconds: float) -> Plan:
        """The plan for this moment when the cache lags behind a live read."""
        plan = decide(cached, self.ledger, self.policy, at(seconds))
        if any(isinstance(action, ReadLive) for action in plan.actions):
            assert plan.ledger == self.ledger, "a plan that asks for a live read writes nothing yet"
            assert plan.actions == (ReadLive(),)
            self.live_reads += 1
            plan = decide(live, self.ledger, self.policy, at(seconds))
        else:
            assert not any(isinstance(action, LIVE_ONLY) for action in plan.actions), "never from a cache"
        assert not any(isinstance(action, ReadLive) for action in plan.actions), "read live once, not twice"
        assert plan.message, "a plan says why"
        assert violations(self.ledger, plan.ledger) == ()
        return plan

    def write(self, plan: Plan) -> None:
        """Writes the ledger and does nothing after it, as if the process had ended there."""
        self.ledger = msgspec.json.decode(msgspec.json.encode(plan.ledger), type=Ledger)

    def reconcile(self, world: World, seconds: float) -> Plan:
        """One reconcile, including its actions."""
        plan = self.plan(world, seconds)
        self.done += plan.first
        self.write(plan)
        self.done += plan.actions
        return plan

    def settle(self, world: World, seconds: float) -> Plan:
        """Reconciles until a closed incident has been put away."""
        plan = self.reconcile(world, seconds)
        while self.ledger.incident is not None and self.ledger.incident.closing is not None:
            plan = self.reconcile(world, seconds)
        return plan

    # --- what came of it -------------------------------------------------------------------------------------------

    @property
    def incident(self) -> Incident:
        assert self.ledger.incident is not None, "no incident is open"
        return self.ledger.incident

    def phase(self) -> Phase:
        return self.ledger.phase

    @property
    def recorded(self) -> list[Incident]:
        return [action.incident for action in self.done if isinstance(action, RecordIncident)]

    @property
    def triggers(self) -> list[DeleteJob]:
        return [action for action in self.done if isinstance(action, DeleteJob)]

    @property
    def pod_deletes(self) -> list[str]:
        """Names of the pods, in order."""
        return [pod.name for action in self.done if isinstance(action, DeletePods) for pod in action.pods]

    @property
    def forced(self) -> list[str]:
        """Names of the pods that were force-deleted, in order."""
        return [pod.name for action in self.done if isinstance(action, ForceDeletePods) for pod in action.pods]

    @property
    def fleet_changes(self) -> list[FleetChange]:
        return [action.change for action in self.done if isinstance(action, ChangeFleet)]

    @property
    def touches(self) -> list[TouchJob]:
        return [action for action in self.done if isinstance(action, TouchJob)]

    @property
    def events(self) -> list[str]:
        """Reasons of the Events, in order."""
        return [action.reason for action in self.done if isinstance(action, EmitEvent)]

    @property
    def workload_actions(self) -> list[Action]:
        return [action for action in self.done if isinstance(action, WORKLOAD_ACTIONS)]


def observing(**settings: object) -> Controller:
    return Controller(policy(Mode.OBSERVE, **settings))  # type: ignore[arg-type]
