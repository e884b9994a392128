"""Answers to errors. The bodies are a real API server's; the class of each says what the caller owes."""

import json
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from recovery import ports
from recovery.kube.errors import error_from_answer, error_from_failure
from recovery.ports import ApiError, ApiRequest, RefusedError, TryLaterError, UnknownOutcomeError
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
        (aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError()), RefusedError, RefusedError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_broken_exchange_is_unknown_only_if_something_was_sent(
    failure: aiohttp.ClientError | TimeoutError, for_write: type[ApiError], for_read: type[ApiError]
) -> None:
    assert type(error_from_failure(request("create"), failure)) is for_write
    assert type(error_from_failure(request("list"), failure)) is for_read
