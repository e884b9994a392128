"""What a pod asks of the node that it runs on."""

import msgspec


class Toleration(msgspec.Struct, frozen=True):
    """Which taints a pod puts up with. Empty `key` (with Exists) and empty `effect` mean all."""

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
    """What a pod asks of a node, as far as it is known here: CPU, memory and DRA claims are not."""

    selector: tuple[tuple[str, str], ...] = ()
    """Labels that the node must have, and their values, by label."""
    affinity: tuple[tuple[LabelRequirement, ...], ...] | None = None
    """Terms of the required node affinity, one of which must match, in all its requirements. None: any node will do."""
    tolerations: tuple[Toleration, ...] = ()
    gpus: int = 0
    """Accelerators that are extended resources, as nodes list them too."""
