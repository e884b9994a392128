"""The three patches, as the API server and the libraries that it uses apply them."""

from typing import Any

import pytest

from recovery.ports import JOB_SETS, JOBS, PODS, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.patches import patched
from recovery.sim.api.status_error import StatusError
from tests.unit.sim.api.servers import TEAM, made, meta, named, pod, serving


def json_patched(body: Body, *operations: Body) -> Body:
    return patched(body, list(operations), PatchKind.JSON)


@pytest.mark.parametrize(
    ("operation", "after"),
    [
        ({"op": "add", "path": "/a/c", "value": 2}, {"a": {"b": 1, "c": 2}, "l": [1, 2]}),
        ({"op": "add", "path": "/l/1", "value": 9}, {"a": {"b": 1}, "l": [1, 9, 2]}),
        ({"op": "add", "path": "/l/-", "value": 9}, {"a": {"b": 1}, "l": [1, 2, 9]}),
        ({"op": "add", "path": "/l/2", "value": 9}, {"a": {"b": 1}, "l": [1, 2, 9]}),
        ({"op": "remove", "path": "/a/b"}, {"a": {}, "l": [1, 2]}),
        ({"op": "remove", "path": "/l/0"}, {"a": {"b": 1}, "l": [2]}),
        ({"op": "replace", "path": "/a/b", "value": [3]}, {"a": {"b": [3]}, "l": [1, 2]}),
        ({"op": "replace", "path": "/l/1", "value": 9}, {"a": {"b": 1}, "l": [1, 9]}),
        ({"op": "move", "from": "/a/b", "path": "/b"}, {"a": {}, "l": [1, 2], "b": 1}),
        ({"op": "copy", "from": "/l/0", "path": "/a/c"}, {"a": {"b": 1, "c": 1}, "l": [1, 2]}),
        ({"op": "add", "path": "/a/x~1y~0z", "value": 2}, {"a": {"b": 1, "x/y~z": 2}, "l": [1, 2]}),
    ],
)
def test_json_operations(operation: Body, after: Body) -> None:
    before: Body = {"a": {"b": 1}, "l": [1, 2]}
    assert json_patched(before, operation) == after
    assert before == {"a": {"b": 1}, "l": [1, 2]}


def test_replacing_a_key_that_is_not_there_adds_it_as_on_the_real_server() -> None:
    assert json_patched({"a": {}}, {"op": "replace", "path": "/a/b", "value": 1}) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/b", "value": 2},
        {"op": "test", "path": "/a/b", "value": True},
        {"op": "test", "path": "/a/zz", "value": 1},
        {"op": "test", "path": "/zz/b", "value": None},
        {"op": "remove", "path": "/a/zz"},
        {"op": "remove", "path": "/zz/b"},
        {"op": "replace", "path": "/zz/b", "value": 1},
        {"op": "add", "path": "/zz/b", "value": 1},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "replace", "path": "/l/2", "value": 1},
        {"op": "move", "from": "/a/zz", "path": "/b"},
        {"op": "move", "path": "/b"},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "ad", "path": "/a/b", "value": 1},
    ],
)
def test_an_operation_that_does_not_apply_fails_the_patch_without_saying_which(operation: Body) -> None:
    with pytest.raises(StatusError) as refused:
        json_patched({"a": {"b": 1}, "l": [1, 2]}, {"op": "add", "path": "/c", "value": 1}, operation)
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert (refused.value.kind, refused.value.name, refused.value.causes) == ("", "", ())


def test_a_test_holds_for_equal_values_and_for_null_where_a_key_is_absent() -> None:
    body: Body = {"a": {"b": 1}, "l": [{"c": None}]}
    operations: list[Body] = [
        {"op": "test", "path": "/a", "value": {"b": 1}},
        {"op": "test", "path": "/l/0/c", "value": None},
        {"op": "test", "path": "/a/zz", "value": None},
    ]
    assert json_patched(body, *operations) is body


def test_a_whole_annotation_map_is_needed_before_one_can_be_added() -> None:
    server = serving()
    made(server, JOBS, named("job"))
    add = [{"op": "add", "path": "/metadata/annotations/a", "value": "b"}]
    with pytest.raises(StatusError):
        server.patch(JOBS, "job", add, kind=PatchKind.JSON, namespace=TEAM)


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        ({"a": {"c": 2}}, {"a": {"b": 1, "c": 2}, "l": [1, 2]}),
        ({"a": None}, {"l": [1, 2]}),
        ({"l": [3]}, {"a": {"b": 1}, "l": [3]}),
        ({"a": 5}, {"a": 5, "l": [1, 2]}),
        ({"l": {"x": {"y": None, "z": 1}}}, {"a": {"b": 1}, "l": {"x": {"z": 1}}}),
    ],
)
def test_merge_patches(patch: Body, after: Body) -> None:
    before: Body = {"a": {"b": 1}, "l": [1, 2]}
    assert patched(before, patch, PatchKind.MERGE) == after
    assert before == {"a": {"b": 1}, "l": [1, 2]}


@pytest.mark.parametrize("kind", [PatchKind.MERGE, PatchKind.JSON])
def test_what_is_no_patch_is_a_bad_request(kind: PatchKind) -> None:
    with pytest.raises(StatusError) as refused:
        patched({}, "text", kind)
    assert refused.value.code == 400


def ready(status: str, **more: str) -> Body:
    return {"type": "Ready", "status": status, **more}


SCHEDULED = {"type": "PodScheduled", "status": "True"}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        (
            {"conditions": [SCHEDULED, ready("False", reason="x")]},
            {"conditions": [ready("True"), {"type": "New", "status": "True"}]},
            {"conditions": [SCHEDULED, ready("True", reason="x"), {"type": "New", "status": "True"}]},
        ),
        (
            {"conditions": [SCHEDULED, ready("True")]},
            {"conditions": [{"type": "Ready", "$patch": "delete"}]},
            {"conditions": [SCHEDULED]},
        ),
        (
            {"conditions": [SCHEDULED]},
            {"conditions": [{"$patch": "replace"}, ready("True")]},
            {"conditions": [ready("True")]},
        ),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, {"finalizers": ["a", "b", "c"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
        ({"containerStatuses": [{"name": "a"}]}, {"containerStatuses": []}, {"containerStatuses": []}),
        (
            {"ownerReferences": [{"uid": "1", "name": "a"}]},
            {"ownerReferences": [{"uid": "1", "controller": True}]},
            {"ownerReferences": [{"uid": "1", "name": "a", "controller": True}]},
        ),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}),
        ({"a": {"b": 1}, "c": 1}, {"a": {"$patch": "delete"}, "c": None}, {}),
        ({}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
    ],
)
def test_strategic_patches(before: Body, patch: Body, after: Body) -> None:
    assert patched(before, patch, PatchKind.STRATEGIC) == after


def test_an_item_without_what_tells_it_apart_is_a_bad_request() -> None:
    with pytest.raises(StatusError, match="does not contain declared merge key: type") as refused:
        patched({}, {"conditions": [{"status": "True"}]}, PatchKind.STRATEGIC)
    assert refused.value.code == 400


def test_custom_resources_know_no_strategic_patch() -> None:
    server = serving()
    made(server, JOB_SETS, named("llm"))
    with pytest.raises(StatusError) as refused:
        server.patch(JOB_SETS, "llm", {"spec": {"size": 2}}, kind=PatchKind.STRATEGIC, namespace=TEAM)
    assert refused.value.code == 415


@pytest.mark.parametrize(
    ("patch", "kind"),
    [
        ([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}], PatchKind.JSON),
        ({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}}, PatchKind.MERGE),
        ({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}}, PatchKind.STRATEGIC),
    ],
)
@pytest.mark.parametrize("subresource", ["", "status"])
def test_a_version_in_a_patch_is_a_precondition(patch: Any, kind: PatchKind, subresource: str) -> None:
    server = serving()
    made(server, PODS, pod("rank-0"))
    with pytest.raises(StatusError) as refused:
        server.patch(PODS, "rank-0", patch, kind=kind, namespace=TEAM, subresource=subresource)
    assert (refused.value.code, refused.value.reason, refused.value.name) == (409, "Conflict", "rank-0")


def test_the_version_that_is_there_lets_a_patch_through() -> None:
    server = serving()
    version = meta(made(server, JOBS, named("job")))["resourceVersion"]
    patch = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/suspend", "value": True},
    ]
    assert server.patch(JOBS, "job", patch, kind=PatchKind.JSON, namespace=TEAM)["spec"]["suspend"] is True
    with pytest.raises(StatusError) as refused:
        server.patch(JOBS, "job", {"metadata": {"resourceVersion": "abc"}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert refused.value.code == 500
