"""The scheduler: it binds pods one by one, in order of creation, each to a node that has room for it.

Modelled after kube-scheduler 1.36 with the default plugins that matter for training pods (`node_fit`), without
preemption, gangs, spreading and volumes. Among the nodes that fit, it takes the one that keeps the largest free share
(LeastAllocated). Among equal nodes it takes the first by name, where the real scheduler picks at random.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

from recovery.ports import NODES, PODS, Clock, Entropy, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.bound_pods import TERMINAL_PHASES, PodKey, key_of
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.node_fit import Amounts, NodeUsage, PodRequirements
from recovery.sim.controllers.request_limiter import Limiter

DEFAULT_SCHEDULER = "default-scheduler"
FIRST_BACK_OFF_SECONDS = 1.0
LONGEST_BACK_OFF_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 300.0
"""DefaultPodMaxInUnschedulablePodsDuration: after this time a pod is tried again even if nothing changed."""


@dataclass
class _Waiting:
    """A pod that fits on no node."""

    demand: PodRequirements
    attempts: int
    not_before_seconds: float
    """End of its backoff, in the clock's monotonic time."""
    timer: asyncio.TimerHandle
    """Timer of its next try."""


class Scheduler(ModelController[PodKey]):
    """Binds pods. It keeps a running account of each node's usage, so a decision reads each node once."""

    name = "kube-scheduler"

    def __init__(self, server: ApiServer, clock: Clock, entropy: Entropy, *, limiter: Limiter | None = None) -> None:
        """`limiter` None: 50 requests a second and a burst of 100, as in the real one."""
        super().__init__(
            server,
            clock,
            entropy,
            limiter=limiter or Limiter(clock, per_second=50.0, burst=100),
            delay_seconds=(0.001, 0.01),
            workers=1,
        )
        self._rooms: dict[str, NodeUsage] = {}
        self._taken: dict[str, tuple[NodeUsage, Amounts]] = {}
        """What each bound pod uses and where, by UID of the pod."""
        self._unplaced: dict[PodKey, _Waiting] = {}
        for node in server.objects(NODES):
            self._room(node["metadata"]["name"]).put(node)
        for pod in server.objects(PODS):
            self._account(pod)
            if not pod["spec"].get("nodeName"):
                self.enqueue(key_of(pod))
        server.subscribe(self._on_node, NODES)
        server.subscribe(self._on_pod, PODS)

    async def sync(self, key: PodKey) -> None:
        namespace, name = key
        pod = self.server.find(PODS, name, namespace)
        if pod is None or not _schedulable(pod):
            return
        demand = PodRequirements.of(pod)
        node, why_not = self._choose(demand)
        if node is None:
            self._put_off(key, demand)
            await self._say_unschedulable(pod, why_not)
            return
        self._no_longer_wait(key)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.limiter.take()
        with self.server.acting(self.name):
            self.server.create(PODS, binding, namespace=namespace, name=name, subresource="binding")

    # Decisions.

    def _choose(self, demand: PodRequirements) -> tuple[str | None, str]:
        """The chosen node's name, or None and the reason why no node fits."""
        best: NodeUsage | None = None
        best_share = 0.0
        refusals: Counter[str] = Counter()
        nodes = 0
        for room in self._rooms.values():
            if room.node is None:
                continue
            nodes += 1
            refused = demand.refusals(room)
            if refused:
                refusals.update(refused)
                continue
            share = room.free_share(demand.amounts)
            if best is None or share > best_share or (share == best_share and room.name < best.name):
                best, best_share = room, share
        if best:
            return best.name, ""
        if not nodes:
            return None, "no nodes available to schedule pods"
        reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in refusals.items()))
        return None, f"0/{nodes} nodes are available: {reasons}."

    def _put_off(self, key: PodKey, demand: PodRequirements) -> None:
        before = self._unplaced.get(key)
        attempts = before.attempts + 1 if before else 1
        self._no_longer_wait(key)
        back_off_seconds = min(LONGEST_BACK_OFF_SECONDS, FIRST_BACK_OFF_SECONDS * 2.0 ** (attempts - 1))
        timer = asyncio.get_running_loop().call_later(LONGEST_WAIT_SECONDS, self.enqueue, key)
        self._unplaced[key] = _Waiting(demand, attempts, self.clock.monotonic_seconds() + back_off_seconds, timer)

    def _no_longer_wait(self, key: PodKey) -> None:
        waiting = self._unplaced.pop(key, None)
        if waiting:
            waiting.timer.cancel()

    async def _say_unschedulable(self, pod: Body, message: str) -> None:
        conditions = pod.get("status", {}).get("conditions") or ()
        said: Body = next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        if condition.items() <= said.items():
            return
        since = said.get("lastTransitionTime") if said.get("status") == "False" else None
        condition["lastTransitionTime"] = since or timestamp(self.clock.now())
        await self.limiter.take()
        metadata = pod["metadata"]
        with self.server.acting(self.name):
            self.server.patch(
                PODS,
                metadata["name"],
                {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}},
                kind=PatchKind.STRATEGIC,
                namespace=metadata["namespace"],
                subresource="status",
            )

    # Changes.

    def _room(self, node: str) -> NodeUsage:
        if node not in self._rooms:
            self._rooms[node] = NodeUsage(node)
        return self._rooms[node]

    def _on_node(self, change: ObjectChange) -> None:
        room = self._room(change.body["metadata"]["name"])
        if change.type == "DELETED":
            room.put(None)
            return
        room.put(change.body)
        self._retry_what_fits(room)

    def _on_pod(self, change: ObjectChange) -> None:
        pod, before = change.body, change.before
        gone = change.type == "DELETED"
        self._account(pod, gone=gone)
        if gone or pod["spec"].get("nodeName"):
            self._no_longer_wait(key_of(pod))
        elif before is None or (before["spec"] is not pod["spec"] and before["spec"] != pod["spec"]):
            self._no_longer_wait(key_of(pod))  # Its requirements have changed, or its last scheduling gate is gone.
            self.enqueue(key_of(pod))

    def _account(self, pod: Body, *, gone: bool = False) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        held = bool(spec.get("nodeName")) and not gone and pod.get("status", {}).get("phase") not in TERMINAL_PHASES
        if held and uid not in self._taken:
            room, amounts = self._room(spec["nodeName"]), PodRequirements.of(pod).amounts
            room.take(amounts)
            self._taken[uid] = room, amounts
        elif not held and uid in self._taken:
            room, amounts = self._taken.pop(uid)
            room.give_back(amounts)
            self._retry_what_fits(room)

    def _retry_what_fits(self, room: NodeUsage) -> None:
        """Something changed on the node: retry the waiting pods that now fit, after their backoff."""
        if room.node is None or not self._unplaced:
            return
        now_seconds = self.clock.monotonic_seconds()
        loop = asyncio.get_running_loop()
        for key, waiting in self._unplaced.items():
            if waiting.demand.refusals(room):
                continue
            seconds = max(0.0, waiting.not_before_seconds - now_seconds)
            if waiting.timer.when() > loop.time() + seconds:
                waiting.timer.cancel()
                waiting.timer = loop.call_later(seconds, self.enqueue, key)


def _schedulable(pod: Body) -> bool:
    """The pod waits for this scheduler and for nothing else."""
    spec = pod["spec"]
    return not (
        spec.get("nodeName")
        or spec.get("schedulingGates")
        or spec.get("schedulerName", DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER
        or "deletionTimestamp" in pod["metadata"]
        or pod.get("status", {}).get("phase") in TERMINAL_PHASES
    )
