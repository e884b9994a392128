"""What a pod requires of its node."""

import msgspec


class Toleration(msgspec.Struct, frozen=True):
    """Which taints a pod tolerates. An empty `key` (with Exists) or an empty `effect` matches all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class LabelRequirement(msgspec.Struct, frozen=True):
    """One of the `matchExpressions` of a node affinity: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Demand(msgspec.Struct, frozen=True):
    """What a pod requires of a node, without CPU, memory and DRA claims, which are not known here."""

    selector: tuple[tuple[str, str], ...] = ()
    """Labels that the node must have, with their values, sorted by label."""
    affinity: tuple[tuple[LabelRequirement, ...], ...] | None = None
    """Terms of the required node affinity. One must match in all its requirements. None: any node matches."""
    tolerations: tuple[Toleration, ...] = ()
    gpus: int = 0
    """Accelerators requested as extended resources, which nodes list as well."""
