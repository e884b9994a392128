"""Writes the status of RecoveryDrills by compare-and-swap, and deletes drills that are over."""

import msgspec

from recovery import api_verbs
from recovery.core.model.drill import DrillFacts, DrillStatus
from recovery.ports import RECOVERY_DRILLS, ApiClient, ConflictError, NotFoundError, PatchKind

_ABSENT = {field.encode_name: None for field in msgspec.structs.fields(DrillStatus)}


async def write_drill_status(api: ApiClient, drill: DrillFacts, status: DrillStatus) -> bytes:
    """Write the status. Returns the object as the server has it then. Raises ConflictError if the drill has changed
    since it was read."""
    body = {
        "metadata": {"resourceVersion": drill.resource_version},
        "status": {**_ABSENT, **msgspec.to_builtins(status)},
    }
    return await api_verbs.patch(
        api,
        RECOVERY_DRILLS,
        drill.name,
        body,
        kind=PatchKind.MERGE,
        namespace=drill.namespace,
        subresource="status",
    )


async def delete_drill(api: ApiClient, drill: DrillFacts) -> bool:
    """Delete the drill if it is still the version that was read. False: it is not. Raises other ApiErrors."""
    try:
        await api_verbs.delete(
            api,
            RECOVERY_DRILLS,
            drill.name,
            namespace=drill.namespace,
            uid=drill.uid,
            resource_version=drill.resource_version,
        )
    except (NotFoundError, ConflictError):
        return False
    return True
