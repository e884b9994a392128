"""How much memory the controller holds: everything reachable from it, except the cluster that it works on.

The process of a simulation also holds the cluster's objects and their history, so its resident size does not show what
the controller keeps. This measure does, and gives the same figure on every machine.
"""

import gc
import sys
from collections import Counter
from dataclasses import dataclass
from types import FrameType, FunctionType, ModuleType

import msgspec

_PACKAGES = "api_verbs controller core decoding executors kube manager telemetry workloads"
PRODUCT = tuple(f"recovery.{package}" for package in _PACKAGES.split())
"""The packages that run in a controller process, without the command line."""
CLUSTER = "recovery.sim"


@dataclass(frozen=True)
class HeldMemory:
    """The reachable objects."""

    size_bytes: int
    of_type: Counter[str]
    """How many objects of each type, by its qualified name."""


def held_memory(*roots: object) -> HeldMemory:
    """Everything reachable from these and from the product's modules, including function caches."""
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
    # msgspec.Raw reports a size that has nothing to do with its content.
    return len(held) if isinstance(held, msgspec.Raw) else sys.getsizeof(held)


def _referents(held: object) -> list[object]:
    if isinstance(held, FunctionType):  # Not its globals: everything is reachable through them.
        return [*(held.__closure__ or ()), *(held.__defaults__ or ())]
    return gc.get_referents(held)


def _is_elsewhere(held: object) -> bool:
    """The object belongs to the cluster, the interpreter or the program's code, and not to the controller's data."""
    if isinstance(held, ModuleType | FrameType):
        return True
    if isinstance(held, type):
        return not held.__module__.startswith(PRODUCT)
    return type(held).__module__.startswith(CLUSTER) and type(held).__name__ != "_SerialTask"
