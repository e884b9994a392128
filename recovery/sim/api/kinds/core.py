"""The built-in kinds that are not Jobs: pods, nodes, and the small ones.

Sources: Kubernetes 1.36 `pkg/registry/{core,coordination}/*/strategy.go` (which kinds have a status; none of the small
ones counts generations), `pkg/apis/core/validation/events.go`, `pkg/apis/coordination/validation`. Not modelled: the
address of a Service, and the finalizer of a Namespace, so deleting a Namespace deletes nothing else.
"""

from collections.abc import Iterable

from recovery.ports import EVENTS, LEASES, Resource
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.kinds.nodes import node_kind
from recovery.sim.api.kinds.pods import PodAdmission, pod_kind
from recovery.sim.api.status_error import FieldCause

SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


def core_kinds(admission: PodAdmission | None = None) -> tuple[ServedKind, ...]:
    """`admission` decides about each new pod. None: all are admitted."""
    return (
        pod_kind(admission),
        node_kind(),
        ServedKind(resource=LEASES, has_status=False, counts_generation=False, validate=_wrong_lease),
        ServedKind(resource=EVENTS, has_status=False, counts_generation=False, validate=_wrong_event),
        ServedKind(resource=SERVICES, counts_generation=False, default=_default_service),
        ServedKind(resource=CONFIG_MAPS, has_status=False, counts_generation=False),
        ServedKind(resource=NAMESPACES, counts_generation=False, default=_default_namespace),
    )


def _default_service(body: Body, before: Body | None) -> None:
    if before is None:
        body["status"] = {"loadBalancer": {}}
    if before is None or body["spec"] is not before["spec"]:
        body["spec"] = {"type": "ClusterIP", "sessionAffinity": "None", **(body.get("spec") or {})}


def _default_namespace(body: Body, before: Body | None) -> None:
    metadata = body["metadata"]
    name = {"kubernetes.io/metadata.name": metadata["name"]}
    if not name.items() <= (metadata.get("labels") or {}).items():
        metadata["labels"] = {**(metadata.get("labels") or {}), **name}
    if before is None:
        body["status"] = {"phase": "Active"}


def _wrong_lease(body: Body, before: Body | None) -> Iterable[FieldCause]:
    spec = body.get("spec") or {}
    duration_seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration_seconds is not None and duration_seconds <= 0:
        message = f"Invalid value: {duration_seconds}: must be greater than 0"
        yield FieldCause("spec.leaseDurationSeconds", message)
    if transitions is not None and transitions < 0:
        message = f"Invalid value: {transitions}: must be greater than or equal to 0"
        yield FieldCause("spec.leaseTransitions", message)


def _wrong_event(body: Body, before: Body | None) -> Iterable[FieldCause]:
    """An Event must be in the namespace of its object, or in `default` if the object is cluster-scoped."""
    about = (body.get("involvedObject") or {}).get("namespace", "")
    if body["metadata"].get("namespace", "") != (about or "default"):
        yield FieldCause("involvedObject.namespace", f'Invalid value: "{about}": does not match event.namespace')
