"""Leaves the agent out of a job: names it in the ConfigMap that the admission policy of the component reads.

The controller's other writes to that ConfigMap, and those of people, change other keys or other lines.
"""

import msgspec

from recovery import api_verbs
from recovery.core.plan.actions import LeaveOutAgent
from recovery.decoding import ObjectVersion, decoded
from recovery.ports import AGENT_PARAMETERS, CONFIG_MAPS, ApiClient, NotFoundError, PatchKind

WITHOUT = "without"
"""The key with the jobs that get no agent, a line each: NAMESPACE/JOBSET."""


class _ConfigMap(msgspec.Struct, frozen=True):
    """`data` None: it has none, so a patch has to add the whole map."""

    metadata: ObjectVersion
    data: dict[str, str] | None = None


_decode = msgspec.json.Decoder(_ConfigMap).decode


async def leave_out(api: ApiClient, own_namespace: str, action: LeaveOutAgent) -> None:
    """Add the job to the list, in the ConfigMap of the controller's namespace.

    A job that it has already is success, and so is a ConfigMap that is gone: then no Job gets an agent. Raises
    ConflictError or TestFailedError if it changed meanwhile: read and decide again.
    """
    try:
        raw = await api_verbs.get(api, CONFIG_MAPS, AGENT_PARAMETERS, namespace=own_namespace)
        found, line = decoded(CONFIG_MAPS, _decode, raw), f"{action.namespace}/{action.job_set}"
        known = found.data.get(WITHOUT) if found.data is not None else None
        if known is not None and line in map(str.strip, known.split("\n")):
            return
        body = [
            # An absent key cannot be tested. With the resourceVersion in it, the patch is refused with 409 if anything
            # was written since the read.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version},
            _addition(found.data, f"{_lines(known)}{line}\n"),
        ]
        await api_verbs.patch(api, CONFIG_MAPS, AGENT_PARAMETERS, body, kind=PatchKind.JSON, namespace=own_namespace)
    except NotFoundError:
        return


def _addition(data: dict[str, str] | None, value: str) -> dict[str, object]:
    if data is None:
        return {"op": "add", "path": "/data", "value": {WITHOUT: value}}
    return {"op": "add", "path": f"/data/{WITHOUT}", "value": value}


def _lines(known: str | None) -> str:
    """What is there, with a line break at its end."""
    return f"{known.rstrip()}\n" if known is not None and known.strip() else ""
