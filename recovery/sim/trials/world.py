"""What befalls jobs, nodes and the platform in a trial, and what users do: each kind of fault carried out.

A fault whose object is not there (any more) does not take place, and is not recorded. Whatever lasts is undone when its
time is over, at the latest when the healing begins: the planner keeps every fault's end before that.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from recovery.core.config import CONFIG_NAME
from recovery.core.policy import PAUSED_ANNOTATION
from recovery.core.requests import ANNOTATIONS, Request, Verb, encode
from recovery.ports import (
    JOB_SETS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    Clock,
    PatchKind,
    Propagation,
    Resource,
)
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status import StatusError
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.kubelets.nodes import NodeDeath, NodeSpec
from recovery.sim.trials.faults import Fault, FaultKind
from recovery.sim.trials.log import TrialLog
from recovery.sim.trials.manifests import members, policy_of, workload_of
from recovery.sim.trials.plan import JobPlan, Runtime, TrialPlan
from recovery.sim.trials.replica import Replica

CHAOS = "chaos"
"""The actor of what machines do to pods and nodes."""
USER = "user"
CRASH_SECONDS = 2.0
"""From each start of a process that crashes again and again until its end."""
BOOT_SECONDS = 5.0
REFUSAL = 'admission webhook "sidecar.example.com" denied the request: the injector is not available'


class World:
    """Carries out the faults of a plan that have a moment of their own."""

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
        self._taken: set[str] = set()
        """Nodes whose machines are gone. Pods may be bound to them for a while; none of that name joins again."""
        self._acts: dict[FaultKind, Callable[[Fault], None]] = {
            FaultKind.POD_KILL: self._kill_pods,
            FaultKind.POD_FORCE_DELETE: self._kill_pods,
            FaultKind.POD_EVICT: self._evict_pods,
            FaultKind.CONTAINER_KILL: self._exit_containers,
            FaultKind.POD_STUCK: self._stick_pod,
            FaultKind.CRASH_LOOP: self._crash_loop,
            FaultKind.NODE_POWER_LOSS: self._lose_node,
            FaultKind.NODE_PARTITION: self._lose_node,
            FaultKind.NODE_REMOVE: self._replace_node,
            FaultKind.NO_CAPACITY: self._cordon_free_nodes,
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
            FaultKind.PAUSE_ALL: self._pause_all,
            FaultKind.POLICY_OBSERVE: self._observe,
            FaultKind.POLICY_DELETE: self._drop_policy,
            FaultKind.PROCESS_KILL: self._kill_process,
            FaultKind.PROCESS_FREEZE: self._freeze_process,
        }

    def begin(self) -> None:
        """Set the clock for each of them; the trial begins now."""
        loop = asyncio.get_running_loop()
        timed = [fault for fault in self._plan.faults if fault.at_seconds is not None and fault.key.actor == "world"]
        for fault in sorted(timed, key=lambda fault: fault.key):
            loop.call_at(loop.time() + (fault.at_seconds or 0.0), self._acts[fault.key.kind], fault)

    # Pods.

    def _pods(self, fault: Fault) -> list[Body]:
        """Those of the fault's indexes that are there, and neither being deleted nor over."""
        pods = members(self._server, self._jobs[fault.job])
        return [pods[index] for index in fault.indexes if index in pods]

    def _kill_pods(self, fault: Fault) -> None:
        pods = self._pods(fault)
        if not pods:
            return
        force = fault.key.kind is FaultKind.POD_FORCE_DELETE
        self._tell_of_pods(fault, pods, "force-deleted" if force else "deleted")
        for pod in pods:
            self._remove(CHAOS, PODS, pod, grace_seconds=0 if force else None)

    def _evict_pods(self, fault: Fault) -> None:
        pods = self._pods(fault)
        if not pods:
            return
        self._tell_of_pods(fault, pods, "evicted")
        for pod in pods:
            self._evict(pod["metadata"])

    def _evict(self, metadata: Body) -> None:
        name, namespace = metadata["name"], metadata["namespace"]
        eviction: Body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self._try(
            CHAOS,
            lambda: self._server.create(PODS, eviction, namespace=namespace, name=name, subresource="eviction"),
        )

    def _exit_containers(self, fault: Fault) -> None:
        namespace = self._jobs[fault.job].namespace
        pods = {pod["metadata"]["name"]: pod for pod in self._pods(fault)}
        struck = [pods[name] for name in self._cluster.kubelets.exit_all(pods, fault.code, namespace=namespace)]
        if struck:
            self._tell_of_pods(fault, struck, f"ended with exit code {fault.code}")

    def _stick_pod(self, fault: Fault) -> None:
        pods = self._pods(fault)[:1]
        if not pods:
            return
        metadata, node = pods[0]["metadata"], pods[0]["spec"].get("nodeName")
        try:
            self._cluster.kubelets.stuck_termination(metadata["name"], namespace=metadata["namespace"])
        except LookupError:
            return  # No kubelet has begun with it.
        self._tell_of_pods(fault, pods, "deleted, and its processes cannot be ended")
        self._remove(CHAOS, PODS, pods[0])
        self._after(fault.seconds, lambda: self._reset_node(node))

    def _reset_node(self, node: str) -> None:
        """Off and on again: whatever ran there is dead."""
        try:
            self._cluster.kubelets.reset_node(node, BOOT_SECONDS)
        except LookupError:
            return  # The machine was taken away meanwhile.

    def _crash_loop(self, fault: Fault) -> None:
        job = self._jobs[fault.job]
        first = members(self._server, job).get(0)
        if first is None:
            return
        name = first["metadata"]["name"]
        rank = name[: name.rindex("-") + 1]
        kubelets = self._cluster.kubelets
        self._log.befell(fault, f"{job}: {rank}* crashes with exit code {fault.code} a moment after each start")
        kubelets.crash_loop(rank, CRASH_SECONDS, fault.code, namespace=job.namespace)
        kubelets.exit_all([name], fault.code, namespace=job.namespace)
        self._after(fault.seconds, lambda: kubelets.end_crash_loop(rank, namespace=job.namespace))

    def _tell_of_pods(self, fault: Fault, pods: Sequence[Body], what: str) -> None:
        names = ", ".join(pod["metadata"]["name"] for pod in pods)
        were = "pods were" if len(pods) > 1 else "pod was"
        if what.startswith("ended"):
            were = "pods" if len(pods) > 1 else "pod"
        uids = tuple(pod["metadata"]["uid"] for pod in pods)
        self._log.befell(fault, f"{fault.job}: {were} {what}: {names}", pod_uids=uids, lasting=False)

    # Nodes.

    def _node_of(self, fault: Fault) -> str | None:
        nodes = [pod["spec"]["nodeName"] for pod in self._pods(fault) if pod["spec"].get("nodeName")]
        return nodes[0] if nodes else None

    def _lose_node(self, fault: Fault) -> None:
        node = self._node_of(fault)
        if node is None:
            return
        power_loss = fault.key.kind is FaultKind.NODE_POWER_LOSS
        try:
            self._cluster.kubelets.kill_node(node, NodeDeath.POWER_LOSS if power_loss else NodeDeath.PARTITION)
        except LookupError:
            return
        what = "lost power" if power_loss else "is cut off from the network"
        self._log.befell(fault, f"node {node} {what} for {fault.seconds:g} s", node=node, pod_uids=self._uids_on(node))
        self._after(fault.seconds, lambda: self._revive(node))

    def _revive(self, node: str) -> None:
        try:
            self._cluster.kubelets.revive_node(node)
        except LookupError:
            return  # The machine was taken away meanwhile.

    def _uids_on(self, node: str) -> tuple[str, ...]:
        return tuple(
            pod["metadata"]["uid"] for pod in self._server.objects(PODS) if pod["spec"].get("nodeName") == node
        )

    def _replace_node(self, fault: Fault) -> None:
        node = self._node_of(fault)
        if node is None or node in self._taken:
            return
        self._taken.add(node)
        self._log.befell(
            fault,
            f"node {node} is taken away; another one joins in {fault.seconds:g} s",
            node=node,
            pod_uids=self._uids_on(node),
        )
        self._cluster.start(self._cluster.kubelets.remove_node(node))
        spec = NodeSpec(name=f"{node}-{fault.key.number}", gpus=self._plan.node_gpus)
        self._after(fault.seconds, lambda: self._cluster.kubelets.add_node(spec))

    def _cordon_free_nodes(self, fault: Fault) -> None:
        busy = {pod["spec"].get("nodeName") for pod in self._server.objects(PODS)}
        free = [
            node["metadata"]["name"]
            for node in self._server.objects(NODES)
            if node["metadata"]["name"] not in busy and not node["spec"].get("unschedulable")
        ]
        if not free:
            return
        self._log.befell(fault, f"all free nodes are cordoned for {fault.seconds:g} s: {', '.join(free)}")
        self._cordon(free, True)
        self._after(fault.seconds, lambda: self._cordon(free, False))

    def _cordon(self, nodes: Iterable[str], cordoned: bool) -> None:
        for node in nodes:
            self._merge(USER, NODES, node, None, {"spec": {"unschedulable": cordoned or None}})

    # The platform.

    def _refuse_pods(self, fault: Fault) -> None:
        self._log.befell(fault, f"a webhook refuses all new pods for {fault.seconds:g} s")
        self._cluster.refuse_pods(REFUSAL)
        self._after(fault.seconds, lambda: self._cluster.refuse_pods(None))

    def _overlook_jobs(self, fault: Fault) -> None:
        self._log.befell(fault, f"the Job controller overlooks the Jobs that are made within {fault.seconds:g} s")
        self._cluster.overlook_new_jobs(fault.seconds)

    def _stall(self, fault: Fault) -> None:
        stalled, name = {
            FaultKind.MANAGER_STALL: (self._cluster.stall_manager, "kube-controller-manager"),
            FaultKind.JOBSET_STALL: (self._cluster.stall_jobset, "JobSet's controller"),
            FaultKind.TRAINER_STALL: (self._cluster.stall_trainer, "Trainer"),
        }[fault.key.kind]
        self._log.befell(fault, f"{name} stands still for {fault.seconds:g} s")
        stalled(True)
        self._after(fault.seconds, lambda: stalled(False))

    # Users.

    def _workload(self, fault: Fault) -> tuple[Resource, Body] | None:
        job = self._jobs[fault.job]
        resource = JOB_SETS if job.runtime is Runtime.BARE_JOBSET else TRAIN_JOBS
        body = self._server.find(resource, job.name, job.namespace)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        return resource, body

    def _suspend(self, fault: Fault) -> None:
        found = self._workload(fault)
        if found is None or found[1]["spec"].get("suspend"):
            return
        resource, body = found
        metadata = body["metadata"]
        self._log.befell(fault, f"a user suspends {fault.job} for {fault.seconds:g} s")
        self._merge(USER, resource, metadata["name"], metadata["namespace"], {"spec": {"suspend": True}})
        resumed = {"metadata": {"uid": metadata["uid"]}, "spec": {"suspend": False}}
        self._after(
            fault.seconds, lambda: self._merge(USER, resource, metadata["name"], metadata["namespace"], resumed)
        )

    def _delete(self, fault: Fault) -> None:
        found = self._workload(fault)
        if found is None:
            return
        resource, body = found
        anew = fault.key.kind is FaultKind.USER_RECREATE
        again = " and makes it again" if anew else ""
        self._log.befell(fault, f"a user deletes {fault.job}{again}", lasting=False)
        self._remove(USER, resource, body, propagation=Propagation.BACKGROUND)
        if anew:
            self._after(1.0, lambda: self._make_again(fault))

    def _make_again(self, fault: Fault) -> None:
        job = self._jobs[fault.job]
        resource, body = workload_of(job)
        if not self._try(USER, lambda: self._server.create(resource, body, namespace=job.namespace)):
            self._after(1.0, lambda: self._make_again(fault))  # The old one is still there.

    def _pause(self, fault: Fault) -> None:
        found = self._workload(fault)
        if found is None:
            return
        resource, body = found
        metadata = body["metadata"]
        self._log.befell(fault, f"a user pauses {fault.job} for {fault.seconds:g} s")
        self._annotate(resource, metadata, PAUSED_ANNOTATION, "maintenance")
        self._after(fault.seconds, lambda: self._annotate(resource, metadata, PAUSED_ANNOTATION, None))

    def _annotate(self, resource: Resource, metadata: Body, annotation: str, value: str | None) -> None:
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {annotation: value}}}
        self._merge(USER, resource, metadata["name"], metadata["namespace"], patch)

    def _ask(self, fault: Fault) -> None:
        found = self._workload(fault)
        if found is None:
            return
        resource, body = found
        verb = {
            FaultKind.USER_RESTART: Verb.RESTART,
            FaultKind.USER_RETRY: Verb.RETRY,
            FaultKind.USER_RESET_BUDGET: Verb.RESET_BUDGET,
        }[fault.key.kind]
        self._log.befell(fault, f"a user asks for `recovery {verb}` of {fault.job}")
        asked = encode(Request(at=self._clock.now(), by="sre"))
        self._annotate(resource, body["metadata"], ANNOTATIONS[verb], asked)

    def _pause_all(self, fault: Fault) -> None:
        self._log.befell(fault, f"the RecoveryConfig pauses every job for {fault.seconds:g} s")
        self._set_paused(paused=True)
        self._after(fault.seconds, lambda: self._set_paused(paused=False))

    def _set_paused(self, *, paused: bool) -> None:
        self._merge(USER, RECOVERY_CONFIGS, CONFIG_NAME, None, {"spec": {"paused": paused}})

    def _observe(self, fault: Fault) -> None:
        job = self._jobs[fault.job]
        policy = self._server.find(RECOVERY_POLICIES, job.name, job.namespace)
        if policy is None or policy["spec"].get("mode") != "Enforce":
            return
        self._log.befell(fault, f"the policy of {fault.job} is switched to Observe for {fault.seconds:g} s")
        self._set_mode(job, "Observe")
        self._after(fault.seconds, lambda: self._set_mode(job, "Enforce"))

    def _set_mode(self, job: JobPlan, mode: str) -> None:
        self._merge(USER, RECOVERY_POLICIES, job.name, job.namespace, {"spec": {"mode": mode}})

    def _drop_policy(self, fault: Fault) -> None:
        job = self._jobs[fault.job]
        policy = self._server.find(RECOVERY_POLICIES, job.name, job.namespace)
        if policy is None:
            return
        self._log.befell(fault, f"the policy of {fault.job} is deleted, and made again after {fault.seconds:g} s")
        self._remove(USER, RECOVERY_POLICIES, policy)

        def make_again() -> None:
            self._try(USER, lambda: self._server.create(RECOVERY_POLICIES, policy_of(job), namespace=job.namespace))

        self._after(fault.seconds, make_again)

    # Controller processes, at a moment of the plan's choice.

    def _kill_process(self, fault: Fault) -> None:
        for replica in (self._replicas[index] for index in fault.indexes):
            if replica.process is not None:
                self._log.befell(fault, f"{replica.name} is killed", lasting=False)
                replica.process.kill(fault.seconds)

    def _freeze_process(self, fault: Fault) -> None:
        for replica in (self._replicas[index] for index in fault.indexes):
            if replica.process is not None:
                self._log.befell(fault, f"{replica.name} is frozen for {fault.seconds:g} s")
                replica.process.clock.freeze(fault.seconds)

    # How.

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        if seconds <= 0:
            act()
        else:
            asyncio.get_running_loop().call_later(seconds, act)

    def _try(self, actor: str, write: Callable[[], object]) -> bool:
        """False: the server refused it, because the world has moved on."""
        try:
            with self._server.acting(actor):
                write()
        except StatusError:
            return False
        return True

    def _merge(self, actor: str, resource: Resource, name: str, namespace: str | None, patch: Body) -> None:
        self._try(actor, lambda: self._server.patch(resource, name, patch, kind=PatchKind.MERGE, namespace=namespace))

    def _remove(
        self,
        actor: str,
        resource: Resource,
        body: Body,
        *,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        metadata = body["metadata"]
        self._try(
            actor,
            lambda: self._server.delete(
                resource,
                metadata["name"],
                namespace=metadata.get("namespace"),
                uid=metadata["uid"],
                grace_seconds=grace_seconds,
                propagation=propagation,
            ),
        )
