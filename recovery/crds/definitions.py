"""The six CustomResourceDefinitions: names, scope, printer columns and schemas."""

import msgspec

from recovery.core.model.config import CONFIG_NAME, ConfigSpec
from recovery.core.policy.spec import PolicySpec
from recovery.crds import drill_schema, ledger_schemas
from recovery.crds.config_overlay import CONFIG
from recovery.crds.policy_overlay import POLICY
from recovery.crds.schema import RULES, GeneratorError, Schema, of_struct, ordered
from recovery.crds.schema_keywords import rule
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_DRILLS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    Resource,
)


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False
    """Only with `-o wide`."""


class Definition(msgspec.Struct, frozen=True):
    """One CRD."""

    resource: Resource
    short_name: str
    preface: str
    """The comment at the top of the file."""
    description: str
    columns: tuple[Column, ...]
    spec: Schema
    status: Schema | None = None
    rules: tuple[Schema, ...] = ()
    """CEL rules for the whole object."""

    @property
    def kind(self) -> str:
        return self.resource.kind

    def schema(self) -> Schema:
        """`openAPIV3Schema`."""
        properties: dict[str, Schema] = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": self.spec,
        }
        if self.status is not None:
            properties["status"] = self.status
        # If spec were optional, a client could remove it and set it again, which no rule with `oldSelf` would see.
        schema: Schema = {
            "type": "object",
            "description": self.description,
            "required": ["spec"],
            "properties": properties,
        }
        return ordered(schema | ({RULES: list(self.rules)} if self.rules else {}))

    def document(self) -> Schema:
        """The CRD as it is applied."""
        resource = self.resource
        schema = self.schema()
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{resource.plural}.{resource.group}",
                "labels": {"app.kubernetes.io/name": "trainjob-recovery", "app.kubernetes.io/component": "crd"},
            },
            "spec": {
                "group": resource.group,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "names": {
                    "kind": resource.kind,
                    "listKind": f"{resource.kind}List",
                    "plural": resource.plural,
                    "singular": resource.kind.lower(),
                    "shortNames": [self.short_name],
                    "categories": ["recovery"],
                },
                "versions": [
                    {
                        "name": resource.version,
                        "served": True,
                        "storage": True,
                        **({"subresources": {"status": {}}} if self.status is not None else {}),
                        "additionalPrinterColumns": [_printed(column, schema) for column in self.columns],
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }


def _printed(column: Column, schema: Schema) -> Schema:
    """The column as the CRD has it. Raises GeneratorError if the field that it shows does not exist."""
    node = schema
    # A filter such as `conditions[?(@.type=="Accepted")]` contains dots.
    for name in column.path.partition("[?")[0].removeprefix(".").split("."):
        if node is not schema["properties"]["metadata"]:
            if name not in node.get("properties", {}):
                raise GeneratorError(f"column {column.name}: there is no {column.path}")
            node = node["properties"][name]
    return {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        **({"description": column.description} if column.description else {}),
        **({"priority": 1} if column.wide else {}),
    }


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

_POLICY_COLUMNS = (
    Column("Mode", ".spec.mode"),
    Column("Restart", ".spec.restart"),
    Column("Budget", ".spec.budget.limit", "integer"),
    Column("Accepted", '.status.conditions[?(@.type=="Accepted")].status'),
    _AGE,
    Column("Priority", ".spec.priority", "integer", wide=True),
    Column("Window", ".spec.budget.window", wide=True),
)

_DECLARED = """
The API server prunes unknown fields unless the client asks for strict field validation, which kubectl and server-side
apply do.
"""
_LEDGER = """
The ledger of one group of pods that fail and restart together. Only the controller writes it, by compare-and-swap,
before it acts.

The schema is strict on purpose. An older CRD refuses the ledger of a newer controller, or drops a field, so apply the
CRDs before the controller. `required` lists the fields without which the ledger cannot be read. The few defaults exist
so that a printer column shows 0 instead of an empty cell. Numbers and texts have no limits, because a refused ledger
would stop the recovery that it records.
"""
_RECORD = """
The record of one closed incident, which reports and replays read. Its spec is written once and never changes. Under
Observe, incidents of one kind that follow each other share a record, and its status counts them. No workload owns the
record, so that it outlives its workload.
"""


_DRILL = """
The record of one run of a chaos experiment (`recovery chaos run`). Its spec is written with the rights of the person
who runs it. The controller takes a failure for a drill only if the pod that failed first was named here before, and
`status` says that the name counts. So only who may write RecoveryDrills can cause a failure that costs no budget: it is
a right of its own, and the role `edit` does not have it. No workload owns the record, so that it outlives its workload.
"""


def definitions() -> tuple[Definition, ...]:
    """All CRDs, in the order of their application. Raises GeneratorError if the overlays do not fit the structs."""
    return (*_policies(), _config(), _group(), _incident(), _drill())


def _policies() -> tuple[Definition, ...]:
    spec, status = of_struct(PolicySpec, "spec", POLICY), ledger_schemas.policy_status()
    return (
        Definition(
            RECOVERY_POLICIES,
            "rpol",
            "What a team's SRE allows the controller to do to the jobs of a namespace; docs/policy.md is the guide.\n"
            + _DECLARED,
            "RecoveryPolicy says what may be done when a distributed training job of its namespace loses a member.",
            _POLICY_COLUMNS,
            spec,
            status,
        ),
        Definition(
            CLUSTER_RECOVERY_POLICIES,
            "crpol",
            "What the controller may do to the jobs of every namespace that has no RecoveryPolicy for them.\n"
            + _DECLARED,
            "ClusterRecoveryPolicy is a RecoveryPolicy for all namespaces. A RecoveryPolicy takes precedence.",
            _POLICY_COLUMNS,
            spec,
            status,
        ),
    )


def _config() -> Definition:
    return Definition(
        RECOVERY_CONFIGS,
        "rcfg",
        "The limits that the platform's SRE sets for all policies, and a pause for all of them. There is one.\n"
        + _DECLARED,
        "RecoveryConfig limits what policies may do, and can pause all of them.",
        (Column("Paused", ".spec.paused", "boolean"), _AGE, Column("Why", ".spec.pauseReason", wide=True)),
        of_struct(ConfigSpec, "spec", CONFIG),
        ledger_schemas.fleet_status(),
        rules=(
            rule(
                f"self.metadata.name == '{CONFIG_NAME}'",
                f"there is one RecoveryConfig in a cluster, and its name is {CONFIG_NAME}",
            ),
        ),
    )


def _group() -> Definition:
    return Definition(
        RECOVERY_GROUPS,
        "rgrp",
        _LEDGER,
        "RecoveryGroup is the memory of all recoveries of one workload.",
        (
            Column("Phase", ".status.phase"),
            Column("Standing", ".status.standing"),
            Column("Cause", ".status.cause"),
            Column("Action", ".status.action"),
            Column("Idle-GPUs", ".status.idleGPUs", "integer"),
            Column("Restarts", ".status.totals.restarts", "integer"),
            Column("Budget", ".status.budget.remaining", "integer", "Recoveries left in this window"),
            _AGE,
            Column("Last-Proven", ".status.proof.provenAt", "date", "The latest recovery that is a proof", wide=True),
            Column(
                "Proven",
                '.status.conditions[?(@.type=="RecoveryProven")].reason',
                description="Whether that proof still counts",
                wide=True,
            ),
            Column("Reason", ".status.reason", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
        ledger_schemas.owned_group(),
        ledger_schemas.ledger(),
    )


def _incident() -> Definition:
    return Definition(
        RECOVERY_INCIDENTS,
        "rinc",
        _RECORD,
        "RecoveryIncident is the record of one incident, from its first evidence to its end.",
        (
            Column("Job", ".spec.workloadRef.name"),
            Column("Class", ".spec.class"),
            Column("Cause", ".spec.cause"),
            Column("Outcome", ".spec.outcome"),
            Column("Idle-GPU-s", ".spec.idleGpuSeconds", "number"),
            Column("Started", ".spec.startedAt", "date"),
            Column("Count", ".status.count", "integer", "Incidents that share the record; empty: one"),
            Column("Reason", ".spec.reason", wide=True),
            Column("Message", ".spec.message", wide=True),
        ),
        ledger_schemas.record(),
        ledger_schemas.folded(),
    )


def _drill() -> Definition:
    return Definition(
        RECOVERY_DRILLS,
        "rdrill",
        _DRILL,
        "RecoveryDrill is the record of one run of a chaos experiment.",
        (
            Column("Job", ".spec.workloadRef.name"),
            Column("Experiment", ".spec.experiment"),
            Column("Repeat", ".spec.repeat", "integer"),
            Column("Named", ".status.named", "integer", "Pods whose failure counts as part of the drill"),
            Column("Verdict", ".status.verdict"),
            _AGE,
            Column("Started-By", ".spec.startedBy", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
        drill_schema.drill(),
        drill_schema.drill_status(),
    )
