"""A health agent that finds bad hardware by itself and repairs nodes, beside the controller, as NVSentinel does.

For a fault it cordons, taints and annotates a node in one update, then drains it. After the repair it takes all of that
back in one update. It does not see who else relies on the cordon. If another client makes a node schedulable that it
holds, it takes that for the decision of a person, and gives up the node.
"""

from collections.abc import Callable

from recovery.core.model.annotations import NVSENTINEL_CORDON_ANNOTATION
from recovery.ports import NODES, Clock
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.taints import NO_SCHEDULE
from recovery.sim.trials.actors import AGENT, Actors

AGENT_TAINT = "AggregatedNodeHealth"
DRAINS_AFTER_SECONDS = 3.0
"""From the cordon of a node until its pods are evicted. The parts of the agent follow each other's writes."""
NOTICES_AFTER_SECONDS = 0.5
"""From an uncordon by another client until the agent has given up the node."""


def held_by_agent(node: Body | None) -> bool:
    """The agent relies on the cordon of the node, no matter who has set it."""
    annotations = (node or {}).get("metadata", {}).get("annotations") or {}
    return bool(annotations.get(NVSENTINEL_CORDON_ANNOTATION) == "True")


class HealthAgent:
    """`evict_all` evicts the pods of a node."""

    def __init__(self, actors: Actors, clock: Clock, evict_all: Callable[[str], None]) -> None:
        self._actors = actors
        self._clock = clock
        self._evict_all = evict_all
        self._holds = 0
        """How many there were."""
        self._held: dict[str, int] = {}
        """The hold of each node that the agent has not let in again or given up, by its number."""
        actors.server.subscribe(self._saw, NODES)

    def hold(self, node: str, seconds: float) -> None:
        """Keeps pods off the node for that time, unless another client lets them in earlier."""
        self._holds += 1
        number = self._held[node] = self._holds
        taint = {"key": AGENT_TAINT, "value": "False", "effect": NO_SCHEDULE}
        self._mark(node, True, {**taint, "timeAdded": timestamp(self._clock.now())})
        self._actors.after(DRAINS_AFTER_SECONDS, lambda: self._if_held(node, number, self._evict_all))
        self._actors.after(seconds, lambda: self._if_held(node, number, self._let_in))

    def _if_held(self, node: str, number: int, act: Callable[[str], None]) -> None:
        if self._held.get(node) == number:
            act(node)

    def _let_in(self, node: str) -> None:
        del self._held[node]
        self._mark(node, False)

    def _give_up(self, node: str) -> None:
        """Removes the marks, and leaves the cordon as it is."""
        del self._held[node]
        self._mark(node, None)

    def _mark(self, node: str, cordoned: bool | None, *taints: Body) -> None:
        """Changes all marks of the agent in one update. `cordoned` None: the cordon stays as it is."""
        spec: Body = {"taints": [*self._actors.taints(node, besides=AGENT_TAINT), *taints] or None}
        if cordoned is not None:
            spec["unschedulable"] = cordoned or None
        annotations = {NVSENTINEL_CORDON_ANNOTATION: "True" if taints else None}
        self._actors.merge(AGENT, NODES, node, None, {"metadata": {"annotations": annotations}, "spec": spec})

    def _saw(self, change: ObjectChange) -> None:
        name, before = change.body["metadata"]["name"], change.before or {}
        if change.actor == AGENT or name not in self._held:
            return
        if before.get("spec", {}).get("unschedulable") and not change.body["spec"].get("unschedulable"):
            number = self._held[name]
            self._actors.after(NOTICES_AFTER_SECONDS, lambda: self._if_held(name, number, self._give_up))
