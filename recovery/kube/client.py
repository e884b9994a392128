"""`ports.ApiClient`: which request a verb is, how many writes are in flight, and what may be sent again.

Retries are decided by the class of the error alone, and only TryLaterError means that the same request may be sent
again: nothing was applied, and the request is not at fault. Everything under ReadAgainError is the caller's to resolve,
because only the caller knows what it had read before.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, nullcontext
from typing import Protocol

import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from recovery.kube.request import ApiRequest
from recovery.ports import Clock, Entropy, PatchKind, Propagation, Resource, TryLaterError

WRITES_IN_FLIGHT_MAX = 64
"""Measured: 3,400 deletes a second with 64 in flight; more only fills the server's queues."""

TRIES_MAX = 4
RETRY_WINDOW_SECONDS = 30.0
"""No try begins later than this after the first one."""
BACKOFF_SECONDS_FIRST = 0.2
BACKOFF_SECONDS_MAX = 5.0
RETRY_AFTER_SECONDS_MAX = 10.0
"""What of a server's Retry-After is honoured within one call; who is told to wait longer hears it as an error."""

_encode = msgspec.json.Encoder().encode


class _Preconditions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    preconditions: _Preconditions
    propagation_policy: Propagation | None = None
    grace_period_seconds: int | None = None


class _Operation(msgspec.Struct, frozen=True):
    """One operation of a JSON patch, as far as the error of a failed one depends on it."""

    op: str = ""


class Transport(Protocol):
    """Carries single requests. Every method raises `ApiError` subclasses only (and CancelledError)."""

    async def send(self, request: ApiRequest) -> bytes:
        """The body of an answer with a 2xx status; what else came back, or did not, is raised."""
        ...

    def stream(self, request: ApiRequest, timeout_seconds: int) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, until the server ends it."""
        ...


class KubeApiClient:
    """The REST verbs of `ports.ApiClient`, which says what each of them means. One client serves a whole process."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._entropy = entropy
        self._writes_in_flight = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type(TryLaterError),
            wait=self._wait_seconds,
            sleep=clock.sleep,
            reraise=True,
        )

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        return await self._send(ApiRequest("get", resource, namespace, name))

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
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version or "",
            "limit": limit or "",
            "continue": continue_token,
        }
        return await self._send(ApiRequest("list", resource, namespace, query=_present(query)))

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
        request = ApiRequest("watch", resource, namespace, query=_present(query))
        async with aclosing(self._transport.stream(request, timeout_seconds)) as lines:
            async for line in lines:
                yield line

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bytes:
        return await self._send(ApiRequest("create", resource, namespace, name, subresource, body=_encode(body)))

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
        encoded = _encode(body)
        request = ApiRequest(
            "patch",
            resource,
            namespace,
            name,
            subresource,
            body=encoded,
            content_type=kind.value,
            tests=kind is PatchKind.JSON and _has_test(encoded),
        )
        return await self._send(request)

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
        options = _DeleteOptions(
            preconditions=_Preconditions(uid=uid, resource_version=resource_version),
            propagation_policy=propagation,
            grace_period_seconds=grace_seconds,
        )
        return await self._send(ApiRequest("delete", resource, namespace, name, body=_encode(options)))

    async def _send(self, request: ApiRequest) -> bytes:
        """The answer's body. Tries again where nothing was applied, within bounds, and only then."""
        no_try_after = self._clock.monotonic_seconds() + RETRY_WINDOW_SECONDS

        def over(state: RetryCallState) -> bool:
            return state.attempt_number >= TRIES_MAX or self._clock.monotonic_seconds() >= no_try_after

        # A copy for each call: tenacity keeps the state of its loop per thread, not per task.
        return await self._retrying.copy(stop=over)(self._once, request)

    async def _once(self, request: ApiRequest) -> bytes:
        async with self._writes_in_flight if request.writes else nullcontext():
            return await self._transport.send(request)

    def _wait_seconds(self, state: RetryCallState) -> float:
        """What the server asked for, spread so that many do not come back at once; else exponential backoff."""
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, TryLaterError) and error.retry_after_seconds is not None:
            return min(error.retry_after_seconds, RETRY_AFTER_SECONDS_MAX) * self._entropy.uniform(1.0, 1.2)
        ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2.0 ** (state.attempt_number - 1))
        return self._entropy.uniform(ceiling / 2, ceiling)


def _has_test(json_patch: bytes) -> bool:
    return any(operation.op == "test" for operation in msgspec.json.decode(json_patch, type=list[_Operation]))


def _present(query: Mapping[str, str | int]) -> dict[str, str | int]:
    return {key: value for key, value in query.items() if value}
