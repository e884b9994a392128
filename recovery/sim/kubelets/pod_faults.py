"""Faults of pods that are not running yet or have stopped running. They are selected by a name prefix or an image.

A Job's replacement pod has a new name with the same prefix, so these faults follow the rank.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from recovery.sim.kubelets.objects import Pod
from recovery.sim.kubelets.processes import Exit

Prefix = tuple[str, str]
"""Namespace and name prefix."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Crash:
    """How every process of a crash loop ends."""

    seconds: float
    """Time from its start to its exit."""
    exit: Exit
    container: str = ""
    """The only affected container. Empty: all."""


class PodFaults:
    """The present faults of pods."""

    def __init__(self) -> None:
        self.start_delays_seconds: dict[Prefix, float] = {}
        self.ready_delays_seconds: dict[Prefix, float] = {}
        self.restart_delays_seconds: dict[Prefix, float] = {}
        self.crashes: dict[Prefix, Crash] = {}
        self.missing_images: dict[str, asyncio.Event] = {}
        """By image: an event that is set when the image can be pulled."""

    def start_delay_seconds(self, pod: Pod) -> float:
        return sum(_of(self.start_delays_seconds, pod))

    def ready_delay_seconds(self, pod: Pod) -> float:
        return sum(_of(self.ready_delays_seconds, pod))

    def restart_delay_seconds(self, pod: Pod) -> float:
        return sum(_of(self.restart_delays_seconds, pod))

    def crash(self, pod: Pod) -> Crash | None:
        """The pod's crash loop, or None if it has none."""
        return next(iter(_of(self.crashes, pod)), None)


def _of(faults: Mapping[Prefix, Value], pod: Pod) -> list[Value]:
    return [
        value
        for (namespace, prefix), value in faults.items()
        if namespace == pod.metadata.namespace and pod.name.startswith(prefix)
    ]
