"""The objects that are judged, as they come from a webhook's request or from a watch."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from recovery.kube.projections.metadata import ObjectEntry
from recovery.ports import CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS, RECOVERY_POLICIES, Resource

JUDGED = (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS)

_UNBORN = datetime.max.replace(tzinfo=UTC)


class StatusCondition(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `status.conditions`, as metav1.Condition has it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0

    def says_what(self, other: "StatusCondition") -> bool:
        """Whether they are equal apart from their time."""
        return msgspec.structs.replace(self, last_transition_time=other.last_transition_time) == other


class JudgedStatus(msgspec.Struct, frozen=True):
    """`conditions` None: the field is not there."""

    conditions: tuple[StatusCondition, ...] | None = None


class JudgedObject(msgspec.Struct, frozen=True):
    """A RecoveryPolicy, a ClusterRecoveryPolicy or a RecoveryConfig, with its spec as written."""

    resource: Resource
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str
    spec: Mapping[str, Any] = {}
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created_at: datetime = _UNBORN
    deleting: bool = False
    status: JudgedStatus | None = None
    """None: nothing has been written there yet."""

    @property
    def title(self) -> str:
        """Kind and name, as a message names it."""
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.resource.kind} {where}{self.name}"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """An object that is being created has no resourceVersion yet."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime = _UNBORN
    deletion_timestamp: datetime | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: dict[str, Any] = {}
    status: JudgedStatus | None = None


_decode = msgspec.json.Decoder(_Object).decode


def from_request(resource: Resource, body: Mapping[str, Any]) -> JudgedObject:
    """The object of a webhook's request. Raises msgspec.ValidationError if it is not a Kubernetes object."""
    return _judged(resource, msgspec.convert(body, _Object))


def decoder(resource: Resource) -> Callable[[msgspec.Raw], ObjectEntry[JudgedObject]]:
    """The decoder for an informer of this resource."""

    def decode(raw: msgspec.Raw) -> ObjectEntry[JudgedObject]:
        judged = _judged(resource, _decode(raw))
        return ObjectEntry(judged.namespace, judged.name, judged.uid, judged.resource_version, judged)

    return decode


def _judged(resource: Resource, found: _Object) -> JudgedObject:
    meta = found.metadata
    return JudgedObject(
        resource=resource,
        namespace=meta.namespace,
        name=meta.name,
        spec=found.spec,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        created_at=meta.creation_timestamp,
        deleting=meta.deletion_timestamp is not None,
        status=found.status,
    )
