"""What models read from the server without a request."""

import asyncio

import pytest

from recovery.ports import JOB_SETS, JOBS, NODES, PODS, PatchKind
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.api.servers import TEAM, made, meta, named, pod, serving


def test_each_change_is_told_at_once_and_in_order() -> None:
    server = serving()
    told: list[ObjectChange] = []
    server.subscribe(told.append)
    first = made(server, PODS, pod("a"))
    second = server.patch(PODS, "a", {"spec": {"x": 1}}, kind=PatchKind.MERGE, namespace=TEAM)
    server.delete(PODS, "a", namespace=TEAM)
    assert [change.type for change in told] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert [change.revision for change in told] == [2, 3, 4, 5]
    assert told[0].before is None
    assert told[1].before is first
    assert told[1].body is second
    assert {change.resource for change in told} == {PODS}


def test_who_asks_for_some_kinds_hears_of_those_in_the_order_of_asking() -> None:
    server = serving()
    told: list[tuple[str, str]] = []
    server.subscribe(lambda change: told.append(("jobs", change.resource.kind)), JOBS, JOB_SETS)
    server.subscribe(lambda change: told.append(("all", change.resource.kind)))
    server.subscribe(lambda change: told.append(("pods", change.resource.kind)), PODS)
    made(server, PODS, pod("a"))
    made(server, JOB_SETS, named("b"))
    assert told == [("all", "Pod"), ("pods", "Pod"), ("jobs", "JobSet"), ("all", "JobSet")]


def test_a_refused_write_is_not_told() -> None:
    server = serving()
    made(server, PODS, pod("a"))
    told: list[ObjectChange] = []
    server.subscribe(told.append)
    with pytest.raises(StatusError):
        made(server, PODS, pod("a"))
    assert told == []


def test_who_is_told_must_not_write() -> None:
    server = serving()

    def write(change: ObjectChange) -> None:
        made(server, JOBS, named("job"))

    server.subscribe(write, PODS)
    with pytest.raises(AssertionError, match="must not write"):
        made(server, PODS, pod("a"))


def test_changes_carry_their_actor() -> None:
    server = serving()
    actors: list[str] = []
    server.subscribe(lambda change: actors.append(change.actor))
    with server.acting("job-controller"):
        made(server, PODS, pod("a"))
        with server.acting("kubelet"):
            made(server, PODS, pod("b"))
        made(server, PODS, pod("c"))
    made(server, PODS, pod("d"))
    assert actors == ["job-controller", "kubelet", "job-controller", ""]


@virtual_time
async def test_an_actor_is_a_tasks_own_also_while_it_waits() -> None:
    server = serving()
    actors: list[tuple[str, str]] = []
    server.subscribe(lambda change: actors.append((meta(change.body)["name"], change.actor)))

    async def act(actor: str, seconds: float) -> None:
        with server.acting(actor):
            await asyncio.sleep(seconds)
            made(server, PODS, pod(actor))

    await asyncio.gather(act("late", 2), act("early", 1))
    assert actors == [("early", "early"), ("late", "late")]


def test_objects_come_in_the_order_in_which_they_were_made() -> None:
    server = serving()
    for name in ("c", "a", "b"):
        made(server, PODS, pod(name))
    server.create(PODS, pod("x"), namespace="team-b")
    server.patch(PODS, "c", {"spec": {"x": 1}}, kind=PatchKind.MERGE, namespace=TEAM)
    server.delete(PODS, "a", namespace=TEAM)
    made(server, PODS, pod("a"))
    assert [meta(body)["name"] for body in server.objects(PODS)] == ["c", "b", "x", "a"]
    assert [meta(body)["name"] for body in server.objects(PODS, TEAM)] == ["c", "b", "a"]


def test_objects_may_be_deleted_while_going_through_them() -> None:
    server = serving()
    for name in ("a", "b", "c"):
        made(server, PODS, pod(name))
    for body in server.objects(PODS):
        server.delete(PODS, meta(body)["name"], namespace=TEAM)
    assert list(server.objects(PODS)) == []


def test_finding_costs_no_error() -> None:
    server = serving()
    body = server.create(NODES, named("n1"))
    assert server.find(NODES, "n1") is body
    assert server.find(NODES, "n2") is None
    assert server.find(PODS, "n1", TEAM) is None


def owned(*uids: str) -> list[dict[str, str]]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": uid, "uid": uid} for uid in uids]


def test_dependants_are_found_by_the_uid_of_their_owner() -> None:
    server = serving()
    made(server, PODS, pod("free"))
    made(server, JOBS, named("job", ownerReferences=owned("1")))
    made(server, PODS, pod("both", ownerReferences=owned("2", "1")))
    adopted = {"metadata": {"ownerReferences": owned("1")}}
    server.patch(PODS, "free", adopted, kind=PatchKind.MERGE, namespace=TEAM)
    assert [meta(body)["name"] for body in server.dependants("1")] == ["free", "job", "both"]
    assert [meta(body)["name"] for body in server.dependants("2")] == ["both"]
    server.patch(PODS, "both", adopted, kind=PatchKind.MERGE, namespace=TEAM)
    assert list(server.dependants("2")) == []
    server.delete(PODS, "free", namespace=TEAM)
    assert [meta(body)["name"] for body in server.dependants("1")] == ["job", "both"]
    assert list(server.dependants("3")) == []


def test_a_body_says_of_which_resource_it_is() -> None:
    server = serving()
    assert server.resource_of(made(server, JOB_SETS, named("llm"))) is JOB_SETS
    with pytest.raises(StatusError):
        server.resource_of({"apiVersion": "v1", "kind": "Job"})
