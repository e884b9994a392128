"""Creates and updates: what the server writes into an object, and what it lets a client change."""

import pytest

from recovery.ports import EVENTS, JOB_SETS, JOBS, LEASES, NODES, PODS, PatchKind
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.status_error import FieldCause, StatusError
from recovery.sim.api.store import ObjectChange
from tests.unit.sim.api.servers import TEAM, SetClock, made, meta, named, pod, serving


def test_a_new_object_gets_identity_dates_and_numbers() -> None:
    clock = SetClock()
    clock.seconds = 1.9
    server = serving(clock=clock)
    body = made(server, JOB_SETS, named("llm"))
    assert (body["apiVersion"], body["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    metadata = meta(body)
    assert (metadata["name"], metadata["namespace"]) == ("llm", TEAM)
    assert metadata["creationTimestamp"] == "2026-11-02T08:00:01Z"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"] == str(server.revision)
    assert [len(part) for part in metadata["uid"].split("-")] == [8, 4, 4, 4, 12]
    assert server.get(JOB_SETS, "llm", namespace=TEAM) is body


def test_uids_differ_from_their_first_characters_on_and_revisions_count_over_all_kinds() -> None:
    server = serving()
    bodies = [made(server, JOBS, named(f"job-{number}")) for number in range(100)]
    bodies.append(made(server, PODS, pod("pod")))
    assert len({meta(body)["uid"][:8] for body in bodies}) == 101
    assert [int(meta(body)["resourceVersion"]) for body in bodies] == list(range(2, 103))


def test_what_only_the_server_writes_is_not_taken_from_a_create() -> None:
    server = serving()
    body = made(server, JOBS, named("job", uid="mine", generation=9, deletionTimestamp="2020-01-01T00:00:00Z"))
    assert meta(body)["uid"] != "mine"
    assert meta(body)["generation"] == 1
    assert "deletionTimestamp" not in meta(body)


def test_status_comes_with_its_own_write_only_but_nodes_bring_theirs() -> None:
    server = serving()
    assert "status" not in made(server, JOB_SETS, {**named("llm"), "status": {"restarts": 3}})
    node = server.create(NODES, {**named("n1"), "status": {"capacity": {"cpu": "1"}}})
    assert node["status"] == {"capacity": {"cpu": "1"}}
    event = made(server, EVENTS, {"metadata": {"name": "e"}, "reason": "Killing", "status": "none of a kind"})
    assert event["status"] == "none of a kind"


def test_empty_lists_and_maps_of_the_metadata_are_absent() -> None:
    server = serving()
    body = made(server, JOB_SETS, named("llm", labels={}, annotations={"a": "b"}, finalizers=[]))
    assert "labels" not in meta(body)
    assert "finalizers" not in meta(body)
    without = [{"op": "remove", "path": "/metadata/annotations/a"}]
    assert "annotations" not in meta(server.patch(JOB_SETS, "llm", without, kind=PatchKind.JSON, namespace=TEAM))


def test_a_generated_name_begins_as_asked_and_is_cut_to_what_a_label_may_hold() -> None:
    server = serving()
    names = [meta(made(server, PODS, {"metadata": {"generateName": "llm-node-0-3-"}}))["name"] for _ in range(50)]
    assert len(set(names)) == 50
    assert all(name.startswith("llm-node-0-3-") and len(name) == 18 for name in names)
    long = meta(made(server, PODS, {"metadata": {"generateName": "x" * 70 + "-"}}))["name"]
    assert len(long) == 63
    assert long.startswith("x" * 58)


@pytest.mark.parametrize(
    ("metadata", "code", "reason"),
    [
        ({}, 422, "Invalid"),
        ({"name": "job", "namespace": "team-b"}, 400, "BadRequest"),
        ({"name": "taken"}, 409, "AlreadyExists"),
        ({"name": "job", "resourceVersion": "5"}, 500, ""),
    ],
)
def test_a_create_is_refused(metadata: Body, code: int, reason: str) -> None:
    server = serving()
    made(server, JOBS, named("taken"))
    with pytest.raises(StatusError) as refused:
        server.create(JOBS, {"metadata": metadata}, namespace=TEAM)
    assert (refused.value.code, refused.value.reason) == (code, reason)
    assert len(list(server.objects(JOBS))) == 1


def test_refusals_name_what_they_are_about_as_the_real_ones_do() -> None:
    server = serving()
    made(server, JOBS, named("job"))
    with pytest.raises(StatusError, match=r'^jobs.batch "job" already exists$') as exists:
        made(server, JOBS, named("job"))
    assert (exists.value.kind, exists.value.name) == ("jobs", "job")
    with pytest.raises(StatusError, match=r'^pods "x" not found$') as missing:
        server.get(PODS, "x", namespace=TEAM)
    assert (missing.value.code, missing.value.kind, missing.value.name) == (404, "pods", "x")
    with pytest.raises(StatusError, match="could not find the requested resource") as unknown:
        serving(ServedKind(resource=PODS)).get(JOBS, "job", namespace=TEAM)
    assert (unknown.value.code, unknown.value.name) == (404, "")


def test_the_generation_rises_with_the_spec_alone() -> None:
    server = serving()
    made(server, JOBS, named("job"))

    def patch(patch: Body, subresource: str = "") -> int:
        body = server.patch(JOBS, "job", patch, kind=PatchKind.MERGE, namespace=TEAM, subresource=subresource)
        generation = meta(body)["generation"]
        assert isinstance(generation, int)
        return generation

    assert patch({"metadata": {"labels": {"a": "b"}}}) == 1
    assert patch({"status": {"active": 3}}, "status") == 1
    assert patch({"spec": {"size": 2}}) == 2
    assert patch({"spec": {"size": 2}}) == 2
    assert patch({"metadata": {"generation": 77}}) == 2


def test_a_write_that_changes_nothing_is_no_revision() -> None:
    server = serving()
    body = made(server, JOBS, named("job", labels={"a": "b"}))
    revision = server.revision
    for patch in ({}, {"spec": {"size": 1}}, {"metadata": {"labels": {"a": "b"}, "creationTimestamp": "x"}}):
        assert server.patch(JOBS, "job", patch, kind=PatchKind.MERGE, namespace=TEAM) is body
    assert server.replace(JOBS, {**body}, namespace=TEAM) is body
    assert server.revision == revision


def test_each_write_touches_its_own_half() -> None:
    server = serving()
    made(server, JOB_SETS, named("llm"))
    both = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 2}, "status": {"restarts": 1}}
    of_status = server.patch(JOB_SETS, "llm", both, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")
    assert (of_status["spec"], of_status["status"]) == ({"size": 1}, {"restarts": 1})
    assert "labels" not in meta(of_status)
    of_rest = server.patch(JOB_SETS, "llm", {**both, "status": {"restarts": 9}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert (of_rest["spec"], of_rest["status"]) == ({"size": 2}, {"restarts": 1})
    assert meta(of_rest)["labels"] == {"a": "b"}


def test_built_in_kinds_take_labels_with_their_status_but_no_owners() -> None:
    server = serving()
    made(server, PODS, pod("rank-0"))
    patch = {"metadata": {"labels": {"a": "b"}, "ownerReferences": [{"uid": "1"}]}, "status": {"phase": "Running"}}
    body = server.patch(PODS, "rank-0", patch, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")
    assert meta(body)["labels"] == {"a": "b"}
    assert "ownerReferences" not in meta(body)


def test_a_kind_without_status_has_no_such_subresource() -> None:
    server = serving()
    made(server, LEASES, named("leader"))
    with pytest.raises(StatusError) as refused:
        server.patch(LEASES, "leader", {"spec": {}}, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")
    assert refused.value.code == 404


def test_a_put_is_swapped_against_the_version_that_it_names() -> None:
    server = serving()
    read = made(server, JOBS, named("job"))
    server.replace(JOBS, {**read, "spec": {"size": 2}}, namespace=TEAM)
    with pytest.raises(StatusError, match="the object has been modified") as refused:
        server.replace(JOBS, {**read, "spec": {"size": 3}}, namespace=TEAM)
    assert (refused.value.code, refused.value.reason, refused.value.kind) == (409, "Conflict", "jobs")
    assert server.get(JOBS, "job", namespace=TEAM)["spec"] == {"size": 2}


def test_a_put_without_a_version_is_for_built_in_kinds_other_than_leases() -> None:
    server = serving()
    for resource in (JOBS, LEASES, JOB_SETS):
        made(server, resource, named("x"))
    assert server.replace(JOBS, {"metadata": {"name": "x"}, "spec": {"size": 2}}, namespace=TEAM)["spec"] == {"size": 2}
    for resource in (LEASES, JOB_SETS):
        with pytest.raises(StatusError, match="must be specified for an update"):
            server.replace(resource, {"metadata": {"name": "x"}, "spec": {}}, namespace=TEAM)


def test_a_put_of_another_object_of_that_name_is_a_conflict() -> None:
    server = serving()
    made(server, JOBS, named("job"))
    with pytest.raises(StatusError, match="UID in precondition: another") as refused:
        server.replace(JOBS, named("job", uid="another"), namespace=TEAM)
    assert refused.value.code == 409


def test_an_update_cannot_move_an_object_or_redate_it() -> None:
    server = serving()
    body = made(server, JOB_SETS, named("llm"))
    for other in ({"name": "other"}, {"namespace": "team-b"}):
        with pytest.raises(StatusError) as refused:
            server.patch(JOB_SETS, "llm", {"metadata": other}, kind=PatchKind.MERGE, namespace=TEAM)
        assert refused.value.code == 400
    gone = {"metadata": {"name": None, "namespace": None, "creationTimestamp": None, "uid": None}}
    assert server.patch(JOB_SETS, "llm", gone, kind=PatchKind.MERGE, namespace=TEAM) is body


def test_another_uid_in_a_patch_is_refused_and_in_a_custom_resources_status_ignored() -> None:
    server = serving()
    patch = {"metadata": {"uid": "another"}, "status": {"a": 1}}
    for resource in (JOB_SETS, PODS):
        made(server, resource, named("x"))
        with pytest.raises(StatusError, match=r"metadata\.uid: Invalid value") as refused:
            server.patch(resource, "x", patch, kind=PatchKind.MERGE, namespace=TEAM)
        assert (refused.value.code, refused.value.causes[0].field) == (422, "metadata.uid")
    with pytest.raises(StatusError, match=r"metadata\.uid: Invalid value"):
        server.patch(PODS, "x", patch, kind=PatchKind.STRATEGIC, namespace=TEAM, subresource="status")
    body = server.patch(JOB_SETS, "x", patch, kind=PatchKind.MERGE, namespace=TEAM, subresource="status")
    assert body["status"] == {"a": 1}
    assert meta(body)["uid"] != "another"


def test_a_kind_fills_in_its_defaults_without_changing_what_others_hold() -> None:
    def default(body: Body, before: Body | None) -> None:
        body["spec"].setdefault("policy", {})["restarts"] = 0 if before is None else 1

    server = serving(ServedKind(resource=JOBS, default=default), ServedKind(resource=PODS))
    template: Body = {"metadata": {"name": "job"}, "spec": {"policy": {"name": "shared"}}}
    first = server.create(JOBS, {**template}, namespace=TEAM)
    assert first["spec"] == {"policy": {"name": "shared", "restarts": 0}}
    assert template["spec"] == {"policy": {"name": "shared"}}
    second = server.patch(JOBS, "job", {"spec": {"size": 2}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert second["spec"] == {"policy": {"name": "shared", "restarts": 1}, "size": 2}
    assert first["spec"] == {"policy": {"name": "shared", "restarts": 0}}


def test_a_change_that_defaults_undo_is_none() -> None:
    def default(body: Body, before: Body | None) -> None:
        body["spec"]["size"] = 1

    server = serving(ServedKind(resource=JOBS, default=default))
    body = made(server, JOBS, named("job"))
    assert server.patch(JOBS, "job", {"spec": {"size": None}}, kind=PatchKind.MERGE, namespace=TEAM) is body


def test_what_a_kind_does_not_accept_is_not_stored() -> None:
    def validate(body: Body, before: Body | None) -> list[FieldCause]:
        wrong = before is not None and body["spec"] != before["spec"]
        return [FieldCause("spec.a", "a is wrong"), FieldCause("spec.b", "so is b")] if wrong else []

    server = serving(ServedKind(resource=JOBS, validate=validate))
    made(server, JOBS, named("job"))
    with pytest.raises(StatusError) as refused:
        server.patch(JOBS, "job", {"spec": {"size": 2}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert refused.value.message == 'Job.batch "job" is invalid: [spec.a: a is wrong, spec.b: so is b]'
    assert (refused.value.code, refused.value.reason, refused.value.kind) == (422, "Invalid", "Job")
    assert server.get(JOBS, "job", namespace=TEAM)["spec"] == {"size": 1}


def test_a_dry_run_answers_as_the_create_would_and_stores_nothing() -> None:
    def default(body: Body, before: Body | None) -> None:
        body["spec"]["size"] = 2

    def validate(body: Body, before: Body | None) -> list[FieldCause]:
        return [FieldCause("spec.name", "it is wrong")] if body["spec"].get("name") == "wrong" else []

    server = serving(ServedKind(resource=JOBS, default=default, validate=validate))
    told: list[ObjectChange] = []
    server.subscribe(told.append)
    revision = server.revision
    body = server.create(JOBS, named("job"), namespace=TEAM, dry_run=True)
    assert (body["spec"], meta(body)["generation"], "resourceVersion" in meta(body)) == ({"size": 2}, 1, False)
    with pytest.raises(StatusError) as refused:
        server.create(JOBS, {"metadata": {"name": "job"}, "spec": {"name": "wrong"}}, namespace=TEAM, dry_run=True)
    assert refused.value.code == 422
    assert (server.revision, told, server.find(JOBS, "job", TEAM)) == (revision, [], None)
    made(server, JOBS, named("job"))
    with pytest.raises(StatusError) as taken:
        server.create(JOBS, named("job"), namespace=TEAM, dry_run=True)
    assert taken.value.reason == "AlreadyExists"


def test_a_dry_run_takes_the_right_to_create() -> None:
    server = serving(ServedKind(resource=JOBS))
    server.forbid_dry_runs(JOBS)
    with server.acting("controller-0"), pytest.raises(StatusError) as refused:
        server.create(JOBS, named("job"), namespace=TEAM, dry_run=True)
    message = 'jobs.batch is forbidden: User "controller-0" cannot create resource "jobs" in API group "batch"'
    assert (refused.value.code, refused.value.message) == (403, f'{message} in the namespace "{TEAM}"')
    made(server, JOBS, named("job"))


def test_new_objects_of_a_kind_may_be_changed_before_they_are_judged() -> None:
    def validate(body: Body, before: Body | None) -> list[FieldCause]:
        return [FieldCause("spec.size", "too large")] if body["spec"]["size"] > 1 else []

    server = serving(ServedKind(resource=JOBS, validate=validate), ServedKind(resource=PODS))
    server.mutate_new(JOBS, lambda body: {**body, "spec": {"size": body["spec"]["size"] + 1}})
    with pytest.raises(StatusError):
        made(server, JOBS, named("job"))
    small = {"metadata": {"name": "job"}, "spec": {"size": 0}}
    assert made(server, JOBS, small)["spec"] == {"size": 1}
    again = server.patch(JOBS, "job", {"spec": {"other": 1}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert again["spec"] == {"size": 1, "other": 1}
