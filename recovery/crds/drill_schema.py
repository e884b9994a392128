"""The schema of a RecoveryDrill: its user writes the spec, and adds to it. The controller writes the status."""

from recovery.core.model.drill import DrillSpec, DrillStatus
from recovery.crds.schema import RULES, Overlay, Schema, of_struct
from recovery.crds.schema_keywords import integer, limits, one_of, rule, sized

_MAX_PODS = 512
_FIXED = ("workloadRef", "experiment", "expiresAt", "repeat", "startedBy", "hypothesis", "slo", "checkpointStep")


def _once(field: str, message: str) -> Schema:
    return rule(
        f"!has(oldSelf.{field}) || (has(self.{field}) && self.{field} == oldSelf.{field})", message, f".{field}"
    )


_SPEC = Overlay(
    says={
        "spec": {
            RULES: [
                *(_once(field, "stays as it was when the drill was created") for field in _FIXED),
                _once("end", "a drill ends once"),
                # With the keys of the list unique, the numbers are those from 1 to its size. So none is ever taken out.
                rule(
                    "!has(self.pods) || self.pods.all(pod, pod.number <= self.pods.size())",
                    "the numbers are 1, 2, 3 and so on",
                    ".pods",
                ),
                rule(
                    "!has(oldSelf.pods) || (has(self.pods) && self.pods.size() >= oldSelf.pods.size())",
                    "a pod that was named stays named",
                    ".pods",
                ),
            ]
        },
        "spec.workloadRef.kind": one_of("TrainJob", "JobSet"),
        "spec.workloadRef.name": limits(253),
        "spec.workloadRef.uid": limits(128),
        "spec.experiment": limits(63),
        "spec.repeat": integer(1, 16),
        "spec.startedBy": {"maxLength": 253},
        "spec.hypothesis.incidents": integer(0, 100),
        "spec.hypothesis.charged": integer(0, 100),
        "spec.slo.recovery": {"maxLength": 16},
        "spec.slo.idleGpuSeconds": {"minimum": 0},
        "spec.checkpointStep": {"minimum": 0},
        "spec.pods": sized(_MAX_PODS) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["number"]},
        "spec.pods[]": {RULES: [rule("self == oldSelf", "a pod that was named stays as it was named")]},
        "spec.pods[].number": integer(1, _MAX_PODS),
        "spec.pods[].repeat": integer(1, 16),
        "spec.pods[].pod": limits(253),
        "spec.pods[].podUID": limits(128),
        "spec.pods[].node": {"maxLength": 253},
        "spec.end.message": {"maxLength": 1024},
        "spec.end.reason": {"maxLength": 64},
    },
    defaults=frozenset(),
)


def drill() -> Schema:
    """`spec` of a RecoveryDrill."""
    return of_struct(DrillSpec, "spec", _SPEC)


def drill_status() -> Schema:
    """`status` of a RecoveryDrill."""
    return of_struct(DrillStatus, "status", Overlay(defaults=frozenset()))
