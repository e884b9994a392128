"""metadata.managedFields: who owns which fields, and when each owner last wrote.

They follow the real server's rules for plain updates: a client that changes a field becomes its only owner. A list has
one owner as a whole. That is coarser than in the real server, but enough for the readers here.
"""

from collections.abc import Iterable
from typing import Any

from recovery.sim.api.kinds.kind import Body

_Path = tuple[str, ...]

_UNOWNED_METADATA = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generateName",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    }
)
"""Fields that the server itself writes or that cannot change (`stripMeta` in structured-merge-diff's use)."""


def managed_fields(body: Body, before: Body | None, *, manager: str, subresource: str, at: str) -> list[Body]:
    """The managedFields after `manager` has changed the object from `before` to `body` at that moment."""
    now, then = dict(_leaves(body)), dict(_leaves(before)) if before is not None else {}
    written = [path for path, value in now.items() if path not in then or then[path] != value]
    lost = {*written, *(path for path in then if path not in now)}
    entries: list[Body] = []
    ours: list[_Path] = []
    for entry in before["metadata"].get("managedFields", ()) if before is not None else ():
        left = [path for path in _paths(entry["fieldsV1"]) if path not in lost]
        if entry["manager"] == manager and entry.get("subresource", "") == subresource:
            ours = left
        elif left:
            entries.append({**entry, "fieldsV1": _tree(left)})
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": body["apiVersion"],
        "time": at,
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree([*ours, *written]),
    }
    if subresource:
        entry["subresource"] = subresource
    return [*entries, entry]


def _leaves(body: Body) -> Iterable[tuple[_Path, Any]]:
    for name, value in body.items():
        if name == "metadata":
            owned = {key: item for key, item in value.items() if key not in _UNOWNED_METADATA}
            yield from _leaves_below(("f:metadata",), owned)
        elif name not in {"apiVersion", "kind"}:
            yield from _leaves_below((f"f:{name}",), value)


def _leaves_below(path: _Path, value: Any) -> Iterable[tuple[_Path, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves_below((*path, f"f:{name}"), item)
    elif path != ("f:metadata",):
        yield path, value


def _paths(fields: Body, path: _Path = ()) -> Iterable[_Path]:
    """The leaves of a `fieldsV1`."""
    for name, below in fields.items():
        if below:
            yield from _paths(below, (*path, name))
        else:
            yield (*path, name)


def _tree(paths: Iterable[_Path]) -> Body:
    tree: Body = {}
    for path in sorted(set(paths)):
        node = tree
        for name in path:
            node = node.setdefault(name, {})
    return tree
