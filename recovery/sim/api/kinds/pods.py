"""Pods: what the server and its admission plugins fill in, and which fields of a pod are immutable.

Sources: Kubernetes 1.36 `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation/validation.go` (ValidatePodUpdate),
`pkg/registry/core/pod/strategy.go`, `plugin/pkg/admission/defaulttolerationseconds`. Left out: defaults that nothing
here reads (image pull policy, termination message path, DNS policy), scheduling gates, pod-level resources, and
every check of a new pod's fields except that it has containers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from recovery.ports import PODS
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.status_error import FieldCause, StatusError

TOLERATION_SECONDS = 300
"""How long a pod stays on a lost node, unless its tolerations say otherwise (DefaultTolerationSeconds)."""
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULTS = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler"}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_UPDATABLE = ("activeDeadlineSeconds", "tolerations")
"""Fields of the spec whose changes have rules of their own."""
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class PodAdmission:
    """Admission of new pods: either all are admitted, or a webhook or a quota refuses all of them."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        """Whole message of the 403, like `admission webhook "pods.example.com" denied the request: …`. None: admitted.
        """

    def admit(self) -> None:
        """Raises StatusError if pods are refused."""
        if self.refusal is not None:
            raise StatusError(403, "Forbidden", self.refusal)


def pod_kind(admission: PodAdmission | None = None) -> ServedKind:
    """`admission` decides about each new pod. None: all are admitted."""

    def default(body: Body, before: Body | None) -> None:
        if before is None:
            if admission is not None:
                admission.admit()
            body["spec"] = _completed(body.get("spec") or {})
            body["status"] = {"phase": "Pending", "qosClass": qos_class(body["spec"])}
        elif body["spec"] is not before["spec"]:
            body["spec"] = _completed(body["spec"])

    return ServedKind(resource=PODS, default=default, validate=_wrong)


def qos_class(spec: Mapping[str, Any]) -> str:
    """The QoS class by cpu and memory only. A container with limits always has requests too."""
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    requests = [_computing(container, "requests") for container in containers]
    limits = [_computing(container, "limits") for container in containers]
    if not any(requests) and not any(limits):
        return "BestEffort"
    return "Guaranteed" if requests == limits and all(len(each) == 2 for each in limits) else "Burstable"


def _computing(container: Mapping[str, Any], what: str) -> Mapping[str, str]:
    quantities = container.get("resources", {}).get(what) or {}
    return {name: quantities[name] for name in ("cpu", "memory") if quantities.get(name, "0") != "0"}


def _completed(spec: Body) -> Body:
    """A new spec with the defaults. The given one stays unchanged: it may be a template that other pods share."""
    completed = {**_DEFAULTS, **{name: value for name, value in spec.items() if value is not None}}
    for name in ("initContainers", "containers"):
        if name in completed:
            completed[name] = [_container(container) for container in completed[name]]
    completed["tolerations"] = _tolerations(completed.get("tolerations", []))
    return completed


def _container(container: Body) -> Body:
    """Requests default to the limits. For extended resources such as GPUs both must be equal."""
    more: Body = {
        probe: {**_PROBE_DEFAULTS, **{key: value for key, value in container[probe].items() if value}}
        for probe in _PROBES
        if container.get(probe)
    }
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        more["resources"] = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    return {**container, **more} if more else container


def _tolerations(tolerations: list[Body]) -> list[Body]:
    missing = [taint for taint in _TOLERATED if not any(_is_about(each, taint) for each in tolerations)]
    added = [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
        for taint in missing
    ]
    return [*tolerations, *added]


def _is_about(toleration: Body, taint: str) -> bool:
    return toleration.get("key") in (None, "", taint) and toleration.get("effect") in (None, "", "NoExecute")


def _wrong(body: Body, before: Body | None) -> Iterable[FieldCause]:
    spec = body["spec"]
    if before is None:
        return (
            () if spec.get("containers") else (FieldCause("spec.containers", "Required value", "FieldValueRequired"),)
        )
    return () if spec is before["spec"] else _wrong_change(spec, before["spec"])


def _wrong_change(spec: Body, before: Body) -> Iterable[FieldCause]:
    for name in ("containers", "initContainers"):
        if len(spec.get(name, ())) != len(before.get(name, ())):
            words = "Forbidden: pod updates may not add or remove containers"
            yield FieldCause(f"spec.{name}", words, "FieldValueForbidden")
            return
    deadline, deadline_before = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if deadline_before is not None and deadline is None:
        words = "Invalid value: null: must not update from a positive integer to nil value"
        yield FieldCause("spec.activeDeadlineSeconds", words)
    elif deadline_before is not None and deadline > deadline_before:
        words = f"Invalid value: {deadline}: must be less than or equal to previous value"
        yield FieldCause("spec.activeDeadlineSeconds", words)
    kept = [_without_seconds(toleration) for toleration in spec.get("tolerations", ())]
    if any(_without_seconds(toleration) not in kept for toleration in before.get("tolerations", ())):
        words = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield FieldCause("spec.tolerations", words, "FieldValueForbidden")
    if _lasting(spec) != _lasting(before):
        yield FieldCause("spec", f"Forbidden: {_MAY_CHANGE}", "FieldValueForbidden")


def _without_seconds(toleration: Body) -> Body:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _lasting(spec: Body) -> Body:
    """The part of a spec that never changes. It includes the node name, which only a binding sets."""
    lasting = {name: value for name, value in spec.items() if name not in _UPDATABLE}
    for name in ("containers", "initContainers"):
        if name in lasting:
            lasting[name] = [{**container, "image": ""} for container in lasting[name]]
    return lasting
