"""From an answer of the API server, or the lack of one, to the error that says what the caller owes.

Two questions decide most of it: was something sent that may have been applied, and can the same request ever succeed.
A write that was sent and got no verdict is an unknown outcome even for a 500: a server that failed after the commit
answers 500 as well as one that failed before it. Bodies as a real API server sends them stand in
`tests/unit/kube/fixtures/answers.json`.
"""

from collections.abc import Mapping

import aiohttp
import msgspec

from recovery.ports import (
    UNDECODABLE,
    AlreadyExistsError,
    ApiError,
    ApiRequest,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    NamespaceTerminatingError,
    NoSuchResourceError,
    NotFoundError,
    RefusedError,
    TestFailedError,
    TryLaterError,
    UnauthorizedError,
    UnknownOutcomeError,
)

MESSAGE_MAX = 1000
"""How much of an answer goes into a message: proxies answer with whole pages, webhooks quote whole objects."""


_TERMINATING = "NamespaceTerminating"
"""Of `corev1.NamespaceTerminatingCause`, as the NamespaceLifecycle admission gives it."""


class StatusCause(msgspec.Struct, frozen=True):
    """Why a field was not accepted."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """What a Status is about. `kind` holds the plural in most answers."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """`metav1.Status`: the body of every failure that the API server itself answers."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


_decode_status = msgspec.json.Decoder(ApiStatus).decode


def error_from_answer(request: ApiRequest, code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error for an HTTP answer other than 2xx."""
    return error_from_status(request, code, _status(body), _retry_after_seconds(headers))


def error_from_status(
    request: ApiRequest, code: int, status: ApiStatus, retry_after_seconds: float | None = None
) -> ApiError:
    """The error for a Status, which also arrives as an ERROR event of a watch."""
    message = f"{request}: {status.message[:MESSAGE_MAX] or f'HTTP {code}'}"
    if code == 429 or (code >= 500 and not request.writes):
        if retry_after_seconds is None and status.details is not None:
            retry_after_seconds = status.details.retry_after_seconds
        return TryLaterError(message, status=code, reason=status.reason, retry_after_seconds=retry_after_seconds)
    if code >= 500:
        return UnknownOutcomeError(message, status=code, reason=status.reason)
    kind = _class_of(request, code, status)
    if kind is NoSuchResourceError:
        served = f"{request.resource.plural} of {request.resource.api_version}"
        message = f"{request}: the API server knows no {served}; is the CRD installed?"
    return kind(message, status=code, reason=status.reason)


def error_from_failure(request: ApiRequest, error: aiohttp.ClientError | TimeoutError) -> ApiError:
    """The error for an exchange that broke: no answer, or not all of it."""
    message = f"{request}: {_describe(error)}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return RefusedError(message)
    # Neither got a connection, so nothing can have been applied.
    not_sent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    if not_sent or not request.writes:
        return TryLaterError(message)
    return UnknownOutcomeError(message)


def _class_of(request: ApiRequest, code: int, status: ApiStatus) -> type[ApiError]:
    by_code: dict[int, type[ApiError]] = {401: UnauthorizedError, 409: ConflictError, 410: ExpiredError}
    if code in by_code:
        return AlreadyExistsError if status.reason == "AlreadyExists" else by_code[code]
    if code == 404:
        # A missing object is named in the details. The answer for a path that nobody serves is plain text.
        return NotFoundError if status.details is not None and status.details.name else NoSuchResourceError
    if code == 403 and " cannot " in status.message and 'User "' in status.message:
        return ForbiddenError
    if code == 403 and status.details is not None and _TERMINATING in {cause.reason for cause in status.details.causes}:
        return NamespaceTerminatingError  # other 403 come from webhooks and quotas
    if code == 422 and request.tests and _is_patch_failure(status):
        return TestFailedError
    return RefusedError


def _is_patch_failure(status: ApiStatus) -> bool:
    """A JSON patch that could not be applied, as opposed to a result that was not accepted.

    The server applies the patch before it validates, and answers a failed operation without saying which: its Status
    names no object and no field. So a `replace` of a path that is not there reads like a failed `test`; what the caller
    owes is the same, for the object is not what the patch took it for.
    """
    denied = status.message.startswith("admission webhook ")
    return not denied and (status.details is None or not (status.details.causes or status.details.name))


def _status(body: bytes) -> ApiStatus:
    """The Status in the body; a body that is none becomes the message of one."""
    try:
        return _decode_status(body)
    except UNDECODABLE:  # not JSON, not a Status, or not even text
        return ApiStatus(message=" ".join(body.decode(errors="replace").split()))


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The header as the API server writes it, in seconds; the other form, a date, is not used by it."""
    value = headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _describe(error: aiohttp.ClientError | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in time ({error})" if str(error) else "no answer in time"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection broke in the middle of the answer"
    return str(error) or type(error).__name__
