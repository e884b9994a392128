"""Drills of a small world."""

from datetime import timedelta
from typing import Any

import msgspec

from recovery.core.model.drill import (
    DrillAction,
    DrilledWorkload,
    DrillEnd,
    DrillFacts,
    DrillSpec,
    DrillStatus,
    NamedPod,
)
from recovery.core.model.reason import Reason
from tests.unit.core.world import World, at

DONE = DrillEnd(at(60), Reason.DRILL_DONE)
WORKLOAD = DrilledWorkload("TrainJob", "train", "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11")


def named(world: World, index: int, number: int = 1, *, repeat: int = 1) -> NamedPod:
    """The newest pod of that rank, as a drill names it."""
    pod = world.pod(index)
    return NamedPod(number, repeat, DrillAction.POD_KILL, pod.name, pod.uid, pod.node, index)


def drill(*pods: NamedPod, acknowledged: int | None = None, created: float = -10, **changes: Any) -> DrillFacts:
    """A drill of an hour. `acknowledged`: how many of its pods count. None: all of them."""
    name = changes.pop("name", "lose-a-rank-x7k2p")
    spec = DrillSpec(WORKLOAD, "lose-a-rank", at(created) + timedelta(hours=1), pods=pods)
    status = DrillStatus(
        named=len(pods) if acknowledged is None else acknowledged, refusal=changes.pop("refusal", None)
    )
    return DrillFacts(
        namespace="ml",
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        created_at=at(created),
        spec=msgspec.structs.replace(spec, **changes),
        status=status,
    )


def with_drills(world: World, *drills: DrillFacts) -> World:
    """The world with these RecoveryDrills of its workload."""
    return msgspec.structs.replace(world, drills=drills)
