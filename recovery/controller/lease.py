"""The Lease by which the replicas of the controller elect a leader: its content, and how it is read and swapped.

Only the compare-and-swap makes it a lock: every write names the resourceVersion that was read, and the API server
refuses it (409) if another client wrote in between. The times in it are for people: no candidate compares them with its
clock.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec

from recovery import api_verbs
from recovery.core.model.annotations import OWN_ANNOTATION_PREFIX
from recovery.ports import LEASES, UNDECODABLE, ApiClient, ForbiddenError, NotFoundError, PatchKind

LEASE_NAME = "recovery-controller"
OFFERED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}lease-offered-by"
"""On the Lease: the leader of that identity knows only stale facts. It keeps leading until a standby accepts."""
ACCEPTED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}lease-accepted-by"
"""On the Lease, beside the offer: the standby of that identity knows current facts, and leads when it is the holder."""


class MalformedLeaseError(Exception):
    """The Lease does not match the API, so it is unknown which replica leads. The message says how to fix it."""


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a `coordination.k8s.io/v1` Lease, where every field is optional."""

    holder_identity: str = ""
    """The replica that leads. Empty: none, because the last leader has released the lease."""
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    """How often the holder has changed."""


class Handover(msgspec.Struct, frozen=True):
    """What leader and standbys have agreed on. It is in annotations, so it does not change the record."""

    offered_by: str = ""
    """Identity of the leader that offers the lease. Empty: the leader keeps it."""
    accepted_by: str = ""
    """Identity of the standby that has accepted the offer. Empty: none has."""


class LeaseMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that the next write depends on."""

    resource_version: str
    annotations: dict[str, str] | None = None
    uid: str = ""
    creation_timestamp: datetime | None = None


class Lease(msgspec.Struct, frozen=True):
    """A record, and the version of the object that it was read from."""

    metadata: LeaseMetadata
    spec: LeaseRecord = LeaseRecord()

    @property
    def handover(self) -> Handover:
        found = self.metadata.annotations or {}
        return Handover(found.get(OFFERED_ANNOTATION, ""), found.get(ACCEPTED_ANNOTATION, ""))


class LeaseClient:
    """Reads and writes the one Lease."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self) -> Lease | None:
        """The Lease as the API server has it; None: there is none. Raises ApiError, MalformedLeaseError."""
        with self._permitted("get"):
            try:
                return self._decoded(await api_verbs.get(self._api, LEASES, LEASE_NAME, namespace=self._namespace))
            except NotFoundError:
                return None

    async def create(self, record: LeaseRecord) -> Lease:
        """Create the Lease. Raises AlreadyExistsError if another replica was faster."""
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": LEASE_NAME, "namespace": self._namespace},
            "spec": record,
        }
        with self._permitted("create"):
            return self._decoded(await api_verbs.create(self._api, LEASES, body, namespace=self._namespace))

    async def replace(self, known: Lease, record: LeaseRecord, handover: Handover | None = None) -> Lease:
        """Replace the record that was read as `known`, and write `handover` beside it. None: nothing is offered.

        Raises ConflictError if another client wrote meanwhile.
        """
        spec = {"op": "add", "path": "/spec", "value": record}
        return await self._patch(known, (spec, *_annotated(known, handover or Handover())))

    async def agree(self, known: Lease, handover: Handover) -> Lease:
        """Write `handover` and leave the record as it is. Raises ConflictError if another client wrote since."""
        return await self._patch(known, _annotated(known, handover))

    async def _patch(self, known: Lease, changes: Iterable[object]) -> Lease:
        version = {"op": "replace", "path": "/metadata/resourceVersion", "value": known.metadata.resource_version}
        body = [version, *changes]
        with self._permitted("patch"):
            answer = await api_verbs.patch(
                self._api, LEASES, LEASE_NAME, body, kind=PatchKind.JSON, namespace=self._namespace
            )
            return self._decoded(answer)

    def _decoded(self, body: bytes) -> Lease:
        try:
            return msgspec.json.decode(body, type=Lease)
        except UNDECODABLE as error:
            raise MalformedLeaseError(
                f"Lease {self._namespace}/{LEASE_NAME} cannot be read ({error}); delete it, and it is made "
                f"again: kubectl delete lease -n {self._namespace} {LEASE_NAME}"
            ) from error

    @contextmanager
    def _permitted(self, verb: str) -> Iterator[None]:
        """Name the missing permission in a 403, in the terms of RBAC."""
        try:
            yield
        except ForbiddenError as error:
            right = f"{verb} {LEASES.plural}.{LEASES.group} in namespace {self._namespace}"
            raise ForbiddenError(f"a permission is missing: {right}", status=403, reason=error.reason) from error


def _annotated(known: Lease, handover: Handover) -> Iterable[object]:
    """The patch that sets the annotations to `handover` and keeps all others. Empty: they are set already."""
    if known.handover == handover:
        return ()
    annotations = dict(known.metadata.annotations or {})
    for key, identity in ((OFFERED_ANNOTATION, handover.offered_by), (ACCEPTED_ANNOTATION, handover.accepted_by)):
        annotations.pop(key, None)
        if identity:
            annotations[key] = identity
    return ({"op": "add", "path": "/metadata/annotations", "value": annotations},)
