"""Objects and their history as a sequence of revisions, as etcd keeps them.

The history of a resource is a linked list: each change links to the next. A watch holds the last link that it has read.
So it still gets all later changes when older entries are forgotten, and no positions have to be adjusted: only a new
request misses the forgotten ones. Bodies are encoded once, when a client first needs the bytes.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from recovery.ports import Resource
from recovery.sim.api.kinds.kind import Body, ServedKind

HISTORY_MAX = 50_000
"""How many changes are kept over all resources. When there are more, the older half is forgotten."""

Key = tuple[str, str]
"""Namespace (empty for a cluster-scoped object) and name."""

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A change of one object, which makes one revision."""

    type: EventType
    resource: Resource
    body: Body
    """The object after the change. For a deletion: its last state, with the resourceVersion of the deletion."""
    before: Body | None
    """The object before the change. None: it is new."""
    revision: int
    actor: str
    """Author of the change: the name given to `acting`."""


class Link:
    """A place in the history of a resource: `following` is the change after it, None if there is none yet."""

    __slots__ = ("following",)

    def __init__(self) -> None:
        self.following: HistoryEntry | None = None


class EncodedChange:
    """A change and the lines by which watches report it.

    It is not a `Link`, because an object holds its newest change for as long as it exists. A link would keep the whole
    later history in memory.
    """

    __slots__ = ("_departed", "_encoded", "_line", "change")

    def __init__(self, change: ObjectChange) -> None:
        self.change = change
        self._encoded: bytes | None = None
        self._line: bytes | None = None
        self._departed: bytes | None = None

    def line(self) -> bytes:
        """The line for a watch that sees the object before and after the change."""
        if self._line is None:
            self._line = b'{"type":"%s","object":%s}' % (self.change.type.encode(), self.encoded())
        return self._line

    def added(self) -> bytes:
        """The line for a watch to which the object is new."""
        return self.line() if self.change.type == "ADDED" else b'{"type":"ADDED","object":%s}' % self.encoded()

    def departed(self) -> bytes:
        """The line for a watch whose selectors matched the object only before the change. It has the old state."""
        if self._departed is None:
            assert self.change.before is not None
            before = self.change.before
            metadata = {**before["metadata"], "resourceVersion": str(self.change.revision)}
            self._departed = b'{"type":"DELETED","object":%s}' % _encode({**before, "metadata": metadata})
        return self._departed

    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = _encode(self.change.body)
        return self._encoded


class HistoryEntry(Link):
    """A change in the history."""

    __slots__ = ("encoded",)

    def __init__(self, encoded: EncodedChange) -> None:
        super().__init__()
        self.encoded = encoded


class Record:
    """An object's current state. `newest`: its newest change. `number`: its number in the order of creation."""

    __slots__ = ("body", "newest", "number")

    def __init__(self, body: Body, newest: EncodedChange, number: int) -> None:
        self.body = body
        self.newest = newest
        self.number = number


class ResourceTable:
    """All objects of one kind, in order of creation, and their history."""

    def __init__(self, kind: ServedKind) -> None:
        self.kind = kind
        self.resource = kind.resource
        self.fills_in = kind.default is not ServedKind.default
        """The kind has its own defaults."""
        self.records: dict[Key, Record] = {}
        self.newest: Link = Link()
        self._forgotten = self.newest
        """The link before the oldest entry that is kept."""
        self._entries: list[HistoryEntry] = []
        self._waiting: dict[asyncio.Future[None], None] = {}

    def append(self, entry: HistoryEntry) -> None:
        self._entries.append(entry)
        self.newest.following = entry
        self.newest = entry
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def after(self, revision: int) -> Link:
        """The link that the changes after `revision` follow."""
        index = bisect_right(self._entries, revision, key=_revision)
        return self._entries[index - 1] if index else self._forgotten

    def forget(self, revision: int) -> int:
        """Forget the changes up to `revision`. Returns how many were forgotten."""
        count = bisect_right(self._entries, revision, key=_revision)
        if count:
            self._forgotten = self._entries[count - 1]
            del self._entries[:count]
        return count

    def at(self, revision: int) -> dict[Key, Body]:
        """All objects as of `revision`, in etcd's order: by namespace and name. The revision must not be forgotten."""
        bodies = {key: record.body for key, record in self.records.items()}
        for entry in reversed(self._entries):
            change = entry.encoded.change
            if change.revision <= revision:
                break
            key = key_of(change.body)
            if change.before is None:
                del bodies[key]
            else:
                bodies[key] = change.before
        return dict(sorted(bodies.items()))

    async def news(self, until_seconds: float) -> None:
        """Wait for the next change, at most until that time of the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = None
        timer = loop.call_at(until_seconds, _wake, future)
        try:
            await future
        finally:
            timer.cancel()
            del self._waiting[future]


class Store:
    """The tables of all kinds, the revision counter, and the subscribers to changes."""

    def __init__(self, kinds: Iterable[ServedKind]) -> None:
        self.revision = 1
        self.compacted = 0
        """States before this revision are forgotten."""
        self.tables = {kind.resource: ResourceTable(kind) for kind in kinds}
        self._by_kind = {(resource.api_version, resource.kind): resource for resource in self.tables}
        self._dependants: dict[str, dict[tuple[Resource, Key], None]] = {}
        self._subscribers: dict[Resource, list[Callable[[ObjectChange], None]]] = {
            resource: [] for resource in self.tables
        }
        self._telling = False
        self.made = 0
        """How many objects were ever created."""
        self._kept = 0

    def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """The resource, or None if no such kind is served."""
        return self._by_kind.get((api_version, kind))

    def subscribe(self, callback: Callable[[ObjectChange], None], resources: Iterable[Resource]) -> None:
        """Without resources: subscribe to all. Subscribers are called in the order in which they subscribed."""
        for resource in tuple(resources) or self.tables:
            self._subscribers[resource].append(callback)

    def dependants(self, uid: str) -> list[Body]:
        """The objects that have an owner reference to `uid`, in order of creation."""
        found = [self.tables[resource].records[key] for resource, key in self._dependants.get(uid, ())]
        found.sort(key=_number)
        return [record.body for record in found]

    def add(self, table: ResourceTable, body: Body, actor: str) -> None:
        """Store a new object. The store owns the body's top level and its metadata. Other parts may be shared."""
        key = key_of(body)
        self.made += 1
        entry = self._entry(table, "ADDED", body, None, actor)
        table.records[key] = Record(body, entry.encoded, self.made)
        self._own(table.resource, key, (), _owners(body))
        self._notify(table, entry)

    def change(self, table: ResourceTable, body: Body, actor: str) -> None:
        """Store a new state of an existing object. The body is owned as in `add`."""
        key = key_of(body)
        record = table.records[key]
        before = record.body
        entry = self._entry(table, "MODIFIED", body, before, actor)
        record.body, record.newest = body, entry.encoded
        if before["metadata"].get("ownerReferences") is not body["metadata"].get("ownerReferences"):
            self._own(table.resource, key, _owners(before), _owners(body))
        self._notify(table, entry)

    def remove(self, table: ResourceTable, key: Key, actor: str) -> Body:
        """Remove the object. Returns its last state, as watches report it."""
        before = table.records.pop(key).body
        entry = self._entry(table, "DELETED", {**before, "metadata": dict(before["metadata"])}, before, actor)
        self._own(table.resource, key, _owners(before), ())
        self._notify(table, entry)
        return entry.encoded.change.body

    def compact(self, revision: int) -> None:
        """Forget the states before `revision`."""
        self.compacted = max(self.compacted, revision)
        self._kept -= sum(table.forget(revision) for table in self.tables.values())

    def _entry(
        self, table: ResourceTable, event: EventType, body: Body, before: Body | None, actor: str
    ) -> HistoryEntry:
        assert not self._telling, "a watcher that receives a change must not write: others have not received it yet"
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        return HistoryEntry(EncodedChange(ObjectChange(event, table.resource, body, before, self.revision, actor)))

    def _notify(self, table: ResourceTable, entry: HistoryEntry) -> None:
        table.append(entry)
        self._kept += 1
        if self._kept > HISTORY_MAX:
            self.compact(self.revision - HISTORY_MAX // 2)
        self._telling = True
        try:
            for callback in self._subscribers[table.resource]:
                callback(entry.encoded.change)
        finally:
            self._telling = False

    def _own(self, resource: Resource, key: Key, before: Iterable[str], after: Iterable[str]) -> None:
        for uid in before:
            owned = self._dependants[uid]
            owned.pop((resource, key), None)
            if not owned:
                del self._dependants[uid]
        for uid in after:
            self._dependants.setdefault(uid, {})[resource, key] = None


def key_of(body: Body) -> Key:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _owners(body: Body) -> list[str]:
    """The UIDs of the owners, each once."""
    return list(dict.fromkeys(owner["uid"] for owner in body["metadata"].get("ownerReferences", ())))


def _revision(entry: HistoryEntry) -> int:
    return entry.encoded.change.revision


def _number(record: Record) -> int:
    return record.number


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
