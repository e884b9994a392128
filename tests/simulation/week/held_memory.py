"""How much memory the controller holds: everything that is reachable from it, but for the cluster that it works on.

The process of a simulation holds the cluster's objects and their history as well, so its resident size cannot tell
what the controller alone keeps. This does, and gives the same figure on every machine.
"""

import gc
import sys
from collections import Counter
from dataclasses import dataclass
from types import FrameType, FunctionType, ModuleType

import msgspec

_PACKAGES = "api_verbs controller core decoding executors kube manager telemetry workloads"
PRODUCT = tuple(f"recovery.{package}" for package in _PACKAGES.split())
"""What runs in a controller process, less the command line."""
CLUSTER = "recovery.sim"


@dataclass(frozen=True)
class HeldMemory:
    """What is reachable."""

    size_bytes: int
    of_type: Counter[str]
    """How many objects of each type, by its qualified name."""


def held_memory(*roots: object) -> HeldMemory:
    """Everything reachable from these and from the product's modules, caches of functions included."""
    modules = [module for name, module in sys.modules.items() if name.startswith(PRODUCT)]
    waiting: list[object] = [*roots, *(vars(module) for module in modules)]
    seen = {id(each) for each in waiting}
    size_bytes, of_type = 0, Counter[str]()
    while waiting:
        each = waiting.pop()
        size_bytes += _size_bytes(each)
        of_type[f"{type(each).__module__}.{type(each).__qualname__}"] += 1
        for next_one in _referents(each):
            if id(next_one) not in seen and not _is_elsewhere(next_one):
                seen.add(id(next_one))
                waiting.append(next_one)
    return HeldMemory(size_bytes, of_type)


def _size_bytes(held: object) -> int:
    # msgspec.Raw answers with a figure that has nothing to do with its size.
    return len(held) if isinstance(held, msgspec.Raw) else sys.getsizeof(held)


def _referents(held: object) -> list[object]:
    if isinstance(held, FunctionType):  # Not its globals: through them everything is reachable.
        return [*(held.__closure__ or ()), *(held.__defaults__ or ())]
    return gc.get_referents(held)


def _is_elsewhere(held: object) -> bool:
    """It belongs to the cluster, to the interpreter or to the program's text, and is not the controller's to keep."""
    if isinstance(held, ModuleType | FrameType):
        return True
    if isinstance(held, type):
        return not held.__module__.startswith(PRODUCT)
    return type(held).__module__.startswith(CLUSTER) and type(held).__name__ != "_SerialTask"
