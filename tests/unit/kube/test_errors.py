"""How error answers are classified. The bodies come from a real API server. The class says what the caller must do."""

import json
import socket
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from recovery import ports
from recovery.kube.errors import error_from_answer, error_from_failure, is_strange
from recovery.ports import (
    ApiError,
    ApiRequest,
    RefusedError,
    TryLaterError,
    UnauthorizedError,
    UnknownOutcomeError,
    UntrustedServerError,
)
from tests.unit.kube.testing import FIXTURES

ANSWERS = json.loads((FIXTURES / "answers.json").read_bytes())
KEY = ConnectionKey("h", 1, True, True, None, None, None)


def request(verb: str, *, tests: bool = False) -> ApiRequest:
    return ApiRequest(verb, ports.PODS, "team-a", "llm-0", tests=tests)


@pytest.mark.parametrize("answer", ANSWERS, ids=[answer["case"] for answer in ANSWERS])
def test_a_real_answer_gets_the_class_that_says_what_is_owed(answer: dict[str, object]) -> None:
    verb, code, headers, body = answer["verb"], answer["code"], answer["headers"], answer["body"]
    assert isinstance(verb, str)
    assert isinstance(code, int)
    assert isinstance(headers, dict)
    assert isinstance(body, str)

    error = error_from_answer(request(verb, tests=bool(answer["json_patch_with_test"])), code, headers, body.encode())

    assert type(error).__name__ == answer["error"]
    assert error.status == code
    assert str(error).startswith(f"{verb} pods team-a/llm-0: ")


def test_a_missing_permission_names_verb_and_resource() -> None:
    body = next(answer["body"] for answer in ANSWERS if answer["case"] == "forbidden-patch-status")
    error = error_from_answer(request("patch"), 403, {}, body.encode())
    assert 'cannot patch resource "recoverygroups/status"' in str(error)


def test_a_missing_crd_is_named() -> None:
    missing = ApiRequest("watch", ports.RECOVERY_POLICIES)
    error = error_from_answer(missing, 404, {}, b"404 page not found\n")
    assert str(error) == (
        "watch recoverypolicies: the API server knows no recoverypolicies of recovery.trainjob.dev/v1alpha1; "
        "is the CRD installed?"
    )


def test_a_denial_without_details_is_no_failed_test() -> None:
    body = b'{"code": 422, "reason": "Invalid", "message": "admission webhook \\"a.b\\" denied the request: no"}'
    assert type(error_from_answer(request("patch", tests=True), 422, {}, body)) is RefusedError


def test_retry_after_comes_from_the_header_else_from_the_body() -> None:
    body = b'{"message": "busy", "details": {"retryAfterSeconds": 7}}'
    from_header = error_from_answer(request("delete"), 429, {"Retry-After": "3"}, body)
    from_body = error_from_answer(request("delete"), 429, {}, body)
    from_nowhere = error_from_answer(request("delete"), 429, {"Retry-After": "Wed, 21 Oct"}, b"")
    seconds = [getattr(error, "retry_after_seconds", "none") for error in (from_header, from_body, from_nowhere)]
    assert seconds == [3.0, 7.0, None]


def test_an_answer_that_is_no_text_is_an_answer() -> None:
    error = error_from_answer(request("get"), 502, {}, b'{"message": "\xff\xfe"}')
    assert type(error) is TryLaterError


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_a_write_that_met_a_5xx_has_an_unknown_outcome_a_read_does_not(code: int) -> None:
    page = b"<html>Bad\n Gateway</html>" + b"x" * 10_000
    written = error_from_answer(request("patch"), code, {}, page)
    read = error_from_answer(request("get"), code, {}, page)
    assert type(written) is UnknownOutcomeError
    assert type(read) is TryLaterError
    assert "<html>Bad Gateway</html>" in str(read)
    assert len(str(read)) < 1100


@pytest.mark.parametrize(
    ("failure", "for_write", "for_read"),
    [
        (aiohttp.ClientConnectorError(KEY, OSError(111, "refused")), TryLaterError, TryLaterError),
        (aiohttp.ConnectionTimeoutError("connecting"), TryLaterError, TryLaterError),
        (aiohttp.ServerDisconnectedError(), UnknownOutcomeError, TryLaterError),
        (aiohttp.ClientPayloadError("half an answer"), UnknownOutcomeError, TryLaterError),
        (aiohttp.SocketTimeoutError("silence"), UnknownOutcomeError, TryLaterError),
        (TimeoutError(), UnknownOutcomeError, TryLaterError),
        (
            aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError()),
            UntrustedServerError,
            UntrustedServerError,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_broken_exchange_is_unknown_only_if_something_was_sent(
    failure: aiohttp.ClientError | TimeoutError, for_write: type[ApiError], for_read: type[ApiError]
) -> None:
    assert type(error_from_failure(request("create"), failure)) is for_write
    assert type(error_from_failure(request("list"), failure)) is for_read


PAGE = b"<!DOCTYPE html>\n<title>Sign in</title>"
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("verb", "body", "strange"),
    [
        ("get", PAGE, True),
        ("list", b"", True),
        ("patch", b"[]", True),
        ("create", b'{"hello": "world"}', True),
        ("get", b'\n {"kind": "Pod"}', False),
        ("list", b'{"apiVersion":"v1","items":[],"kind":"PodList"}', False),
    ],
)
def test_a_success_without_an_object_of_a_kind_is_strange(verb: str, body: bytes, strange: bool) -> None:
    assert is_strange(request(verb), body) is strange


def test_the_lines_of_a_log_are_not_strange() -> None:
    log = ApiRequest("get", ports.PODS, "team-a", "llm-0", "log")
    assert not is_strange(log, b"<html>")


@pytest.mark.parametrize(
    ("code", "headers", "body"),
    [
        (200, HTML, PAGE),
        (200, {}, b""),
        (200, {}, b'{"hello": 1}'),
        (302, HTML, b""),
        (403, HTML, PAGE),
        (404, {}, PAGE),
    ],
)
def test_the_answer_of_something_else_passes_and_tells_what_came_from_where(
    code: int, headers: dict[str, str], body: bytes
) -> None:
    """Such an answer says nothing about the request: a proxy or a login page answered in place of the API server."""
    read = error_from_answer(request("list"), code, headers, body, "https://k8s:6443/api/v1/pods")
    written = error_from_answer(request("create"), code, headers, body)
    assert (type(read), type(written)) == (TryLaterError, UnknownOutcomeError)
    assert read.status == written.status == code
    assert f"https://k8s:6443/api/v1/pods answered {code} with {headers.get('Content-Type', 'no Content-Type')}" in str(
        read
    )
    assert " ".join(body.decode().split()) in str(read)


def test_a_redirect_tells_where_to() -> None:
    error = error_from_answer(request("get"), 302, {"Location": "https://login.example/"}, b"")
    assert "a redirect to https://login.example/" in str(error)


def test_credentials_that_a_proxy_does_not_accept_are_refused_credentials() -> None:
    """The credentials are then read again."""
    assert type(error_from_answer(request("get"), 401, HTML, PAGE)) is UnauthorizedError


def test_of_a_long_page_the_start_is_shown() -> None:
    assert len(str(error_from_answer(request("get"), 502, HTML, PAGE + b"x" * 10_000))) < 400


CERTIFICATE = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
TLS = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (TimeoutError(), "no answer from https://k8s within 2.5 s"),
        (
            aiohttp.ClientConnectorError(KEY, OSError(111, "Connect call failed ('h', 1)")),
            "https://k8s: Connection refused",
        ),
        (
            aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(-2, "Name or service not known")),
            "cannot connect to https://k8s: Name or service not known",
        ),
        (aiohttp.ClientConnectorSSLError(KEY, TLS), "https://k8s: [SSL: WRONG_VERSION_NUMBER] wrong version"),
        (aiohttp.ClientConnectorCertificateError(KEY, CERTIFICATE), "the certificate of https://k8s is not accepted: "),
        (aiohttp.ClientProxyConnectionError(KEY, OSError(111, "refused")), "the proxy h:1: Connection refused"),
        (aiohttp.ServerDisconnectedError(), "https://k8s closed the connection without an answer"),
        (aiohttp.ClientPayloadError("half"), "the connection to https://k8s broke in the middle of the answer"),
        (aiohttp.ClientOSError(104, "reset"), "the connection to https://k8s broke: Connection reset by peer"),
        (aiohttp.ClientError("anything else"), "https://k8s: anything else"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_broken_exchange_tells_with_whom_and_how(failure: aiohttp.ClientError | TimeoutError, says: str) -> None:
    assert says in str(error_from_failure(request("get"), failure, "https://k8s", 2.5))
