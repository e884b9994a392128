"""The CRDs and the structs of `recovery.core` agree, and nothing has drifted. This needs no API server.

The CRDs are generated. These tests check their text with other code than the generator's.

If a struct has a field that its schema lacks, the API server prunes it silently, and the ledger forgets it. A field
that only the schema has promises what does not happen. tests/cluster/test_crds.py asks a real API server.
"""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from msgspec import inspect

from recovery.core.model.config import CONFIG_NAME, ConfigSpec
from recovery.core.model.durations import DurationError, parse_duration
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import ClosedIncident, Closing, Incident, Ledger
from recovery.core.policy.spec import PolicySpec
from recovery.crds.__main__ import CRDS as FOLDER
from recovery.crds.__main__ import generated
from recovery.crds.schema import GeneratorError, Overlay, of_struct
from recovery.generated_files import REPOSITORY
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    Resource,
)
from tests.unit import fast_yaml

OURS = (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS, RECOVERY_GROUPS, RECOVERY_INCIDENTS)
WRITTEN_BY_PEOPLE = (
    (RECOVERY_POLICIES, PolicySpec),
    (CLUSTER_RECOVERY_POLICIES, PolicySpec),
    (RECOVERY_CONFIGS, ConfigSpec),
)
people = pytest.mark.parametrize(
    ("resource", "struct"), WRITTEN_BY_PEOPLE, ids=lambda value: getattr(value, "plural", "")
)

CRDS = Path(__file__).resolve().parents[3] / "manifests" / "crd"

Schema: TypeAlias = dict[str, Any]

SCALARS: dict[type[inspect.Type], Schema] = {
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.EnumType: {"type": "string"},
}

KEYWORDS = {
    *("type", "format", "description", "default", "nullable", "enum", "required", "pattern"),
    *("properties", "additionalProperties", "items"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
}


def crd(resource: Resource) -> Schema:
    document: Schema = fast_yaml.load((CRDS / f"{resource.plural}.yaml").read_text())
    return document


def schema_of(resource: Resource, part: str) -> Schema:
    [version] = crd(resource)["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]["properties"][part]
    return schema


def fields_of(struct: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field for field in info.fields}


def without_none(info: inspect.Type) -> inspect.Type:
    """The type X of `X | None`."""
    if not isinstance(info, inspect.UnionType):
        return info
    [meant] = [member for member in info.types if not isinstance(member, inspect.NoneType)]
    return meant


def differences(info: inspect.Type, schema: Schema, path: str) -> Iterator[str]:
    """The places where a schema differs from what the type encodes to."""
    info = without_none(info)
    if isinstance(info, inspect.StructType):
        yield from object_differences({field.encode_name: field for field in info.fields}, schema, path)
    elif isinstance(info, inspect.DictType):
        if schema.get("type") != "object" or "additionalProperties" not in schema:
            yield f"{path}: not a map in the schema"
        else:
            yield from differences(info.value_type, schema["additionalProperties"], f"{path}.*")
    elif isinstance(info, inspect.VarTupleType):
        if schema.get("type") != "array":
            yield f"{path}: not an array in the schema"
        else:
            yield from differences(info.item_type, schema["items"], f"{path}[]")
    else:
        yield from scalar_differences(info, schema, path)


def object_differences(fields: dict[str, inspect.Field], schema: Schema, path: str) -> Iterator[str]:
    properties: dict[str, Schema] = schema.get("properties", {})
    yield from (f"{path}.{name}: missing in the schema" for name in fields.keys() - properties.keys())
    yield from (f"{path}.{name}: only in the schema" for name in properties.keys() - fields.keys())
    # A ledger has a version for a RecoveryGroup without a status. A status without one cannot be read.
    required = {name for name, field in fields.items() if field.required} | {"schemaVersion"} & fields.keys()
    if set(schema.get("required", [])) != required:
        yield f"{path}: `required` must be the fields without which the struct cannot be read"
    for name in fields.keys() & properties.keys():
        yield from differences(fields[name].type, properties[name], f"{path}.{name}")
        if "default" in properties[name] and properties[name]["default"] != plain_default(fields[name]):
            yield f"{path}.{name}: the default {properties[name]['default']!r} is not the struct's"


def scalar_differences(info: inspect.Type, schema: Schema, path: str) -> Iterator[str]:
    expected = SCALARS[type(info)]
    found = {key: schema.get(key) for key in expected}
    if found != expected:
        yield f"{path}: {found} in the schema, {expected} in the struct"
    if isinstance(info, inspect.IntType) and schema.get("format") not in {"int32", "int64"}:
        yield f"{path}: an integer without a format"
    if isinstance(info, inspect.EnumType) and "_missing_" in vars(info.cls):
        # The enum accepts words of a newer controller, and an older CRD must not refuse them.
        yield from (f"{path}: the schema allows these words only" for _ in schema.get("enum", [])[:1])
    elif isinstance(info, inspect.EnumType):
        unknown = {member.value for member in info.cls} - set(schema.get("enum", []))
        yield from (f"{path}: {value} is not allowed by the schema" for value in unknown)


def plain_default(field: inspect.Field) -> object:
    """The default as written in a manifest. A struct whose fields all have defaults is an empty object."""
    if isinstance(field.default, msgspec.Struct):
        return {}
    return field.default.value if isinstance(field.default, Enum) else field.default


def test_what_is_committed_is_what_the_structs_say() -> None:
    """`make manifests` corrects a drift."""
    assert generated().drifted(REPOSITORY) == []


def test_a_drift_is_named(tmp_path: Path) -> None:
    generated().write(tmp_path)
    (tmp_path / FOLDER / "recoverygroups.yaml").write_text("changed by hand")
    (tmp_path / FOLDER / "recoveryincidents.yaml").unlink()
    (tmp_path / FOLDER / "of_nobody.yaml").write_text("")
    (tmp_path / "docs" / "reference.md").write_text("")
    assert generated().drifted(tmp_path) == [
        "docs/reference.md",
        "manifests/crd/of_nobody.yaml",
        "manifests/crd/recoverygroups.yaml",
        "manifests/crd/recoveryincidents.yaml",
    ]


@pytest.mark.parametrize(
    "overlay",
    [
        Overlay(says={"spec.budget.limitt": {"minimum": 0}}),
        Overlay(further_values={"spec.mode.name": ("Later",)}),
        Overlay(defaults=frozenset({"spec.budjet"})),
        Overlay(further_values={"spec.mode": ("Enforce",)}),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error_of_the_generator(overlay: Overlay) -> None:
    with pytest.raises(GeneratorError, match=r"limitt|spec\.mode\.name|budjet|Enforce is built"):
        of_struct(PolicySpec, "spec", overlay)


def test_every_field_says_what_it_means() -> None:
    """At least the fields that people write: the reference would show an empty cell."""
    silent = [
        path
        for resource, _ in WRITTEN_BY_PEOPLE
        for path, node in nodes(schema_of(resource, "spec"), "spec")
        # The items of a list need no description of their own.
        if "description" not in node and not path.endswith("[]") and path.count(".") <= 2 and "rules" not in path
    ]
    assert silent == []


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


@pytest.mark.parametrize("resource", OURS, ids=lambda r: r.plural)
def test_a_crd_is_what_the_controller_asks_for(resource: Resource) -> None:
    definition = crd(resource)
    assert definition["metadata"]["name"] == f"{resource.plural}.{resource.group}"
    spec = definition["spec"]
    assert (spec["group"], spec["scope"]) == (resource.group, "Namespaced" if resource.namespaced else "Cluster")
    assert (spec["names"]["plural"], spec["names"]["kind"]) == (resource.plural, resource.kind)
    [version] = spec["versions"]
    assert version["name"] == resource.version
    assert "x-kubernetes-preserve-unknown-fields" not in (CRDS / f"{resource.plural}.yaml").read_text()
    has_status = "status" in version["schema"]["openAPIV3Schema"]["properties"]
    assert ("status" in version.get("subresources", {})) == has_status


@pytest.mark.parametrize("resource", OURS, ids=lambda r: r.plural)
def test_a_schema_says_nothing_that_is_no_schema(resource: Resource) -> None:
    """An unquoted comma in a `{…}` of YAML turns the rest of a description into a key."""
    [version] = crd(resource)["spec"]["versions"]
    for path, node in nodes(version["schema"]["openAPIV3Schema"]):
        unknown = {key for key in node if not key.startswith("x-kubernetes-")} - KEYWORDS
        assert unknown == set(), path


def test_every_crd_is_in_the_kustomization() -> None:
    listed = fast_yaml.load((CRDS / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in CRDS.glob("*.yaml") if path.name != "kustomization.yaml")


def test_the_ledger_and_its_schema_are_one() -> None:
    found = sorted(differences(inspect.type_info(Ledger), schema_of(RECOVERY_GROUPS, "status"), "status"))
    assert found == []


def test_the_fleets_ledger_and_its_schema_are_one() -> None:
    """Except for the fields that admission writes there."""
    schema = schema_of(RECOVERY_CONFIGS, "status")
    of_enforcement = {"enforcedSince", "enforcedGeneration"}
    of_policies = schema_of(RECOVERY_POLICIES, "status")["properties"]
    of_admission = {name: child for name, child in of_policies.items() if name not in of_enforcement}
    fleet = {name: child for name, child in schema["properties"].items() if of_admission.get(name) != child}
    assert fleet.keys() | of_admission.keys() == schema["properties"].keys()
    assert sorted(differences(inspect.type_info(FleetLedger), {"properties": fleet}, "status")) == []


def test_every_column_that_counts_shows_a_zero() -> None:
    """The ledger omits its defaults, and an exhausted budget must not look like an unknown one."""
    [version] = crd(RECOVERY_GROUPS)["spec"]["versions"]
    counting = [c["jsonPath"] for c in version["additionalPrinterColumns"] if c["type"] == "integer"]
    assert len(counting) == 3
    for path in counting:
        node = schema_of(RECOVERY_GROUPS, "status")
        for name in path.removeprefix(".status.").split("."):
            node = node["properties"][name]
            assert node["default"] in (0, {}), path


def test_an_incident_record_holds_what_the_ledger_knew() -> None:
    schema = schema_of(RECOVERY_INCIDENTS, "spec")
    # `attempts` is a list while the incident is open and a count in the ledger's history. The record keeps the list.
    known = fields_of(ClosedIncident) | fields_of(Incident) | fields_of(Closing)
    # The fields of `closing` are beside the others: columns and queries find outcome and end next to the start.
    del known["closing"]
    properties: dict[str, Schema] = schema["properties"]
    assert properties.keys() == {"workloadRef", "group", "schemaVersion"} | known.keys()
    found = [line for name, field in known.items() for line in differences(field.type, properties[name], name)]
    assert found == []
    always_encoded = {name for name, field in known.items() if field.required}
    assert set(schema["required"]) <= always_encoded | {"workloadRef", "group", "schemaVersion"}


@pytest.mark.parametrize("resource", [RECOVERY_GROUPS, RECOVERY_INCIDENTS], ids=lambda r: r.plural)
def test_what_the_controller_wrote_once_cannot_be_changed(resource: Resource) -> None:
    assert [rule["rule"] for rule in schema_of(resource, "spec")["x-kubernetes-validations"]] == ["self == oldSelf"]
    [version] = crd(resource)["spec"]["versions"]
    # An optional spec could be removed and set again without an evaluation of `oldSelf`.
    assert "spec" in version["schema"]["openAPIV3Schema"]["required"]


def test_a_cluster_policy_says_what_a_policy_says() -> None:
    for part in ("spec", "status"):
        assert schema_of(CLUSTER_RECOVERY_POLICIES, part) == schema_of(RECOVERY_POLICIES, part)


def test_only_one_recovery_config_can_be() -> None:
    [version] = crd(RECOVERY_CONFIGS)["spec"]["versions"]
    [rule] = version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    assert rule["rule"] == f"self.metadata.name == '{CONFIG_NAME}'"


def test_kubectl_get_recovery_lists_all_of_it() -> None:
    names = [crd(resource)["spec"]["names"] for resource in OURS]
    assert all(each["categories"] == ["recovery"] for each in names)
    assert [each["shortNames"] for each in names] == [["rpol"], ["crpol"], ["rcfg"], ["rgrp"], ["rinc"]]


@pytest.mark.parametrize(
    ("resource", "columns"),
    [
        (RECOVERY_POLICIES, "Mode Restart Budget Accepted Age"),
        (CLUSTER_RECOVERY_POLICIES, "Mode Restart Budget Accepted Age"),
        (RECOVERY_CONFIGS, "Paused Age"),
        (RECOVERY_GROUPS, "Phase Standing Cause Action Idle-GPUs Restarts Budget Age"),
        (RECOVERY_INCIDENTS, "Job Class Cause Outcome Idle-GPU-s Started Count"),
    ],
    ids=lambda value: getattr(value, "plural", ""),
)
def test_columns(resource: Resource, columns: str) -> None:
    [version] = crd(resource)["spec"]["versions"]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == columns.split()


@people
def test_every_field_that_people_write_is_read(resource: Resource, struct: type[msgspec.Struct]) -> None:
    assert sorted(policy_differences(inspect.type_info(struct), schema_of(resource, "spec"), "spec")) == []


def policy_differences(info: inspect.Type, schema: Schema, path: str) -> Iterator[str]:
    assert isinstance(info, inspect.StructType)
    fields = {field.encode_name: field for field in info.fields}
    for name in schema["properties"].keys() - fields.keys():
        yield f"{path}.{name}: not read"
    for name, field in fields.items():
        child: Schema | None = schema["properties"].get(name)
        if child is None:
            yield f"{path}.{name}: missing in the schema"
        elif isinstance(field.type, inspect.StructType):
            yield from policy_differences(field.type, child, f"{path}.{name}")
            if has_defaults(child) != (child.get("default") == {}):
                yield f"{path}.{name}: its fields get their defaults only if it is an empty object by default"
        else:
            yield from differences(field.type, child, f"{path}.{name}")
            default = plain_default(field) if field.default is not msgspec.NODEFAULT else None
            # Without a value, an empty text or list is meant. `kubectl get -o yaml` need not show it.
            if child.get("default") != (default if default not in ("", ()) else None):
                yield f"{path}.{name}: the default {child.get('default')!r} is not the struct's"


def has_defaults(schema: Schema) -> bool:
    return any("default" in child for child in schema["properties"].values())


@people
def test_the_values_are_those_that_are_built(resource: Resource, struct: type[msgspec.Struct]) -> None:
    schema = schema_of(resource, "spec")
    for name, field in fields_of(struct).items():
        if isinstance(field.type, inspect.EnumType):
            assert set(schema["properties"][name]["enum"]) == {member.value for member in field.type.cls}


@people
def test_everything_that_people_write_is_bounded(resource: Resource, struct: type[msgspec.Struct]) -> None:
    """So the cost of the CEL rules is bounded, whatever people write."""
    unbounded = []
    for path, node in nodes(schema_of(resource, "spec"), "spec"):
        limit = {
            "array": "maxItems" in node,
            "integer": {"minimum", "maximum", "format"} <= node.keys(),
            "number": {"minimum", "maximum"} <= node.keys(),
            "string": "enum" in node or "maxLength" in node,
            "object": "properties" in node or "maxProperties" in node,
        }
        if not limit.get(node["type"], True):
            unbounded.append(path)
    assert unbounded == []


def duration_patterns() -> set[str]:
    """Every regular expression for a duration, from a `pattern` or from a CEL rule."""
    found = set()
    written = [node for resource, _ in WRITTEN_BY_PEOPLE for _, node in nodes(schema_of(resource, "spec"))]
    for node in written:
        texts = [node.get("pattern", ""), *(rule["rule"] for rule in node.get("x-kubernetes-validations", []))]
        found |= {match[0] for text in texts if (match := re.search(r"\^\(\[0-9\].*\$", text))}
    return found


@pytest.mark.parametrize("text", ["24h", "15m", "10s", "500ms", "1h30m", "1h0m0s5ms", "0s", "99999h9999999m", "007s"])
def test_the_schema_takes_durations_that_the_controller_reads(text: str) -> None:
    [pattern] = duration_patterns()
    assert re.fullmatch(pattern, text)
    parse_duration(text, "spec.budget.window")


@pytest.mark.parametrize("text", ["soon", "1 day", "1d", "-1s", "1.5h", "5", "h", "1s1m", "1H", " 1s"])
def test_the_schema_refuses_what_the_controller_cannot_read(text: str) -> None:
    [pattern] = duration_patterns()
    assert not re.fullmatch(pattern, text)
    with pytest.raises(DurationError, match=r"^spec\.budget\.window: "):
        parse_duration(text, "spec.budget.window")
