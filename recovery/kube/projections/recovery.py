"""Decodes our own objects: policies of both kinds, the RecoveryConfig, and RecoveryGroups."""

from datetime import datetime
from typing import Any

import msgspec

from recovery.core.fleet.quarantine import parsed_time
from recovery.core.incident.steps import contradictions
from recovery.core.model.annotations import BIRTH_SETTINGS_LABEL, BIRTH_SETTINGS_LABELLED, RESET_BREAKER_ANNOTATION
from recovery.core.model.config import ConfigFacts, ConfigSpec
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger
from recovery.core.model.ledger_bounds import check
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.policy.enforcement import Enforcement
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.spec import PolicySpec
from recovery.kube.projections.metadata import Date, Metadata, ObjectEntry, clamped
from recovery.ports import TRAIN_JOBS

UNREADABLE_SCHEMA_VERSION = -1
"""`LedgerObject.schema_version` of a ledger that has a known version but cannot be decoded. No version is negative, so
code that acts only on versions it knows leaves a broken ledger alone too. An empty ledger in its place would forget
what has been done. `ledger.message` then says what is wrong."""


class _OwnedSpec(msgspec.Struct, frozen=True):
    mode: Any = msgspec.field(name="f:mode", default=None)


class _OwnedFields(msgspec.Struct, frozen=True):
    spec: _OwnedSpec = msgspec.field(name="f:spec", default=_OwnedSpec())


class _ManagedFields(msgspec.Struct, frozen=True, rename="camel"):
    """Who owns which fields. `fieldsV1` holds a key for each owned field, with an empty object for a leaf."""

    time: Date | None = None
    subresource: str = ""
    owned: _OwnedFields = msgspec.field(name="fieldsV1", default=_OwnedFields())


class _PolicyMetadata(Metadata, frozen=True, rename="camel"):
    managed_fields: tuple[_ManagedFields, ...] = ()


class _PolicyStatus(msgspec.Struct, frozen=True, rename="camel"):
    enforced_since: Date | None = None
    enforced_generation: int | None = None


class _Policy(msgspec.Struct, frozen=True):
    metadata: _PolicyMetadata
    spec: PolicySpec = PolicySpec()
    status: _PolicyStatus = _PolicyStatus()


_decode_policy = msgspec.json.Decoder(_Policy).decode


def decode_policy(raw: bytes | msgspec.Raw) -> ObjectEntry[PolicyFacts]:
    """Decode a RecoveryPolicy or a ClusterRecoveryPolicy. The latter has no namespace."""
    policy = _decode_policy(raw)
    meta = policy.metadata
    facts = PolicyFacts(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=meta.generation,
        spec=policy.spec,
        created_at=meta.created_at,
        mode_since=_mode_since(meta),
        deleting=meta.deletion_timestamp is not None,
        resource_version=meta.resource_version,
        recorded=_recorded(policy.status),
    )
    return meta.entry(facts)


def _recorded(status: _PolicyStatus) -> Enforcement:
    since = status.enforced_since
    return Enforcement(None if since is None else clamped(since), status.enforced_generation)


def _mode_since(meta: _PolicyMetadata) -> datetime:
    """When an owner of `spec.mode` last wrote. The mode itself was written then or earlier.

    The server dates owners, not fields: if the owner later edits another field, the time moves too. So the time is used
    only until the status says since when the policy enforces (`core.policy.enforcement`).
    """
    written = [
        clamped(owner.time)
        for owner in meta.managed_fields
        if owner.time is not None and not owner.subresource and owner.owned.spec.mode is not None
    ]
    return max(written, default=meta.created_at)


class _ConfigMetadata(Metadata, frozen=True, rename="camel"):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Config(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: ConfigSpec = ConfigSpec()
    status: FleetLedger = FleetLedger()


class _ConfigIdentity(msgspec.Struct, frozen=True):
    metadata: _ConfigMetadata


_decode_config = msgspec.json.Decoder(_Config).decode
_decode_config_identity = msgspec.json.Decoder(_ConfigIdentity).decode


def decode_config(raw: bytes | msgspec.Raw) -> ObjectEntry[ConfigFacts]:
    """A RecoveryConfig that cannot be read is marked `unreadable`, not left out: it is not known what its spec forbids
    or what its status counts. With an empty one in its place every cap would be filled a second time."""
    meta = _decode_config_identity(raw).metadata
    facts = ConfigFacts(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        reset_breaker_at=parsed_time(meta.annotations.get(RESET_BREAKER_ANNOTATION)),
    )
    try:
        config = _decode_config(raw)
        check(config.status, "$.status")
    except (ValueError, OverflowError) as error:
        return meta.entry(msgspec.structs.replace(facts, unreadable=str(error)))
    return meta.entry(msgspec.structs.replace(facts, spec=config.spec, fleet=config.status))


class _WorkloadRef(msgspec.Struct, frozen=True):
    name: str
    uid: str
    kind: str = TRAIN_JOBS.kind


class _GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    workload_ref: _WorkloadRef


class _GroupLabels(msgspec.Struct, frozen=True):
    birth_settings: str = msgspec.field(name=BIRTH_SETTINGS_LABEL, default="")


class _GroupMetadata(Metadata, frozen=True, rename="camel"):
    labels: _GroupLabels = _GroupLabels()


_NO_STATUS = msgspec.Raw(b"null")


class _Group(msgspec.Struct, frozen=True):
    metadata: _GroupMetadata
    spec: _GroupSpec
    status: msgspec.Raw = _NO_STATUS


class _LedgerVersion(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int


_decode_group = msgspec.json.Decoder(_Group).decode
_decode_version = msgspec.json.Decoder(_LedgerVersion).decode
_decode_ledger = msgspec.json.Decoder(Ledger).decode


def decode_recovery_group(raw: bytes | msgspec.Raw) -> ObjectEntry[LedgerObject]:
    """A missing status is an empty ledger. A status that is not understood is marked by its `schema_version`."""
    group = _decode_group(raw)
    version, ledger = _ledger(group.status)
    meta = group.metadata
    facts = LedgerObject(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        workload_uid=group.spec.workload_ref.uid,
        group=group.spec.workload_ref.name,
        ledger=ledger,
        workload_kind=group.spec.workload_ref.kind,
        schema_version=version,
        labelled=meta.labels.birth_settings == BIRTH_SETTINGS_LABELLED,
    )
    return meta.entry(facts)


def _ledger(status: msgspec.Raw) -> tuple[int, Ledger]:
    if status == _NO_STATUS:
        return SCHEMA_VERSION, Ledger()
    try:
        version = _decode_version(status).schema_version
        if version > SCHEMA_VERSION:
            return version, Ledger()
        if version < SCHEMA_VERSION:
            return UNREADABLE_SCHEMA_VERSION, Ledger(
                message=f"status has schemaVersion {version}, the smallest is {SCHEMA_VERSION}"
            )
        ledger = _decode_ledger(status)
        check(ledger)
        if contradiction := next(contradictions(ledger), ""):
            return UNREADABLE_SCHEMA_VERSION, Ledger(message=f"status contradicts itself: {contradiction}")
        return version, ledger
    except (ValueError, OverflowError) as error:
        return UNREADABLE_SCHEMA_VERSION, Ledger(message=f"status is not a ledger of this version: {error}")
