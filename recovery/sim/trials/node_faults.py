"""The faults of nodes and racks in a trial, and what monitors and operators write to nodes because of them."""

from collections.abc import Callable, Iterable

from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.ports import NODES, PODS, Clock
from recovery.scenario.failure_sign import Sign
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.controllers.taints import NO_SCHEDULE, OUT_OF_SERVICE
from recovery.sim.kubelets.node_run import NodeDeath, NodeSpec
from recovery.sim.trials.actors import CHAOS, MONITOR, USER, Actors
from recovery.sim.trials.dice import Dice
from recovery.sim.trials.failure_signs import GPU_CONDITION, GPU_CONDITION_REASON, LEFT, MONITOR_TAINT
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.health_agent import HealthAgent, held_by_agent
from recovery.sim.trials.kueue import FLAVOR_LABEL
from recovery.sim.trials.manifests import TRAINER
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.trial_log import TrialLog

RACK_LABEL = "topology.kubernetes.io/rack"
OUT_OF_SERVICE_SECONDS = 90.0
"""From the loss of a node until an operator, who has seen that its power is off, adds the out-of-service taint."""
DRAIN_SECONDS = 4.0
"""From one node of a drain to the next."""
RACK_SECONDS = 5.0
"""The nodes of a rack lose power one after the other within this time."""


class NodeFaults:
    """Injects the faults of nodes. `pods_of` finds the pods that a fault names."""

    def __init__(
        self,
        plan: TrialPlan,
        cluster: EmbeddedCluster,
        clock: Clock,
        log: TrialLog,
        actors: Actors,
        pods_of: Callable[[TrialFault], list[Body]],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._clock = clock
        self._log = log
        self._actors = actors
        self._pods_of = pods_of
        self._taken: set[str] = set()
        """Nodes whose machines were removed. Pods may stay bound to them for a while. None of their names is reused."""
        self._lost: dict[str, int] = {}
        """How many faults keep each node off the network. The node is back when the last of them ends."""
        self._agent = HealthAgent(actors, clock, self._evict_all)
        self.acts: dict[FaultKind, Callable[[TrialFault], None]] = {
            FaultKind.NODE_POWER_LOSS: self._lose_node,
            FaultKind.NODE_PARTITION: self._lose_node,
            FaultKind.NODE_REMOVE: self._replace_node,
            FaultKind.NODE_OUT_OF_SERVICE: self._take_out_of_service,
            FaultKind.NODE_DRAIN: self._drain,
            FaultKind.NODE_UNHEALTHY: self._say_unhealthy,
            FaultKind.NODE_MONITORED: self._keep_off,
            FaultKind.NODE_HELD: self._hold,
            FaultKind.BLACK_HOLE: self._swallow_pods,
            FaultKind.BROKEN_RUNTIME: self._break_runtime,
            FaultKind.RACK_POWER_LOSS: self._lose_rack,
            FaultKind.RACK_OVERHEATS: self._overheat,
            FaultKind.NO_CAPACITY: self._cordon_free_nodes,
        }

    def _nodes_of(self, fault: TrialFault) -> list[str]:
        """The node that the fault names, or the nodes where its pods run, each once."""
        if fault.node:
            return [fault.node] if self._actors.node(fault.node) is not None else []
        nodes = (pod["spec"].get("nodeName") for pod in self._pods_of(fault))
        return [node for node in dict.fromkeys(nodes) if node and self._actors.node(node) is not None]

    def _uids_on(self, *nodes: str) -> tuple[str, ...]:
        return tuple(
            pod["metadata"]["uid"] for pod in self._actors.server.objects(PODS) if pod["spec"].get("nodeName") in nodes
        )

    # Lost nodes.

    def _lose_node(self, fault: TrialFault) -> None:
        nodes = self._nodes_of(fault)[:1]
        if not nodes or nodes[0] in self._taken:
            return
        node, power_loss = nodes[0], fault.key.kind is FaultKind.NODE_POWER_LOSS
        what = "lost power" if power_loss else "is cut off from the network"
        self._log.applied(fault, f"node {node} {what} for {fault.seconds:g} s", node=node, pod_uids=self._uids_on(node))
        self._lose(node, NodeDeath.POWER_LOSS if power_loss else NodeDeath.PARTITION)
        self._actors.after(fault.seconds, lambda: self._revive(node))

    def _lose(self, node: str, how: NodeDeath) -> None:
        if node in self._taken:
            return
        self._lost[node] = self._lost.get(node, 0) + 1
        self._cluster.lose_node(node, how)

    def _revive(self, node: str) -> None:
        if node in self._taken:  # perhaps before its power loss, in a rack whose nodes are lost one by one
            return
        self._lost[node] -= 1
        if not self._lost[node]:
            self._cluster.kubelets.revive_node(node)

    def _rack_of(self, fault: TrialFault) -> tuple[str, list[str]]:
        """The rack of the fault's first node, and all nodes of that rack. Empty: the fault has no node."""
        first = self._actors.node(self._nodes_of(fault)[0]) if self._nodes_of(fault) else None
        if first is None:
            return "", []
        rack = first["metadata"]["labels"].get(RACK_LABEL, "")
        return rack, [
            node["metadata"]["name"]
            for node in self._actors.server.objects(NODES)
            if node["metadata"]["labels"].get(RACK_LABEL) == rack and node["metadata"]["name"] not in self._taken
        ]

    def _lose_rack(self, fault: TrialFault) -> None:
        rack, names = self._rack_of(fault)
        if not names:
            return
        words = f"rack {rack} loses power for {fault.seconds:g} s: nodes {', '.join(names)}"
        self._log.applied(fault, words, node=names[0], pod_uids=self._uids_on(*names))
        dice = Dice(self._plan.seed, "rack", fault.key.number)
        spread_seconds = dice.between(0.0, RACK_SECONDS / len(names))
        for number, name in enumerate(names):
            self._actors.after(number * spread_seconds, lambda name=name: self._lose(name, NodeDeath.POWER_LOSS))  # type: ignore[misc]
            self._actors.after(fault.seconds + RACK_SECONDS, lambda name=name: self._revive(name))  # type: ignore[misc]

    def _take_out_of_service(self, fault: TrialFault) -> None:
        nodes = self._nodes_of(fault)[:1]
        if not nodes or nodes[0] in self._taken:
            return
        node = nodes[0]
        words = f"node {node} lost power for {fault.seconds:g} s, and an operator will say that it is out of service"
        self._log.applied(fault, words, node=node, pod_uids=self._uids_on(node))
        self._lose(node, NodeDeath.POWER_LOSS)
        taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}

        def come_back() -> None:
            self._revive(node)
            self._actors.untaint(USER, node, OUT_OF_SERVICE)

        self._actors.after(
            min(OUT_OF_SERVICE_SECONDS, fault.seconds / 2), lambda: self._actors.taint(USER, node, taint)
        )
        self._actors.after(fault.seconds, come_back)

    def _replace_node(self, fault: TrialFault) -> None:
        nodes = self._nodes_of(fault)[:1]
        if not nodes or nodes[0] in self._taken:
            return
        node = nodes[0]
        self._taken.add(node)
        words = f"node {node} is taken away; another one joins in {fault.seconds:g} s"
        self._log.applied(fault, words, node=node, pod_uids=self._uids_on(node))
        labels = (self._actors.node(node) or {})["metadata"]["labels"]
        self._cluster.start(self._cluster.kubelets.remove_node(node))
        name = f"{node}-{fault.key.number}"
        kept = {label: labels[label] for label in (RACK_LABEL, FLAVOR_LABEL) if label in labels}
        spec = NodeSpec(name=name, gpus=self._plan.node_gpus, labels=kept)
        self._actors.after(fault.seconds, lambda: self._cluster.kubelets.add_node(spec))

    # Nodes that are kept free.

    def _drain(self, fault: TrialFault) -> None:
        nodes = self._nodes_of(fault)
        if not nodes:
            return
        words = f"nodes are drained, and let in again after {fault.seconds:g} s: {', '.join(nodes)}"
        self._log.applied(fault, words, pod_uids=self._uids_on(*nodes))
        mine = [node for node in nodes if not self._is_cordoned(node)]
        for number, node in enumerate(nodes):
            self._actors.cordon(USER, node, True)
            self._actors.after(number * DRAIN_SECONDS, lambda node=node: self._evict_all(node))  # type: ignore[misc]
        self._actors.after(fault.seconds, lambda: self._uncordon(mine))

    def _evict_all(self, node: str) -> None:
        for pod in self._actors.server.objects(PODS):
            over = pod.get("status", {}).get("phase") in {"Failed", "Succeeded"}
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"] and not over:
                self._actors.evict(pod["metadata"])

    def _is_cordoned(self, node: str) -> bool:
        return bool((self._actors.node(node) or {}).get("spec", {}).get("unschedulable"))

    def _uncordon(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._actors.cordon(USER, node, False)

    def _cordon_free_nodes(self, fault: TrialFault) -> None:
        busy = {pod["spec"].get("nodeName") for pod in self._actors.server.objects(PODS)}
        names = [node["metadata"]["name"] for node in self._actors.server.objects(NODES)]
        free = [name for name in names if name not in busy and not self._is_cordoned(name)]
        if not free:
            return
        self._log.applied(fault, f"all free nodes are cordoned for {fault.seconds:g} s: {', '.join(free)}")
        for node in free:
            self._actors.cordon(USER, node, True)
        self._actors.after(fault.seconds, lambda: self._uncordon(free))

    # Nodes with bad hardware.

    def _say_unhealthy(self, fault: TrialFault) -> None:
        nodes = self._nodes_of(fault)[:1]
        if not nodes:
            return
        node = nodes[0]
        words = f"a monitor says {GPU_CONDITION} of node {node} for {fault.seconds:g} s"
        self._log.applied(fault, words, node=node, pod_uids=self._uids_on(node))
        self._report(node, "True")
        self._actors.after(fault.seconds, lambda: self._report(node, "False"))

    def _overheat(self, fault: TrialFault) -> None:
        rack, names = self._rack_of(fault)
        if not names:
            return
        uids = self._uids_on(*names)
        words = (
            f"the GPUs of rack {rack} fall off the bus, and are back in {fault.seconds:g} s: nodes {', '.join(names)}"
        )
        self._log.applied(fault, words, pod_uids=uids)
        left = LEFT[Sign.XID]
        for node in names:
            self._report(node, "True")
            self._actors.after(fault.seconds, lambda node=node: self._report(node, "False"))  # type: ignore[misc]
        for pod in self._actors.server.objects(PODS):
            metadata = pod["metadata"]
            if metadata["uid"] in uids:
                self._cluster.kubelets.exit_all(
                    [metadata["name"]],
                    left.code or 1,
                    left.reason,
                    left.message,
                    namespace=metadata["namespace"],
                    container=TRAINER,
                )

    def _report(self, node: str, status: str) -> None:
        now = timestamp(self._clock.now())
        condition = {
            "type": GPU_CONDITION,
            "status": status,
            "reason": GPU_CONDITION_REASON if status == "True" else "NoXid",
            "message": "Xid 79 on GPU 3" if status == "True" else "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        self._actors.status(MONITOR, NODES, node, None, {"status": {"conditions": [condition]}})

    def _keep_off(self, fault: TrialFault) -> None:
        nodes = self._nodes_of(fault)[:1]
        if not nodes or self._is_cordoned(nodes[0]):
            return
        node = nodes[0]
        words = f"a monitor cordons and taints node {node} for {fault.seconds:g} s"
        self._log.applied(fault, words, node=node, pod_uids=self._uids_on(node))
        self._actors.cordon(MONITOR, node, True)
        taint = {"key": MONITOR_TAINT, "value": "xid-79", "effect": NO_SCHEDULE}
        self._actors.taint(MONITOR, node, {**taint, "timeAdded": timestamp(self._clock.now())})

        def let_in() -> None:
            self._actors.untaint(MONITOR, node, MONITOR_TAINT)
            self._actors.cordon(MONITOR, node, False)

        self._actors.after(fault.seconds, let_in)

    def _hold(self, fault: TrialFault) -> None:
        wanted = self._nodes_of(fault) if fault.node else (*self._faulty(), *self._nodes_of(fault))
        node = next((each for each in wanted if not held_by_agent(self._actors.node(each))), None)
        if node is None:
            return
        words = f"a health agent cordons, taints and drains node {node}, and lets it in after {fault.seconds:g} s"
        self._log.applied(fault, words, node=node, pod_uids=self._uids_on(node))
        self._agent.hold(node, fault.seconds)

    def _faulty(self) -> list[str]:
        """Nodes whose GPUs a monitor reports as bad, or that are quarantined; then those that were bad."""
        faulty: list[str] = []
        was: list[str] = []
        for node in self._actors.server.objects(NODES):
            name, conditions = node["metadata"]["name"], node.get("status", {}).get("conditions") or ()
            said = {each["status"] for each in conditions if each["type"] == GPU_CONDITION}
            quarantined = any(taint["key"] == QUARANTINE_TAINT for taint in node["spec"].get("taints") or ())
            (faulty if quarantined or "True" in said else was if said else []).append(name)
        return [*faulty, *was]

    def _swallow_pods(self, fault: TrialFault) -> None:
        self._spoil(fault, "has no healthy device for new pods", self._cluster.kubelets.refuse_devices)

    def _break_runtime(self, fault: TrialFault) -> None:
        self._spoil(fault, "makes no container", self._cluster.kubelets.break_runtime)

    def _spoil(self, fault: TrialFault, what: str, spoil: Callable[[str, bool], None]) -> None:
        """Breaks the node for new pods, and deletes one of its pods so that a replacement lands there."""
        nodes, pods = self._nodes_of(fault)[:1], self._pods_of(fault)[:1]
        if not nodes or nodes[0] in self._taken:
            return
        node = nodes[0]
        words = f"node {node} {what} for {fault.seconds:g} s, and a pod of it was deleted"
        self._log.applied(fault, words, node=node, pod_uids=(pods[0]["metadata"]["uid"],))
        spoil(node, True)
        self._actors.remove(CHAOS, PODS, pods[0])

        def fix() -> None:
            if node not in self._taken:
                spoil(node, False)

        self._actors.after(fault.seconds, fix)
