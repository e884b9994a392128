"""A walk: a group and a controller, random events for both, and what must hold for any reconcile."""

from typing import Any

import msgspec

from recovery.core.decision.decide import decide
from recovery.core.fleet.quarantine import Refused, changed
from recovery.core.incident import requests
from recovery.core.incident.fencing import fates_of_nodes
from recovery.core.incident.preconditions import barred
from recovery.core.incident.requests import Request
from recovery.core.model.annotations import PAUSED_ANNOTATION, SUSPENDED_BY_ANNOTATION
from recovery.core.model.ledger import Ledger
from recovery.core.plan.actions import (
    Action,
    ChangeFleet,
    ClaimJob,
    DeleteJob,
    DeletePods,
    EmitEvent,
    ForceDeletePods,
    Plan,
    RaiseBackoffLimit,
    ReadLive,
    RecordIncident,
    ResumeWorkload,
    SuspendWorkload,
    TouchJob,
)
from recovery.core.plan.suspension import in_force, marked_by
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, OnExhausted, PolicyError, Restart
from tests.unit.core.carried_out import carried_out, pods_asked_to_go, pods_gone
from tests.unit.core.driver import WORKLOAD_ACTIONS, Controller, policy
from tests.unit.core.world import World, at, whole

RANKS = 3


def answers(world: World, node: str) -> bool:
    """Whether the node's kubelet responds."""
    return node not in world.nodes or world.nodes[node].reachable


def goes_on(world: World, seconds: float) -> World:
    """The next step of Trainer, JobSet, the Job controller and the kubelets. The same world: they wait for something
    else.

    This is no model of them, as `recovery.sim` is: no pace, no grace, no counts except the two limits that end a group.
    """
    workload, jobset = world.workload, world.jobset
    if workload is None or jobset is None or (jobset.terminal_state and jobset.deleting_since is None):
        return world
    left = [pod for pod in world.pods if pod.deleting_since is not None and pod.gone_at is None]
    gone = pods_gone(world, {pod.uid for pod in left if answers(world, pod.node)}, seconds)
    if gone != world:
        return gone
    job = world.job
    if jobset.deleting_since is not None or job.deleting_since is not None:
        asked = pods_asked_to_go(world, {pod.uid for pod in world.pods if pod.phase != "Failed"}, seconds)
        return _made_again(world, seconds) if asked == world and not left else asked
    if job.condition("FailureTarget") is not None:
        policy_ = jobset.failure_policy
        if policy_ is not None and jobset.restarts_counted < policy_.max_restarts:
            return world.restarted_by_jobset().job_deleted(seconds)
        return world.jobset_failed(seconds)
    if job.failed > job.backoff_limit:
        return world.job_failing("BackoffLimitExceeded", seconds)
    if workload.suspended:
        return pods_asked_to_go(world.suspended(), {pod.uid for pod in world.pods}, seconds)
    return _resumed(world, seconds) if job.suspended else _ranks_again(world, seconds)


def _made_again(world: World, seconds: float) -> World:
    """JobSet creates a Job again, or a TrainJob its JobSet."""
    workload, jobset = world.workload, world.jobset
    assert workload is not None
    assert jobset is not None
    if jobset.deleting_since is not None and workload.deleting_since is not None:
        return world
    if jobset.deleting_since is not None:
        template = msgspec.structs.replace(world.job_template, jobset_uid=f"jobset-{world.made + 1}")
        world = msgspec.structs.replace(world, job_template=template).with_jobset(
            uid=template.jobset_uid, created_at=whole(seconds), deleting_since=None, terminal_state="", conditions=()
        )
        world = world.with_jobset(suspended=workload.suspended, restarts=0, restarts_counted=0)
    if workload.suspended:
        return world.recreated_suspended(seconds)
    return world.with_jobset(suspended=False).recreated(seconds)


def _resumed(world: World, seconds: float) -> World:
    """The resumed world. Its pods have UIDs that no earlier pods had."""
    awake = world.resumed(seconds)
    old = {pod.uid for pod in world.pods}
    pods = tuple(
        pod if pod.uid in old and pod.gone_at is not None else msgspec.structs.replace(pod, uid=f"{pod.uid}-{seconds}")
        for pod in awake.pods
    )
    return msgspec.structs.replace(awake, pods=pods)


def _ranks_again(world: World, seconds: float) -> World:
    """Lost pods are replaced. Each of the others gets one step closer to Ready."""
    for index in range(world.job.parallelism):
        pod = world.find(index)
        if pod is None or pod.gone_at is not None or pod.phase == "Failed":
            world = world.replaced(index, seconds)
        elif not pod.node:
            free = next((name for name in (f"gpu-{index}", f"spare-{index}") if answers(world, name)), None)
            world = world if free is None else world.scheduled(index).with_pod(index, node=free)
        elif pod.phase == "Succeeded" or pod.deleting_since is not None or not answers(world, pod.node):
            continue
        elif not pod.containers:
            world = world.started(index, seconds)
        elif pod.containers[0].exit is not None:
            world = world.container_back(index, seconds)
        elif not pod.ready:
            world = world.pod_ready(index, seconds)
    return world


class Walk:
    """A group, a controller, and what happens to both."""

    def __init__(self, world: World, controller: Controller, **terms: Any) -> None:
        self.world = world
        self.controller = controller
        self.pinned = terms
        self.late: list[Action] = []
        """Actions that have been sent and have not arrived."""
        self.ended_by_user: set[str] = set()
        """Incidents whose suspension a user has ended."""
        self.seconds = 0.3
        self.skew = 0.0
        """How far the controller's clock is ahead of all others."""
        self.seen = [world]
        self.ledgers = [controller.ledger]
        self.forgot = False
        self.hung: set[str] = set()
        """Jobs that lost a member after all had run: the other ranks wait for it forever."""
        self.waiting: dict[str, set[tuple[str, int]]] = {}
        """For those Jobs, the processes that ran when the member was lost, as pod UIDs with restart counts."""
        self.witnesses: dict[str, set[tuple[str, int]]] = {}
        """For those Jobs, the processes that ran when any member was lost, later ones included. A process that began
        between two losses may have met ranks that the second one took, or may still wait for the first to come back."""
        self.cut_off: set[str] = set()
        """Like `hung`, but only until the member's node responds again."""

    def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("stale ledger", reconciles):
                self.zombie(self.ledgers[-min(reconciles, len(self.ledgers))])
            case ("stale cache", reconciles):
                self.reconcile(cached=self.seen[-min(reconciles, len(self.seen))])
            case ("actions are lost",):
                self.reconcile(times=0)
            case ("actions come twice",):
                self.reconcile(times=2)
            case ("actions are late",):
                self.late += self.reconcile(times=0).actions
            case _:
                self.happens(step)
                self.reconcile()

    def happens(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("wait" | "nothing moves" as how, seconds):
                for _ in range(seconds):
                    self.tick(moves=how == "wait")
            case ("deleted" | "evicted" | "exited", *_):
                self.lose(step)
            case ("node silent", index):
                self.silence(index)
            case ("clock", skew):
                self.skew = skew
            case ("asks", verb, force):
                if self.world.workload is not None:
                    value = requests.encode(Request(at(self.seconds), force=force))
                    self.world = self.world.asked(requests.ANNOTATIONS[verb], value)
            case _:
                self.event(step[0])

    def tick(self, *, moves: bool = True) -> None:
        self.pass_a_second(moves=moves)
        self.reconcile()

    def pass_a_second(self, *, moves: bool = True) -> None:
        """`moves`: the platform takes its next step meanwhile."""
        self.seconds += 1
        self.world = goes_on(self.world, self.seconds) if moves else self.world
        if self.world.jobs and self.world.job.suspended:
            self.hung.discard(self.world.job.uid)
        self.meet_again()
        late, self.late = self.late, []
        for action in late:
            self.world = carried_out(self.world, action, self.seconds)

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
                self.world = self.world.pod_deleted(index, self.seconds)
            case ("evicted", index):
                self.world = self.world.evicted(index, self.seconds)
            case ("exited", index, code) if pod.running and self.world.job.pod_restart_policy == "Never":
                self.world = self.world.pod_failed(index, code, self.seconds)
            case ("exited", index, code) if pod.running:
                self.world = self.world.container_exited(index, code, self.seconds)
                self.world = self.world.with_job(failed=self.world.job.failed + 1)
            case _:
                return
        if self.world.job.uid in self.world.trained_at:
            self.hung.add(self.world.job.uid)
            self.waiting.setdefault(self.world.job.uid, processes)
            self.witnesses.setdefault(self.world.job.uid, set()).update(processes)

    def processes(self, *, ready: bool = False) -> set[tuple[str, int]]:
        """The processes of the running ranks; `ready`: only of the Ready ones."""
        pods = [self.world.find(index) for index in range(RANKS)] if self.world.jobs else []
        running = (pod for pod in pods if pod is not None and pod.running and (pod.ready or not ready))
        return {(pod.uid, pod.containers[0].restarts) for pod in running}

    def meet_again(self) -> None:
        """If all ranks have started again since the loss and are Ready, they no longer wait for a lost member."""
        uid, processes = self.world.job.uid if self.world.jobs else "", self.processes(ready=True)
        if len(processes) == RANKS and processes.isdisjoint(self.waiting.get(uid, processes)):
            self.hung.discard(uid)
            del self.waiting[uid]

    def silence(self, index: int) -> None:
        """The node of that rank stops responding; its processes may live on."""
        pod = self.world.find(index) if self.world.jobs else None
        if pod is None or not pod.node or pod.gone_at is not None or not answers(self.world, pod.node):
            return
        self.world = self.world.node_silent(pod.node, self.seconds)
        if self.world.job.uid in self.world.trained_at:
            self.cut_off.add(self.world.job.uid)

    def nodes_back(self) -> None:
        """Every node responds again, and the pods that run there are Ready again."""
        silent = frozenset(self.world.nodes)
        self.cut_off.clear()
        self.world = msgspec.structs.replace(self.world, nodes={}, gone_nodes=frozenset())
        for pod in self.world.pods:
            if pod.node in silent and pod.running and pod.index is not None and self.world.pod(pod.index) == pod:
                self.world = self.world.pod_ready(pod.index, self.seconds)

    def event(self, name: str) -> None:
        match name:
            case "nodes back":
                self.nodes_back()
            case "proven dead":
                silent = frozenset(name for name, node in self.world.nodes.items() if not node.reachable)
                self.world = msgspec.structs.replace(self.world, gone_nodes=silent)
            case "controller restarted":
                self.forgot = True
                self.world = self.world.controller_restarted()
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
                self.world = self.world.unreadable() if name == "unreadable" else self.world.readable()
            case _:
                self.happen(name)

    def happen(self, name: str) -> None:
        match name:
            case "job fails" if self.world.jobs and self.world.job.condition("FailureTarget") is None:
                self.world = self.world.job_failing("BackoffLimitExceeded", self.seconds)
            case "job deleted" if self.world.jobs and self.world.job.deleting_since is None:
                self.world = self.world.job_deleted(self.seconds)
            case "paused" if self.world.workload is not None:
                self.world = self.world.asked(PAUSED_ANNOTATION, "true")
            case "not paused":
                self.remove_annotation(PAUSED_ANNOTATION)
            case "suspended" if self.world.workload is not None:
                self.world = self.world.with_workload(suspended=True)
            case "takes the suspension over":
                self.remove_annotation(SUSPENDED_BY_ANNOTATION)
            case "unsuspended" if self.world.workload is not None:
                self.user_resumes()
            case "recovery resume" if self.world.workload is not None:
                self.user_resumes()
                self.remove_annotation(SUSPENDED_BY_ANNOTATION)
            case "succeeded" if self.world.jobs and self.world.find(0) is not None and self.world.pod(0).running:
                self.world = self.world.succeeded(0)
            case "jobset failed" if self.world.jobset is not None:
                self.world = self.world.jobset_failed(self.seconds)
            case "deleted job":
                self.world = self.world.with_workload(deleting_since=self.world.job_template.created_at)
            case _:
                pass

    def remove_annotation(self, name: str) -> None:
        assert self.world.workload is not None
        left = {key: value for key, value in self.world.workload.annotations.items() if key != name}
        self.world = self.world.with_workload(annotations=left)

    def user_resumes(self) -> None:
        workload, open_ = self.world.workload, self.controller.ledger.incident
        assert workload is not None
        if in_force(workload) and open_ is not None and open_.suspension is not None and open_.suspension.landed:
            self.ended_by_user.add(open_.id)
        self.world = self.world.with_workload(suspended=False)

    @property
    def now(self) -> float:
        return self.seconds + self.skew

    def reconcile(self, *, cached: World | None = None, times: int = 1) -> Plan:
        """One reconcile, with the checks that hold for any reconcile. Its actions are carried out this many times."""
        self.seen.append(self.world)
        stale = (cached or self.world).snapshot()
        before = self.controller.ledger
        plan = self.controller.plan_on(stale, self.world.snapshot(live=True), self.now)
        self.restraint(plan, unreadable=cached is None and bool(self.world.undecodable))
        self.suspensions(before, plan)
        self.controller.done += plan.first
        self.controller.write(plan)
        assert self.controller.ledger == plan.ledger, "what is written is what is read"
        self.ledgers.append(plan.ledger)
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
            self.world = carried_out(self.world, action, self.seconds)
        return plan

    def zombie(self, old: Ledger) -> None:
        """A process with an old ledger: its ledger writes are refused. Without a write, it acts only on the targets."""
        plan = decide(self.world.snapshot(), old, self.controller.policy, at(self.now))
        if any(isinstance(action, ReadLive) for action in plan.actions):
            plan = decide(self.world.snapshot(live=True), old, self.controller.policy, at(self.now))
        if plan.ledger != old:
            return
        targets = set(old.incident.target.job_uids) if old.incident is not None else set()
        owners = {pod.uid: pod.job_uid for pod in self.world.pods}
        for action in plan.actions:
            if isinstance(action, ClaimJob | DeleteJob | RaiseBackoffLimit | TouchJob):
                assert action.uid in targets
            if isinstance(action, DeletePods):
                assert {owners[pod.uid] for pod in action.pods} <= targets

    def restraint(self, plan: Plan, *, unreadable: bool) -> None:
        """Where touching the group is barred, no action does so, except to end our own suspension or if a person forced
        it.

        `unreadable`: the reconcile has seen that an object cannot be read, so there must be no such action at all.
        """
        assert not unreadable or not any(isinstance(action, WORKLOAD_ACTIONS) for action in plan.actions), plan.message
        workload, open_ = self.world.workload, plan.ledger.incident
        assert workload is not None
        forced = open_ is not None and open_.step.forced
        if barred(workload, self.controller.policy, forced=forced) is not None:
            actions = [action for action in plan.actions if isinstance(action, WORKLOAD_ACTIONS)]
            assert all(isinstance(action, ResumeWorkload) for action in actions), plan.message

    def proven(self, action: ForceDeletePods) -> None:
        """No pod that may live is force-deleted, unless the policy and the platform consider it dead."""
        fates = fates_of_nodes(self.world.snapshot(live=True), self.controller.policy, at(self.now))
        uids = {pod.uid for pod in action.pods}
        for pod in self.world.pods:
            assert pod.uid not in uids or fates[pod.node].dead_since is not None

    def fleet(self, action: ChangeFleet) -> None:
        """Apply the change as the executor does: it stays within the caps, and applying it again changes nothing."""
        policy_ = self.controller.policy
        if not isinstance(policy_, Policy):
            return
        nodes, shown = self.world.cluster_nodes, self.world.nodes
        after = changed(policy_.fleet, policy_.limits, action.change, nodes=nodes, shown=shown, now=at(self.now))
        assert not isinstance(after, Refused), "the decision has asked the caps"
        assert len(after.quarantined) <= 1
        assert changed(after, policy_.limits, action.change, nodes=nodes, shown=shown, now=at(self.now)) == after
        self.pinned["fleet"] = after
        self.controller.policy = msgspec.structs.replace(policy_, fleet=after)

    def suspensions(self, before: Ledger, plan: Plan) -> None:
        """A workload is suspended only if an open incident wants it, and resumed only if it carries our mark."""
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
        """A Job is deleted only if it may hang, was failing, or was given up.

        But a controller that did not watch may mistake a Job that never trained for one that did
        (`core.diagnosis.trained` says when).
        """
        if self.forgot:
            return
        job = next(job for job in self.world.jobs if job.uid == action.uid)
        failing = job.condition("FailureTarget") is not None
        reason = self.controller.incident.message
        given_up = "has had no pods" in reason or "not all ranks started" in reason or "requested" in reason
        may_hang = job.uid in self.hung | self.cut_off or self.processes() & self.witnesses.get(job.uid, set())
        assert may_hang or failing or given_up or job.suspended, reason

    def repeatable(self, plan: Plan) -> None:
        """Deciding again on the same facts changes nothing, now and a second later."""
        closed = plan.ledger.incident is not None and plan.ledger.incident.closing is not None
        if closed or any(isinstance(action, RecordIncident) for action in plan.first):
            return
        for later in (0, 1):
            due = plan.requeue_at is not None and plan.requeue_at <= at(self.now + later)
            again = self.controller.plan(self.world, self.now + later)
            # The remaining budget is shown as of the reconcile: a charge may leave the window in that second.
            shown = plan.ledger if later else again.ledger
            found = msgspec.structs.replace(again.ledger, budget=shown.budget, conditions=shown.conditions)
            assert due or found == plan.ledger
            assert due or not any(isinstance(action, EmitEvent) for action in again.actions)
