"""Our own kinds judge a policy, a config and a ledger as a real API server does."""

import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml

from recovery.core.model.ledger import SCHEMA_VERSION, Ledger
from recovery.core.policy.spec import PolicySpec
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    PatchKind,
    Resource,
)
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.recovery import recovery_kinds
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import FieldCause
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.cluster.crd_specs import BAD_CONFIGS, BAD_SPECS, BAD_WHENS

POLICIES = Path(__file__).resolve().parents[4] / "policies"
KINDS = {kind.resource: kind for kind in recovery_kinds()}
WORKLOAD = {"kind": "TrainJob", "name": "llm", "uid": "0b5e1a52-7f0a-4a5c-9d6e-000000000001"}

Bad = Mapping[str, tuple[dict[str, Any], str]]


def refused_by_the_server(cases: Bad) -> list[Any]:
    """The cases that the real control plane's tests send to the server, without those that kubectl alone refuses."""
    return [pytest.param(*case, id=name) for name, case in cases.items() if "unknown field" not in case[1]]


def body_of(resource: Resource, spec: object, name: str = "default") -> Body:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": msgspec.to_builtins(spec),
    }


def written(resource: Resource, body: Body, before: Body | None = None) -> tuple[FieldCause, ...]:
    KINDS[resource].default(body, before)
    return tuple(KINDS[resource].validate(body, before))


def sentence(causes: tuple[FieldCause, ...]) -> str:
    return ", ".join(f"{cause.field}: {cause.message}" for cause in causes)


@pytest.mark.parametrize("resource", [RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES])
@pytest.mark.parametrize(("spec", "words"), refused_by_the_server(BAD_SPECS))
def test_a_bad_policy_is_refused_as_by_a_real_server(resource: Resource, spec: Body, words: str) -> None:
    assert re.search(words, sentence(written(resource, body_of(resource, spec))))


@pytest.mark.parametrize(("when", "words"), refused_by_the_server(BAD_WHENS))
def test_a_bad_rule_is_refused_as_by_a_real_server(when: Body, words: str) -> None:
    spec = {"rules": [{"name": "bad", "action": "Ignore", "when": when}]}
    assert re.search(words, sentence(written(RECOVERY_POLICIES, body_of(RECOVERY_POLICIES, spec))))


@pytest.mark.parametrize(("spec", "words"), refused_by_the_server(BAD_CONFIGS))
def test_a_bad_config_is_refused_as_by_a_real_server(spec: Body, words: str) -> None:
    assert re.search(words, sentence(written(RECOVERY_CONFIGS, body_of(RECOVERY_CONFIGS, spec))))


def shipped() -> list[Any]:
    documents = [
        document for path in sorted(POLICIES.glob("**/*.yaml")) for document in yaml.safe_load_all(path.read_text())
    ]
    kinds = {resource.kind: resource for resource in KINDS}
    ours = [document for document in documents if document and document["kind"] in kinds]
    return [pytest.param(kinds[each["kind"]], each, id=each["metadata"]["name"]) for each in ours]


@pytest.mark.parametrize(("resource", "body"), shipped())
def test_every_shipped_policy_is_accepted(resource: Resource, body: Body) -> None:
    assert written(resource, body) == ()


def test_a_policy_of_nothing_gets_the_defaults_that_the_controller_has() -> None:
    body = body_of(RECOVERY_POLICIES, {})
    assert written(RECOVERY_POLICIES, body) == ()
    assert msgspec.convert(body["spec"], PolicySpec) == PolicySpec()
    assert body["spec"]["budget"] == {"limit": 10, "window": "24h", "onExhausted": "Hold"}


def test_a_recovery_config_has_one_name() -> None:
    [cause] = written(RECOVERY_CONFIGS, body_of(RECOVERY_CONFIGS, {}, name="other"))
    assert cause.message == "Invalid value: there is one RecoveryConfig in a cluster, and its name is default"


def group(status: object = None) -> Body:
    body = body_of(RECOVERY_GROUPS, {"workloadRef": WORKLOAD, "group": "llm"})
    return body if status is None else {**body, "status": status}


def test_a_ledger_is_accepted_and_keeps_every_field() -> None:
    made, ledger = group(), msgspec.to_builtins(Ledger(epoch=3, message="as it was"))
    assert written(RECOVERY_GROUPS, made) == ()
    body = group(ledger)
    assert written(RECOVERY_GROUPS, body, made) == ()
    assert body["status"].items() >= ledger.items()
    assert body["status"]["phase"] == "Healthy"


def test_a_create_sets_no_status() -> None:
    body = group({"epoch": 3})
    assert written(RECOVERY_GROUPS, body) == ()
    assert "status" not in body


def test_a_field_that_the_ledger_does_not_have_is_lost() -> None:
    body = group({"schemaVersion": SCHEMA_VERSION, "epoch": 3, "ofTomorrow": True})
    assert written(RECOVERY_GROUPS, body, group()) == ()
    assert "ofTomorrow" not in body["status"]


def test_a_ledger_without_a_version_is_refused() -> None:
    assert "status.schemaVersion: Required value" in sentence(written(RECOVERY_GROUPS, group({"epoch": 3}), group()))


def test_a_ledger_with_a_wrong_type_is_refused_by_its_field() -> None:
    causes = written(RECOVERY_GROUPS, group({"schemaVersion": SCHEMA_VERSION, "epoch": "three"}), group())
    assert causes[0].field == "status.epoch"
    assert causes[0].reason == "FieldValueTypeInvalid"


def test_a_group_belongs_to_its_workload_and_a_record_stays_as_it_is() -> None:
    before = group()
    other = {**before, "spec": {**before["spec"], "group": "other"}}
    assert sentence(written(RECOVERY_GROUPS, other, before)) == (
        "spec: Invalid value: a RecoveryGroup belongs to one workload for good; it cannot be changed"
    )
    record = body_of(
        RECOVERY_INCIDENTS,
        {
            "workloadRef": WORKLOAD,
            "group": "llm",
            "schemaVersion": SCHEMA_VERSION,
            "id": "llm-1",
            "class": "PodFailed",
            "cause": "exit",
            "startedAt": "2026-11-02T08:00:00Z",
            "detectedAt": "2026-11-02T08:00:00Z",
            "endedAt": "2026-11-02T08:01:00Z",
            "outcome": "Recovered",
            "outcomeReason": "runs again",
        },
    )
    assert written(RECOVERY_INCIDENTS, record) == ()
    unversioned = {name: value for name, value in record["spec"].items() if name != "schemaVersion"}
    assert "spec.schemaVersion: Required value" in sentence(
        written(RECOVERY_INCIDENTS, {**record, "spec": unversioned})
    )
    changed = {**record, "spec": {**record["spec"], "cause": "other"}}
    assert "is a record; it cannot be changed" in sentence(written(RECOVERY_INCIDENTS, changed, record))


def test_kinds_are_served_as_their_definitions_say() -> None:
    assert all(kind.has_status for kind in KINDS.values())
    assert {resource for resource, kind in KINDS.items() if kind.tracks_managers} == {
        RECOVERY_POLICIES,
        CLUSTER_RECOVERY_POLICIES,
    }
    assert all(kind.counts_generation for kind in KINDS.values())


@virtual_time
async def test_a_status_is_pruned_and_completed_like_a_spec() -> None:
    """The server does this with every write of a custom resource."""
    server = ApiServer(recovery_kinds(), clock=VirtualClock(), entropy=Random(1))
    spec = {"workloadRef": {"kind": "TrainJob", "name": "llm", "uid": "u"}, "group": "llm"}
    body = {"metadata": {"name": "llm-u", "namespace": "ml"}, "spec": spec}
    server.create(RECOVERY_GROUPS, {**body, "apiVersion": RECOVERY_GROUPS.api_version, "kind": "RecoveryGroup"})
    patch = {"status": {"schemaVersion": SCHEMA_VERSION, "epoch": 1, "unknown": 2}}
    found = server.patch(RECOVERY_GROUPS, "llm-u", patch, kind=PatchKind.MERGE, namespace="ml", subresource="status")
    assert "unknown" not in found["status"]
    assert found["status"]["phase"] == "Healthy"
