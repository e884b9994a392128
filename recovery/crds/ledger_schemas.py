"""The schemas of what the controller writes: ledgers (RecoveryGroup, RecoveryConfig), records and conditions.

Numbers and texts have no limits here, because a refused write of a ledger would stop the recovery.
"""

import msgspec

from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.ledger import ClosedIncident, Closing, Incident, Ledger
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.step import BELONGS_TO, REQUIRED, Step
from recovery.core.policy.enforcement import Enforcement
from recovery.crds.schema import RULES, GeneratorError, Overlay, Schema, of_struct
from recovery.crds.schema_keywords import one_of, rule, text

_LATER_PHASES = ("Recovered", "Failed", "Superseded")
_CONDITION_STATUS: Schema = {"enum": ["True", "False", "Unknown"]}
_MAP_BY_TYPE: Schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def _step_rules() -> list[Schema]:
    """Which fields a step has, by its type."""
    name = dict(zip(Step.__struct_fields__, Step.__struct_encode_fields__, strict=True))
    rules = []
    for of_type, fields in REQUIRED.items():
        for needed in sorted(name[field] for field in fields):
            cel = f"self.type != '{of_type}' || has(self.{needed})"
            rules.append(rule(cel, f"a step of type {of_type} requires {needed}"))
    for field, types in BELONGS_TO.items():
        listed = sorted(map(str, types))
        cel = f"!has(self.{name[field]}) || self.type in {listed}"
        rules.append(rule(cel, f"only a step of type {' or '.join(listed)} has {name[field]}"))
    return rules


_LEDGER = Overlay(
    says={
        # The structs have a default for a RecoveryGroup without a status. A status always has a version.
        "status": {"required": ["schemaVersion"]},
        "status.schemaVersion": {"minimum": 1},
        "status.epoch": {"minimum": 0},
        "status.incident.attempts[].epoch": {"minimum": 0},
        "status.incident.step": {RULES: _step_rules()},
        "status.conditions": _MAP_BY_TYPE,
        "status.conditions[].status": _CONDITION_STATUS,
    },
    further_values={
        "status.phase": _LATER_PHASES,
        "status.incident.phases[].phase": _LATER_PHASES,
    },
    # The ledger omits defaults. The API server fills in these, so that a printer column shows 0, not an empty cell.
    defaults=frozenset(
        ("status.phase", "status.totals", "status.totals.restarts", "status.budget", "status.budget.remaining")
    )
    | {"status.idleGPUs"},
)

_INCIDENT = Overlay(
    says={"spec.attempts[].epoch": {"minimum": 0}, "spec.step": {RULES: _step_rules()}},
    further_values={"spec.phases[].phase": _LATER_PHASES},
    defaults=frozenset(),
)

_RECORD_REQUIRED = (
    *("schemaVersion", "id", "outcome", "outcomeReason", "class", "cause", "startedAt", "detectedAt", "endedAt"),
)
"""A record without these fields is useless. Other fields are omitted if they have the default value."""


def ledger() -> Schema:
    """`status` of a RecoveryGroup."""
    return of_struct(Ledger, "status", _LEDGER)


def workload_and_group(description: str) -> Schema:
    """The schema of an object with the workload and the group to which incidents belong."""
    reference: Schema = {
        "type": "object",
        "required": ["kind", "name", "uid"],
        "description": "The workload, by its UID, so that a new one of the same name has a ledger of its own.",
        "properties": {
            "kind": one_of("TrainJob", "JobSet"),
            "name": text(longest=253),
            "uid": text(longest=128),
        },
    }
    group = text("Name of the group within its workload.", longest=253)
    return {
        "type": "object",
        "description": description,
        "required": ["workloadRef", "group"],
        "properties": {"workloadRef": reference, "group": group},
    }


def owned_group() -> Schema:
    """`spec` of a RecoveryGroup."""
    unchanged = rule("self == oldSelf", "a RecoveryGroup belongs to one workload for good; it cannot be changed")
    return workload_and_group("Which group of which workload.") | {RULES: [unchanged]}


def record() -> Schema:
    """`spec` of a RecoveryIncident: an incident, with the fields of its closing beside its own.

    So columns and queries find the outcome and the end at the same level as the start.
    """
    incident = of_struct(Incident, "spec", _INCIDENT)
    fields: dict[str, Schema] = incident["properties"]
    del fields["closing"]
    fields |= of_struct(Closing, "spec", Overlay(defaults=frozenset()))["properties"]
    closed = of_struct(ClosedIncident, "spec", Overlay(defaults=frozenset()))["properties"]
    fields["idleGpuSeconds"] = closed["idleGpuSeconds"] | {"description": "Idle GPU-seconds of all phases."}
    fields["releasedGpuSeconds"] = closed["releasedGpuSeconds"]
    version = of_struct(Ledger, "spec", Overlay(defaults=frozenset()))["properties"]["schemaVersion"]
    fields["schemaVersion"] = version | {
        "minimum": 1,
        "description": "The version of the ledger that the incident is from.",
    }
    if missing := set(_RECORD_REQUIRED) - fields.keys():
        raise GeneratorError(f"a RecoveryIncident requires {sorted(missing)}, which no struct has")
    head = workload_and_group("One incident, from its first evidence to its end.")
    unchanged = rule("self == oldSelf", "a RecoveryIncident is a record; it cannot be changed")
    return head | {
        "required": [*head["required"], *_RECORD_REQUIRED],
        "properties": head["properties"] | fields,
        RULES: [unchanged],
    }


def folded() -> Schema:
    """`status` of a RecoveryIncident. It is absent until another incident shares the record."""
    return of_struct(FoldedIncidents, "status", Overlay(says={"status.count": {"minimum": 1}}, defaults=frozenset()))


class _Status(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Written by the controller only."""

    observed_generation: int = 0
    """The generation of the spec that the conditions describe."""
    conditions: tuple[LedgerCondition, ...] = ()


def accepted_status() -> Schema:
    """`status` of an object that users write: whether the controller accepts it."""
    limits: dict[str, Schema] = {
        "status.observedGeneration": {"minimum": 0},
        "status.conditions": _MAP_BY_TYPE
        | {"description": "Accepted: whether the controller can use it, and if not, which field is wrong."},
        "status.conditions[].type": {"minLength": 1, "maxLength": 316},
        "status.conditions[].status": _CONDITION_STATUS,
        "status.conditions[].reason": {"minLength": 1, "maxLength": 1024},
        "status.conditions[].message": {"maxLength": 32768},
        "status.conditions[].observedGeneration": {"minimum": 0},
    }
    return of_struct(_Status, "status", Overlay(says=limits, defaults=frozenset()))


def policy_status() -> Schema:
    """`status` of a policy: whether it is accepted, and since when it is in mode Enforce."""
    status = accepted_status()
    limits: dict[str, Schema] = {"status.enforcedGeneration": {"minimum": 0}}
    own = of_struct(Enforcement, "status", Overlay(says=limits, defaults=frozenset()))["properties"]
    return status | {"description": "Written by the controller only.", "properties": status["properties"] | own}


def fleet_status() -> Schema:
    """`status` of the RecoveryConfig: whether it is accepted, and the ledger that spans groups."""
    status = accepted_status()
    fleet = of_struct(FleetLedger, "status", Overlay(defaults=frozenset()))["properties"]
    return status | {"description": "Written by the controller only.", "properties": status["properties"] | fleet}
