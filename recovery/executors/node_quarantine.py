"""Quarantines a node and releases it: our taint, an annotation that says why, and perhaps a cordon, in one patch.

What others have set is never changed. A cordon does not show who has set it, so it stays while others claim it. Each
patch tests what it removes, and that no client wrote to the node since it was read. So both actions may be done twice,
late, or by two controllers.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from recovery import api_verbs
from recovery.core.fleet.quarantine import (
    Mark,
    claims_on_cordon,
    mark_of,
    parsed_mark,
    released_by_hand,
    taint_value,
)
from recovery.core.model.annotations import QUARANTINE_ANNOTATION, RELEASE_ANNOTATION
from recovery.core.model.facts import Taint
from recovery.core.model.fleet_ledger import BY_HAND, QUARANTINE_TAINT, TAINT_EFFECT, Quarantined
from recovery.decoding import AnnotatedObjectVersion, decoded
from recovery.ports import NODES, ApiClient, ConflictError, NotFoundError, PatchKind, TestFailedError

Body = dict[str, Any]

_TRIES_MAX = 6
"""While a node changes, its kubelet and the node lifecycle controller write to it every few seconds."""


class _Spec(msgspec.Struct):
    unschedulable: bool = False
    taints: list[Body] = []


class _Node(msgspec.Struct):
    metadata: AnnotatedObjectVersion
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def mark(self) -> Mark | None:
        return parsed_mark((self.metadata.annotations or {}).get(QUARANTINE_ANNOTATION))

    @property
    def taints(self) -> tuple[Taint, ...]:
        return tuple(Taint(each["key"], each.get("value", ""), each["effect"]) for each in self.spec.taints)

    @property
    def own_taint(self) -> Body | None:
        """Our taint, with any value. (The API server allows only one taint for each key and effect.)"""
        return next((taint for taint in self.spec.taints if _is_ours(taint)), None)


_decode = msgspec.json.Decoder(_Node).decode


async def apply(api: ApiClient, entry: Quarantined, now: datetime) -> None:
    """Taint the node, note why, and cordon it if the entry says so. Raises ApiError, and ConflictError if the node
    keeps changing.

    A node that is gone, or was recreated under that name, is left alone, and so is a node that a person has quarantined
    or has released since.
    """
    await _patched(api, entry.node, entry.node_uid, lambda node: _quarantine(node, entry, now))


async def release(api: ApiClient, entry: Quarantined) -> None:
    """Remove what that quarantine has set: the taint with its value, the annotation, and the cordon if it was ours and
    nothing else claims it.

    If our taint is gone already, another client has taken over the node and owns the cordon. Raises as `apply`.
    """
    await _patched(api, entry.node, entry.node_uid, lambda node: _release(node, taint_value(entry), entry.cordoned))


async def quarantine_by_hand(api: ApiClient, entry: Quarantined) -> None:
    """As `apply`, for a person: it replaces a quarantine by the controller, and overrides an earlier release.

    Raises NotFoundError as well.
    """
    await _patched(api, entry.node, entry.node_uid, lambda node: _marked(node, entry), missing_ok=False)


async def release_by_hand(api: ApiClient, name: str, at: str) -> None:
    """Remove any quarantine of ours from the node, and note on it when that was requested (RFC 3339), so that a
    quarantine that is decided but not yet set will not be set. Raises as `quarantine_by_hand`."""

    def patch(node: _Node) -> list[Body]:
        taint, mark = node.own_taint, node.mark
        value = taint.get("value", "") if taint is not None else mark.taint_value if mark is not None else ""
        noted = {**(node.metadata.annotations or {}), RELEASE_ANNOTATION: at}
        operations = _release(node, value, True)
        if node.metadata.annotations is None:
            return [*operations, {"op": "add", "path": "/metadata/annotations", "value": noted}]
        return [*operations, {"op": "add", "path": _annotation(RELEASE_ANNOTATION), "value": at}]

    await _patched(api, name, "", patch, missing_ok=False)


async def _patched(
    api: ApiClient, name: str, uid: str, patch: Callable[[_Node], list[Body]], *, missing_ok: bool = True
) -> None:
    """Read the node and patch it, again if another client wrote in between. An empty patch is not sent."""
    for left in reversed(range(_TRIES_MAX)):
        try:
            node = decoded(NODES, _decode, await api_verbs.get(api, NODES, name))
        except NotFoundError:
            if missing_ok:
                return
            raise
        if uid and node.metadata.uid != uid:
            return
        operations = patch(node)
        if not operations:
            return
        body = [
            {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid},
            # With the resourceVersion in it, the patch is refused with 409 if anything was written in between.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version},
            *operations,
        ]
        try:
            await api_verbs.patch(api, NODES, name, body, kind=PatchKind.JSON)
        except (ConflictError, TestFailedError):
            if not left:
                raise
        except NotFoundError:
            if missing_ok:
                return
            raise
        else:
            return


def _quarantine(node: _Node, entry: Quarantined, now: datetime) -> list[Body]:
    taint = node.own_taint
    if taint is not None and taint.get("value", "") in {BY_HAND, taint_value(entry)}:
        return []
    if released_by_hand(entry, node.metadata.annotations or {}, now) is not None:
        return []
    return _marked(node, entry)


def _marked(node: _Node, entry: Quarantined) -> list[Body]:
    """Taint, annotation, and any cordon. An existing cordon is ours only if our own mark says so."""
    standing = node.mark if node.own_taint is not None else None
    cordons = entry.cordoned and not node.spec.unschedulable
    if cordons:
        beside = tuple(sorted({taint["key"] for taint in node.spec.taints if not _is_ours(taint)}))
        mark = mark_of(entry, cordoned=True, beside=beside)
    elif standing is not None and standing.cordoned and node.spec.unschedulable:
        mark = mark_of(entry, cordoned=True, beside=standing.beside)
    else:
        mark = mark_of(entry, cordoned=False)
    encoded = msgspec.json.encode(mark).decode()
    ours = {"key": QUARANTINE_TAINT, "value": taint_value(entry), "effect": TAINT_EFFECT}
    taints = [*(taint for taint in node.spec.taints if not _is_ours(taint)), ours]
    if node.metadata.annotations is None:
        noted = {"op": "add", "path": "/metadata/annotations", "value": {QUARANTINE_ANNOTATION: encoded}}
    else:
        noted = {"op": "add", "path": _annotation(QUARANTINE_ANNOTATION), "value": encoded}
    cordon = [{"op": "add", "path": "/spec/unschedulable", "value": True}] if cordons else []
    return [*cordon, {"op": "add", "path": "/spec/taints", "value": taints}, noted]


def _release(node: _Node, value: str, cordon_is_ours: bool) -> list[Body]:
    """The patch that removes the quarantine whose taint has that value. Empty if the node has no sign of it."""
    operations: list[Body] = []
    mark, taints = node.mark, node.spec.taints
    at = next(
        (index for index, taint in enumerate(taints) if _is_ours(taint) and taint.get("value", "") == value), None
    )
    ours = mark is not None and mark.taint_value == value
    if at is not None:
        path = f"/spec/taints/{at}"
        operations += [{"op": "test", "path": path, "value": taints[at]}, {"op": "remove", "path": path}]
        cordoned = mark is not None and ours and mark.cordoned and cordon_is_ours and node.spec.unschedulable
        if mark is not None and cordoned and not claims_on_cordon(mark, node.taints, node.metadata.annotations or {}):
            path = "/spec/unschedulable"
            operations += [{"op": "test", "path": path, "value": True}, {"op": "remove", "path": path}]
    if ours:
        path, encoded = _annotation(QUARANTINE_ANNOTATION), (node.metadata.annotations or {})[QUARANTINE_ANNOTATION]
        operations += [{"op": "test", "path": path, "value": encoded}, {"op": "remove", "path": path}]
    return operations


def _is_ours(taint: Body) -> bool:
    return (taint.get("key"), taint.get("effect")) == (QUARANTINE_TAINT, TAINT_EFFECT)


def _annotation(name: str) -> str:
    return f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"
