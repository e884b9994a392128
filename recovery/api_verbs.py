"""The REST verbs as functions over `ports.ApiClient`: each one builds a request and sends it.

All of them raise `ApiError` subclasses only (and CancelledError). `namespace` None on a namespaced resource means all
namespaces.
"""

from collections.abc import AsyncGenerator, Mapping

import msgspec

from recovery.ports import PODS, ApiClient, ApiRequest, PatchKind, Propagation, Resource

_encode = msgspec.json.Encoder().encode


class _Preconditions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    preconditions: _Preconditions
    propagation_policy: Propagation | None = None
    grace_period_seconds: int | None = None


class _Operation(msgspec.Struct, frozen=True):
    """One operation of a JSON patch. Only `op` is read, because a failed `test` raises an error of its own."""

    op: str = ""


async def get(api: ApiClient, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
    return await api.send(ApiRequest("get", resource, namespace, name))


async def pod_log(
    api: ApiClient,
    pod: str,
    *,
    namespace: str,
    container: str,
    previous: bool,
    tail_lines: int,
    limit_bytes: int,
) -> bytes:
    """The last `tail_lines` lines of a container's log, cut after `limit_bytes`. The request is never retried.

    `previous`: the log of the instance before the one that is running or ran last.
    """
    query = {
        "container": container,
        "previous": "true" if previous else "",
        "tailLines": tail_lines,
        "limitBytes": limit_bytes,
    }
    return await api.send(ApiRequest("get", PODS, namespace, pod, "log", query=_present(query), once=True))


async def list_page(
    api: ApiClient,
    resource: Resource,
    *,
    namespace: str | None = None,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str | None = None,
    limit: int | None = None,
    continue_token: str = "",
) -> bytes:
    """One page of a list. `resource_version` None: a consistent read; "0": any state in the server's cache."""
    query = {
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "resourceVersion": resource_version or "",
        "limit": limit or "",
        "continue": continue_token,
    }
    return await api.send(ApiRequest("list", resource, namespace, query=_present(query)))


def watch(
    api: ApiClient,
    resource: Resource,
    *,
    namespace: str | None = None,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str | None = None,
    send_initial_events: bool = False,
    timeout_seconds: int = 300,
) -> AsyncGenerator[bytes, None]:
    """Lines of `{"type": ..., "object": ...}`, bookmarks included, until the server ends the stream."""
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "resourceVersion": resource_version or "",
        "sendInitialEvents": "true" if send_initial_events else "",
        "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
        "timeoutSeconds": timeout_seconds,
    }
    return api.watch(ApiRequest("watch", resource, namespace, query=_present(query)))


async def create(
    api: ApiClient,
    resource: Resource,
    body: object,
    *,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str = "",
    dry_run: bool = False,
) -> bytes:
    """POST. `name` with `subresource` addresses a subresource of an object (`pods/eviction`).

    `dry_run`: the answer is the object as it would be created, after admission. Nothing is stored.
    """
    query = {"dryRun": "All" if dry_run else ""}
    request = ApiRequest("create", resource, namespace, name, subresource, _present(query), body=_encode(body))
    return await api.send(request)


async def patch(
    api: ApiClient,
    resource: Resource,
    name: str,
    body: object,
    *,
    kind: PatchKind,
    namespace: str | None = None,
    subresource: str = "",
    dry_run: bool = False,
    field_manager: str = "",
) -> bytes:
    """PATCH. `dry_run`: the answer is the object as it would be patched, after admission. Nothing is stored.

    `field_manager`: the name in managedFields. Empty: the API server takes it from the User-Agent.
    """
    encoded = _encode(body)
    request = ApiRequest(
        "patch",
        resource,
        namespace,
        name,
        subresource,
        _present({"dryRun": "All" if dry_run else "", "fieldManager": field_manager}),
        body=encoded,
        content_type=kind.value,
        tests=kind is PatchKind.JSON and _has_test(encoded),
    )
    return await api.send(request)


async def delete(
    api: ApiClient,
    resource: Resource,
    name: str,
    *,
    namespace: str | None = None,
    uid: str | None = None,
    resource_version: str | None = None,
    propagation: Propagation | None = None,
    grace_seconds: int | None = None,
) -> bytes:
    """DELETE with preconditions. `grace_seconds` None keeps the object's own grace period."""
    options = _DeleteOptions(
        preconditions=_Preconditions(uid=uid, resource_version=resource_version),
        propagation_policy=propagation,
        grace_period_seconds=grace_seconds,
    )
    return await api.send(ApiRequest("delete", resource, namespace, name, body=_encode(options)))


async def evict(api: ApiClient, pod: str, *, namespace: str, uid: str) -> bytes:
    """POST to `pods/eviction`, with the pod's own grace period. The request is never retried: a PodDisruptionBudget
    refuses it with 429 (TryLaterError), and only the caller knows how long to wait for that."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": _DeleteOptions(preconditions=_Preconditions(uid=uid)),
    }
    return await api.send(ApiRequest("create", PODS, namespace, pod, "eviction", body=_encode(body), once=True))


def _has_test(json_patch: bytes) -> bool:
    return any(operation.op == "test" for operation in msgspec.json.decode(json_patch, type=list[_Operation]))


def _present(query: Mapping[str, str | int]) -> dict[str, str | int]:
    return {key: value for key, value in query.items() if value}
