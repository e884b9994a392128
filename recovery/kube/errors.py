"""Turns an answer of the API server, or the lack of one, into the error that says what the caller has to do.

Two questions decide most cases: may the request have been applied, and can the same request ever succeed. A write that
was sent and got no verdict has an unknown outcome, even with a 500: a server answers 500 whether it failed before the
commit or after it. `tests/unit/kube/fixtures/answers.json` holds bodies as a real API server sends them.
"""

import os
import socket
import ssl
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
    UntrustedServerError,
)

MESSAGE_MAX = 1000
"""How many characters of an answer go into a message, because webhooks quote whole objects."""
BODY_BYTES_MAX = 200
"""How much of a body that is no Status goes into a message, because proxies answer with whole pages."""

_CERTIFICATE_FIELDS = "compare certificate-authority and tls-server-name of the cluster in the kubeconfig"
_SOMETHING_ELSE = "is there something else in front of the API server, such as a login?"


_TERMINATING = "NamespaceTerminating"
"""The value of `corev1.NamespaceTerminatingCause`, which the NamespaceLifecycle admission plugin sets."""


class StatusCause(msgspec.Struct, frozen=True):
    """Why a field was not accepted."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The object of a Status. `kind` holds the plural in most answers."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """`metav1.Status`: the body of every failure that comes from the API server itself."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


_decode_status = msgspec.json.Decoder(ApiStatus).decode


def error_from_answer(
    request: ApiRequest, code: int, headers: Mapping[str, str], body: bytes, url: str = "the API server"
) -> ApiError:
    """The error for an HTTP answer that is not 2xx, or that `is_strange`. `url`: where the answer came from."""
    status = _status(body) if code >= 300 else None
    if status is None or not (status.message or status.reason):
        words = f"{url} answered {code} {_answer_words(headers, body)}"
        if _comes_from_others(code, headers, body):
            kind = UnknownOutcomeError if request.writes else TryLaterError
            return kind(f"{request}: {words}; {_SOMETHING_ELSE}", status=code)
        status = ApiStatus(message=words)
    return error_from_status(request, code, status, _retry_after_seconds(headers))


def is_strange(request: ApiRequest, body: bytes) -> bool:
    """Whether the body of a success cannot come from an API server: it is no object, or an object without a kind.

    Checks only its start and one word, because a body may have megabytes. A log is text and may hold anything.
    """
    return request.subresource != "log" and not (body.lstrip()[:1] == b"{" and b'"kind"' in body)


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


def error_from_failure(
    request: ApiRequest,
    error: aiohttp.ClientError | TimeoutError,
    server: str = "the API server",
    seconds_max: float | None = None,
) -> ApiError:
    """The error for an exchange that broke: no answer came, or only part of it.

    `server`: its URL. `seconds_max`: how long the caller waited; None: not known.
    """
    message = f"{request}: {_describe(error, server, f'within {seconds_max:g} s' if seconds_max else 'in time')}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return UntrustedServerError(message)
    # With these two errors there was no connection, so nothing can have been applied.
    not_sent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    if not_sent or not request.writes:
        return TryLaterError(message)
    return UnknownOutcomeError(message)


def _class_of(request: ApiRequest, code: int, status: ApiStatus) -> type[ApiError]:
    by_code: dict[int, type[ApiError]] = {401: UnauthorizedError, 409: ConflictError, 410: ExpiredError}
    if code in by_code:
        return AlreadyExistsError if status.reason == "AlreadyExists" else by_code[code]
    if code == 404:
        # A missing object is named in the details. The answer for a path that no API serves is plain text.
        return NotFoundError if status.details is not None and status.details.name else NoSuchResourceError
    if code == 403 and " cannot " in status.message and 'User "' in status.message:
        return ForbiddenError
    if code == 403 and status.details is not None and _TERMINATING in {cause.reason for cause in status.details.causes}:
        return NamespaceTerminatingError  # other 403 come from webhooks and quotas
    if code == 422 and request.tests and _is_patch_failure(status):
        return TestFailedError
    return RefusedError


def _is_patch_failure(status: ApiStatus) -> bool:
    """Whether the JSON patch could not be applied, as opposed to a patched object that was not accepted.

    The server applies the patch before it validates. Its answer does not say which operation failed: the Status names
    no object and no field. So a `replace` of a missing path looks like a failed `test`. The caller has to do the same
    for both, because the object is not what the patch expected.
    """
    denied = status.message.startswith("admission webhook ")
    return not denied and (status.details is None or not (status.details.causes or status.details.name))


def _status(body: bytes) -> ApiStatus | None:
    """None: the body is no Status. The API server itself answers some requests with plain text."""
    try:
        return _decode_status(body)
    except UNDECODABLE:  # not JSON, not a Status, or not even text
        return None


def _comes_from_others(code: int, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a proxy or a login sent this page or redirect. A page with 401 counts as the API server's 401."""
    page = "html" in headers.get("Content-Type", "") or body.lstrip()[:1] == b"<"
    return code < 400 or (page and code != 401)


def _answer_words(headers: Mapping[str, str], body: bytes) -> str:
    """Describes the answer: `with text/html: <html>...`."""
    start = " ".join(body[:BODY_BYTES_MAX].decode(errors="replace").split())
    redirect = f", a redirect to {headers['Location']}" if headers.get("Location") else ""
    shown = f": {start}{'...' if len(body) > BODY_BYTES_MAX else ''}" if start else ", and an empty body"
    return f"with {headers.get('Content-Type') or 'no Content-Type'}{redirect}{shown}"


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The Retry-After header in seconds. The API server does not use the other form, a date."""
    value = headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _describe(error: aiohttp.ClientError | TimeoutError, server: str, in_time: str) -> str:
    match error:
        case TimeoutError():
            return f"no answer from {server} {in_time}"
        case aiohttp.ClientConnectorError():
            return _connect_words(error, server)
        case aiohttp.ClientHttpProxyError():
            return f"the proxy to {server} answered {error.status} {error.message}".rstrip()
        case aiohttp.ServerDisconnectedError():
            return f"{server} closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return f"the connection to {server} broke in the middle of the answer"
        case aiohttp.ClientResponseError():
            return f"{server} does not answer in HTTP: {' '.join(error.message.split())}"
        case aiohttp.ClientOSError():
            return f"the connection to {server} broke: {_system_words(error)}"
    return f"{server}: {error or type(error).__name__}"


def _connect_words(error: aiohttp.ClientConnectorError, server: str) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = str(getattr(error.certificate_error, "verify_message", "") or error.certificate_error)
        return f"the certificate of {server} is not accepted: {why}; {_CERTIFICATE_FIELDS}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        server = f"the proxy {error.host}:{error.port}"
    return f"cannot connect to {server}: {_system_words(error.os_error)}"


def _system_words(error: OSError) -> str:
    """The system's words for the error, without the address that aiohttp and asyncio repeat."""
    if isinstance(error, ssl.SSLError | socket.gaierror) or not error.errno:
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)
