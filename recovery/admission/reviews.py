"""Decides whether an AdmissionReview can be read at all, before any check reads its object.

Any client that reaches the port can send a review. So it has to be one that an API server could send: of the resource
that the path is for, and of an object in the namespace of the request. Only that namespace decides which objects may be
read for the review, because the API server has checked that the user may write there.

Pure: bytes in, an answer or the request out.
"""

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

CHECKED_BYTES_MAX = 1024 * 1024
"""Of a review. The checks of a larger one would delay all others."""
DEPTH_MAX = 100
"""Of nested lists and objects. All code that walks an object recursively, ours and kopf's, can handle this depth."""
UNPROCESSABLE = 422
"""The status with which the API server itself refuses an invalid object."""

_HEAD_BYTES = 4096
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,64})"')
"""The API server writes the fields of a request in their order, and `uid` is the first."""

Object = Mapping[str, Any]


class ReviewOutcome(StrEnum):
    """The outcome of a review."""

    ALLOWED = "allowed"
    WARNED = "warned"
    """Allowed, with warnings for the user."""
    REFUSED = "refused"
    ERROR = "error"
    """A bug of ours: allowed, unchecked."""


Reviewed = Callable[[str, ReviewOutcome], None]
"""Called with the path of the webhook after each review."""


class ReviewError(Exception):
    """No API server sends such a review. It gets no verdict."""


class EarlyAnswer(msgspec.Struct, frozen=True):
    """The answer to a review whose object is not read."""

    outcome: ReviewOutcome
    body: dict[str, Any]
    """The AdmissionReview to send."""


class ReviewedRequest(msgspec.Struct, frozen=True):
    """A review that can be read."""

    namespace: str
    """Namespace of the request. Empty: the object is cluster-scoped."""


def read_review(body: bytes, plural: str | None) -> EarlyAnswer | ReviewedRequest:
    """Read a review. `plural`: the resource that the path is for. None: the path is unknown.

    Raises ReviewError.
    """
    if len(body) > CHECKED_BYTES_MAX:
        warning = (
            f"the object is too large to be checked: the review has {len(body)} bytes, {CHECKED_BYTES_MAX} at most"
        )
        return EarlyAnswer(ReviewOutcome.WARNED, _answer(body, {"allowed": True, "warnings": [warning]}))
    try:
        review = json.loads(body)
    except RecursionError:
        return _too_deep(body)
    except ValueError as error:  # malformed UTF-8 included
        raise ReviewError(f"the review is not JSON: {error}") from None
    if _deeper_than(DEPTH_MAX, review):
        return _too_deep(body)
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict):
        raise ReviewError("the review has no request")
    return ReviewedRequest(_namespace(request, plural))


def _namespace(request: Object, plural: str | None) -> str:
    resource, namespace = request.get("resource"), request.get("namespace") or ""
    if plural is not None and (not isinstance(resource, dict) or resource.get("resource") != plural):
        raise ReviewError(f"the review is of another resource than {plural}")
    for field in ("object", "oldObject"):
        found = request.get(field)
        metadata = found.get("metadata") if isinstance(found, dict) else None
        if isinstance(metadata, dict) and (metadata.get("namespace") or "") != namespace:
            raise ReviewError(f"{field} is not in the namespace of the request")
    return str(namespace)


def _too_deep(body: bytes) -> EarlyAnswer:
    status = {"code": UNPROCESSABLE, "message": f"the object is nested more than {DEPTH_MAX} levels deep"}
    return EarlyAnswer(ReviewOutcome.REFUSED, _answer(body, {"allowed": False, "status": status}))


def _deeper_than(depth_max: int, found: Any) -> bool:
    level = [found]
    for _ in range(depth_max):
        level = [each for parent in level for each in _children(parent)]
        if not level:
            return False
    return True


def _children(parent: Any) -> list[Any]:
    children = parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ()
    return [each for each in children if isinstance(each, dict | list)]


def _answer(body: bytes, response: dict[str, Any]) -> dict[str, Any]:
    """The API server accepts only an answer with the uid of its request. It is found without decoding the rest."""
    found = _UID.search(body[:_HEAD_BYTES])
    if found is None:
        raise ReviewError("the review has no uid where an API server writes it")
    uid = found.group(1).decode()
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, **response}}
