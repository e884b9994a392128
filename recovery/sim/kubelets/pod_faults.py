"""Faults of pods that do not run yet, or not any more: they are chosen by how their name begins, or by an image.

A pod that a Job makes in place of another has a new name with the same beginning, so these faults follow the rank.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from recovery.sim.kubelets.objects import Pod
from recovery.sim.kubelets.processes import Exit

Prefix = tuple[str, str]
"""Namespace, and how the name begins."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Crash:
    """What every process of a crash loop comes to."""

    seconds: float
    """After its start."""
    exit: Exit
    container: str = ""
    """The only one that it affects; empty: all."""


class PodFaults:
    """What is wrong with which pods at present."""

    def __init__(self) -> None:
        self.start_delays_seconds: dict[Prefix, float] = {}
        self.ready_delays_seconds: dict[Prefix, float] = {}
        self.crashes: dict[Prefix, Crash] = {}
        self.missing_images: dict[str, asyncio.Event] = {}
        """What is set when the image can be pulled."""

    def start_delay_seconds(self, pod: Pod) -> float:
        return sum(_of(self.start_delays_seconds, pod))

    def ready_delay_seconds(self, pod: Pod) -> float:
        return sum(_of(self.ready_delays_seconds, pod))

    def crash(self, pod: Pod) -> Crash | None:
        """None: its processes may run on."""
        return next(iter(_of(self.crashes, pod)), None)


def _of(faults: Mapping[Prefix, Value], pod: Pod) -> list[Value]:
    return [
        value
        for (namespace, prefix), value in faults.items()
        if namespace == pod.metadata.namespace and pod.name.startswith(prefix)
    ]
