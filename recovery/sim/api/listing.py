"""Lists: the selected objects as they were at one revision, in pages if the client sets a limit."""

import base64
import binascii
from collections.abc import Iterable

import msgspec

from recovery.ports import Resource
from recovery.sim.api.error_answers import ahead_of_time, bad_request, expired
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.selectors import Matches
from recovery.sim.api.store import Key, ResourceTable, Store

ANY_REVISION = "0"


class _Token(msgspec.Struct):
    """Where the next page begins. All pages show the state at `rv`."""

    rv: int
    after: Key


def listed(
    store: Store,
    table: ResourceTable,
    matches: Matches | None,
    *,
    resource_version: str | None,
    limit: int | None,
    continue_token: str,
) -> Body:
    """One page of a list. Raises `StatusError`: 410 if the revision is compacted, 504 if it does not exist yet."""
    if continue_token:
        if resource_version:
            raise bad_request("specifying resource version is not allowed when using continue")
        token = _decoded(continue_token)
        if token.rv < store.compacted:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        revision, after = token.rv, token.after
    else:
        revision, after = store.revision, None
        wanted = revision_of(resource_version or ANY_REVISION)
        if wanted > revision:
            raise ahead_of_time(wanted, revision)
    found = [
        (key, body)
        for key, body in table.at(revision).items()
        if (after is None or key > after) and (matches is None or matches(body))
    ]
    metadata: Body = {"resourceVersion": str(revision)}
    page = found
    # A list from the server's watch cache ignores the limit.
    if limit and resource_version != ANY_REVISION and len(found) > limit:
        page = found[:limit]
        metadata["continue"] = _encoded(_Token(revision, page[-1][0]))
        if matches is None:
            metadata["remainingItemCount"] = len(found) - limit
    resource = table.resource
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": _items(resource, (body for _, body in page)),
    }


def revision_of(resource_version: str) -> int:
    if not resource_version.isdecimal():
        raise bad_request(f"Invalid value: {resource_version!r}: must be an unsigned integer")
    return int(resource_version)


def built_in(resource: Resource) -> bool:
    """Whether the resource is built in, as opposed to a custom resource."""
    return "." not in resource.group or resource.group.endswith(".k8s.io")


def _items(resource: Resource, bodies: Iterable[Body]) -> list[Body]:
    """List items of custom resources have apiVersion and kind, those of built-in kinds do not."""
    if not built_in(resource):
        return list(bodies)
    return [{name: part for name, part in body.items() if name not in {"apiVersion", "kind"}} for body in bodies]


def _encoded(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _decoded(continue_token: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(continue_token), type=_Token)
    except (binascii.Error, ValueError) as error:
        raise bad_request("invalid continue token: continue key is not valid") from error
