"""Takes back what a drill has changed on a node, after its time is over and its client is gone."""

from typing import Any

import msgspec

from recovery import api_verbs
from recovery.core.drill.node_marks import STATUS, undoing
from recovery.core.model.drill import NodeMark
from recovery.ports import NODES, ApiClient, ConflictError, NotFoundError, PatchKind, TestFailedError

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_TRIES_MAX = 6
"""Kubelets write to their nodes every few seconds."""


async def take_back(api: ApiClient, node: str, mark: NodeMark) -> bool:
    """Take back what the mark says, and the mark. False: it has to be done by a person, because it includes a condition
    of the node, which the controller has no right to change; or the node changes too often. Raises ApiError, and
    UnreadableMarkError."""
    for _ in range(_TRIES_MAX):
        try:
            patch = undoing(_decode(await api_verbs.get(api, NODES, node)), mark.uid)
            if patch is None:
                return True
            if patch.subresource == STATUS:
                return False
            await api_verbs.patch(api, NODES, node, list(patch.operations), kind=PatchKind.JSON)
        except NotFoundError:
            return True
        except (ConflictError, TestFailedError):
            continue
    return False
