"""Random walks: whatever happens in whatever order, the invariants hold, and in the end nobody hangs."""

from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.core.fleet.quarantine import Refused, changed
from recovery.core.incident import requests
from recovery.core.incident.fencing import fates_of_nodes
from recovery.core.incident.preconditions import barred
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.annotations import PAUSED_ANNOTATION, SUSPENDED_BY_ANNOTATION
from recovery.core.model.fleet_ledger import FleetLimits
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.plan.actions import (
    Action,
    ChangeFleet,
    DeleteJob,
    EmitEvent,
    ForceDeletePods,
    Plan,
    RecordIncident,
    ResumeWorkload,
    SuspendWorkload,
)
from recovery.core.plan.suspension import in_force, marked_by
from recovery.core.policy.resolved import Backoff, Policy
from recovery.core.policy.spec import FencingMode, Mode, OnExhausted, OnTerminalFailure, PolicyError, Restart
from tests.unit.core.cluster import Cluster
from tests.unit.core.diagnosis.test_native_policies import on_condition, on_exit
from tests.unit.core.driver import WORKLOAD_ACTIONS, Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

RANKS = 3
STEPS = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
MANY_STEPS = settings(STEPS, max_examples=200)

rank = st.integers(0, RANKS - 1)
LOSSES = st.one_of(
    st.tuples(st.sampled_from(["deleted", "evicted"]), rank),
    st.tuples(st.just("exited"), rank, st.sampled_from([1, 42, 137])),
)
PLATFORM = st.one_of(
    st.sampled_from([("job deleted",), ("controller restarted",), ("deeds are lost",), ("look",)]),
    st.sampled_from([("deeds are done twice",), ("deeds are late",)]),
    st.sampled_from([("unreadable",), ("readable",)]),
    st.tuples(st.just("stale look"), st.integers(1, 6)),
    st.tuples(st.just("clock"), st.sampled_from([-40, -2, 3, 40])),
)
PEOPLE = st.one_of(
    st.sampled_from([("paused",), ("not paused",), ("suspended",), ("unsuspended",), ("recovery resume",)]),
    st.sampled_from([("takes the suspension over",), ("observe",), ("enforce",), ("no policy",), ("bad",)]),
    st.sampled_from([("paused everywhere",), ("no restarts",), ("other terms",), ("may not fail jobs",)]),
    st.tuples(st.just("asks"), st.sampled_from(list(Verb)), st.booleans()),
)
NODES = st.one_of(st.tuples(st.just("node silent"), rank), st.sampled_from([("nodes back",), ("proven dead",)]))
ENDS = st.sampled_from([("succeeded",), ("jobset failed",), ("deleted job",)])
WAIT = st.tuples(st.just("wait"), st.integers(1, 20))
WORLDS = {
    "plain": training(RANKS),
    "backoffLimit 2": training(RANKS, backoff_limit=2),
    "backoffLimit 0": training(RANKS, backoff_limit=0),
    "restarts itself": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=2), backoff_limit=1),
    "has rules": training(RANKS, rules=(on_exit("FailJob", 42), on_condition("Ignore"))),
    "has not trained": group(RANKS, born=-1),
    "has a deadline": training(RANKS, backoff_limit=50).with_workload(active_deadline_seconds=3600),
    "restarts in place": training(RANKS, restart_policy="OnFailure"),
    "restarts in place, backoffLimit 2": training(RANKS, restart_policy="OnFailure", backoff_limit=2),
}
WORLD = st.sampled_from(list(WORLDS))
PATIENT = {
    "plain": training(RANKS, backoff_limit=50),
    "restarts in place": training(RANKS, restart_policy="OnFailure", backoff_limit=50),
    "has a deadline": training(RANKS, backoff_limit=50).with_workload(active_deadline_seconds=3600),
    "restarts itself": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=1),
    "restarts itself at once": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=0),
}
"""Groups of which the platform does not give up however often they lose a member."""
TERMS: dict[str, dict[str, Any]] = {
    "hold": {},
    "backoff": {"backoff": Backoff(initial=timedelta(seconds=5))},
    "suspend": {"window_seconds": 40, "on_exhausted": OnExhausted.SUSPEND},
    "fail": {"on_exhausted": OnExhausted.FAIL_JOB, "may_fail_jobs": True},
    "anew": {
        "on_terminal_failure": OnTerminalFailure.RECREATE_JOB_SET,
        "backoff": Backoff(initial=timedelta(seconds=5)),
        "on_exhausted": OnExhausted.SUSPEND,
        "window_seconds": 60,
    },
    "rules": {
        "rules": (
            Rule("skip", RuleAction.IGNORE, When(on_exit_codes=ExitCodes(Operator.IN, (42,)))),
            Rule("node", RuleAction.REPLACE_NODE, When(on_exit_codes=ExitCodes(Operator.IN, (1,)))),
            Rule("free", RuleAction.RECREATE_GROUP, When(on_class=("PodDisrupted",)), charge=False),
        ),
        "limits": FleetLimits(may_cordon=True, max_nodes=1, breaker_recoveries=50),
        "fencing": FencingMode.ASSUME_DEAD,
        "assume_dead_seconds": 5,
        "may_assume_dead": True,
    },
    "fail rule": {
        "rules": (Rule("end", RuleAction.FAIL_JOB, When(on_exit_codes=ExitCodes(Operator.IN, (42,)))),),
        "may_fail_jobs": True,
        "fencing": FencingMode.ASSUME_DEAD,
        "assume_dead_seconds": 0,
    },
    "after start": {"restart": Restart.RECREATE_GROUP_AFTER_START, "backoff": Backoff(initial=timedelta(seconds=5))},
}
"""What policies say beyond the mode, and how many recoveries they allow."""


class Walk:
    """A cluster, a controller, and what happens to both."""

    def __init__(self, world: World, controller: Controller, **terms: Any) -> None:
        self.cluster = Cluster(world)
        self.controller = controller
        self.pinned = terms
        self.late: list[Action] = []
        """Actions that have been sent and have not arrived."""
        self.ended_by_user: set[str] = set()
        """Incidents whose suspension a user has ended."""
        self.seconds = 0.3
        self.skew = 0.0
        """How far the controller's clock is ahead of everybody else's."""
        self.seen = [world]
        self.forgot = False
        self.hung: set[str] = set()
        """Jobs that lost a member after all had run: the other ranks wait for it for ever."""
        self.waiting: dict[str, set[tuple[str, int]]] = {}
        """The processes of those Jobs that ran when the member was lost: pods by UID, and their restarts."""
        self.cut_off: set[str] = set()
        """The same, until the member's node answers again."""

    @property
    def world(self) -> World:
        return self.cluster.world

    def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("wait", seconds):
                for _ in range(seconds):
                    self.tick()
            case ("deleted" | "evicted" | "exited", *_):
                self.lose(step)
            case ("node silent", index):
                self.silence(index)
            case ("clock", skew):
                self.skew = skew
            case ("stale look", reconciles):
                self.reconcile(cached=self.seen[-min(reconciles, len(self.seen))])
                return
            case ("deeds are lost",):
                self.reconcile(times=0)
                return
            case ("deeds are done twice",):
                self.reconcile(times=2)
                return
            case ("deeds are late",):
                self.late += self.reconcile(times=0).actions
                return
            case ("asks", verb, force):
                if self.world.workload is not None:
                    value = requests.encode(Request(at(self.seconds), force=force))
                    self.cluster.world = self.world.asked(requests.ANNOTATIONS[verb], value)
            case _:
                self.event(step[0])
        self.reconcile()

    def tick(self) -> None:
        self.pass_a_second()
        self.reconcile()

    def pass_a_second(self) -> None:
        self.seconds += 1
        self.cluster.tick(self.seconds)
        if self.world.jobs and self.world.job.suspended:
            self.hung.discard(self.world.job.uid)
        self.meet_again()
        late, self.late = self.late, []
        for action in late:
            self.cluster.do(action, self.seconds)

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
        processes = self.processes()
        match step:
            case ("deleted", index):
                self.cluster.world = self.world.pod_deleted(index, self.seconds)
            case ("evicted", index):
                self.cluster.world = self.world.evicted(index, self.seconds)
            case ("exited", index, code) if pod.running and self.world.job.pod_restart_policy == "Never":
                self.cluster.world = self.world.pod_failed(index, code, self.seconds)
            case ("exited", index, code) if pod.running:
                self.cluster.world = self.world.container_exited(index, code, self.seconds)
                self.cluster.world = self.world.with_job(failed=self.world.job.failed + 1)
            case _:
                return
        if self.world.job.uid in self.world.trained_at:
            self.hung.add(self.world.job.uid)
            self.waiting.setdefault(self.world.job.uid, processes)

    def processes(self, *, ready: bool = False) -> set[tuple[str, int]]:
        """Of the ranks that run; `ready`: of those that are Ready."""
        pods = [self.world.find(index) for index in range(RANKS)] if self.world.jobs else []
        running = (pod for pod in pods if pod is not None and pod.running and (pod.ready or not ready))
        return {(pod.uid, pod.containers[0].restarts) for pod in running}

    def meet_again(self) -> None:
        """Ranks all of which have begun again since the loss, and are Ready, wait for nobody that is gone."""
        uid, processes = self.world.job.uid if self.world.jobs else "", self.processes(ready=True)
        if len(processes) == RANKS and processes.isdisjoint(self.waiting.get(uid, processes)):
            self.hung.discard(uid)
            del self.waiting[uid]

    def silence(self, index: int) -> None:
        """The node of that rank does not answer any more; its processes may live."""
        pod = self.world.find(index) if self.world.jobs else None
        if pod is None or not pod.node or pod.gone_at is not None or not self.cluster.answers(pod.node):
            return
        self.cluster.world = self.world.node_silent(pod.node, self.seconds)
        if self.world.job.uid in self.world.trained_at:
            self.cut_off.add(self.world.job.uid)

    def nodes_back(self) -> None:
        """Every node answers again; the pods that run there are Ready again."""
        silent = frozenset(self.world.nodes)
        self.cut_off.clear()
        self.cluster.world = msgspec.structs.replace(self.world, nodes={}, gone_nodes=frozenset())
        for pod in self.world.pods:
            if pod.node in silent and pod.running and pod.index is not None and self.world.pod(pod.index) == pod:
                self.cluster.world = self.world.pod_ready(pod.index, self.seconds)

    def event(self, name: str) -> None:
        match name:
            case "nodes back":
                self.nodes_back()
            case "proven dead":
                silent = frozenset(name for name, node in self.world.nodes.items() if not node.reachable)
                self.cluster.world = msgspec.structs.replace(self.world, gone_nodes=silent)
            case "controller restarted":
                self.forgot = True
                self.cluster.world = self.world.controller_restarted()
            case "observe":
                self.controller.policy = policy(Mode.OBSERVE, since=self.now, **self.pinned)
            case "enforce":
                self.controller.policy = policy(since=self.now, **self.pinned)
            case "paused everywhere":
                self.controller.policy = policy(**self.pinned, global_pause="RecoveryConfig default pauses all")
            case "no restarts":
                self.controller.policy = policy(**{**self.pinned, "restart": Restart.NONE})
            case "other terms":
                self.controller.policy = policy(limit=1, on_exhausted=OnExhausted.SUSPEND, window_seconds=30)
            case "may not fail jobs":
                self.controller.policy = policy(**{**self.pinned, "may_fail_jobs": False})
            case "no policy" | "bad":
                self.controller.policy = PolicyError("spec: unreadable") if name == "bad" else None
            case "unreadable" | "readable":
                self.cluster.world = self.world.unreadable() if name == "unreadable" else self.world.readable()
            case _:
                self.happen(name)

    def happen(self, name: str) -> None:
        match name:
            case "job deleted" if self.world.jobs and self.world.job.deleting_since is None:
                self.cluster.world = self.world.job_deleted(self.seconds)
            case "paused" if self.world.workload is not None:
                self.cluster.world = self.world.asked(PAUSED_ANNOTATION, "true")
            case "not paused":
                self.remove_annotation(PAUSED_ANNOTATION)
            case "suspended" if self.world.workload is not None:
                self.cluster.world = self.world.with_workload(suspended=True)
            case "takes the suspension over":
                self.remove_annotation(SUSPENDED_BY_ANNOTATION)
            case "unsuspended" if self.world.workload is not None:
                self.user_resumes()
            case "recovery resume" if self.world.workload is not None:
                self.user_resumes()
                self.remove_annotation(SUSPENDED_BY_ANNOTATION)
            case "succeeded" if self.world.jobs and self.world.find(0) is not None and self.world.pod(0).running:
                self.cluster.world = self.world.succeeded(0)
            case "jobset failed" if self.world.jobset is not None:
                self.cluster.world = self.world.jobset_failed(self.seconds)
            case "deleted job":
                self.cluster.world = self.world.with_workload(deleting_since=self.world.job_template.created_at)
            case _:
                pass

    def remove_annotation(self, name: str) -> None:
        assert self.world.workload is not None
        left = {key: value for key, value in self.world.workload.annotations.items() if key != name}
        self.cluster.world = self.world.with_workload(annotations=left)

    def user_resumes(self) -> None:
        workload, open_ = self.world.workload, self.controller.ledger.incident
        assert workload is not None
        if in_force(workload) and open_ is not None and open_.suspension is not None and open_.suspension.landed:
            self.ended_by_user.add(open_.id)
        self.cluster.world = self.world.with_workload(suspended=False)

    @property
    def now(self) -> float:
        return self.seconds + self.skew

    def reconcile(self, *, cached: World | None = None, times: int = 1) -> Plan:
        """One reconcile, with everything that must hold of any reconcile; its actions are carried out so many times."""
        self.seen.append(self.world)
        stale = (cached or self.world).snapshot()
        before = self.controller.ledger
        plan = self.controller.plan_on(stale, self.world.snapshot(live=True), self.now)
        self.restraint(plan, unreadable=cached is None and bool(self.world.undecodable))
        self.suspensions(before, plan)
        self.controller.done += plan.first
        self.controller.write(plan)
        assert self.controller.ledger == plan.ledger, "what is written is what is read"
        for action in plan.actions:
            self.controller.done.append(action)
            if isinstance(action, DeleteJob):
                self.justified(action)
            if isinstance(action, ForceDeletePods):
                self.proven(action)
            if isinstance(action, ChangeFleet) and times:
                self.fleet(action)
        if cached is None:
            self.repeatable(plan)
        for action in plan.actions * times:
            self.cluster.do(action, self.seconds)
        return plan

    def restraint(self, plan: Plan, *, unreadable: bool) -> None:
        """Nobody is touched where that is barred, but that a suspension of ours is ended, and what a person forced.

        `unreadable`: the reconcile has seen that an object cannot be read: nobody is touched at all.
        """
        assert not unreadable or not any(isinstance(action, WORKLOAD_ACTIONS) for action in plan.actions), plan.message
        workload, open_ = self.world.workload, plan.ledger.incident
        assert workload is not None
        forced = open_ is not None and open_.forced
        if barred(workload, self.controller.policy, forced=forced) is not None:
            actions = [action for action in plan.actions if isinstance(action, WORKLOAD_ACTIONS)]
            assert all(isinstance(action, ResumeWorkload) for action in actions), plan.message

    def proven(self, action: ForceDeletePods) -> None:
        """Nobody is force-deleted who may live, as far as the policy and the platform do not take him for dead."""
        fates = fates_of_nodes(self.world.snapshot(live=True), self.controller.policy, at(self.now))
        uids = {pod.uid for pod in action.pods}
        for pod in self.world.pods:
            assert pod.uid not in uids or fates[pod.node].dead_since is not None

    def fleet(self, action: ChangeFleet) -> None:
        """What the executor makes of it: within the caps, and the same again changes nothing."""
        policy_ = self.controller.policy
        if not isinstance(policy_, Policy):
            return
        nodes = self.world.cluster_nodes
        after = changed(policy_.fleet, policy_.limits, action.change, nodes=nodes, now=at(self.now))
        assert not isinstance(after, Refused), "the decision has asked the caps"
        assert len(after.quarantined) <= 1
        assert changed(after, policy_.limits, action.change, nodes=nodes, now=at(self.now)) == after
        self.pinned["fleet"] = after
        self.controller.policy = msgspec.structs.replace(policy_, fleet=after)

    def suspensions(self, before: Ledger, plan: Plan) -> None:
        """Suspended is only what an open incident wants suspended, and resumed only what carries our mark."""
        workload, open_ = self.world.workload, plan.ledger.incident
        assert workload is not None
        actions = [action for action in plan.actions if isinstance(action, SuspendWorkload | ResumeWorkload)]
        assert len(actions) <= 1, actions
        for action in actions:
            if isinstance(action, ResumeWorkload):
                assert action.suspended_by == marked_by(workload)
                continue
            assert open_ is not None
            assert open_.closing is None
            assert open_.suspension is not None
            assert not workload.suspended
            assert marked_by(workload) is None
            assert action.incident_id == open_.id
            assert open_.id not in self.ended_by_user, plan.message

    def justified(self, action: DeleteJob) -> None:
        """No Job is taken down that did not hang, was not failing, and was not given up.

        But a controller that did not watch may take one that never trained for one that did (`core.diagnosis.trained`
        says when).
        """
        if self.forgot:
            return
        job = next(job for job in self.world.jobs if job.uid == action.uid)
        failing = job.condition("FailureTarget") is not None
        reason = self.controller.incident.message
        given_up = "got no pods" in reason or "not all ranks ran" in reason or "asked for" in reason
        assert job.uid in self.hung | self.cut_off or failing or given_up or job.suspended, reason

    def repeatable(self, plan: Plan) -> None:
        """Deciding again on the same facts changes nothing, now and a second later."""
        closed = plan.ledger.incident is not None and plan.ledger.incident.closing is not None
        if closed or any(isinstance(action, RecordIncident) for action in plan.first):
            return
        for later in (0, 1):
            due = plan.requeue_at is not None and plan.requeue_at <= at(self.now + later)
            again = self.controller.plan(self.world, self.now + later)
            # What is left of a budget is shown as of the reconcile: a charge may leave the window in that second.
            shown = plan.ledger if later else again.ledger
            found = msgspec.structs.replace(again.ledger, budget=shown.budget, conditions=shown.conditions)
            assert due or found == plan.ledger
            assert due or not any(isinstance(action, EmitEvent) for action in again.actions)


@MANY_STEPS
@given(
    WORLD,
    st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM, PEOPLE, ENDS), max_size=14),
    st.integers(0, 3),
    st.sampled_from(list(TERMS)),
)
def test_whatever_happens_the_invariants_hold(world: str, steps: list[tuple[Any, ...]], limit: int, terms: str) -> None:
    walk = Walk(WORLDS[world], Controller(policy(limit=limit, **TERMS[terms])), limit=limit, **TERMS[terms])
    for step in steps:
        walk.take(step)


@MANY_STEPS
@given(
    WORLD,
    st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM, PEOPLE), max_size=14),
    st.integers(0, 3),
    st.sampled_from(list(TERMS)),
)
def test_once_all_is_quiet_nothing_waits_for_what_will_not_come(
    world: str, steps: list[tuple[Any, ...]], limit: int, terms: str
) -> None:
    """Reconciles only where something has changed or a plan has asked for one: no timer may be forgotten."""
    walk = Walk(WORLDS[world], Controller(policy(limit=limit, **TERMS[terms])), limit=limit, **TERMS[terms])
    for step in steps:
        walk.take(step)
    walk.skew = 0
    walk.nodes_back()
    walk.event("readable")
    plan = walk.reconcile()
    for _ in range(150):
        before = walk.world
        walk.pass_a_second()
        closing = plan.ledger.incident is not None and plan.ledger.incident.closing is not None
        due = plan.requeue_at is not None and plan.requeue_at <= at(walk.now)
        if due or closing or walk.world != before:
            plan = walk.reconcile()
    ledger, workload = walk.controller.ledger, walk.world.workload
    assert workload is not None
    wanted = ledger.incident is not None and ledger.incident.suspension is not None
    assert (marked_by(workload) is not None) <= (wanted and ledger.phase is Phase.HELD)
    if ledger.incident is not None:
        policy_ = walk.controller.policy
        assert ledger.phase is Phase.HELD or barred(workload, policy_) is not None, ledger.incident.message
        exhausted = ledger.incident.pinned.budget_limit == 0 or plan.requeue_at is not None or ledger.incident.held
        assert exhausted or barred(workload, policy_) is not None, ledger.incident.message


@STEPS
@given(st.sampled_from(list(PATIENT)), st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM), max_size=12))
def test_in_the_end_nobody_hangs_and_nothing_is_open(world: str, steps: list[tuple[Any, ...]]) -> None:
    _nobody_hangs(Walk(PATIENT[world], Controller(policy(limit=20))), steps)


@MANY_STEPS
@given(st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM), max_size=12))
def test_in_the_end_nobody_hangs_where_restarts_are_withheld(steps: list[tuple[Any, ...]]) -> None:
    backoff = Backoff(initial=timedelta(seconds=3), longest=timedelta(seconds=10))
    walk = Walk(PATIENT["has a deadline"], Controller(policy(limit=20, backoff=backoff)))
    _nobody_hangs(walk, steps)
    assert not any(isinstance(action, SuspendWorkload) for action in walk.controller.done)


def _nobody_hangs(walk: Walk, steps: list[tuple[Any, ...]]) -> None:
    for step in steps:
        walk.take(step)
    walk.nodes_back()
    walk.event("readable")
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
