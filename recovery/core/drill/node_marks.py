"""What a drill changes on a node, and how that is taken back: JSON patches, computed from the Node object alone.

The patch that makes a change also writes the mark (`NodeMark`), and the patch that takes it back removes the mark. So a
node shows at any moment what has to be taken back, even if the client of the drill has died. The command and the
sweeper of the controller share these functions.

What others have set stays. A cordon is taken back only if managedFields name no other manager of it, and a taint only
with the same key, value and effect.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from recovery.core.model.drill import DRILL_CONDITION_TYPE, NODE_MARK_ANNOTATION, MarkedTaint, NodeMark
from recovery.core.model.ledger_bounds import check

CORDON_MANAGER = "recovery-drill"
"""The field manager of patches that mark nodes. It shows in managedFields who has cordoned the node."""
STATUS = "status"
"""The subresource of the condition. The API server ignores it in patches of the node itself."""

Node = Mapping[str, Any]
"""A Node as decoded JSON."""
Operation = dict[str, Any]
"""One operation of a JSON patch."""

_ANNOTATION_PATH = f"/metadata/annotations/{NODE_MARK_ANNOTATION.replace('~', '~0').replace('/', '~1')}"
_encode_mark = msgspec.json.Encoder(order="deterministic").encode
_decode_mark = msgspec.json.Decoder(NodeMark).decode


class UnreadableMarkError(ValueError):
    """The mark of a node cannot be decoded, so it is not known what it stands for. The message says what to do."""


class NodePatch(msgspec.Struct, frozen=True):
    """A JSON patch of a node. It fails if another client has changed the node since it was read."""

    operations: tuple[Operation, ...]
    subresource: str = ""


def mark_of(node: Node) -> NodeMark | None:
    """The mark on the node. None: it has none. Raises UnreadableMarkError."""
    text = (node["metadata"].get("annotations") or {}).get(NODE_MARK_ANNOTATION)
    if text is None:
        return None
    try:
        return _read_mark(text)
    except (ValueError, OverflowError) as error:  # msgspec raises ValueErrors
        name = node["metadata"]["name"]
        raise UnreadableMarkError(
            f"node {name}: annotation {NODE_MARK_ANNOTATION} cannot be read ({error}); take back by hand what the "
            f"drill has changed, and run kubectl annotate node {name} {NODE_MARK_ANNOTATION}-"
        ) from error


def parsed_mark(text: str | None) -> NodeMark | None:
    """The mark in the value of the annotation. None: there is none, or it cannot be read."""
    try:
        return None if text is None else _read_mark(text)
    except (ValueError, OverflowError):  # msgspec raises ValueErrors
        return None


def _read_mark(text: str) -> NodeMark:
    """Raises ValueError, also for a date that cannot be compared."""
    mark = _decode_mark(text)
    check(mark)
    return mark


def refusal(node: Node, wanted: NodeMark) -> str:
    """Why a drill may not make that change, and what to do about it. Empty: it may. Raises UnreadableMarkError."""
    name, mark = node["metadata"]["name"], mark_of(node)
    if mark is not None and mark.uid != wanted.uid:
        return (
            f"node {name} has a mark of drill {mark.namespace}/{mark.drill}; wait for its end, or run recovery chaos "
            f"abort {mark.drill} -n {mark.namespace}"
        )
    if wanted.cordon and _spec(node).get("unschedulable"):
        return f"node {name} is cordoned already; uncordon it, or select another pod"
    if wanted.taint is not None and _has_effect(node, wanted.taint):
        where = f"{wanted.taint.key}:{wanted.taint.effect}"
        return f"node {name} has a taint {where} already; remove it, or name another key"
    if mark is not None and wanted.taint is not None and mark.taint not in (None, wanted.taint):
        return f"node {name} has another taint of this drill already; use one taint for each node"
    if wanted.condition and _condition_index(node) is not None:
        return f"node {name} has the condition {DRILL_CONDITION_TYPE} already; wait until it is removed"
    return ""


def marking(node: Node, wanted: NodeMark) -> NodePatch:
    """The patch that writes the mark and makes the change. The condition is not part of it, because that is status:
    write the condition afterwards. The caller has checked `refusal`.

    `wanted` has only the change to be made. What the same drill has changed before stays in the mark.
    """
    metadata, mark = node["metadata"], mark_of(node)
    together = wanted if mark is None else _together(mark, wanted)
    annotations = metadata.get("annotations")
    operations: list[Operation] = [_test("/metadata/resourceVersion", metadata["resourceVersion"])]
    if annotations is None:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    operations.append(_test(_ANNOTATION_PATH, (annotations or {}).get(NODE_MARK_ANNOTATION)))
    operations.append({"op": "add", "path": _ANNOTATION_PATH, "value": _encode_mark(together).decode()})
    if wanted.cordon:
        operations.append({"op": "add", "path": "/spec/unschedulable", "value": True})
    if wanted.taint is not None:
        taint = _body_of(wanted.taint)
        path, value = ("/spec/taints/-", taint) if _taints(node) else ("/spec/taints", [taint])
        operations.append({"op": "add", "path": path, "value": value})
    return NodePatch(tuple(operations))


def undoing(node: Node, drill_uid: str = "") -> NodePatch | None:
    """The next patch that takes back what the mark says. None: the node has no mark of that drill.

    Where the condition has to be removed, that comes first. Read the node again after each patch, and ask again.
    `drill_uid` empty: the mark of any drill. Raises UnreadableMarkError.
    """
    mark = mark_of(node)
    if mark is None or drill_uid not in ("", mark.uid):
        return None
    metadata = node["metadata"]
    unchanged = [
        _test("/metadata/uid", metadata["uid"]),
        _test("/metadata/resourceVersion", metadata["resourceVersion"]),
    ]
    condition = _condition_index(node) if mark.condition else None
    if condition is not None:
        path = f"/status/conditions/{condition}"
        removal = [_test(f"{path}/type", DRILL_CONDITION_TYPE), {"op": "remove", "path": path}]
        return NodePatch((*unchanged, *removal), STATUS)
    return NodePatch((*unchanged, *_uncordon(node, mark), *_untaint(node, mark), *_unmark(node)))


def _uncordon(node: Node, mark: NodeMark) -> list[Operation]:
    if not mark.cordon or not _spec(node).get("unschedulable") or _others_cordon(node):
        return []
    return [{"op": "remove", "path": "/spec/unschedulable"}]


def _others_cordon(node: Node) -> bool:
    """Another manager owns `spec.unschedulable`: it has cordoned the node since, and counts on that."""
    return any(
        entry.get("manager") != CORDON_MANAGER
        and "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in node["metadata"].get("managedFields") or ()
    )


def _untaint(node: Node, mark: NodeMark) -> list[Operation]:
    if mark.taint is None:
        return []
    taints = _taints(node)
    index = next((at for at, taint in enumerate(taints) if _is_same(taint, mark.taint)), None)
    if index is None:
        return []
    path = f"/spec/taints/{index}"
    tests = [_test(f"{path}/key", mark.taint.key), _test(f"{path}/effect", mark.taint.effect)]
    return [*tests, {"op": "remove", "path": path if len(taints) > 1 else "/spec/taints"}]


def _unmark(node: Node) -> list[Operation]:
    annotations = node["metadata"]["annotations"]
    removed = _ANNOTATION_PATH if len(annotations) > 1 else "/metadata/annotations"
    return [_test(_ANNOTATION_PATH, annotations[NODE_MARK_ANNOTATION]), {"op": "remove", "path": removed}]


def _together(mark: NodeMark, wanted: NodeMark) -> NodeMark:
    return msgspec.structs.replace(
        mark,
        expires_at=max(mark.expires_at, wanted.expires_at),
        cordon=mark.cordon or wanted.cordon,
        taint=wanted.taint or mark.taint,
        condition=mark.condition or wanted.condition,
    )


def _spec(node: Node) -> Mapping[str, Any]:
    return node.get("spec") or {}


def _taints(node: Node) -> list[Mapping[str, Any]]:
    return list(_spec(node).get("taints") or ())


def _has_effect(node: Node, taint: MarkedTaint) -> bool:
    """The API server allows one taint for each key and effect."""
    return any((each.get("key"), each.get("effect")) == (taint.key, taint.effect) for each in _taints(node))


def _is_same(found: Mapping[str, Any], taint: MarkedTaint) -> bool:
    return (found.get("key"), found.get("value", ""), found.get("effect")) == (taint.key, taint.value, taint.effect)


def _body_of(taint: MarkedTaint) -> Operation:
    return {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}


def _condition_index(node: Node) -> int | None:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((at for at, each in enumerate(conditions) if each.get("type") == DRILL_CONDITION_TYPE), None)


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}
