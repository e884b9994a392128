"""Access to the server: models use an `ApiClient`, controller processes send single requests as over HTTP.

Both get the same errors as from the production client: `recovery.kube.errors` maps an answer to an error.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from recovery.kube import errors
from recovery.ports import ApiError, ApiRequest, PatchKind, Propagation, Resource
from recovery.sim.api.error_answers import bad_request
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class ModelClient:
    """`ports.ApiClient` in memory. A request takes one turn of the event loop, and no request or answer is lost."""

    def __init__(self, server: ApiServer, actor: str) -> None:
        """`actor`: the name that the server records for this client's writes."""
        self._server = server
        self._actor = actor

    async def send(self, request: ApiRequest) -> bytes:
        await asyncio.sleep(0)
        try:
            return answer(self._server, self._actor, request)
        except StatusError as failure:
            raise error_from(request, failure) from failure

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(0)
        try:
            async with aclosing(lines(self._server, request)) as coming:
                async for line in coming:
                    yield line
        except StatusError as failure:
            raise error_from(request, failure) from failure


def answer(server: ApiServer, actor: str, request: ApiRequest) -> bytes:
    """The body of the answer to a get, list, create, patch or delete. After a StatusError nothing has changed.

    Only the query and the body of the request are read, because only they would cross the wire. Dry run is modelled for
    creates and patches only.
    """
    if request.dry_run and request.verb not in {"create", "patch"}:
        raise ValueError(f"{request}: no dry run of that verb is modelled")
    with server.acting(request.parameter("fieldManager") or actor):  # the actor is the manager in managedFields
        match request.verb:
            case "get":
                return _encode(server.get(request.resource, _name(request), namespace=request.namespace))
            case "list":
                return _encode(_list(server, request))
            case "create":
                return _encode(_create(server, request))
            case "patch":
                return _encode(_patch(server, request))
            case "delete":
                return _encode(_delete(server, request))
    raise ValueError(f"{request}: not a verb that is answered at once")


async def lines(server: ApiServer, request: ApiRequest) -> AsyncGenerator[bytes, None]:
    """The lines of a watch, until the server ends it. Raises StatusError."""
    stream = server.watch(
        request.resource,
        namespace=request.namespace,
        label_selector=request.parameter("labelSelector"),
        field_selector=request.parameter("fieldSelector"),
        resource_version=request.parameter("resourceVersion") or None,
        send_initial_events=request.parameter("sendInitialEvents") == "true",
        timeout_seconds=request.timeout_seconds,
    )
    async with aclosing(stream):
        async for line in stream:
            yield line


def error_from(request: ApiRequest, failure: StatusError) -> ApiError:
    """The error that the production client raises for this answer."""
    causes = tuple(errors.StatusCause(cause.reason, cause.message, cause.field) for cause in failure.causes)
    details = errors.StatusDetails(failure.name, failure.kind, causes, failure.retry_after_seconds)
    status = errors.ApiStatus(
        kind="Status",
        code=failure.code,
        reason=failure.reason,
        message=failure.message,
        details=details,
    )
    return errors.error_from_status(request, failure.code, status)


def _list(server: ApiServer, request: ApiRequest) -> dict[str, Any]:
    limit = request.parameter("limit")
    return server.list(
        request.resource,
        namespace=request.namespace,
        label_selector=request.parameter("labelSelector"),
        field_selector=request.parameter("fieldSelector"),
        resource_version=request.parameter("resourceVersion") or None,
        limit=int(limit) if limit else None,
        continue_token=request.parameter("continue"),
    )


def _is_custom(resource: Resource) -> bool:
    """The resource has a CRD: groups of Kubernetes itself have no dot, or end with `.k8s.io`."""
    return "." in resource.group and not resource.group.endswith(".k8s.io")


def _create(server: ApiServer, request: ApiRequest) -> dict[str, Any]:
    body = _decode(request.body or b"")
    # The server takes the kind of its own types from the path. It decodes custom resources without knowing it.
    if _is_custom(request.resource) and not (body.get("kind") and body.get("apiVersion")):
        kind = request.resource.kind
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing")
    return server.create(
        request.resource,
        body,
        namespace=request.namespace,
        name=request.name,
        subresource=request.subresource,
        dry_run=request.dry_run,
    )


def _patch(server: ApiServer, request: ApiRequest) -> dict[str, Any]:
    return server.patch(
        request.resource,
        _name(request),
        _decode(request.body or b""),
        kind=PatchKind(request.content_type),
        namespace=request.namespace,
        subresource=request.subresource,
        dry_run=request.dry_run,
    )


def _delete(server: ApiServer, request: ApiRequest) -> dict[str, Any]:
    """The body is a `DeleteOptions`, or empty."""
    options = _decode(request.body) if request.body else {}
    preconditions = options.get("preconditions") or {}
    propagation = options.get("propagationPolicy")
    return server.delete(
        request.resource,
        _name(request),
        namespace=request.namespace,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=Propagation(propagation) if propagation else None,
        grace_seconds=options.get("gracePeriodSeconds"),
    )


def _name(request: ApiRequest) -> str:
    assert request.name is not None, f"{request}: names no object"
    return request.name
