"""The client of the modelled API server gives models and controller processes what the production client would give."""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from recovery import api_verbs
from recovery.kube.client import KubeApiClient
from recovery.ports import (
    EVENTS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    RECOVERY_GROUPS,
    AlreadyExistsError,
    ApiClient,
    ApiError,
    ApiRequest,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    PatchKind,
    Propagation,
    RefusedError,
    Resource,
    TestFailedError,
    TryLaterError,
    UnknownOutcomeError,
)
from recovery.sim.api.client import ModelClient, answer, error_from, lines
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.recovery import recovery_kinds
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import FieldCause, StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.kube.testing import FIXTURES
from tests.unit.sim.cluster import AT_ONCE, Obedient

ANSWERS = json.loads((FIXTURES / "answers.json").read_bytes())


def server() -> ApiServer:
    return ApiServer([*core_kinds(), *recovery_kinds()], clock=VirtualClock(), entropy=random.Random(7))


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "labels": labels},
        "spec": {"containers": [{"name": "node", "image": "train:1"}]},
    }


def model(api: ApiServer) -> ApiClient:
    return ModelClient(api, "kubelet")


def production(api: ApiServer) -> ApiClient:
    return KubeApiClient(ModelClient(api, "kubelet"), clock=VirtualClock(), entropy=random.Random(7))


both = pytest.mark.parametrize("client_of", [model, production])
ClientOf = Callable[[ApiServer], ApiClient]


def read(body: bytes) -> Any:
    return msgspec.json.decode(body)


# Both clients do the same.


@both
@virtual_time
async def test_what_is_created_is_got_listed_patched_and_deleted(client_of: ClientOf) -> None:
    client = client_of(server())
    made = read(await api_verbs.create(client, PODS, pod("a", rank="0"), namespace="team-a"))
    await api_verbs.create(client, PODS, pod("b", rank="1"), namespace="team-a")
    assert read(await api_verbs.get(client, PODS, "a", namespace="team-a")) == made

    listed = read(await api_verbs.list_page(client, PODS, namespace="team-a", label_selector="rank=1"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]

    patch = {"metadata": {"uid": made["metadata"]["uid"]}, "status": {"phase": "Running"}}
    patched = await api_verbs.patch(
        client, PODS, "a", patch, kind=PatchKind.STRATEGIC, namespace="team-a", subresource="status"
    )
    assert read(patched)["status"] == {"phase": "Running", "qosClass": "BestEffort"}

    await api_verbs.delete(client, PODS, "a", namespace="team-a", uid=made["metadata"]["uid"], grace_seconds=0)
    with pytest.raises(NotFoundError):
        await api_verbs.get(client, PODS, "a", namespace="team-a")


@both
@virtual_time
async def test_a_dry_run_is_one_of_a_create_and_changes_nothing(client_of: ClientOf) -> None:
    client = client_of(server())
    found = read(await api_verbs.create(client, PODS, pod("p"), namespace="team-a", dry_run=True))
    assert found["metadata"]["name"] == "p"
    with pytest.raises(NotFoundError):
        await api_verbs.get(client, PODS, "p", namespace="team-a")
    with pytest.raises(ValueError, match="no dry run of that verb"):
        await client.send(ApiRequest("delete", PODS, "team-a", "p", query={"dryRun": "All"}))


@both
@virtual_time
async def test_a_list_is_read_page_by_page(client_of: ClientOf) -> None:
    client = client_of(server())
    for name in ("a", "b", "c"):
        await api_verbs.create(client, PODS, pod(name), namespace="team-a")
    first = read(await api_verbs.list_page(client, PODS, limit=2))
    rest = read(await api_verbs.list_page(client, PODS, limit=2, continue_token=first["metadata"]["continue"]))
    assert [item["metadata"]["name"] for item in [*first["items"], *rest["items"]]] == ["a", "b", "c"]
    assert not rest["metadata"].get("continue")


@both
@virtual_time
async def test_a_delete_says_how_much_time_and_what_of_the_dependants(client_of: ClientOf) -> None:
    client = client_of(server())
    body = pod("a")
    body["spec"]["nodeName"] = "gpu-0"
    await api_verbs.create(client, PODS, body, namespace="team-a")
    await api_verbs.delete(client, PODS, "a", namespace="team-a", propagation=Propagation.FOREGROUND, grace_seconds=7)
    metadata = read(await api_verbs.get(client, PODS, "a", namespace="team-a"))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 7
    assert metadata["finalizers"] == ["foregroundDeletion"]


@both
@virtual_time
async def test_a_delete_of_another_version_or_another_object_is_refused(client_of: ClientOf) -> None:
    client = client_of(server())
    await api_verbs.create(client, PODS, pod("a"), namespace="team-a")
    with pytest.raises(ConflictError):
        await api_verbs.delete(client, PODS, "a", namespace="team-a", uid="other")
    with pytest.raises(ConflictError):
        await api_verbs.delete(client, PODS, "a", namespace="team-a", resource_version="1")
    assert await api_verbs.get(client, PODS, "a", namespace="team-a")


@both
@virtual_time
async def test_a_pod_is_bound_by_a_create_below_it(client_of: ClientOf) -> None:
    client = client_of(server())
    await api_verbs.create(client, PODS, pod("a"), namespace="team-a")
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "gpu-0"}}
    await api_verbs.create(client, PODS, binding, namespace="team-a", name="a", subresource="binding")
    assert read(await api_verbs.get(client, PODS, "a", namespace="team-a"))["spec"]["nodeName"] == "gpu-0"


@both
@virtual_time
async def test_a_watch_tells_what_is_there_and_then_what_changes_until_its_time_is_over(client_of: ClientOf) -> None:
    client = client_of(server())
    await api_verbs.create(client, PODS, pod("a", job="llm"), namespace="team-a")
    heard: list[tuple[str, str]] = []

    async def listen() -> None:
        watch = api_verbs.watch(client, PODS, label_selector="job=llm", send_initial_events=True, timeout_seconds=30)
        async for line in watch:
            event = read(line)
            heard.append((event["type"], event["object"]["metadata"].get("name", "")))

    listening = asyncio.create_task(listen())
    await asyncio.sleep(1)
    await api_verbs.create(client, PODS, pod("b", job="llm"), namespace="team-a")
    await api_verbs.create(client, PODS, pod("c", job="other"), namespace="team-a")
    await asyncio.wait_for(listening, 60)
    assert heard[:3] == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "b")]
    assert ("ADDED", "c") not in heard


@both
@virtual_time
async def test_a_watch_from_what_is_no_revision_is_refused(client_of: ClientOf) -> None:
    with pytest.raises(RefusedError):
        async with aclosing(api_verbs.watch(client_of(server()), PODS, resource_version="new")) as told:
            await anext(told)


@both
@virtual_time
async def test_a_json_patch_is_refused_as_failed_where_it_tests_and_as_wrong_where_it_does_not(
    client_of: ClientOf,
) -> None:
    client = client_of(server())
    await api_verbs.create(client, PODS, pod("a"), namespace="team-a")
    test = [{"op": "test", "path": "/metadata/uid", "value": "other"}]
    missing = [{"op": "remove", "path": "/metadata/annotations/none"}]
    with pytest.raises(TestFailedError):
        await api_verbs.patch(client, PODS, "a", test, kind=PatchKind.JSON, namespace="team-a")
    with pytest.raises(RefusedError):
        await api_verbs.patch(client, PODS, "a", missing, kind=PatchKind.JSON, namespace="team-a")


@both
@virtual_time
async def test_failures_are_the_errors_of_the_port(client_of: ClientOf) -> None:
    client = client_of(server())
    await api_verbs.create(client, PODS, pod("a"), namespace="team-a")
    with pytest.raises(AlreadyExistsError, match="create pods team-a: "):
        await api_verbs.create(client, PODS, pod("a"), namespace="team-a")
    with pytest.raises(NotFoundError, match='get pods team-a/z: pods "z" not found'):
        await api_verbs.get(client, PODS, "z", namespace="team-a")
    stale = {"metadata": {"resourceVersion": "1"}}
    with pytest.raises(ConflictError):
        await api_verbs.patch(client, PODS, "a", stale, kind=PatchKind.MERGE, namespace="team-a")


@both
@virtual_time
async def test_a_resource_that_is_not_served_is_missing_its_definition(client_of: ClientOf) -> None:
    client = client_of(server())
    with pytest.raises(NoSuchResourceError, match="is the CRD installed"):
        await api_verbs.list_page(client, JOBS)
    with pytest.raises(NoSuchResourceError, match="is the CRD installed"):
        await api_verbs.get(client, JOBS, "a", namespace="team-a")


@both
@virtual_time
async def test_a_body_that_its_schema_refuses_is_refused_by_its_field(client_of: ClientOf) -> None:
    client = client_of(server())
    group = {
        "apiVersion": RECOVERY_GROUPS.api_version,
        "kind": RECOVERY_GROUPS.kind,
        "metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {"workloadRef": {"kind": "PyTorchJob", "name": "llm", "uid": "1"}, "group": "llm"},
    }
    words = (
        'RecoveryGroup.recovery.trainjob.dev "llm" is invalid: .*'
        'spec.workloadRef.kind: Unsupported value: "PyTorchJob": supported values: "TrainJob", "JobSet"'
    )
    with pytest.raises(RefusedError, match=words) as refused:
        await api_verbs.create(client, RECOVERY_GROUPS, group, namespace="team-a")
    assert refused.value.status == 422


# Bodies are as the wire would have carried them.


class _Spec(msgspec.Struct, rename="camel"):
    renew_time: datetime
    lease_duration_seconds: int = 15


@both
@virtual_time
async def test_bodies_may_hold_structs_times_and_tuples(client_of: ClientOf) -> None:
    client = client_of(server())
    renewed = datetime(2026, 11, 2, 8, tzinfo=UTC)
    owners = ({"kind": "Node", "name": "gpu-0", "uid": "1"},)
    lease = {"metadata": {"name": "gpu-0", "ownerReferences": owners}, "spec": _Spec(renewed)}
    made = read(await api_verbs.create(client, LEASES, lease, namespace="kube-node-lease"))
    assert made["spec"] == {"renewTime": "2026-11-02T08:00:00Z", "leaseDurationSeconds": 15}
    assert made["metadata"]["ownerReferences"] == list(owners)


@virtual_time
async def test_a_model_may_use_the_body_that_it_has_sent_again() -> None:
    api = server()
    client = model(api)
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-0"}, "status": status}
    await api_verbs.create(client, NODES, node)
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await api_verbs.patch(client, NODES, "gpu-0", patch, kind=PatchKind.STRATEGIC, subresource="status")
    assert node == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-0"}, "status": status}
    assert status == {"conditions": [{"type": "Ready", "status": "True"}]}


# Changes say who made them, and when.


@both
@virtual_time
async def test_writes_are_the_actors_own(client_of: ClientOf) -> None:
    api = server()
    changes: list[ObjectChange] = []
    api.subscribe(changes.append)
    client = client_of(api)
    await api_verbs.create(client, PODS, pod("a"), namespace="team-a")
    await api_verbs.patch(
        client, PODS, "a", {"metadata": {"labels": {"b": "c"}}}, kind=PatchKind.MERGE, namespace="team-a"
    )
    await api_verbs.delete(client, PODS, "a", namespace="team-a", grace_seconds=0)
    assert {change.actor for change in changes} == {"kubelet"}
    assert [change.type for change in changes if change.type != "MODIFIED"] == ["ADDED", "DELETED"]


@virtual_time
async def test_a_request_of_a_model_takes_a_turn_of_the_loop() -> None:
    api = server()
    client = model(api)
    writing = asyncio.create_task(api_verbs.create(client, PODS, pod("a"), namespace="team-a"))
    assert api.find(PODS, "a", "team-a") is None
    await writing
    assert api.find(PODS, "a", "team-a") is not None


@virtual_time
async def test_kubelets_live_on_the_modelled_server() -> None:
    api = server()
    client = model(api)
    kubelets = Kubelets(client, VirtualClock(), random.Random(7), Obedient(deaf=False), AT_ONCE)
    kubelets.add_node(NodeSpec(name="gpu-0"))
    running = asyncio.create_task(kubelets.run())
    await asyncio.sleep(1)
    node = api.get(NODES, "gpu-0")
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert api.get(LEASES, "gpu-0", namespace="kube-node-lease")["spec"]["holderIdentity"] == "gpu-0"

    for name in ("stays", "fails", "goes"):
        body = pod(name)
        body["spec"] |= {"nodeName": "gpu-0", "restartPolicy": "Never"}
        await api_verbs.create(client, PODS, body, namespace="team-a")
    await asyncio.sleep(1)
    kubelets.exit_container("fails", 1, namespace="team-a")
    await api_verbs.delete(client, PODS, "goes", namespace="team-a")
    await asyncio.sleep(5)
    phases = {body["metadata"]["name"]: body["status"]["phase"] for body in api.objects(PODS)}
    assert phases == {"stays": "Running", "fails": "Failed"}
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


# Errors are those that the production client raises on a real server's answers.


def failure_of(status: dict[str, Any]) -> StatusError:
    """The error for a real server's Status."""
    details = status.get("details") or {}
    causes = [
        FieldCause(cause.get("field", ""), cause.get("message", ""), cause.get("reason", ""))
        for cause in details.get("causes", ())
    ]
    return StatusError(
        status["code"],
        status.get("reason", ""),
        status["message"],
        kind=details.get("kind", ""),
        name=details.get("name", ""),
        causes=tuple(causes),
        retry_after_seconds=details.get("retryAfterSeconds"),
    )


STATUSES = [each for each in ANSWERS if each["body"].lstrip().startswith("{") and '"Status"' in each["body"]]


@pytest.mark.parametrize("case", STATUSES, ids=[each["case"] for each in STATUSES])
def test_a_failure_is_the_error_that_the_production_client_makes_of_it(case: dict[str, Any]) -> None:
    request = ApiRequest(case["verb"], PODS, "team-a", "llm-0", tests=case["json_patch_with_test"])
    error = error_from(request, failure_of(json.loads(case["body"])))
    assert type(error).__name__ == case["error"]
    assert error.status == case["code"]
    assert str(error).startswith(f"{case['verb']} pods team-a/llm-0: ")


FAILED: list[tuple[str, StatusError, type[ApiError]]] = [
    ("list", StatusError(410, "Expired", "too old"), ExpiredError),
    ("get", StatusError(500, "InternalError", "etcd"), TryLaterError),
    ("patch", StatusError(500, "InternalError", "etcd"), UnknownOutcomeError),
    ("patch", StatusError(429, "TooManyRequests", "slow down", retry_after_seconds=3), TryLaterError),
    ("list", StatusError(403, "Forbidden", 'pods is forbidden: User "a" cannot list resource'), ForbiddenError),
    ("create", StatusError(403, "Forbidden", 'admission webhook "a" denied the request: no'), RefusedError),
    ("get", StatusError(404, "", "404 page not found"), NoSuchResourceError),
]


@pytest.mark.parametrize(("verb", "failure", "expected"), FAILED)
def test_what_the_caller_owes_follows_from_code_and_verb(
    verb: str, failure: StatusError, expected: type[ApiError]
) -> None:
    assert type(error_from(ApiRequest(verb, PODS, "team-a", "a"), failure)) is expected


def test_the_pause_that_the_server_asks_for_is_handed_on() -> None:
    error = error_from(ApiRequest("list", PODS), StatusError(429, "TooManyRequests", "wait", retry_after_seconds=3))
    assert isinstance(error, TryLaterError)
    assert error.retry_after_seconds == 3


@virtual_time
async def test_a_watch_is_no_request_that_is_answered_at_once() -> None:
    with pytest.raises(ValueError, match="watch events"):
        answer(server(), "controller-0", ApiRequest("watch", EVENTS))


@pytest.mark.parametrize("resource", [JOBS, Resource("", "v1", "secrets", "Secret")])
@virtual_time
async def test_a_watch_of_what_is_not_served_fails_at_once(resource: Resource) -> None:
    request = ApiRequest("watch", resource, query={"timeoutSeconds": 30})
    with pytest.raises(StatusError) as failed:
        await anext(lines(server(), request))
    assert isinstance(error_from(request, failed.value), NoSuchResourceError)
