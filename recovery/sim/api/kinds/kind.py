"""What the server knows about one kind of object."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from recovery.ports import Resource
from recovery.sim.api.status_error import FieldCause

Body = dict[str, Any]
"""An object as decoded JSON. A stored body never changes: each write stores a new body that may share parts with it."""


def _leave(body: Body, before: Body | None) -> None:
    """Nothing to add."""


def _accept(body: Body, before: Body | None) -> Iterable[FieldCause]:
    return ()


@dataclass(frozen=True, kw_only=True)
class ServedKind:
    """A kind that is served. Both callables get the stored object as `before`, or None on a create."""

    resource: Resource
    has_status: bool = True
    """The kind has a /status subresource: a write there changes only the status, and other writes never change it."""
    counts_generation: bool = True
    """metadata.generation rises with every change of the spec."""
    tracks_managers: bool = False
    """metadata.managedFields are kept. They cost time, so only kinds whose managedFields are read keep them."""
    completes_status: bool = False
    """`default` is also called for writes of the status, as for custom resources. It changes no part in place."""
    default: Callable[[Body, Body | None], None] = _leave
    """Fills in what the server or the kind's mutating webhook would fill in. It may change the body."""
    validate: Callable[[Body, Body | None], Iterable[FieldCause]] = _accept
    """What is wrong with the object, changed immutable fields included. Any cause makes the write a 422 Invalid."""
