"""Writes ledgers (RecoveryGroup.status) to the API server by compare-and-swap, and the records of closed incidents."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
import structlog

from recovery import api_verbs
from recovery.core.incident.lifecycle import incident_id
from recovery.core.model.annotations import BIRTH_SETTINGS_LABEL, BIRTH_SETTINGS_LABELLED
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.incident_record import decode_recorded
from recovery.core.model.ledger import SCHEMA_VERSION, Incident, Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.writer_lease import WriterLease
from recovery.ports import (
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    UNDECODABLE,
    AlreadyExistsError,
    ApiClient,
    NotFoundError,
    PatchKind,
    ReadAgainError,
    RefusedError,
    TryLaterError,
)
from recovery.workloads import resource_of
from recovery.workloads.naming import recovery_group_name

_log = structlog.get_logger("recovery.controller")


class WorkloadReference(msgspec.Struct, frozen=True):
    """`spec.workloadRef` of our objects: the workload they belong to, even after it is gone."""

    kind: str
    name: str
    uid: str


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str


class _Written(msgspec.Struct):
    metadata: _Metadata
    status: msgspec.Raw = msgspec.Raw(b"null")


class _FoldedStatus(msgspec.Struct):
    count: int = 1


class _Folded(msgspec.Struct):
    metadata: _Metadata
    status: _FoldedStatus = msgspec.field(default_factory=_FoldedStatus)


class _Recorded(msgspec.Struct):
    spec: msgspec.Raw


class LedgerWriter:
    """Creates RecoveryGroups and swaps their status."""

    def __init__(self, api: ApiClient, writer: Callable[[], WriterLease | None] = lambda: None) -> None:
        """`writer`: the Lease that elects this controller, which each ledger names. None: there is no election."""
        self._api = api
        self._writer = writer
        self._reported_crd = False
        self._reported_label = False

    async def write(
        self, namespace: str, workload: WorkloadFacts, known: LedgerObject | None, ledger: Ledger
    ) -> LedgerObject:
        """Replace the ledger that was read as `known`. None: the RecoveryGroup is created first.

        Raises ReadAgainError subclasses when another client wrote meanwhile, or when the outcome is unknown: the caller
        reads the ledger live and decides again. A RecoveryGroup without a status is harmless: it says that nothing has
        happened yet.

        A CRD of an older version drops fields that it does not know. That is logged once, and the recovery continues.
        Every version knows the target and its attempts, and these ensure that a recovery happens only once. A hold here
        would hold only this reconcile, because the next one reads what was stored.

        The label by which the API server finds birth settings is set before them and removed after them. So a process
        that dies in between leaves at most a superfluous label. It costs little, and the next write removes it.
        """
        ledger = msgspec.structs.replace(ledger, writer=self._writer())
        wanted = ledger.birth_settings is not None
        if known is None:
            known = await self._create(namespace, workload, labelled=wanted)
        elif wanted and not known.labelled:
            known = await self._label(known)
        body = [
            # With the resourceVersion in it, the patch is refused with 409 if anything was written in between.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": known.resource_version},
            {"op": "add", "path": "/status", "value": ledger},
        ]
        answer = await api_verbs.patch(
            self._api, RECOVERY_GROUPS, known.name, body, kind=PatchKind.JSON, namespace=namespace, subresource="status"
        )
        written = msgspec.json.decode(answer, type=_Written)
        if not self._reported_crd and not _is(written.status, ledger):
            self._reported_crd = True
            _log.error(
                "ledgers are not kept whole: this CRD is older than the controller; "
                "kubectl apply --server-side -k manifests/crd",
                crd=f"{RECOVERY_GROUPS.plural}.{RECOVERY_GROUPS.group}",
                job=f"{namespace}/{workload.name}",
                ledger=known.name,
            )
        now = msgspec.structs.replace(
            known,
            resource_version=written.metadata.resource_version,
            ledger=ledger,
            schema_version=ledger.schema_version,
        )
        return await self._unlabel(now) if now.labelled and not wanted else now

    async def _label(self, known: LedgerObject) -> LedgerObject:
        """Label the object. Raises ConflictError if it has changed since it was read.

        If the API server refuses the label (the role is not that of `manifests/components/birth-settings`), the
        settings have no effect, which a dry run shows. The ledger is written anyway.
        """
        metadata = {
            "uid": known.uid,
            "resourceVersion": known.resource_version,
            "labels": {BIRTH_SETTINGS_LABEL: BIRTH_SETTINGS_LABELLED},
        }
        try:
            version = await self._patch_metadata(known, metadata)
        except RefusedError as error:
            self._report_label(known, error)
            return known
        return msgspec.structs.replace(known, resource_version=version, labelled=True)

    async def _unlabel(self, known: LedgerObject) -> LedgerObject:
        """Remove the label. If that fails, the next write tries it again; the ledger has been written already."""
        metadata = {
            "uid": known.uid,
            # A user may have entered settings since. Without the label they would have no effect.
            "resourceVersion": known.resource_version,
            "labels": {BIRTH_SETTINGS_LABEL: None},
        }
        try:
            version = await self._patch_metadata(known, metadata)
        except RefusedError as error:
            self._report_label(known, error)
            return known
        except (ReadAgainError, TryLaterError) as error:
            _log.info("a ledger without birth settings keeps its label", ledger=known.name, error=str(error))
            return known
        return msgspec.structs.replace(known, resource_version=version, labelled=False)

    async def _patch_metadata(self, known: LedgerObject, metadata: Mapping[str, object]) -> str:
        """Patch the metadata. Returns the new resourceVersion."""
        body = {"metadata": metadata}
        answer = await api_verbs.patch(
            self._api, RECOVERY_GROUPS, known.name, body, kind=PatchKind.MERGE, namespace=known.namespace
        )
        return msgspec.json.decode(answer, type=_Written).metadata.resource_version

    def _report_label(self, known: LedgerObject, error: RefusedError) -> None:
        if not self._reported_label:
            self._reported_label = True
            _log.warning(
                "a ledger cannot be labelled, so its birth settings cannot be switched on or off; "
                "its role is in manifests/components/birth-settings",
                ledger=f"{known.namespace}/{known.name}",
                error=str(error),
            )

    async def _create(self, namespace: str, workload: WorkloadFacts, *, labelled: bool = False) -> LedgerObject:
        name = recovery_group_name(workload.name, workload.uid)
        reference = reference_to(workload)
        labels = {"labels": {BIRTH_SETTINGS_LABEL: BIRTH_SETTINGS_LABELLED}} if labelled else {}
        body = {
            "apiVersion": RECOVERY_GROUPS.api_version,
            "kind": RECOVERY_GROUPS.kind,
            "metadata": {
                "name": name,
                "namespace": namespace,
                **labels,
                # Not a controller reference and not blocking: the job's deletion must never wait for us.
                "ownerReferences": [
                    {"apiVersion": resource_of(workload).api_version, **msgspec.structs.asdict(reference)}
                ],
            },
            "spec": {"workloadRef": reference, "group": workload.name},
        }
        answer = await api_verbs.create(self._api, RECOVERY_GROUPS, body, namespace=namespace)
        metadata = msgspec.json.decode(answer, type=_Written).metadata
        return LedgerObject(
            name=metadata.name,
            namespace=namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            workload_uid=workload.uid,
            group=workload.name,
            ledger=Ledger(),
            workload_kind=workload.kind,
            labelled=labelled,
        )

    async def record(self, namespace: str, workload: WorkloadReference, incident: Incident) -> bool:
        """Create the RecoveryIncident of a closed incident. False: it exists already.

        An object of that name records this very incident. The id alone would not suffice as a name: after a
        RecoveryGroup was deleted, the next one counts from 1 again.
        """
        closing = incident.closing
        assert closing is not None, "only closed incidents are recorded"
        fields: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(incident, closing=None))
        spec = {
            "workloadRef": workload,
            "group": workload.name,
            "schemaVersion": SCHEMA_VERSION,
            **fields,
            **msgspec.to_builtins(closing),
            "idleGpuSeconds": round(sum(span.idle_gpu_seconds for span in incident.phases), 3),
            "releasedGpuSeconds": round(sum(span.released_gpu_seconds for span in incident.phases), 3),
            "handling": incident.handling,
        }
        body = {
            "apiVersion": RECOVERY_INCIDENTS.api_version,
            "kind": RECOVERY_INCIDENTS.kind,
            "metadata": {"name": incident_name(workload, incident), "namespace": namespace},
            "spec": spec,
        }
        try:
            await api_verbs.create(self._api, RECOVERY_INCIDENTS, body, namespace=namespace)
        except AlreadyExistsError:
            return False
        return True

    async def fold(self, namespace: str, workload: WorkloadReference, fold: FoldedIncidents) -> bool:
        """Write the fold into the record of its first incident. A repeat changes nothing.

        False: that record is gone or cannot be changed, so the incident needs a record of its own. Raises other
        ApiErrors.
        """
        name = _record_name(workload, incident_id(workload.uid, fold.first_number), fold.started_at)
        try:
            answer = await api_verbs.get(self._api, RECOVERY_INCIDENTS, name, namespace=namespace)
            found = msgspec.json.decode(answer, type=_Folded)
            if found.status.count >= fold.count:
                return True
            body = {
                "metadata": {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version},
                "status": fold,
            }
            await api_verbs.patch(
                self._api,
                RECOVERY_INCIDENTS,
                name,
                body,
                kind=PatchKind.MERGE,
                namespace=namespace,
                subresource="status",
            )
        except (NotFoundError, RefusedError, *UNDECODABLE) as error:
            _log.info("a record is not shared by the next incident", record=name, error=str(error))
            return False
        return True

    async def recorded(self, namespace: str, workload: WorkloadReference, incident: Incident) -> Incident | None:
        """The closed incident as its RecoveryIncident has it: the incident of a deleted job may have been closed
        earlier, at another time. None: the record was deleted, or this version cannot read it."""
        name = incident_name(workload, incident)
        try:
            answer = await api_verbs.get(self._api, RECOVERY_INCIDENTS, name, namespace=namespace)
        except NotFoundError:
            return None
        try:
            return decode_recorded(msgspec.json.decode(answer, type=_Recorded).spec)
        except UNDECODABLE:  # from a newer version; a new job of that name must not wait for it
            return None


def _is(status: msgspec.Raw, ledger: Ledger) -> bool:
    """Whether the status is the whole ledger, with no field dropped."""
    try:
        return msgspec.json.decode(status, type=Ledger) == ledger
    except msgspec.ValidationError:  # a required field was dropped
        return False


def reference_to(workload: WorkloadFacts) -> WorkloadReference:
    """The reference that our objects carry."""
    return WorkloadReference(workload.kind, workload.name, workload.uid)


def incident_name(workload: WorkloadReference, incident: Incident) -> str:
    """The name of its RecoveryIncident. It is derived from fields that never change, so a repeat is recognised."""
    return _record_name(workload, incident.id, incident.started_at)


def _record_name(workload: WorkloadReference, incident: str, started_at: datetime) -> str:
    began = started_at.astimezone(UTC).strftime("%Y%m%d%H%M%S")
    return f"{workload.name[:180]}-{incident}-{began}"
