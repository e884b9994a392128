"""Nodes, leases, Events and the other small built-in kinds."""

from typing import Any

import pytest

from recovery.ports import EVENTS, LEASES, NODES, PODS, Resource
from recovery.sim.api.kinds.core import CONFIG_MAPS, NAMESPACES, SERVICES, core_kinds
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.pods import PodAdmission
from recovery.sim.api.status_error import FieldCause, StatusError

KINDS = {kind.resource: kind for kind in core_kinds()}


def made(resource: Resource, **parts: Any) -> Body:
    """The object as it is stored; `parts`: its other fields."""
    body: Body = {"metadata": {"name": "a"}, **parts}
    KINDS[resource].default(body, None)
    assert tuple(KINDS[resource].validate(body, None)) == ()
    return body


def wrong(resource: Resource, body: Body) -> tuple[FieldCause, ...]:
    KINDS[resource].default(body, None)
    return tuple(KINDS[resource].validate(body, None))


def test_only_pods_count_generations_and_only_some_have_a_status() -> None:
    assert [resource for resource, kind in KINDS.items() if kind.counts_generation] == [PODS]
    assert {resource for resource, kind in KINDS.items() if kind.has_status} == {PODS, NODES, SERVICES, NAMESPACES}
    assert CONFIG_MAPS in KINDS


def test_new_pods_are_put_to_the_admission_that_the_kinds_were_made_with() -> None:
    admission = PodAdmission()
    admission.refusal = "no"
    [pods] = [kind for kind in core_kinds(admission) if kind.resource == PODS]
    with pytest.raises(StatusError):
        pods.default({"metadata": {"name": "a"}, "spec": {}}, None)


def test_a_new_node_is_not_ready_and_keeps_its_status() -> None:
    node = made(NODES, status={"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready"}]})
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert node["status"]["allocatable"] == {"nvidia.com/gpu": "8"}
    assert node["status"]["conditions"] == [{"type": "Ready"}]


def test_a_node_that_comes_with_the_taint_gets_no_second() -> None:
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "own", "effect": "NoExecute"}]
    assert made(NODES, spec={"taints": taints})["spec"]["taints"] == taints


def test_a_taint_that_was_taken_off_stays_off() -> None:
    before = made(NODES)
    body: Body = {**before, "spec": {}}
    KINDS[NODES].default(body, before)
    assert body["spec"] == {}


def test_a_node_carries_each_taint_once() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]
    assert wrong(NODES, {"metadata": {"name": "a"}, "spec": {"taints": taints}}) == ()
    twice = [*taints, {"key": "a", "effect": "NoExecute", "value": "b"}]
    [cause] = wrong(NODES, {"metadata": {"name": "a"}, "spec": {"taints": twice}})
    assert (cause.field, cause.reason) == ("metadata.taints[2]", "FieldValueDuplicate")


def test_a_lease_lasts_for_some_time() -> None:
    assert made(LEASES, spec={"leaseDurationSeconds": 15, "leaseTransitions": 0})
    assert wrong(LEASES, {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}) == (
        FieldCause("spec.leaseDurationSeconds", "Invalid value: 0: must be greater than 0"),
        FieldCause("spec.leaseTransitions", "Invalid value: -1: must be greater than or equal to 0"),
    )


def event(namespace: str, about: str) -> Body:
    return {"metadata": {"name": "a", "namespace": namespace}, "involvedObject": {"kind": "Job", "namespace": about}}


def test_an_event_stands_where_the_object_is() -> None:
    assert wrong(EVENTS, event("team-a", "team-a")) == ()
    assert wrong(EVENTS, event("default", "")) == ()
    assert wrong(EVENTS, event("team-a", "team-b")) == (
        FieldCause("involvedObject.namespace", 'Invalid value: "team-b": does not match event.namespace'),
    )
    assert wrong(EVENTS, event("team-a", "")) == (
        FieldCause("involvedObject.namespace", 'Invalid value: "": does not match event.namespace'),
    )


def test_a_namespace_is_active_and_labelled_with_its_name() -> None:
    namespace = made(NAMESPACES)
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
    assert namespace["status"] == {"phase": "Active"}


def test_a_service_without_an_address_stays_without() -> None:
    service = made(SERVICES, spec={"clusterIP": "None"})
    assert service["spec"] == {"type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "None"}
