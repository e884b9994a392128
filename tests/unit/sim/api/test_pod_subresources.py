"""Bindings and evictions."""

import pytest

from recovery.ports import JOBS, PODS, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from tests.unit.sim.api.servers import TEAM, SetClock, made, meta, named, pod, serving


def bind(server: ApiServer, node: str, **metadata: str) -> Body:
    binding = {"metadata": {"name": "rank-0", **metadata}, "target": {"kind": "Node", "name": node}}
    return server.create(PODS, binding, namespace=TEAM, name="rank-0", subresource="binding")


def evict(server: ApiServer, **options: object) -> Body:
    eviction = {"metadata": {"name": "rank-0"}, "deleteOptions": options}
    return server.create(PODS, eviction, namespace=TEAM, name="rank-0", subresource="eviction")


def conditions_of(body: Body) -> dict[str, tuple[str, str, str]]:
    """Status, reason and time of day, by type."""
    return {
        condition["type"]: (condition["status"], condition.get("reason", ""), condition["lastTransitionTime"][11:])
        for condition in body["status"]["conditions"]
    }


def test_a_binding_puts_the_pod_on_its_node() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    made(server, PODS, pod("rank-0"))
    clock.seconds = 3
    assert bind(server, "n1")["status"] == "Success"
    body = server.get(PODS, "rank-0", namespace=TEAM)
    assert body["spec"]["nodeName"] == "n1"
    assert conditions_of(body) == {"PodScheduled": ("True", "", "08:00:03Z")}
    assert meta(body)["generation"] == 1


def test_it_is_bound_once() -> None:
    server = serving()
    made(server, PODS, pod("rank-0"))
    bind(server, "n1")
    with pytest.raises(StatusError, match='is already assigned to node "n1"') as refused:
        bind(server, "n2")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert server.get(PODS, "rank-0", namespace=TEAM)["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("spec", "uid", "words"),
    [
        ({}, "another", "UID in precondition: another"),
        ({"schedulingGates": [{"name": "wait"}]}, "", "non-empty .spec.schedulingGates"),
    ],
)
def test_a_binding_is_refused(spec: Body, uid: str, words: str) -> None:
    server = serving()
    made(server, PODS, {"metadata": {"name": "rank-0"}, "spec": spec})
    with pytest.raises(StatusError, match=words) as refused:
        bind(server, "n1", uid=uid)
    assert refused.value.code == 409


def test_a_pod_that_is_being_deleted_is_not_bound() -> None:
    server = serving()
    made(server, PODS, pod("rank-0", finalizers=["a"]))
    server.delete(PODS, "rank-0", namespace=TEAM)
    with pytest.raises(StatusError, match="is being deleted") as refused:
        bind(server, "n1")
    assert refused.value.code == 409


def test_an_eviction_says_why_and_then_deletes_with_the_pods_own_grace() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    made(server, PODS, pod("rank-0", node="n1"))
    told: list[bool] = []
    server.subscribe(lambda change: told.append("deletionTimestamp" in change.body["metadata"]))
    clock.seconds = 4
    assert evict(server)["status"] == "Success"
    body = server.get(PODS, "rank-0", namespace=TEAM)
    assert conditions_of(body) == {"DisruptionTarget": ("True", "EvictionByEvictionAPI", "08:00:04Z")}
    assert meta(body)["deletionGracePeriodSeconds"] == 30
    assert told == [False, True]


def test_a_condition_that_stands_is_not_dated_again() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    made(server, PODS, pod("rank-0", node="n1"))
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-11-02T07:00:00Z"}
    patch = {"status": {"conditions": [condition]}}
    server.patch(PODS, "rank-0", patch, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")
    evict(server)
    body = server.get(PODS, "rank-0", namespace=TEAM)
    assert conditions_of(body) == {"DisruptionTarget": ("True", "EvictionByEvictionAPI", "07:00:00Z")}


def test_an_eviction_takes_a_grace_and_preconditions_of_its_own() -> None:
    server = serving()
    made(server, PODS, pod("rank-0", node="n1"))
    with pytest.raises(StatusError, match="the UID in the precondition"):
        evict(server, preconditions={"uid": "another"})
    assert "status" not in server.get(PODS, "rank-0", namespace=TEAM)
    evict(server, gracePeriodSeconds=0)
    assert server.find(PODS, "rank-0", TEAM) is None


@pytest.mark.parametrize("subresource", ["binding", "scale"])
def test_there_are_no_others(subresource: str) -> None:
    server = serving()
    made(server, JOBS, named("job"))
    with pytest.raises(StatusError) as refused:
        server.create(JOBS, {"target": {"name": "n1"}}, namespace=TEAM, name="job", subresource=subresource)
    assert (refused.value.code, refused.value.name) == (404, "")
