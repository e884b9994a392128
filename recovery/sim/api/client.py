"""How the server is reached: by models as an `ApiClient`, by controller processes request by request, as over HTTP.

Both hear failures as the production client would: `recovery.kube.errors` decides which error an answer is.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec

from recovery.kube import errors
from recovery.kube.request import ApiRequest
from recovery.ports import ApiError, PatchKind, Propagation, Resource
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class ModelClient:
    """`ports.ApiClient` for models: kubelets, training. A request takes one turn of the loop, and nothing is lost."""

    def __init__(self, server: ApiServer, actor: str) -> None:
        """`actor`: whose writes they are."""
        self._server = server
        self._actor = actor

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        await asyncio.sleep(0)
        with self._asking(ApiRequest("get", resource, namespace, name)):
            return _encode(self._server.get(resource, name, namespace=namespace))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> bytes:
        await asyncio.sleep(0)
        with self._asking(ApiRequest("list", resource, namespace)):
            page = self._server.list(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=resource_version,
                limit=limit,
                continue_token=continue_token,
            )
            return _encode(page)

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(0)
        try:
            stream = self._server.watch(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=resource_version,
                send_initial_events=send_initial_events,
                timeout_seconds=timeout_seconds,
            )
            async with aclosing(stream):
                async for line in stream:
                    yield line
        except StatusError as failure:
            raise error_from(ApiRequest("watch", resource, namespace), failure) from failure

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bytes:
        await asyncio.sleep(0)
        with self._asking(ApiRequest("create", resource, namespace, name, subresource)):
            made = self._server.create(resource, _plain(body), namespace=namespace, name=name, subresource=subresource)
            return _encode(made)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
    ) -> bytes:
        await asyncio.sleep(0)
        patch = _plain(body)
        tests = kind is PatchKind.JSON and any(operation["op"] == "test" for operation in patch)
        with self._asking(ApiRequest("patch", resource, namespace, name, subresource, tests=tests)):
            patched = self._server.patch(resource, name, patch, kind=kind, namespace=namespace, subresource=subresource)
            return _encode(patched)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> bytes:
        await asyncio.sleep(0)
        with self._asking(ApiRequest("delete", resource, namespace, name)):
            deleted = self._server.delete(
                resource,
                name,
                namespace=namespace,
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
                grace_seconds=grace_seconds,
            )
            return _encode(deleted)

    @contextmanager
    def _asking(self, request: ApiRequest) -> Iterator[None]:
        try:
            with self._server.acting(self._actor):
                yield
        except StatusError as failure:
            raise error_from(request, failure) from failure


def answer(server: ApiServer, actor: str, request: ApiRequest) -> bytes:
    """The body of the answer to a get, list, create, patch or delete. Raises StatusError, and then nothing was changed.

    What the request asks is read from its query and its body, which are all that would have crossed the wire.
    """
    with server.acting(actor):
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
    query = request.query
    stream = server.watch(
        request.resource,
        namespace=request.namespace,
        label_selector=_text(query, "labelSelector"),
        field_selector=_text(query, "fieldSelector"),
        resource_version=_text(query, "resourceVersion") or None,
        send_initial_events=query.get("sendInitialEvents") == "true",
        timeout_seconds=int(query["timeoutSeconds"]),
    )
    async with aclosing(stream):
        async for line in stream:
            yield line


def error_from(request: ApiRequest, failure: StatusError) -> ApiError:
    """What the production client raises when it is answered like this."""
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
    query = request.query
    return server.list(
        request.resource,
        namespace=request.namespace,
        label_selector=_text(query, "labelSelector"),
        field_selector=_text(query, "fieldSelector"),
        resource_version=_text(query, "resourceVersion") or None,
        limit=int(query["limit"]) if "limit" in query else None,
        continue_token=_text(query, "continue"),
    )


def _create(server: ApiServer, request: ApiRequest) -> dict[str, Any]:
    return server.create(
        request.resource,
        _decode(request.body or b""),
        namespace=request.namespace,
        name=request.name,
        subresource=request.subresource,
    )


def _patch(server: ApiServer, request: ApiRequest) -> dict[str, Any]:
    return server.patch(
        request.resource,
        _name(request),
        _decode(request.body or b""),
        kind=PatchKind(request.content_type),
        namespace=request.namespace,
        subresource=request.subresource,
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


def _text(query: Mapping[str, str | int], key: str) -> str:
    return str(query.get(key, ""))


def _plain(body: object) -> Any:
    """As it arrives at a server: callers give structs, tuples and times as well."""
    return _decode(_encode(body))
