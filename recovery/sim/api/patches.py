"""Patches as the API server applies them: JSON (RFC 6902), merge (RFC 7386) and strategic merge.

A patch never changes the given object. The result shares with it the parts that the patch leaves alone.
"""

from collections.abc import Callable, Mapping
from typing import Any

from recovery.ports import PatchKind
from recovery.sim.api.error_answers import bad_request, patch_failed
from recovery.sim.api.kinds.kind import Body

_OPERATIONS_MAX = 10_000
"""`maxJSONPatchOperations` in apiserver's patch handler."""

_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that a strategic patch merges, by field name, and the merge key of their items (`patchMergeKey` in core/v1,
batch/v1 and meta/v1, for the fields of pods, nodes and Jobs). Every other list is replaced, such as taints and
container statuses."""

_MERGED_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of strings that a strategic patch adds to."""

_MISSING = object()


def patched(body: Body, patch: object, kind: PatchKind) -> Body:
    """The object after the patch. Raises `StatusError`: 422 if a JSON patch fails, 400 if the body is not a patch."""
    if kind is PatchKind.JSON:
        return _json_patched(body, patch)
    if not isinstance(patch, dict):
        raise bad_request(f"error decoding patch: an object is expected, not {type(patch).__name__}")
    merged = _merged(body, patch) if kind is PatchKind.MERGE else _strategically_merged(body, patch)
    assert isinstance(merged, dict)
    return merged


# Merge patch.


def _merged(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    result: Body = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _merged(result.get(name), value)
        else:
            result[name] = value
    return result


# Strategic merge patch.


def _strategically_merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> Body:
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(target)
    for name, value in patch.items():
        if name.startswith("$"):
            _apply_directive(result, name, value)
        elif value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            _merge_object(result, name, value)
        elif isinstance(value, list) and name in _MERGE_KEYS:
            result[name] = _merged_list(result.get(name) or [], value, _MERGE_KEYS[name])
        elif isinstance(value, list) and name in _MERGED_SETS:
            result[name] = list(dict.fromkeys([*(result.get(name) or []), *value]))
        else:
            result[name] = value
    return result


def _merge_object(result: Body, name: str, value: Mapping[str, Any]) -> None:
    if value.get("$patch") == "delete":
        result.pop(name, None)
        return
    found = result.get(name)
    result[name] = _strategically_merged(found if isinstance(found, dict) else {}, value)


def _apply_directive(result: Body, name: str, value: object) -> None:
    """Apply `$deleteFromPrimitiveList/NAME`. Other directives only order lists, or are handled elsewhere."""
    directive, _, field = name.partition("/")
    if directive == "$deleteFromPrimitiveList" and isinstance(value, list):
        result[field] = [item for item in result.get(field) or [] if item not in value]


def _merged_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    """The merged list. Present items keep their places, new ones come last."""
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(target)
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((index for index, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_strategically_merged({}, item))
        else:
            result[at] = _strategically_merged(result[at], item)
    return result


# JSON patch, with the deviations of the library that the API server uses (evanphx/json-patch v4).


def _json_patched(body: Body, patch: object) -> Body:
    if not isinstance(patch, list) or len(patch) > _OPERATIONS_MAX:
        raise bad_request("error decoding patch: a list of operations is expected")
    result: Any = body
    for operation in patch:
        apply = _OPERATIONS.get(operation.get("op"))
        if apply is None or not isinstance(operation.get("path"), str):
            raise patch_failed()
        result = apply(result, operation)
    if not isinstance(result, dict):
        raise patch_failed()
    return result


def _add(document: Any, operation: Mapping[str, Any]) -> Any:
    return _with(document, _parts(operation["path"]), _value(operation), insert=True)


def _remove(document: Any, operation: Mapping[str, Any]) -> Any:
    return _with(document, _parts(operation["path"]), _MISSING, insert=False)


def _replace(document: Any, operation: Mapping[str, Any]) -> Any:
    return _with(document, _parts(operation["path"]), _value(operation), insert=False)


def _move(document: Any, operation: Mapping[str, Any]) -> Any:
    start = _parts(_from(operation))
    value = _found(document, start)
    if value is _MISSING:
        raise patch_failed()
    return _with(_with(document, start, _MISSING, insert=False), _parts(operation["path"]), value, insert=True)


def _copy(document: Any, operation: Mapping[str, Any]) -> Any:
    value = _found(document, _parts(_from(operation)))
    if value is _MISSING:
        raise patch_failed()
    return _with(document, _parts(operation["path"]), value, insert=True)


def _test(document: Any, operation: Mapping[str, Any]) -> Any:
    """A missing key equals null. A path below a missing key equals nothing, so the test fails."""
    parts, value = _parts(operation["path"]), operation.get("value")
    found = _found(document, parts)
    if found is _MISSING:
        if value is None and isinstance(_found(document, parts[:-1]), dict):
            return document
        raise patch_failed()
    if not _same(found, value):
        raise patch_failed()
    return document


_OPERATIONS: Mapping[object, Callable[[Any, Mapping[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _parts(path: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901)."""
    if not path:
        return []
    first, *parts = path.split("/")
    if first:
        raise patch_failed()
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _from(operation: Mapping[str, Any]) -> str:
    start = operation.get("from")
    if not isinstance(start, str):
        raise patch_failed()
    return start


def _value(operation: Mapping[str, Any]) -> Any:
    return operation.get("value")


def _found(document: Any, parts: list[str]) -> Any:
    for part in parts:
        if isinstance(document, dict):
            document = document.get(part, _MISSING)
        elif isinstance(document, list):
            index = _index(part, len(document))
            document = _MISSING if index is None else document[index]
        else:
            return _MISSING
    return document


def _with(document: Any, parts: list[str], value: Any, *, insert: bool) -> Any:
    """The document with the value at that place, or without it (`_MISSING`). `insert`: before that item of a list.

    As in that library, replacing a missing key adds it. Removing a missing key is an error.
    """
    if not parts:
        return _whole(value)
    part, *rest = parts
    if isinstance(document, dict):
        if rest:
            return {**document, part: _with(document.get(part), rest, value, insert=insert)}
        if value is not _MISSING:
            return {**document, part: value}
        if part not in document:
            raise patch_failed()
        return {name: kept for name, kept in document.items() if name != part}
    if not isinstance(document, list):
        raise patch_failed()
    if part == "-" and insert and not rest:
        return [*document, value]
    index = _index(part, len(document) + (1 if insert and not rest else 0))
    if index is None:
        raise patch_failed()
    if rest:
        return [*document[:index], _with(document[index], rest, value, insert=insert), *document[index + 1 :]]
    after = document[index:] if insert else document[index + 1 :]
    return [*document[:index], *([] if value is _MISSING else [value]), *after]


def _whole(value: Any) -> Any:
    if value is _MISSING:
        raise patch_failed()
    return value


def _index(part: str, length: int) -> int | None:
    """The index of an item in a list of that length, or None if there is no such item."""
    return int(part) if part.isdecimal() and int(part) < length else None


def _same(found: Any, value: Any) -> bool:
    """Whether both are equal as JSON: true is not 1."""
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return bool(found == value)
