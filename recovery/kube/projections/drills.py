"""Decodes RecoveryDrills."""

import msgspec

from recovery.core.model.drill import DrillFacts, DrillSpec, DrillStatus
from recovery.core.model.durations import parse_duration
from recovery.core.model.ledger_bounds import check
from recovery.kube.projections.metadata import Metadata, ObjectEntry


class _Drill(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: DrillSpec
    status: DrillStatus = DrillStatus()


_decode = msgspec.json.Decoder(_Drill).decode


def decode_drill(raw: bytes | msgspec.Raw) -> ObjectEntry[DrillFacts]:
    """A RecoveryDrill. Raises ValueError or OverflowError as msgspec does, and ValueError for a date that is out of
    bounds or an objective that is no duration."""
    found = _decode(raw)
    check(found.spec, "$.spec")
    check(found.status, "$.status")
    if found.spec.slo.recovery is not None:
        parse_duration(found.spec.slo.recovery, "$.spec.slo.recovery")
    meta = found.metadata
    facts = DrillFacts(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        created_at=meta.created_at,
        spec=found.spec,
        status=found.status,
        deleting=meta.deletion_timestamp is not None,
    )
    return meta.entry(facts)
