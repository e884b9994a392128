"""Which pods and nodes an entry of the experiment affects, and whether that is within its limits. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from recovery.chaos.job_state import JobMember
from recovery.chaos.node_pods import PodOnNode
from recovery.core.model.facts import GroupKey, Taint
from recovery.core.model.ledger import Phase
from recovery.kube.capacity import tolerates
from recovery.scenario.experiment import Experiment, ExperimentLimits
from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.selection import chance_of, select

NAMED_MAX = 512
"""As many pods as `spec.pods` of a RecoveryDrill may have."""
_NO_EXECUTE = "NoExecute"
_GOING_DOWN = frozenset({Phase.STOPPING, Phase.TEARING_DOWN})
"""Phases in which the pods of the group are being deleted. Only entries that ask for such a phase select them."""


class Strike(msgspec.Struct, frozen=True):
    """One entry of the experiment, with the pods that it affects."""

    chaos: ExperimentChaos
    members: tuple[JobMember, ...]
    """For an action on nodes: all pods of the job on these nodes, because each of them may fail."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({member.node for member in self.members}))


class Reach(msgspec.Struct, frozen=True):
    """What some strikes affect together."""

    nodes: frozenset[str]
    gpus: int


def aimed(experiment: Experiment, chaos: ExperimentChaos, repeat: int, members: Sequence[JobMember]) -> Strike:
    """The entry with the pods that it affects in that repeat. Raises BadInputError if it does not fit the pods."""
    there = members if chaos.during in _GOING_DOWN else [member for member in members if not member.going]
    indexes = sorted({member.index for member in there if member.index is not None})
    chosen = set(select(chaos, indexes, chance_of(experiment.seed, repeat, chaos.number)))
    affected = tuple(member for member in there if member.index in chosen)
    if chaos.action.of_nodes:
        nodes = {member.node for member in affected}
        affected = tuple(member for member in there if member.node in nodes)
    return Strike(chaos, affected)


def reach_of(strikes: Iterable[Strike], on_nodes: Mapping[str, Sequence[PodOnNode]]) -> Reach:
    """An action on a node affects all pods there, those of others too. `on_nodes`: the pods on these nodes."""
    gpus: dict[str, int] = {}
    nodes: set[str] = set()
    for strike in strikes:
        nodes.update(strike.nodes)
        gpus |= {member.uid: member.gpus for member in strike.members}
        if strike.chaos.action.of_nodes:
            gpus |= {pod.uid: pod.gpus for node in strike.nodes for pod in on_nodes.get(node, ())}
    return Reach(frozenset(nodes), sum(gpus.values()))


def over_limit(reach: Reach, limits: ExperimentLimits) -> str:
    """Which limit of the file that exceeds, and what to do about it. Empty: none."""
    if limits.nodes is not None and len(reach.nodes) > limits.nodes:
        return f"it would affect {len(reach.nodes)} nodes; select fewer pods, or raise limits.nodes ({limits.nodes})"
    if limits.gpus is not None and reach.gpus > limits.gpus:
        return f"it would affect {reach.gpus} GPUs; select fewer pods, or raise limits.gpus ({limits.gpus})"
    return ""


def drives_out(strike: Strike, on_nodes: Mapping[str, Sequence[PodOnNode]], key: GroupKey) -> str:
    """The pod of others that a taint with effect NoExecute would drive out. Empty: there is none.

    DaemonSet pods and pods that tolerate the taint stay.
    """
    wanted = strike.chaos.taint
    if wanted is None or wanted.effect != _NO_EXECUTE:
        return ""
    taint = Taint(wanted.key, wanted.value, wanted.effect)
    for node in strike.nodes:
        for pod in on_nodes.get(node, ()):
            stays = pod.of_daemon_set or any(tolerates(each, taint) for each in pod.tolerations)
            if pod.group != key and not stays:
                return (
                    f"{strike.chaos.path}: the taint would drive pod {pod.namespace}/{pod.name} of others from node "
                    f"{node}; use effect NoSchedule, or select other pods"
                )
    return ""
