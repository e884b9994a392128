"""What the server knows of one kind of object."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from recovery.ports import Resource
from recovery.sim.api.status_error import FieldCause

Body = dict[str, Any]
"""An object as JSON has it. A stored body never changes: each write stores a new one that may share parts with it."""


def _leave(body: Body, before: Body | None) -> None:
    """Nothing to add."""


def _accept(body: Body, before: Body | None) -> Iterable[FieldCause]:
    return ()


@dataclass(frozen=True, kw_only=True)
class ServedKind:
    """A kind that is served. Both callables get `before` None on a create, else the stored object."""

    resource: Resource
    has_status: bool = True
    """Served under /status: a write there changes status only, any other write leaves status alone."""
    counts_generation: bool = True
    """metadata.generation rises with every change of the spec."""
    tracks_managers: bool = False
    """metadata.managedFields are kept (only who reads them pays for them)."""
    completes_status: bool = False
    """`default` is called for writes of the status as well, as for custom resources, and changes no part in place."""
    default: Callable[[Body, Body | None], None] = _leave
    """Fills in what the server, or the kind's mutating webhook, would; the body is the callee's to change."""
    validate: Callable[[Body, Body | None], Iterable[FieldCause]] = _accept
    """What is wrong with it, immutable fields included; anything makes the write a 422 Invalid."""
