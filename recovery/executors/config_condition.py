"""Writes a condition of the RecoveryConfig that says that a controller holds for that of another installation."""

from datetime import datetime

import msgspec

from recovery import api_verbs
from recovery.core.model.config import CONFIG_NAME
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.writer_lease import WriterLease
from recovery.ports import RECOVERY_CONFIGS, ApiClient, ConflictError, NotFoundError, PatchKind

SECOND_INSTALLATION = "SecondInstallation"
"""The type of the condition. It exists only while a controller holds."""
_TRIES_MAX = 3


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str
    generation: int = 0


class _Status(msgspec.Struct):
    conditions: tuple[msgspec.Raw, ...] = ()


class _Config(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _Type(msgspec.Struct):
    type: str = ""


def holds(own: WriterLease | None, other: WriterLease, now: datetime) -> LedgerCondition:
    """The condition that the controller of `own` holds for that of `other`."""
    return LedgerCondition(
        type=SECOND_INSTALLATION,
        status="True",
        reason="OlderLeaseActs",
        message=f"The controller of the Lease {own}, holds: that of the older Lease {other}, recovers the jobs.",
        last_transition_time=now,
    )


async def write(api: ApiClient, condition: LedgerCondition | None) -> None:
    """Set the condition. None: remove it. Without a RecoveryConfig there is none. Raises ApiError."""
    for left in reversed(range(_TRIES_MAX)):
        try:
            found = msgspec.json.decode(await api_verbs.get(api, RECOVERY_CONFIGS, CONFIG_NAME), type=_Config)
        except NotFoundError:
            return
        others = [each for each in found.status.conditions if _type_of(each) != SECOND_INSTALLATION]
        if condition is None and len(others) == len(found.status.conditions):
            return
        if condition is not None:  # kubectl wait does not believe a condition of an earlier generation
            condition = msgspec.structs.replace(condition, observed_generation=found.metadata.generation)
        body = {
            # With the resourceVersion in it, the patch is refused with 409 if anything was written in between.
            "metadata": {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version},
            "status": {"conditions": [*others, *([condition] if condition is not None else [])]},
        }
        try:
            await api_verbs.patch(api, RECOVERY_CONFIGS, CONFIG_NAME, body, kind=PatchKind.MERGE, subresource="status")
        except ConflictError:
            if not left:
                raise
            continue
        return


def _type_of(condition: msgspec.Raw) -> str:
    return msgspec.json.decode(condition, type=_Type).type
