"""The envelopes of what the API server answers, told from what only looks like an answer.

A proxy in between may answer 200 with a page of its own. That is no fault of the request and passes, so it is a
TryLaterError: the same question again, later. An object that is no list, from whoever answers in the API server's
place, is a RefusedError: read as an empty list it would say that everything is gone. What msgspec raises is a
ValueError in every case, also for bytes that are no text, where it is no error of its own (UnicodeDecodeError).
"""

import msgspec

from recovery.kube.projections.metadata import Identity, ObjectList, decode_identity, decode_list
from recovery.ports import RefusedError, Resource, TryLaterError


def read_page(resource: Resource, body: bytes) -> ObjectList:
    """One page of a list, its items undecoded."""
    try:
        page = decode_list(body)
    except ValueError as error:
        raise TryLaterError(f"list {resource.plural}: not a list: {error}") from error
    if not page.kind.endswith("List") or not page.metadata.resource_version:
        raise RefusedError(
            f"list {resource.plural}: the answer is an object of kind {page.kind!r} with resourceVersion "
            f"{page.metadata.resource_version!r}, not a list; is there something else in front of the API server?"
        )
    return page


def read_identity(resource: Resource, raw: msgspec.Raw) -> Identity:
    """The least that an object says of itself, whatever else is wrong with it."""
    try:
        return decode_identity(raw).metadata
    except ValueError as error:
        raise TryLaterError(f"{resource.plural}: not an object: {error}") from error
