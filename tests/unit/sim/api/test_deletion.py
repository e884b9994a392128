"""Deletes: grace, finalizers, preconditions, and the changes that follow. Measured on kube-apiserver 1.36.3."""

import pytest

from recovery.ports import EVENTS, JOB_SETS, JOBS, PODS, PatchKind, Propagation, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from tests.unit.sim.api.servers import TEAM, SetClock, made, meta, named, pod, serving


def changes_of(server: ApiServer) -> list[str]:
    told: list[str] = []
    server.subscribe(lambda change: told.append(change.type))
    return told


def running(server: ApiServer, name: str = "rank-0", *, phase: str = "Running", **metadata: object) -> Body:
    """A pod on a node, with 30 s of grace."""
    made(server, PODS, pod(name, node="n1", **metadata))
    patch = {"status": {"phase": phase}}
    return server.patch(PODS, name, patch, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")


def delete(server: ApiServer, grace_seconds: int | None = None, name: str = "rank-0") -> Body:
    return server.delete(PODS, name, namespace=TEAM, grace_seconds=grace_seconds)


def grace_of(body: Body) -> tuple[str, int]:
    """The time of day of the deletionTimestamp, and the grace period."""
    return meta(body)["deletionTimestamp"][11:], meta(body)["deletionGracePeriodSeconds"]


def test_a_grace_of_more_than_292_years_wraps_around_in_the_servers_int64_of_nanoseconds() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    running(server)
    running(server, "rank-1")
    far, past = delete(server, 10**11), delete(server, 10**10, "rank-1")
    assert (meta(far)["deletionTimestamp"][:4], meta(far)["deletionGracePeriodSeconds"]) == ("2272", 10**11)
    assert (meta(past)["deletionTimestamp"][:4], meta(past)["deletionGracePeriodSeconds"]) == ("1759", 10**10)
    clock.seconds = 5
    # The shorter grace counts from the first delete. The wrap leaves a fraction of a second, which is cut off.
    assert grace_of(delete(server, 30)) == ("08:00:29Z", 30)


def test_an_object_without_finalizers_is_gone_at_once() -> None:
    server = serving()
    body = made(server, JOB_SETS, named("llm"))
    told: list[ObjectChange] = []
    server.subscribe(told.append)
    answer = server.delete(JOB_SETS, "llm", namespace=TEAM)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert server.find(JOB_SETS, "llm", TEAM) is None
    assert [change.type for change in told] == ["DELETED"]
    assert told[0].before is body
    assert meta(told[0].body)["uid"] == meta(body)["uid"]
    assert meta(told[0].body)["resourceVersion"] == str(told[0].revision) == str(server.revision)


def test_finalizers_keep_an_object_until_the_last_is_removed() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    made(server, JOB_SETS, named("llm", finalizers=["a", "b"]))
    clock.seconds = 5.5
    body = server.delete(JOB_SETS, "llm", namespace=TEAM)
    assert grace_of(body) == ("08:00:05Z", 0)
    assert meta(body)["generation"] == 2
    clock.seconds = 9
    assert server.delete(JOB_SETS, "llm", namespace=TEAM) is body
    told = changes_of(server)
    for left in (["b"], []):
        patch = {"metadata": {"finalizers": left}}
        server.patch(JOB_SETS, "llm", patch, kind=PatchKind.MERGE, namespace=TEAM)
    assert told == ["MODIFIED", "DELETED"]
    assert server.find(JOB_SETS, "llm", TEAM) is None


def test_while_it_is_deleted_finalizers_may_go_but_not_come() -> None:
    server = serving()
    made(server, JOB_SETS, named("llm", finalizers=["a"]))
    server.delete(JOB_SETS, "llm", namespace=TEAM)
    patch = {"metadata": {"finalizers": ["a", "b"]}}
    with pytest.raises(StatusError, match="no new finalizers can be added") as refused:
        server.patch(JOB_SETS, "llm", patch, kind=PatchKind.MERGE, namespace=TEAM)
    assert (refused.value.code, refused.value.causes[0].reason) == (422, "FieldValueForbidden")


def test_an_update_cannot_undo_a_deletion() -> None:
    server = serving()
    made(server, JOB_SETS, named("llm", finalizers=["a"]))
    body = server.delete(JOB_SETS, "llm", namespace=TEAM)
    undo = {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}}
    assert server.patch(JOB_SETS, "llm", undo, kind=PatchKind.MERGE, namespace=TEAM) is body


def test_a_name_is_taken_until_its_object_is_gone() -> None:
    server = serving()
    first = made(server, JOB_SETS, named("llm", finalizers=["a"]))
    server.delete(JOB_SETS, "llm", namespace=TEAM)
    with pytest.raises(StatusError, match=r"^object is being deleted: jobsets\.jobset\.x-k8s\.io") as refused:
        made(server, JOB_SETS, named("llm"))
    assert refused.value.reason == "AlreadyExists"
    server.patch(JOB_SETS, "llm", {"metadata": {"finalizers": None}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert meta(made(server, JOB_SETS, named("llm")))["uid"] != meta(first)["uid"]


@pytest.mark.parametrize(
    ("resource", "propagation", "finalizers"),
    [
        (JOB_SETS, None, None),
        (JOB_SETS, Propagation.BACKGROUND, None),
        (JOB_SETS, Propagation.FOREGROUND, ["foregroundDeletion"]),
        (JOBS, Propagation.FOREGROUND, ["foregroundDeletion"]),
        (JOBS, Propagation.BACKGROUND, None),
        # Job is the one kind whose deletion orphans dependants by default. The real server does so for batch/v1.
        (JOBS, None, ["orphan"]),
        (EVENTS, None, None),
    ],
)
def test_propagation(resource: Resource, propagation: Propagation | None, finalizers: list[str] | None) -> None:
    """`finalizers` None: the object is gone."""
    server = serving()
    made(server, resource, named("x"))
    server.delete(resource, "x", namespace=TEAM, propagation=propagation)
    body = server.find(resource, "x", TEAM)
    assert (body and meta(body)["finalizers"]) == finalizers


def test_a_later_delete_may_ask_for_another_propagation() -> None:
    server = serving()
    made(server, JOBS, named("job", finalizers=["a"]))
    for propagation, finalizers in (
        (None, ["a", "orphan"]),
        (Propagation.FOREGROUND, ["a", "foregroundDeletion"]),
        (None, ["a", "foregroundDeletion"]),
        (Propagation.BACKGROUND, ["a"]),
    ):
        body = server.delete(JOBS, "job", namespace=TEAM, propagation=propagation)
        assert meta(body)["finalizers"] == finalizers
    assert meta(body)["generation"] == 2


@pytest.mark.parametrize(
    ("uid", "version", "words"),
    [("another", None, "the UID in the precondition"), (None, "1", "the ResourceVersion in the precondition")],
)
def test_preconditions(uid: str | None, version: str | None, words: str) -> None:
    server = serving()
    body = made(server, JOBS, named("job"))
    with pytest.raises(StatusError, match=words) as refused:
        server.delete(JOBS, "job", namespace=TEAM, uid=uid, resource_version=version)
    assert (refused.value.code, refused.value.reason, refused.value.kind) == (409, "Conflict", "Job")
    assert server.find(JOBS, "job", TEAM) is body
    server.delete(
        JOBS,
        "job",
        namespace=TEAM,
        uid=meta(body)["uid"],
        resource_version=meta(body)["resourceVersion"],
        propagation=Propagation.BACKGROUND,
    )
    assert server.find(JOBS, "job", TEAM) is None


def test_a_pod_gets_its_grace_and_goes_with_the_delete_of_its_kubelet() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    running(server)
    told = changes_of(server)
    clock.seconds = 10
    body = delete(server)
    assert grace_of(body) == ("08:00:40Z", 30)
    assert meta(body)["generation"] == 2
    clock.seconds = 12.5
    last = delete(server, 0)
    assert told == ["MODIFIED", "MODIFIED", "DELETED"]
    assert server.find(PODS, "rank-0", TEAM) is None
    assert grace_of(last) == ("08:00:12Z", 0)


def test_the_last_delete_of_a_kubelet_dates_the_deletion_of_a_pod_that_stays_again() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    running(server, finalizers=["batch.kubernetes.io/job-tracking"])
    delete(server)
    clock.seconds = 5
    body = delete(server, 0)
    assert grace_of(body) == ("08:00:05Z", 0)
    clock.seconds = 7
    assert delete(server, 0) is body
    server.patch(PODS, "rank-0", {"metadata": {"finalizers": None}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert server.find(PODS, "rank-0", TEAM) is None


def test_finalizers_that_go_while_the_grace_lasts_do_not_remove_a_pod() -> None:
    server = serving()
    running(server, finalizers=["a"])
    delete(server)
    server.patch(PODS, "rank-0", {"metadata": {"finalizers": None}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert server.find(PODS, "rank-0", TEAM) is not None
    delete(server, 0)
    assert server.find(PODS, "rank-0", TEAM) is None


def test_a_grace_can_be_shortened_but_not_lengthened() -> None:
    clock = SetClock()
    server = serving(clock=clock)
    running(server)
    first = delete(server)
    clock.seconds = 2
    for longer in (None, 30, 40):
        assert delete(server, longer) is first
    shorter = delete(server, 10)
    assert grace_of(shorter) == ("08:00:10Z", 10)
    assert meta(shorter)["generation"] == 2
    clock.seconds = 6
    # The shorter grace is over already. The pod gets one more second, so its kubelet still sees the change.
    assert grace_of(delete(server, 3)) == ("08:00:06Z", 1)
    assert server.find(PODS, "rank-0", TEAM) is not None


@pytest.mark.parametrize(("phase", "node"), [("Pending", ""), ("Succeeded", "n1"), ("Failed", "n1")])
def test_a_pod_that_runs_nowhere_is_gone_at_once(phase: str, node: str) -> None:
    server = serving()
    made(server, PODS, pod("rank-0", node=node))
    patch = {"status": {"phase": phase}}
    server.patch(PODS, "rank-0", patch, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")
    told = changes_of(server)
    delete(server)
    assert told == ["MODIFIED", "DELETED"]


def test_a_negative_grace_is_a_second_and_a_grace_of_none_is_told_in_two_steps() -> None:
    server = serving()
    running(server)
    assert grace_of(delete(server, -5)) == ("08:00:01Z", 1)
    running(server, "rank-1")
    told = changes_of(server)
    assert grace_of(delete(server, 0, "rank-1")) == ("08:00:00Z", 0)
    assert told == ["MODIFIED", "DELETED"]


def test_a_pod_of_the_foreground_keeps_its_grace_and_waits_for_the_collector() -> None:
    server = serving()
    running(server)
    body = server.delete(PODS, "rank-0", namespace=TEAM, propagation=Propagation.FOREGROUND)
    assert meta(body)["finalizers"] == ["foregroundDeletion"]
    assert grace_of(body) == ("08:00:30Z", 30)


def test_what_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(StatusError) as refused:
        serving().delete(PODS, "rank-0", namespace=TEAM)
    assert (refused.value.code, refused.value.name) == (404, "rank-0")
