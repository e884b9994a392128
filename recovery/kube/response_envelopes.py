"""Decodes the envelopes of the API server's answers, and detects answers that did not come from it.

A proxy in between may answer 200 with a page of its own. That is temporary and no fault of the request, so it is a
TryLaterError. An object that is no list comes from another server in the API server's place and is a RefusedError: read
as an empty list, it would mean that everything is gone.
"""

import msgspec

from recovery.decoding import at_any_depth
from recovery.kube.projections.metadata import BookmarkMetadata, ObjectList, decode_bookmark, decode_list
from recovery.ports import UNDECODABLE, RefusedError, Resource, TryLaterError


def read_page(resource: Resource, body: bytes) -> ObjectList:
    """One page of a list, its items undecoded."""
    try:
        page = at_any_depth(decode_list, body)
    except UNDECODABLE as error:
        raise TryLaterError(f"list {resource.plural}: not a list: {error}") from error
    if not page.kind.endswith("List") or not page.metadata.resource_version:
        raise RefusedError(
            f"list {resource.plural}: the answer is an object of kind {page.kind!r} with resourceVersion "
            f"{page.metadata.resource_version!r}, not a list; is there something else in front of the API server?"
        )
    return page


def read_bookmark(resource: Resource, raw: msgspec.Raw) -> BookmarkMetadata:
    """How far the watch has come."""
    try:
        return at_any_depth(decode_bookmark, raw).metadata
    except UNDECODABLE as error:
        raise TryLaterError(f"{resource.plural}: not an object: {error}") from error
