"""Injects the faults of jobs, nodes and the platform in a trial, and makes the changes of users.

A fault whose object does not exist (any more) does not take place, and is not recorded. A fault that lasts is undone
when its time is over, at the latest when the healing begins: the plan generator makes every fault end before that.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from recovery.core.fleet.quarantine import Mark, claims_on_cordon, parsed_mark
from recovery.core.incident.requests import ANNOTATIONS, Request, Verb, encode
from recovery.core.model.annotations import (
    PAUSED_ANNOTATION,
    QUARANTINE_ANNOTATION,
    RELEASE_ANNOTATION,
    RESET_BREAKER_ANNOTATION,
)
from recovery.core.model.config import CONFIG_NAME
from recovery.core.model.facts import Taint
from recovery.core.model.fleet_ledger import BY_HAND, QUARANTINE_TAINT, TAINT_EFFECT
from recovery.ports import (
    JOB_SETS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    Clock,
    Propagation,
    Resource,
)
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.trials.actors import CHAOS, SCHEDULER, USER, Actors
from recovery.sim.trials.controller_replica import Replica
from recovery.sim.trials.dice import Dice
from recovery.sim.trials.failure_signs import LEFT, PEERS
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.job_admission import Admissions
from recovery.sim.trials.kueue import Kueue
from recovery.sim.trials.manifests import TRAINER, members, policy_of, workload_of
from recovery.sim.trials.node_faults import NodeFaults
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.pod_cleaner import PodCleaner
from recovery.sim.trials.trial_log import TrialLog
from recovery.sim.trials.workload_faults import WorkloadFaults

CRASH_SECONDS = 2.0
"""How long each process in a crash loop runs."""
BOOT_SECONDS = 5.0
ABORT_SECONDS = (0.2, 1.5)
"""Least and most time from the loss of a rank until a survivor that does not hang has noticed it and ended."""
REFUSAL = 'admission webhook "sidecar.example.com" denied the request: the injector is not available'


class FaultInjector:
    """Injects the faults of a plan that have a fixed moment."""

    def __init__(
        self, plan: TrialPlan, cluster: EmbeddedCluster, replicas: Sequence[Replica], clock: Clock, log: TrialLog
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._server: ApiServer = cluster.server
        self._replicas = replicas
        self._clock = clock
        self._log = log
        self._jobs = {str(job): job for job in plan.jobs}
        self._actors = Actors(cluster.server)
        kueue = Kueue(cluster.server, self._actors, clock, plan.kueue)
        kueue.begin()
        if plan.cleans_after_seconds is not None:
            PodCleaner(self._actors, plan.cleans_after_seconds)
        self._admissions = Admissions(cluster.server, self._actors, clock, log, kueue)
        nodes = NodeFaults(plan, cluster, clock, log, self._actors, self._pods)
        workloads = WorkloadFaults(plan, cluster, log, self._actors, self._admissions, self._pods)
        self._acts: dict[FaultKind, Callable[[TrialFault], None]] = {
            **nodes.acts,
            **workloads.acts,
            FaultKind.POD_KILL: self._kill_pods,
            FaultKind.POD_FORCE_DELETE: self._kill_pods,
            FaultKind.POD_EVICT: self._evict_pods,
            FaultKind.POD_PREEMPT: self._preempt_pods,
            FaultKind.CONTAINER_KILL: self._exit_containers,
            FaultKind.CASCADE: self._cascade,
            FaultKind.POD_STUCK: self._stick_pod,
            FaultKind.CRASH_LOOP: self._crash_loop,
            FaultKind.PODS_REFUSED: self._refuse_pods,
            FaultKind.JOB_WITHOUT_PODS: self._overlook_jobs,
            FaultKind.MANAGER_STALL: self._stall,
            FaultKind.JOBSET_STALL: self._stall,
            FaultKind.TRAINER_STALL: self._stall,
            FaultKind.USER_SUSPEND: self._suspend,
            FaultKind.USER_DELETE: self._delete,
            FaultKind.USER_RECREATE: self._delete,
            FaultKind.USER_PAUSE: self._pause,
            FaultKind.USER_RESTART: self._ask,
            FaultKind.USER_RETRY: self._ask,
            FaultKind.USER_RESET_BUDGET: self._ask,
            FaultKind.USER_QUARANTINE: self._quarantine,
            FaultKind.USER_RELEASE: self._release,
            FaultKind.USER_UNTAINT: self._untaint,
            FaultKind.USER_RESET_BREAKER: self._reset_breaker,
            FaultKind.PAUSE_ALL: self._pause_all,
            FaultKind.POLICY_OBSERVE: self._observe,
            FaultKind.POLICY_DELETE: self._drop_policy,
            FaultKind.PROCESS_KILL: self._kill_process,
            FaultKind.PROCESS_FREEZE: self._freeze_process,
        }

    def begin(self) -> None:
        """Begins the trial: schedules each of these faults."""
        loop = asyncio.get_running_loop()
        for job in self._plan.jobs:
            self._admissions.created(job)
        timed = [fault for fault in self._plan.faults if fault.at_seconds is not None and fault.key.actor == "world"]
        for fault in sorted(timed, key=lambda fault: fault.key):
            loop.call_at(loop.time() + (fault.at_seconds or 0.0), self._acts[fault.key.kind], fault)
        loop.call_at(loop.time() + self._plan.active_seconds, self._heal)

    def _heal(self) -> None:
        """The person on call releases all quarantined nodes, and closes the circuit breaker."""
        for node in self._quarantined():
            self._let_in(node)
        if self._breaker_is_open():
            self._actors.merge(USER, RECOVERY_CONFIGS, CONFIG_NAME, None, self._now(RESET_BREAKER_ANNOTATION))

    # Pods.

    def _pods(self, fault: TrialFault) -> list[Body]:
        """The pods of the fault's indexes that exist, have not ended and are not being deleted."""
        pods = members(self._server, self._jobs[fault.job])
        return [pods[index] for index in fault.indexes if index in pods]

    def _kill_pods(self, fault: TrialFault) -> None:
        pods = self._pods(fault)
        if not pods:
            return
        force = fault.key.kind is FaultKind.POD_FORCE_DELETE
        self._report_pods(fault, pods, "force-deleted" if force else "deleted")
        for pod in pods:
            self._actors.remove(CHAOS, PODS, pod, grace_seconds=0 if force else None)

    def _evict_pods(self, fault: TrialFault) -> None:
        pods = self._pods(fault)
        if not pods:
            return
        self._report_pods(fault, pods, "evicted")
        for pod in pods:
            self._actors.evict(pod["metadata"])

    def _preempt_pods(self, fault: TrialFault) -> None:
        pods = self._pods(fault)
        if not pods:
            return
        self._report_pods(fault, pods, "preempted")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod",
            "lastTransitionTime": timestamp(self._clock.now()),
        }
        for pod in pods:
            metadata = pod["metadata"]
            patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
            self._actors.status(SCHEDULER, PODS, metadata["name"], metadata["namespace"], patch)
            self._actors.remove(SCHEDULER, PODS, pod)

    def _exit_containers(self, fault: TrialFault) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self._pods(fault)}
        struck = [pods[name] for name in self._end(fault, list(pods), fault.sign)]
        if struck:
            self._report_pods(fault, struck, f"ended with exit code {_code(fault, fault.sign)}")

    def _end(self, fault: TrialFault, names: Sequence[str], sign: Sign) -> list[str]:
        """Ends the processes that train in these pods as the sign says. Returns the pods in which one ran."""
        left, namespace = LEFT[sign], self._jobs[fault.job].namespace
        code = _code(fault, sign)
        kubelets = self._cluster.kubelets
        return kubelets.exit_all(names, code, left.reason, left.message, namespace=namespace, container=TRAINER)

    def _cascade(self, fault: TrialFault) -> None:
        first = self._pods(fault)[:1]
        if not first or not self._end(fault, [first[0]["metadata"]["name"]], fault.sign):
            return
        self._report_pods(fault, first, f"ended with exit code {_code(fault, fault.sign)}, and its peers abort")
        dice = Dice(self._plan.seed, "cascade", fault.key.number)
        others = [pod["metadata"]["name"] for pod in members(self._server, self._jobs[fault.job]).values()]
        others = [name for name in others if name != first[0]["metadata"]["name"]]
        begins_seconds, spread_seconds = dice.between(*ABORT_SECONDS), dice.between(0.0, 0.1)
        for number, name in enumerate(others):
            sign = PEERS[number % len(PEERS)]
            seconds = begins_seconds + number * spread_seconds
            self._actors.after(seconds, lambda name=name, sign=sign: self._end(fault, [name], sign))  # type: ignore[misc]

    def _stick_pod(self, fault: TrialFault) -> None:
        pods = self._pods(fault)[:1]
        if not pods:
            return
        metadata, node = pods[0]["metadata"], pods[0]["spec"].get("nodeName")
        try:
            self._cluster.kubelets.stuck_termination(metadata["name"], namespace=metadata["namespace"])
        except LookupError:
            return  # No kubelet has started the pod yet.
        self._report_pods(fault, pods, "deleted, and its processes cannot be ended")
        self._actors.remove(CHAOS, PODS, pods[0])
        self._actors.after(fault.seconds, lambda: self._reset_node(node))

    def _reset_node(self, node: str) -> None:
        """Switches the machine off and on again, which ends all processes on it."""
        try:
            self._cluster.kubelets.reset_node(node, BOOT_SECONDS)
        except LookupError:
            return  # The machine was removed meanwhile.

    def _crash_loop(self, fault: TrialFault) -> None:
        job = self._jobs[fault.job]
        first = members(self._server, job).get(0)
        if first is None:
            return
        name = first["metadata"]["name"]
        rank = name[: name.rindex("-") + 1]
        kubelets = self._cluster.kubelets
        code = _code(fault, fault.sign)
        self._log.applied(fault, f"{job}: {rank}* crashes with exit code {code} a moment after each start")
        message = LEFT[fault.sign].message
        kubelets.crash_loop(rank, CRASH_SECONDS, code, message, namespace=job.namespace, container=TRAINER)
        self._end(fault, [name], fault.sign)
        self._actors.after(fault.seconds, lambda: kubelets.end_crash_loop(rank, namespace=job.namespace))

    def _report_pods(self, fault: TrialFault, pods: Sequence[Body], what: str) -> None:
        names = ", ".join(pod["metadata"]["name"] for pod in pods)
        were = "pods were" if len(pods) > 1 else "pod was"
        if what.startswith("ended"):
            were = "pods" if len(pods) > 1 else "pod"
        uids = tuple(pod["metadata"]["uid"] for pod in pods)
        self._log.applied(fault, f"{fault.job}: {were} {what}: {names}", pod_uids=uids, lasting=False)

    # The platform.

    def _refuse_pods(self, fault: TrialFault) -> None:
        self._log.applied(fault, f"a webhook refuses all new pods for {fault.seconds:g} s")
        self._cluster.refuse_pods(REFUSAL)
        self._actors.after(fault.seconds, lambda: self._cluster.refuse_pods(None))

    def _overlook_jobs(self, fault: TrialFault) -> None:
        self._log.applied(fault, f"the Job controller overlooks the Jobs that are made within {fault.seconds:g} s")
        self._cluster.overlook_new_jobs(fault.seconds)

    def _stall(self, fault: TrialFault) -> None:
        stalled, name = {
            FaultKind.MANAGER_STALL: (self._cluster.stall_manager, "kube-controller-manager"),
            FaultKind.JOBSET_STALL: (self._cluster.stall_jobset, "JobSet's controller"),
            FaultKind.TRAINER_STALL: (self._cluster.stall_trainer, "Trainer"),
        }[fault.key.kind]
        self._log.applied(fault, f"{name} stands still for {fault.seconds:g} s")
        stalled(True)
        self._actors.after(fault.seconds, lambda: stalled(False))

    # Users.

    def _workload(self, fault: TrialFault) -> tuple[Resource, Body] | None:
        job = self._jobs[fault.job]
        resource = JOB_SETS if job.runtime is PlannedRuntime.BARE_JOBSET else TRAIN_JOBS
        body = self._server.find(resource, job.name, job.namespace)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        return resource, body

    def _suspend(self, fault: TrialFault) -> None:
        found = self._workload(fault)
        if found is None or found[1]["spec"].get("suspend"):
            return
        resource, body = found
        metadata = body["metadata"]
        self._log.applied(fault, f"a user suspends {fault.job} for {fault.seconds:g} s")
        self._actors.merge(USER, resource, metadata["name"], metadata["namespace"], {"spec": {"suspend": True}})
        resumed = {"metadata": {"uid": metadata["uid"]}, "spec": {"suspend": False}}
        self._actors.after(
            fault.seconds, lambda: self._actors.merge(USER, resource, metadata["name"], metadata["namespace"], resumed)
        )

    def _delete(self, fault: TrialFault) -> None:
        found = self._workload(fault)
        if found is None:
            return
        resource, body = found
        recreated = fault.key.kind is FaultKind.USER_RECREATE
        again = " and makes it again" if recreated else ""
        self._log.applied(fault, f"a user deletes {fault.job}{again}", lasting=False)
        self._actors.remove(USER, resource, body, propagation=Propagation.BACKGROUND)
        if recreated:
            self._actors.after(1.0, lambda: self._make_again(fault))

    def _make_again(self, fault: TrialFault) -> None:
        job = self._jobs[fault.job]
        resource, body = workload_of(job)
        if self._actors.attempt(USER, lambda: self._server.create(resource, body, namespace=job.namespace)):
            self._admissions.created(job)
        else:
            self._actors.after(1.0, lambda: self._make_again(fault))  # The old workload still exists.

    def _pause(self, fault: TrialFault) -> None:
        found = self._workload(fault)
        if found is None:
            return
        resource, body = found
        metadata = body["metadata"]
        self._log.applied(fault, f"a user pauses {fault.job} for {fault.seconds:g} s")
        self._annotate(resource, metadata, PAUSED_ANNOTATION, "maintenance")
        self._actors.after(fault.seconds, lambda: self._annotate(resource, metadata, PAUSED_ANNOTATION, None))

    def _annotate(self, resource: Resource, metadata: Body, annotation: str, value: str | None) -> None:
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {annotation: value}}}
        self._actors.merge(USER, resource, metadata["name"], metadata["namespace"], patch)

    def _ask(self, fault: TrialFault) -> None:
        found = self._workload(fault)
        if found is None:
            return
        resource, body = found
        verb = {
            FaultKind.USER_RESTART: Verb.RESTART,
            FaultKind.USER_RETRY: Verb.RETRY,
            FaultKind.USER_RESET_BUDGET: Verb.RESET_BUDGET,
        }[fault.key.kind]
        self._log.applied(fault, f"a user asks for `recovery {verb}` of {fault.job}")
        asked = encode(Request(at=self._clock.now(), by="sre"))
        self._annotate(resource, body["metadata"], ANNOTATIONS[verb], asked)

    def _quarantined(self) -> list[str]:
        """Nodes that carry our taint."""
        return [
            node["metadata"]["name"]
            for node in self._server.objects(NODES)
            if any(taint["key"] == QUARANTINE_TAINT for taint in node["spec"].get("taints") or ())
        ]

    def _now(self, annotation: str) -> Body:
        return {"metadata": {"annotations": {annotation: timestamp(self._clock.now())}}}

    def _quarantine(self, fault: TrialFault) -> None:
        node = next((pod["spec"]["nodeName"] for pod in self._pods(fault) if pod["spec"].get("nodeName")), None)
        body = self._actors.node(node) if node is not None else None
        if node is None or body is None or node in self._quarantined():
            return
        self._log.applied(fault, f"a user asks for `recovery quarantine` of {node}", node=node, lasting=False)
        wanted = bool(self._plan.config.get("quarantine", {}).get("cordon"))
        cordoned = wanted and not body["spec"].get("unschedulable")
        beside = tuple(each.key for each in _taints(body)) if cordoned else None
        mark = Mark(reason="it looks odd", since=self._clock.now(), by="sre", cordoned=cordoned, beside=beside)
        taint = {"key": QUARANTINE_TAINT, "value": BY_HAND, "effect": TAINT_EFFECT}
        annotations = {QUARANTINE_ANNOTATION: msgspec.json.encode(mark).decode()}
        spec: Body = {"taints": [*(body["spec"].get("taints") or ()), taint]}
        if cordoned:
            spec["unschedulable"] = True
        self._actors.merge(USER, NODES, node, None, {"metadata": {"annotations": annotations}, "spec": spec})

    def _release(self, fault: TrialFault) -> None:
        nodes = self._quarantined()
        if not nodes:
            return
        self._log.applied(fault, f"a user asks for `recovery release` of {', '.join(nodes)}", lasting=False)
        for node in nodes:
            self._let_in(node)

    def _let_in(self, name: str) -> None:
        """Does what `recovery release` does: removes our taint, mark and unclaimed cordon, and notes the moment."""
        node = self._actors.node(name)
        if node is None:
            return
        annotations = node["metadata"].get("annotations") or {}
        mark = parsed_mark(annotations.get(QUARANTINE_ANNOTATION))
        patch = self._now(RELEASE_ANNOTATION)
        patch["metadata"]["annotations"][QUARANTINE_ANNOTATION] = None
        self._actors.merge(USER, NODES, name, None, patch)
        self._actors.untaint(USER, name, QUARANTINE_TAINT)
        if mark is not None and mark.cordoned and not claims_on_cordon(mark, _taints(node), annotations):
            self._actors.cordon(USER, name, False)

    def _untaint(self, fault: TrialFault) -> None:
        nodes = self._quarantined()[:1]
        if not nodes:
            return
        self._log.applied(fault, f"a user takes our taint off {nodes[0]}, and the cordon", lasting=False)
        node = self._actors.node(nodes[0])
        mark = parsed_mark(((node or {}).get("metadata", {}).get("annotations") or {}).get(QUARANTINE_ANNOTATION))
        self._actors.untaint(USER, nodes[0], QUARANTINE_TAINT)
        if mark is None or mark.cordoned:  # Otherwise no one would uncordon the node.
            self._actors.cordon(USER, nodes[0], False)

    def _reset_breaker(self, fault: TrialFault) -> None:
        if not self._breaker_is_open():
            return
        self._log.applied(fault, "a user asks for `recovery reset-breaker`", lasting=False)
        self._actors.merge(USER, RECOVERY_CONFIGS, CONFIG_NAME, None, self._now(RESET_BREAKER_ANNOTATION))

    def _breaker_is_open(self) -> bool:
        config = self._server.find(RECOVERY_CONFIGS, CONFIG_NAME)
        return config is not None and bool((config.get("status") or {}).get("breaker"))

    def _pause_all(self, fault: TrialFault) -> None:
        self._log.applied(fault, f"the RecoveryConfig pauses every job for {fault.seconds:g} s")
        self._set_paused(paused=True)
        self._actors.after(fault.seconds, lambda: self._set_paused(paused=False))

    def _set_paused(self, *, paused: bool) -> None:
        self._actors.merge(USER, RECOVERY_CONFIGS, CONFIG_NAME, None, {"spec": {"paused": paused}})

    def _observe(self, fault: TrialFault) -> None:
        job = self._jobs[fault.job]
        policy = self._server.find(RECOVERY_POLICIES, job.name, job.namespace)
        if policy is None or policy["spec"].get("mode") != "Enforce":
            return
        self._log.applied(fault, f"the policy of {fault.job} is switched to Observe for {fault.seconds:g} s")
        self._set_mode(job, "Observe")
        self._actors.after(fault.seconds, lambda: self._set_mode(job, "Enforce"))

    def _set_mode(self, job: JobPlan, mode: str) -> None:
        self._actors.merge(USER, RECOVERY_POLICIES, job.name, job.namespace, {"spec": {"mode": mode}})

    def _drop_policy(self, fault: TrialFault) -> None:
        job = self._jobs[fault.job]
        policy = self._server.find(RECOVERY_POLICIES, job.name, job.namespace)
        if policy is None:
            return
        self._log.applied(fault, f"the policy of {fault.job} is deleted, and made again after {fault.seconds:g} s")
        self._actors.remove(USER, RECOVERY_POLICIES, policy)

        def make_again() -> None:
            self._actors.attempt(
                USER, lambda: self._server.create(RECOVERY_POLICIES, policy_of(job), namespace=job.namespace)
            )

        self._actors.after(fault.seconds, make_again)

    # Controller processes, at a moment that the plan sets.

    def _kill_process(self, fault: TrialFault) -> None:
        for replica in (self._replicas[index] for index in fault.indexes):
            if replica.process is not None:
                self._log.applied(fault, f"{replica.name} is killed", lasting=False)
                replica.process.kill(fault.seconds)

    def _freeze_process(self, fault: TrialFault) -> None:
        for replica in (self._replicas[index] for index in fault.indexes):
            if replica.process is not None:
                self._log.applied(fault, f"{replica.name} is frozen for {fault.seconds:g} s")
                replica.process.clock.freeze(fault.seconds)


def _taints(node: Body) -> list[Taint]:
    return [Taint(each["key"], each.get("value", ""), each["effect"]) for each in node["spec"].get("taints") or ()]


def _code(fault: TrialFault, sign: Sign) -> int:
    """The exit code: that of the sign, where it has one."""
    code = LEFT[sign].code
    return fault.code if code is None else code
