"""Changes nodes for a drill, and takes the changes back."""

from typing import Any

import msgspec

from recovery import api_verbs
from recovery.chaos.strikes import Strike
from recovery.chaos.tools import RunStoppedError, whole
from recovery.core.drill.node_marks import (
    CORDON_MANAGER,
    UnreadableMarkError,
    mark_of,
    marking,
    refusal,
    undoing,
)
from recovery.core.model.drill import (
    DRILL_CONDITION_TYPE,
    NODE_MARK_ANNOTATION,
    DrillAction,
    DrillFacts,
    NodeMark,
)
from recovery.core.model.reason import Reason
from recovery.decoding import name_of
from recovery.kube.cluster_reader import read_all
from recovery.kube.projections.metadata import ObjectEntry
from recovery.ports import (
    NODES,
    ApiClient,
    ApiError,
    Clock,
    NotFoundError,
    PatchKind,
    ReadAgainError,
    TryLaterError,
)

UNDO_SECONDS_MAX = 60.0
_TRIES_MAX = 8
"""Kubelets and controllers write to a node as well, mostly after its state has just changed."""

NodeBody = dict[str, Any]


class LeftOver(msgspec.Struct, frozen=True):
    """A node that could not be put back."""

    node: str
    why: str


async def mark_nodes(api: ApiClient, clock: Clock, strike: Strike, drill: DrillFacts) -> None:
    """Make the change of the strike on its nodes. Raises RunStoppedError where it may not be made, and ApiError."""
    for name in strike.nodes:
        await _mark(api, clock, name, _wanted(strike, drill))


async def marked_nodes(api: ApiClient) -> dict[str, NodeMark | None]:
    """The nodes with a mark, by name. None: the mark cannot be read. Raises ApiError."""
    listed = await read_all(api, NODES, None, _decode_if_marked)
    found: dict[str, NodeMark | None] = {}
    for entry in listed.entries:
        if entry.value is None:
            continue
        try:
            found[entry.name] = mark_of(entry.value)
        except UnreadableMarkError:
            found[entry.name] = None
    return found


async def undo_node(api: ApiClient, clock: Clock, name: str, drill_uid: str) -> LeftOver | None:
    """Take back what that drill has changed on the node. What fails is tried again for `UNDO_SECONDS_MAX`.

    None: nothing of it is left. A repeat changes nothing.
    """
    until = clock.monotonic_seconds() + UNDO_SECONDS_MAX
    while True:
        try:
            patch = undoing(await _read(api, name), drill_uid)
            if patch is None:
                return None
            body = list(patch.operations)
            await whole(api_verbs.patch(api, NODES, name, body, kind=PatchKind.JSON, subresource=patch.subresource))
        except NotFoundError:
            return None
        except UnreadableMarkError as error:
            return LeftOver(name, str(error))
        except (ReadAgainError, TryLaterError) as error:
            if clock.monotonic_seconds() >= until:
                return LeftOver(name, str(error))
            await clock.sleep(0.5)
        except ApiError as error:
            return LeftOver(name, str(error))


def _wanted(strike: Strike, drill: DrillFacts) -> NodeMark:
    action = strike.chaos.action
    return NodeMark(
        namespace=drill.namespace,
        drill=drill.name,
        uid=drill.uid,
        expires_at=drill.spec.expires_at,
        cordon=action is DrillAction.CORDON,
        taint=strike.chaos.taint,
        condition=action is DrillAction.CONDITION,
    )


async def _mark(api: ApiClient, clock: Clock, name: str, wanted: NodeMark) -> None:
    for left in reversed(range(_TRIES_MAX)):
        try:
            node = await _read(api, name)
            if not _has(node, wanted):
                if why := refusal(node, wanted):
                    raise RunStoppedError(Reason.DRILL_ACT_FAILED, why)
                body = list(marking(node, wanted).operations)
                await whole(api_verbs.patch(api, NODES, name, body, kind=PatchKind.JSON, field_manager=CORDON_MANAGER))
            if wanted.condition:
                await whole(_set_condition(api, clock, name, wanted))
            return
        except UnreadableMarkError as error:
            raise RunStoppedError(Reason.DRILL_ACT_FAILED, str(error)) from error
        except NotFoundError as error:
            raise RunStoppedError(Reason.DRILL_ACT_FAILED, f"node {name} does not exist any more") from error
        except ReadAgainError:
            if not left:
                raise
            await clock.sleep(0.2)


def _has(node: NodeBody, wanted: NodeMark) -> bool:
    """The drill has made that change already: an earlier try had an unknown outcome, or an earlier entry made it."""
    mark = mark_of(node)
    return (
        mark is not None
        and mark.uid == wanted.uid
        and (mark.cordon or not wanted.cordon)
        and (wanted.taint is None or mark.taint == wanted.taint)
        and (mark.condition or not wanted.condition)
    )


async def _set_condition(api: ApiClient, clock: Clock, name: str, mark: NodeMark) -> bytes:
    now = clock.now().replace(microsecond=0).isoformat().replace("+00:00", "Z")
    condition = {
        "type": DRILL_CONDITION_TYPE,
        "status": "True",
        "reason": "Drill",
        "message": f"RecoveryDrill {mark.namespace}/{mark.drill}",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    body = {"status": {"conditions": [condition]}}
    return await api_verbs.patch(api, NODES, name, body, kind=PatchKind.STRATEGIC, subresource="status")


async def _read(api: ApiClient, name: str) -> NodeBody:
    body: NodeBody = msgspec.json.decode(await api_verbs.get(api, NODES, name))
    return body


def _decode_if_marked(raw: bytes | msgspec.Raw) -> ObjectEntry[NodeBody | None]:
    """A node has some 20 KB, and a cluster may have thousands. Those without a mark are not decoded."""
    text = bytes(raw)
    body = msgspec.json.decode(text) if NODE_MARK_ANNOTATION.encode() in text else None
    return ObjectEntry("", name_of(msgspec.Raw(raw)), "", "", body)
