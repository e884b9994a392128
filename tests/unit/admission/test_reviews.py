"""Which reviews are read, and the answers to those that are not."""

import json
from typing import Any

import pytest

from recovery.admission.reviews import (
    CHECKED_BYTES_MAX,
    DEPTH_MAX,
    EarlyAnswer,
    ReviewedRequest,
    ReviewError,
    ReviewOutcome,
    read_review,
)

Object = dict[str, Any]
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def review(namespace: str | None = "team", **request: Any) -> bytes:
    """A review of a TrainJob in namespace `team`, with the fields in the order in which the API server writes them."""
    made = {"metadata": {"name": "llm", "namespace": "team"}, "spec": {}}
    fields = {"uid": UID, "resource": {"resource": "trainjobs"}, "namespace": namespace, "object": made} | request
    return json.dumps({"kind": "AdmissionReview", "request": fields}).encode()


def nested(levels: int) -> bytes:
    spec = b"[" * levels + b"]" * levels
    return review(object="SPEC").replace(b'"SPEC"', b'{"metadata": {"namespace": "team"}, "spec": ' + spec + b"}")


def early(body: bytes) -> tuple[ReviewOutcome, Object]:
    answer = read_review(body, "trainjobs")
    assert isinstance(answer, EarlyAnswer)
    assert answer.body["response"].pop("uid") == UID
    return answer.outcome, answer.body["response"]


def test_one_that_an_api_server_sends_is_read_for_the_namespace_of_its_request() -> None:
    assert read_review(review(), "trainjobs") == ReviewedRequest("team")


def test_one_of_the_cluster_has_no_namespace() -> None:
    runtime = {"metadata": {"name": "torch"}}
    body = review(None, object=runtime, resource={"resource": "clustertrainingruntimes"})
    assert read_review(body, "clustertrainingruntimes") == ReviewedRequest("")


def test_one_under_a_path_that_is_not_known_is_kopfs_to_answer() -> None:
    assert read_review(review(resource={"resource": "pods"}), None) == ReviewedRequest("team")


ELSEWHERE: Object = {"metadata": {"name": "llm", "namespace": "victim"}}
IMPLAUSIBLE: dict[str, tuple[bytes, str]] = {
    "the object names another namespace": (review(object=ELSEWHERE), "object is not in the namespace"),
    "the old object does": (review(oldObject=ELSEWHERE), "oldObject is not in the namespace"),
    "the request names none": (review(None), "object is not in the namespace"),
    "another resource": (review(resource={"resource": "pods"}), "another resource than trainjobs"),
    "no request": (b"{}", "has no request"),
    "a list": (b"[]", "has no request"),
    "no JSON": (b"{", "is not JSON"),
    "no text": (b"\xff", "is not JSON"),
    "too large, of nobody": (b" " * (CHECKED_BYTES_MAX + 1), "has no uid"),
    "too deep, of nobody": (b"[" * 5000 + b"]" * 5000, "has no uid"),
}


@pytest.mark.parametrize(("body", "why"), IMPLAUSIBLE.values(), ids=IMPLAUSIBLE.keys())
def test_what_no_api_server_sends_gets_no_verdict(body: bytes, why: str) -> None:
    with pytest.raises(ReviewError, match=why):
        read_review(body, "trainjobs")


def test_one_over_the_bound_is_allowed_with_a_warning_that_it_was_not_checked() -> None:
    outcome, response = early(review(padding="x" * CHECKED_BYTES_MAX))
    assert (outcome, response["allowed"]) == (ReviewOutcome.WARNED, True)
    assert "too large to be checked" in response["warnings"][0]


@pytest.mark.parametrize("levels", [DEPTH_MAX, 5000], ids=["as a parser reads it", "deeper than a parser goes"])
def test_one_that_is_nested_too_deep_is_refused_with_a_clear_message(levels: int) -> None:
    outcome, response = early(nested(levels))
    assert (outcome, response["allowed"]) == (ReviewOutcome.REFUSED, False)
    assert response["status"] == {"code": 422, "message": f"the object is nested more than {DEPTH_MAX} levels deep"}


def test_one_that_is_nested_less_deep_is_read() -> None:
    assert read_review(nested(DEPTH_MAX - 5), "trainjobs") == ReviewedRequest("team")
