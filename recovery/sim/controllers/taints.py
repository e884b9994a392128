"""Taints and tolerations: which pods may be scheduled to a node, and how long they may stay.

The rules are those of `v1.Toleration.ToleratesTaint` and `GetMatchingTolerations` (component-helpers).
"""

from collections.abc import Iterable, Sequence

from recovery.sim.api.kinds.kind import Body

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"


def taints_of(node: Body, *effects: str) -> list[Body]:
    """The node's taints with one of these effects."""
    return [taint for taint in node.get("spec", {}).get("taints") or () if taint["effect"] in effects]


def tolerates(toleration: Body, taint: Body) -> bool:
    """Whether the toleration matches. An empty effect matches every effect, an empty key with `Exists` every key."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def all_tolerated(taints: Iterable[Body], tolerations: Sequence[Body]) -> bool:
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def tolerated_seconds(taints: Sequence[Body], tolerations: Sequence[Body]) -> float:
    """How long a pod may stay under these taints: 0 if it does not tolerate one of them, infinity for always.

    The shortest of the matching tolerations applies. A toleration without tolerationSeconds sets no limit.
    """
    if not all_tolerated(taints, tolerations):
        return 0.0
    used = [toleration for toleration in tolerations if any(tolerates(toleration, taint) for taint in taints)]
    limits = [toleration["tolerationSeconds"] for toleration in used if toleration.get("tolerationSeconds") is not None]
    return max(0.0, float(min(limits, default=float("inf"))))
