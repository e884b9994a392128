"""Random walks: whatever happens in whatever order, the invariants hold, and in the end nobody hangs."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.core.facts import FailurePolicyFacts
from recovery.core.ledger import Ledger, Phase
from recovery.core.plan import DeleteJob, EmitEvent, Plan, RecordIncident
from recovery.core.policy import Mode, PolicyError, Restart
from tests.unit.core.cluster import Cluster
from tests.unit.core.driver import WORKLOAD_ACTIONS, Controller, policy
from tests.unit.core.test_native import on_condition, on_exit
from tests.unit.core.world import World, at, group, training

RANKS = 3
STEPS = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

rank = st.integers(0, RANKS - 1)
LOSSES = st.one_of(
    st.tuples(st.sampled_from(["deleted", "evicted"]), rank),
    st.tuples(st.sampled_from(["failed", "exited"]), rank, st.sampled_from([1, 42, 137])),
)
PLATFORM = st.one_of(
    st.sampled_from([("job deleted",), ("controller restarted",), ("deeds are lost",), ("look",)]),
    st.tuples(st.just("stale look"), st.integers(1, 6)),
    st.tuples(st.just("clock"), st.sampled_from([-40, -2, 3, 40])),
)
PEOPLE = st.sampled_from(
    [("paused",), ("resumed",), ("suspended",), ("unsuspended",), ("observe",), ("enforce",), ("no policy",), ("bad",)]
)
ENDS = st.sampled_from([("succeeded",), ("jobset failed",), ("deleted job",)])
WAIT = st.tuples(st.just("wait"), st.integers(1, 20))
WORLDS = {
    "plain": training(RANKS),
    "backoffLimit 2": training(RANKS, backoff_limit=2),
    "backoffLimit 0": training(RANKS, backoff_limit=0),
    "restarts itself": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=2), backoff_limit=1),
    "has rules": training(RANKS, rules=(on_exit("FailJob", 42), on_condition("Ignore"))),
    "has not trained": group(RANKS, born=-1),
}
WORLD = st.sampled_from(list(WORLDS))
PATIENT = {
    "plain": training(RANKS, backoff_limit=50),
    "restarts itself": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=1),
    "restarts itself at once": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=0),
}
"""Groups of which the platform does not give up however often they lose a member."""


class Walk:
    """A cluster, a controller, and what happens to both."""

    def __init__(self, world: World, controller: Controller) -> None:
        self.cluster = Cluster(world)
        self.controller = controller
        self.seconds = 0.3
        self.skew = 0.0
        """How far the controller's clock is ahead of everybody else's."""
        self.seen = [world]
        self.forgot = False
        self.hung: set[str] = set()
        """Jobs that lost a member after all had run: the other ranks wait for it for ever."""

    @property
    def world(self) -> World:
        return self.cluster.world

    def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("wait", seconds):
                for _ in range(seconds):
                    self.tick()
            case ("deleted" | "evicted" | "failed" | "exited", *_):
                self.lose(step)
            case ("clock", skew):
                self.skew = skew
            case ("stale look", looks):
                self.look(cached=self.seen[-min(looks, len(self.seen))])
                return
            case ("deeds are lost",):
                self.look(deeds=False)
                return
            case _:
                self.event(step[0])
        self.look()

    def tick(self) -> None:
        self.seconds += 1
        self.cluster.tick(self.seconds)
        self.look()

    def lose(self, step: tuple[Any, ...]) -> None:
        if not self.world.jobs or self.world.job.deleting_since is not None or self.world.job.suspended:
            return
        pod = self.world.find(step[1])
        if (
            pod is None
            or pod.gone_at is not None
            or pod.deleting_since is not None
            or pod.phase in {"Failed", "Succeeded"}
        ):
            return
        match step:
            case ("deleted", index):
                self.cluster.world = self.world.pod_deleted(index, self.seconds)
            case ("evicted", index):
                self.cluster.world = self.world.evicted(index, self.seconds)
            case ("failed", index, code) if pod.running:
                self.cluster.world = self.world.pod_failed(index, code, self.seconds)
            case ("exited", index, code) if pod.running:
                self.cluster.world = self.world.container_exited(index, code, self.seconds)
                self.cluster.world = self.world.with_job(failed=self.world.job.failed + 1)
            case _:
                return
        if self.world.job.uid in self.world.trained_at:
            self.hung.add(self.world.job.uid)

    def event(self, name: str) -> None:
        match name:
            case "controller restarted":
                self.forgot = True
                self.cluster.world = self.world.controller_restarted()
            case "observe":
                self.controller.policy = policy(Mode.OBSERVE, since=self.now)
            case "enforce":
                self.controller.policy = policy(since=self.now)
            case "no policy":
                self.controller.policy = None
            case "bad":
                self.controller.policy = PolicyError("spec: unreadable")
            case _:
                self.happen(name)

    def happen(self, name: str) -> None:
        match name:
            case "job deleted" if self.world.jobs and self.world.job.deleting_since is None:
                self.cluster.world = self.world.job_deleted(self.seconds)
            case "paused":
                self.cluster.world = self.world.paused()
            case "resumed":
                self.cluster.world = self.world.with_workload(annotations={})
            case "suspended" if self.world.jobs and self.world.job.deleting_since is None:
                self.suspend()
            case "unsuspended" if self.world.workload is not None and self.world.workload.suspended:
                self.hung.discard(self.world.job.uid)
                self.cluster.world = self.world.resumed(self.seconds)
            case "succeeded" if self.world.find(0) is not None and self.world.pod(0).running:
                self.cluster.world = self.world.succeeded(0)
            case "jobset failed":
                self.cluster.world = self.world.jobset_failed(self.seconds)
            case "deleted job":
                self.cluster.world = self.world.with_workload(deleting_since=self.world.job_template.created_at)
            case _:
                pass

    def suspend(self) -> None:
        assert self.world.workload is not None
        if self.world.workload.suspended:
            return
        world = self.world.suspended()
        for index in range(RANKS):
            world = world if world.find(index) is None else world.pod_gone(index, self.seconds)
        self.seconds += 2
        self.cluster.world = world

    @property
    def now(self) -> float:
        return self.seconds + self.skew

    def look(self, *, cached: World | None = None, deeds: bool = True) -> Plan:
        """One look, with everything that must hold of any look."""
        self.seen.append(self.world)
        stale = (cached or self.world).snapshot()
        plan = self.controller.plan_on(stale, self.world.snapshot(live=True), self.now)
        self.restraint(plan)
        self.controller.done += plan.first
        self.controller.write(plan)
        assert self.controller.ledger == plan.ledger, "what is written is what is read"
        for action in plan.actions:
            self.controller.done.append(action)
            if isinstance(action, DeleteJob):
                self.justified(action)
        if cached is None:
            self.repeatable(plan)
        for action in plan.actions if deeds else ():
            self.cluster.do(action, self.seconds)
        return plan

    def restraint(self, plan: Plan) -> None:
        now = self.controller.policy
        barred = now is None or isinstance(now, PolicyError) or now.mode is Mode.OBSERVE
        paused = self.world.workload is not None and bool(self.world.workload.annotations)
        if barred or paused:
            assert not any(isinstance(action, WORKLOAD_ACTIONS) for action in plan.actions), plan.reason

    def justified(self, action: DeleteJob) -> None:
        """No Job is taken down that did not hang, was not failing, and was not given up.

        But a controller that did not watch may take one that never trained for one that did (`core.history` says when).
        """
        if self.forgot:
            return
        job = next(job for job in self.world.jobs if job.uid == action.uid)
        failing = job.condition("FailureTarget") is not None
        given_up = (
            "got no pods" in self.controller.incident.reason or "not all ranks ran" in self.controller.incident.reason
        )
        assert job.uid in self.hung or failing or given_up, self.controller.incident.reason

    def repeatable(self, plan: Plan) -> None:
        """Deciding again on the same facts changes nothing, now and a second later."""
        closed = plan.ledger.incident is not None and plan.ledger.incident.closing is not None
        if closed or any(isinstance(action, RecordIncident) for action in plan.first):
            return
        for later in (0, 1):
            due = plan.look_again_at is not None and plan.look_again_at <= at(self.now + later)
            again = self.controller.plan(self.world, self.now + later)
            assert due or again.ledger == plan.ledger
            assert due or not any(isinstance(action, EmitEvent) for action in again.actions)


@STEPS
@given(WORLD, st.lists(st.one_of(LOSSES, WAIT, PLATFORM, PEOPLE, ENDS), max_size=14), st.integers(0, 3))
def test_whatever_happens_the_invariants_hold(world: str, steps: list[tuple[Any, ...]], limit: int) -> None:
    walk = Walk(WORLDS[world], Controller(policy(limit=limit)))
    for step in steps:
        walk.take(step)


@STEPS
@given(st.sampled_from(list(PATIENT)), st.lists(st.one_of(LOSSES, WAIT, PLATFORM), max_size=12))
def test_in_the_end_nobody_hangs_and_nothing_is_open(world: str, steps: list[tuple[Any, ...]]) -> None:
    walk = Walk(PATIENT[world], Controller(policy(limit=20)))
    for step in steps:
        walk.take(step)
    for _ in range(60):
        walk.tick()
    assert walk.controller.ledger.incident is None
    assert walk.controller.ledger.phase is Phase.HEALTHY
    assert walk.world.job.uid not in walk.hung
    assert all(walk.world.pod(index).ready for index in range(RANKS))
    ids = [incident.id for incident in walk.controller.recorded]
    assert len(ids) == len(set(ids)) == walk.controller.ledger.totals.incidents
    assert walk.controller.ledger.epoch == walk.controller.ledger.totals.restarts


@STEPS
@given(WORLD, st.lists(st.one_of(LOSSES, WAIT, PLATFORM), max_size=12), st.sampled_from(["observe", "none"]))
def test_observe_and_none_never_touch_the_workload(world: str, steps: list[tuple[Any, ...]], which: str) -> None:
    mild = policy(Mode.OBSERVE) if which == "observe" else policy(restart=Restart.NONE)
    walk = Walk(WORLDS[world], Controller(mild))
    for step in steps:
        walk.take(step)
    assert walk.controller.workload_actions == []
    assert walk.controller.ledger.totals.charged == 0 or which == "none"


@STEPS
@given(WORLD, st.lists(st.one_of(LOSSES, WAIT, PLATFORM, ENDS), max_size=10))
def test_the_ledger_survives_its_encoding(world: str, steps: list[tuple[Any, ...]]) -> None:
    walk = Walk(WORLDS[world], Controller())
    for step in steps:
        walk.take(step)
    ledger = walk.controller.ledger
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger
    assert msgspec.convert(msgspec.to_builtins(ledger), type=Ledger) == ledger
