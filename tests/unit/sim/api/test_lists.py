"""Lists: selectors, pages, and the revision that they show."""

import pytest

from recovery.ports import EVENTS, JOB_SETS, JOBS, NODES, PODS, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from tests.unit.sim.api.servers import TEAM, made, meta, named, pod, serving


def names(page: Body) -> list[str]:
    return [meta(item)["name"] for item in page["items"]]


def test_a_list_says_what_it_is_and_of_which_revision() -> None:
    server = serving()
    made(server, JOB_SETS, named("b"))
    made(server, JOB_SETS, named("a"))
    page = server.list(JOB_SETS, namespace=TEAM)
    assert (page["kind"], page["apiVersion"]) == ("JobSetList", "jobset.x-k8s.io/v1alpha2")
    assert page["metadata"] == {"resourceVersion": str(server.revision)}
    assert names(page) == ["a", "b"]


def test_items_of_built_in_kinds_do_not_say_what_they_are() -> None:
    server = serving()
    for resource in (PODS, JOB_SETS):
        made(server, resource, named("x"))
    assert "kind" not in server.list(PODS)["items"][0]
    assert "apiVersion" not in server.list(PODS)["items"][0]
    assert server.list(JOB_SETS)["items"][0]["kind"] == "JobSet"


def test_a_list_is_of_one_namespace_or_of_all() -> None:
    server = serving()
    for namespace in ("b", "a"):
        server.create(PODS, pod("x"), namespace=namespace)
    assert [meta(item)["namespace"] for item in server.list(PODS)["items"]] == ["a", "b"]
    assert [meta(item)["namespace"] for item in server.list(PODS, namespace="b")["items"]] == ["b"]
    server.create(NODES, named("n1"))
    assert names(server.list(NODES)) == ["n1"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", ["bare", "blue", "red"]),
        ("color=red", ["red"]),
        ("color==red", ["red"]),
        ("color!=red", ["bare", "blue"]),
        ("color in (red, blue)", ["blue", "red"]),
        ("color notin (red,blue)", ["bare"]),
        ("color", ["blue", "red"]),
        ("!color", ["bare"]),
        ("color in (red,blue),size=2", ["blue"]),
        ("example.com/x.y", []),
    ],
)
def test_label_selectors(selector: str, found: list[str]) -> None:
    server = serving()
    made(server, PODS, pod("red", labels={"color": "red", "size": "1"}))
    made(server, PODS, pod("blue", labels={"color": "blue", "size": "2"}))
    made(server, PODS, pod("bare"))
    assert names(server.list(PODS, label_selector=selector)) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=bound", ["bound"]),
        ("metadata.name!=bound", ["free"]),
        (f"metadata.namespace={TEAM}", ["bound", "free"]),
        ("spec.nodeName=n1", ["bound"]),
        ("spec.nodeName!=", ["bound"]),
        ("spec.nodeName=", ["free"]),
        ("status.phase=Running,spec.nodeName==n1", ["bound"]),
        ("status.phase=Running,spec.nodeName=n2", []),
    ],
)
def test_field_selectors(selector: str, found: list[str]) -> None:
    server = serving()
    made(server, PODS, pod("bound", node="n1"))
    made(server, PODS, pod("free"))
    patch = {"status": {"phase": "Running"}}
    server.patch(PODS, "bound", patch, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")
    assert names(server.list(PODS, field_selector=selector)) == found


def test_events_are_found_by_what_they_are_about() -> None:
    server = serving()
    for uid, reason in (("1", "Killing"), ("2", "Killing"), ("1", "FailedCreate")):
        body = {"metadata": {"generateName": "e-"}, "involvedObject": {"uid": uid}, "reason": reason}
        made(server, EVENTS, body)
    found = server.list(EVENTS, field_selector="involvedObject.uid=1,reason=FailedCreate")["items"]
    assert [(event["involvedObject"]["uid"], event["reason"]) for event in found] == [("1", "FailedCreate")]


@pytest.mark.parametrize("selector", ["spec.replicas=1", "spec.nodeName"])
def test_a_field_that_cannot_be_selected_by_is_a_bad_request(selector: str) -> None:
    with pytest.raises(StatusError) as refused:
        serving().list(JOBS, field_selector=selector)
    assert refused.value.code == 400


@pytest.mark.parametrize("selector", ["a b", "!"])
def test_a_label_selector_that_cannot_be_read_is_a_bad_request(selector: str) -> None:
    with pytest.raises(StatusError, match="unable to parse requirement") as refused:
        serving().list(JOBS, label_selector=selector)
    assert refused.value.code == 400


def five(server: ApiServer) -> None:
    for number in range(5):
        made(server, PODS, pod(f"p{number}", labels={"a": "b"}))


def test_pages_show_the_revision_of_the_first_whatever_happens_in_between() -> None:
    server = serving()
    five(server)
    first = server.list(PODS, limit=2)
    revision = first["metadata"]["resourceVersion"]
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["p0", "p1"], 3)
    server.delete(PODS, "p3", namespace=TEAM)
    server.delete(PODS, "p4", namespace=TEAM)
    made(server, PODS, pod("p4"))
    made(server, PODS, pod("p9"))
    server.patch(PODS, "p2", {"metadata": {"labels": {"a": "c"}}}, kind=PatchKind.MERGE, namespace=TEAM)
    second = server.list(PODS, limit=2, continue_token=first["metadata"]["continue"])
    third = server.list(PODS, limit=2, continue_token=second["metadata"]["continue"])
    assert names(second) + names(third) == ["p2", "p3", "p4"]
    assert meta(second["items"][0])["labels"] == {"a": "b"}
    assert meta(third["items"][0])["labels"] == {"a": "b"}
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {revision}
    assert "continue" not in third["metadata"]
    assert names(server.list(PODS)) == ["p0", "p1", "p2", "p4", "p9"]


def test_a_page_with_selectors_does_not_say_how_many_remain() -> None:
    server = serving()
    five(server)
    page = server.list(PODS, label_selector="a=b", limit=2)
    assert "continue" in page["metadata"]
    assert "remainingItemCount" not in page["metadata"]


def test_a_page_of_a_forgotten_revision_is_expired() -> None:
    server = serving()
    five(server)
    token = server.list(PODS, limit=2)["metadata"]["continue"]
    server.compact()
    assert names(server.list(PODS, limit=2, continue_token=token)) == ["p2", "p3"]
    made(server, PODS, pod("p9"))
    server.compact()
    with pytest.raises(StatusError) as refused:
        server.list(PODS, limit=2, continue_token=token)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_a_list_from_the_cache_is_never_cut() -> None:
    server = serving()
    five(server)
    page = server.list(PODS, limit=2, resource_version="0")
    assert len(page["items"]) == 5
    assert "continue" not in page["metadata"]


def test_a_list_at_a_revision_that_was_not_given_out_is_asked_to_wait() -> None:
    server = serving()
    assert server.list(PODS, resource_version=str(server.revision))["items"] == []
    with pytest.raises(StatusError, match="Too large resource version: 99") as refused:
        server.list(PODS, resource_version="99")
    assert (refused.value.code, refused.value.reason, refused.value.retry_after_seconds) == (504, "Timeout", 1)


@pytest.mark.parametrize(("version", "token"), [("abc", ""), (None, "not a token"), ("1", "eyJydiI6MX0=")])
def test_versions_and_tokens_that_cannot_be_read_are_bad_requests(version: str | None, token: str) -> None:
    with pytest.raises(StatusError) as refused:
        serving().list(PODS, resource_version=version, continue_token=token)
    assert refused.value.code == 400
