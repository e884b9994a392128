"""Watches: the changes of a resource, line by line as on the wire."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from recovery.ports import PODS, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.selectors import Matches
from recovery.sim.api.store import EncodedChange, Link, ResourceTable, Store

BOOKMARK_SECONDS = 60.0
"""`defaultBookmarkFrequency` of apiserver's watch cache."""
LAST_BOOKMARK_SECONDS = 2.0
"""How long before its time limit a watch gets a last bookmark."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_encode = msgspec.json.Encoder().encode


async def watch(
    store: Store,
    table: ResourceTable,
    matches: Matches | None,
    *,
    after: int | None,
    marks_initial_end: bool,
    timeout_seconds: float,
) -> AsyncGenerator[bytes, None]:
    """The lines after revision `after`, or all objects first if it is None. Ends when the timeout expires.

    `marks_initial_end`: send a bookmark between the initial objects and the changes.
    """
    loop = asyncio.get_running_loop()
    ends_at_seconds = loop.time() + timeout_seconds
    bookmark_at_seconds = _next_bookmark(loop.time(), ends_at_seconds)
    if after is None:
        place: Link = table.newest
        revision = store.revision
        for newest in [table.records[key].newest for key in sorted(table.records)]:
            if matches is None or matches(newest.change.body):
                yield newest.added()
        if marks_initial_end:
            yield _bookmark(table.resource, revision, initial_events_end=True)
    elif after < store.compacted:
        yield _expired(after, store.compacted)
        return
    else:
        place = table.after(after)
    while True:
        while (entry := place.following) is not None:
            place = entry
            line = entry.encoded.line() if matches is None else _selected(entry.encoded, matches)
            if line is not None:
                yield line
        now_seconds = loop.time()
        if now_seconds >= ends_at_seconds:
            return
        if now_seconds >= bookmark_at_seconds:
            bookmark_at_seconds = _next_bookmark(now_seconds, ends_at_seconds)
            yield _bookmark(table.resource, store.revision, initial_events_end=False)
        else:
            await table.news(min(ends_at_seconds, bookmark_at_seconds))


def _selected(encoded: EncodedChange, matches: Matches) -> bytes | None:
    """The line of a change for a watch with selectors. None: the change does not concern a selected object."""
    change = encoded.change
    was_seen = change.before is not None and matches(change.before)
    if change.type == "DELETED":
        return encoded.line() if was_seen else None
    if matches(change.body):
        return encoded.line() if was_seen else encoded.added()
    return encoded.departed() if was_seen else None


def _next_bookmark(now_seconds: float, ends_at_seconds: float) -> float:
    last_seconds = ends_at_seconds - LAST_BOOKMARK_SECONDS
    if last_seconds <= now_seconds:
        return ends_at_seconds
    return min(now_seconds + BOOKMARK_SECONDS, last_seconds)


def _bookmark(resource: Resource, revision: int, *, initial_events_end: bool) -> bytes:
    metadata: Body = {"resourceVersion": str(revision)}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    bookmark: Body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    if resource == PODS:  # As in an empty object of a built-in kind, a required field is null even if it is a list.
        bookmark |= {"spec": {"containers": None}, "status": {}}
    return _encode({"type": "BOOKMARK", "object": bookmark})


def _expired(after: int, compacted: int) -> bytes:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {after} ({compacted})",
        "reason": "Expired",
        "code": 410,
    }
    return _encode({"type": "ERROR", "object": status})
