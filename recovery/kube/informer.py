"""Keeps the objects of one resource current: list, then watch, and recover from whatever interrupts the watch.

The list is a streaming one, on the connection that then carries the watch. Servers that refuse it are asked for pages.
There are four kinds of trouble afterwards:
- A stream ends or breaks: it is opened again at its position.
- The server has forgotten the position (410), or sends an error in mid-stream: the informer lists again and takes the
  difference, so unseen deletions are reported like others.
- An object is older than the known one: it is a replay and is dropped, so that facts never run backwards. The
  resourceVersions of one resource are ordered numbers (by definition since Kubernetes 1.35, on etcd always).
- The server refuses permanently: at the start that is an error, because a user is there to read it. Later (the CRD was
  deleted, a role was taken away) it only clears `synced` and is reported once, because a controller that exits would
  not see the resource return. When it returns, the list shows what has changed; a deleted CRD leaves no objects.

A watch may also fall silent while its connection is up, because a server hangs or a load balancer keeps TCP alive.
Silence for `WATCH_IDLE_SECONDS_MAX` ends the watch, and a list follows. The list is right even where the server merely
had nothing to report. If attempts fail as well and that much time has passed, the known facts are `stale`.

An object that cannot be read (`recovery.decoding`) is kept apart, identified by its metadata, and the watch continues.
"""

import re
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from recovery import api_verbs
from recovery.core.model.facts import UndecodableObject
from recovery.decoding import at_any_depth, decoded
from recovery.kube.errors import ApiStatus, error_from_status
from recovery.kube.observer import InformerObserver
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.response_envelopes import read_bookmark, read_page
from recovery.kube.watch_lines import WATCH_IDLE_SECONDS_MAX, WatchEvent, decode_event
from recovery.ports import (
    UNDECODABLE,
    ApiClient,
    ApiError,
    ApiRequest,
    Clock,
    Entropy,
    ExpiredError,
    ForbiddenError,
    NoSuchResourceError,
    RefusedError,
    Resource,
    SilentWatchError,
    TryLaterError,
    UnauthorizedError,
    UndecodableError,
    WatchEnd,
)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
PAGE_OBJECTS_MAX = 500
WATCH_SECONDS_MIN = 240
WATCH_SECONDS_MAX = 480
"""The time limit of a watch is drawn from this range, so that the watches of a process do not all end at once."""
HEALTHY_SECONDS = 10.0
"""A stream that lived this long was healthy: the next interruption is a new one, and backoff starts again."""
BACKOFF_SECONDS_FIRST = 0.1
RESUME_BACKOFF_SECONDS_MAX = 2.0
"""Between attempts to resume a stream: they are cheap for the server, and no change is seen until one succeeds."""
LIST_BACKOFF_SECONDS_MAX = 5.0
"""Between attempts to list."""
STALE_AFTER_FAILURES = 2
"""The watch that ended and the attempt after it. Every rolling restart of the API server causes one failure."""

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name."""
Found = ObjectEntry[T] | UndecodableObject
"""The result of decoding one object."""

_NUMBER = re.compile("[0-9]{1,20}")
_decode_status = msgspec.json.Decoder(ApiStatus).decode


def nothing(*_: object) -> None:
    """A callback that ignores the report."""


class Informer(Generic[T]):
    """Follows one resource in all namespaces while the process lives. Start `run` in a task of its own."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        decode: Callable[[msgspec.Raw], ObjectEntry[T]],
        *,
        put: Callable[[ObjectEntry[T]], None],
        drop: Callable[[ObjectEntry[T]], None],
        clock: Clock,
        entropy: Entropy,
        observer: InformerObserver,
        label_selector: str = "",
        replacing: Callable[[ObjectEntry[T], ObjectEntry[T]], None] = nothing,
        readability_changed: Callable[[UndecodableObject], None] = nothing,
        taken_over: Callable[[], None] = nothing,
        forget_undecodable: bool = False,
        freshness_changed: Callable[[], None] = nothing,
    ) -> None:
        """The callbacks are called in the order in which the changes happened.

        `put`: an object is new or has changed. `drop`: an object is gone; the entry is its last known state. Where a
        name is used again, the old UID is dropped before the new one is put. `replacing`: the second state of an object
        is about to replace the first, and is put or dropped next. An index by a field that may change removes the first
        state here. `readability_changed`: the object has become unreadable, is unreadable for another reason, or is
        readable again or gone. `taken_over`: a whole list has been put and dropped. Until then (`taking_over`) the
        objects that were put are only a part of it, in no order. `forget_undecodable` True: an object that cannot be
        read counts as absent; False: its last readable state stays. It is reported in either case.
        `freshness_changed`: the known facts have become stale, or are current again.
        """
        self._client = client
        self.resource = resource
        self._decode = decode
        self._put_object = put
        self._drop_object = drop
        self._replacing = replacing
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._readability_changed = readability_changed
        self._taken_over = taken_over
        self._freshness_changed = freshness_changed
        self.taking_over = False
        """A list is being put: the part that was put so far says nothing about the other objects."""
        self._label_selector = label_selector
        self._forget_undecodable = forget_undecodable
        self._streaming_list = True
        self._position = ""
        self._newest = ""
        self._started = False
        self._refused_as: type[RefusedError] | None = None
        """The lasting refusal that has been reported. None: nothing is refused."""
        self.objects: dict[Key, ObjectEntry[T]] = {}
        self.undecodable: dict[Key, UndecodableObject] = {}
        """The objects that cannot be read now. All objects without a name in their metadata count as one."""
        self.synced = False
        """The objects were listed, and nothing has been refused since."""
        self.stale_since: datetime | None = None
        """When the server last reported anything, if that is too long ago. None: not stale."""
        self._heard_at_seconds = clock.monotonic_seconds()
        """When the known facts were last confirmed to be current, by the clock's monotonic time."""
        self._failed_attempts = 0
        """Attempts since then that failed, or ended before the server sent anything."""
        self._heard_anything = False
        """Whether the server has sent anything in the current or the last attempt."""

    async def run(self) -> None:
        """Run until cancelled. Raises RefusedError if the first list is refused; no other ApiError ends it."""
        failures = 0
        while True:
            began, resumes = self._clock.monotonic_seconds(), bool(self._position)
            error: ApiError | None = None
            self._heard_anything = False
            try:
                await self._follow()
            except ApiError as failure:
                error = failure
            lived_seconds = self._clock.monotonic_seconds() - began
            if error is not None or not self._heard_anything:
                self._failed_attempts += 1
            self._consider_stale()
            if error is not None:
                self._consider(error)
            elif lived_seconds < WATCH_SECONDS_MIN:
                message = f"watch {self.resource.plural}: the server ended the stream after {lived_seconds:.0f} s"
                self._report(WatchEnd.ENDED, message)
            if lived_seconds >= HEALTHY_SECONDS or (resumes and not self._position):
                failures = 0  # a restarted API server has forgotten every position: list at once
            ceiling = RESUME_BACKOFF_SECONDS_MAX if self._position else LIST_BACKOFF_SECONDS_MAX
            ceiling = min(ceiling, BACKOFF_SECONDS_FIRST * 2.0 ** min(failures, 10))
            failures += 1
            await self._clock.sleep(self._entropy.uniform(ceiling / 2, ceiling))

    def _consider(self, error: ApiError) -> None:
        """Update the position and the state of the informer for an error. Raises the error again if it ends the run."""
        known, reason = False, WatchEnd.UNREACHABLE
        if isinstance(error, ExpiredError):
            reason, self._position = WatchEnd.EXPIRED, ""
        elif isinstance(error, SilentWatchError):
            # Not resumed at its position: it could be silent again, and would not show whether anything was missed.
            reason, self._position = WatchEnd.SILENT, ""
        elif isinstance(error, RefusedError):
            reason = WatchEnd.FORBIDDEN
            if self._lists_otherwise(error):
                self._streaming_list = False
            elif not self._started:
                raise error
            else:
                known, self._refused_as = type(error) is self._refused_as, type(error)
                self._position = ""
                self.synced = False
        if not known:
            self._report(reason, str(error))

    def _consider_stale(self) -> None:
        """Mark the facts as stale if that is due. Called when an attempt has ended."""
        unheard_seconds = self._clock.monotonic_seconds() - self._heard_at_seconds
        failed = self._failed_attempts >= STALE_AFTER_FAILURES and unheard_seconds >= WATCH_IDLE_SECONDS_MAX
        if self._started and failed and self.stale_since is None:
            self.stale_since = self._clock.now() - timedelta(seconds=unheard_seconds)
            self._freshness_changed()

    def _heard(self) -> None:
        """The server has just reported a change, or that nothing has changed."""
        self._heard_at_seconds = self._clock.monotonic_seconds()
        self._failed_attempts = 0
        self._heard_anything = True
        if self.stale_since is not None:
            self.stale_since = None
            self._freshness_changed()

    def _report(self, reason: WatchEnd, message: str) -> None:
        self._observer.watch_restarted(self.resource.plural, reason, message)

    def _lists_otherwise(self, error: RefusedError) -> bool:
        """Whether to list by pages instead: servers without the streaming list call its parameters invalid."""
        about_us = isinstance(error, ForbiddenError | UnauthorizedError | NoSuchResourceError)
        return self._streaming_list and not self._position and not about_us

    async def _follow(self) -> None:
        """List if need be, then watch until the stream ends."""
        if not self._position and not self._streaming_list:
            self._take_over(*await self._list_pages())
        listing: dict[Key, Found[T]] | None = None if self._position else {}
        lines = api_verbs.watch(
            self._client,
            self.resource,
            label_selector=self._label_selector,
            resource_version=self._position or None,
            send_initial_events=listing is not None,
            timeout_seconds=int(self._entropy.uniform(WATCH_SECONDS_MIN, WATCH_SECONDS_MAX)),
        )
        async with aclosing(lines):
            async for line in lines:
                self._observer.watch_event(self.resource.plural)
                event = self._event(line)
                if listing is None:
                    self._heard()  # while a list is collected, its content is not known yet
                if event.type == "BOOKMARK":
                    listing = self._bookmark(event, listing)
                elif listing is not None:
                    self._collect(event, listing)
                else:
                    self._apply(event)

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = at_any_depth(decode_event, line)
        except UNDECODABLE as error:
            raise TryLaterError(f"watch {self.resource.plural}: not a watch event: {error}") from error
        if event.type == "ERROR":
            self._position = ""
            try:
                status = _decode_status(event.object)
            except UNDECODABLE as error:
                raise TryLaterError(f"watch {self.resource.plural}: an error without a status: {error}") from error
            raise error_from_status(ApiRequest("watch", self.resource), status.code, status)
        return event

    def _bookmark(self, event: WatchEvent, listing: dict[Key, Found[T]] | None) -> dict[Key, Found[T]] | None:
        """Move the position. The bookmark that ends the initial events also ends the listing."""
        metadata = read_bookmark(self.resource, event.object)
        if listing is None:
            self._move_on(metadata.resource_version)
        elif INITIAL_EVENTS_END in metadata.annotations:
            self._take_over(listing, metadata.resource_version)
            return None
        return listing

    async def _list_pages(self) -> tuple[dict[Key, Found[T]], str]:
        """All pages of a consistent list. They all carry the same resourceVersion."""
        listing: dict[Key, Found[T]] = {}
        token = ""
        while True:
            body = await api_verbs.list_page(
                self._client,
                self.resource,
                label_selector=self._label_selector,
                limit=PAGE_OBJECTS_MAX,
                continue_token=token,
            )
            page = read_page(self.resource, body)
            for raw in page.items or ():
                found = self._read(raw)
                listing[_key(found)] = found
            token = page.metadata.continue_token
            if not token:
                return listing, page.metadata.resource_version

    def _collect(self, event: WatchEvent, listing: dict[Key, Found[T]]) -> None:
        """Add one initial event to the listing, or a change that arrived before the initial events ended."""
        found = self._read(event.object)
        if event.type == "DELETED":
            listing.pop(_key(found), None)
        else:
            listing[_key(found)] = found

    def _take_over(self, listing: dict[Key, Found[T]], resource_version: str) -> None:
        """Replace the known objects by a complete list. Report deleted, new and changed objects.

        A list that is older than what has been seen comes from a store that was restored to an earlier state. It cannot
        be compared with the known objects, so it is not taken over, and `synced` is False until the server catches up.
        """
        if _older(resource_version, self._newest):
            self.synced = False
            raise TryLaterError(
                f"list {self.resource.plural}: the server answers with resourceVersion {resource_version}, "
                f"but {self._newest} has been seen already"
            )
        self.taking_over = True
        try:
            for key in [key for key in self.objects if key not in listing]:
                self._drop_object(self.objects.pop(key))
            for key in [key for key in self.undecodable if key not in listing]:
                self._readable(key)
            for key, found in listing.items():
                self._take(key, found)
        finally:
            self.taking_over = False
        self._taken_over()
        self._move_on(resource_version)
        self._started = self.synced = True
        self._refused_as = None
        self._heard()
        self._observer.listed(self.resource.plural, len(self.objects))

    def _apply(self, event: WatchEvent) -> None:
        """Apply one change from the watch."""
        found = self._read(event.object)
        key = _key(found)
        if _older(found.resource_version, self._position):
            return
        if event.type == "DELETED":
            known = self.objects.get(key)
            if known is not None and found.uid in ("", known.uid):
                del self.objects[key]
                last = found if isinstance(found, ObjectEntry) else _of_version(known, found)
                self._replacing(known, last)
                self._drop_object(last)
            self._readable(key)
        else:
            self._take(key, found)
        if found.resource_version:
            self._move_on(found.resource_version)

    def _take(self, key: Key, found: Found[T]) -> None:
        if isinstance(found, ObjectEntry):
            self._put(key, found)
        else:
            self._keep_apart(key, found)

    def _put(self, key: Key, entry: ObjectEntry[T]) -> None:
        known = self.objects.get(key)
        same = False
        if known is not None and known.uid == entry.uid:
            same = known.resource_version == entry.resource_version
            if _older(entry.resource_version, known.resource_version):
                return
        elif known is not None:
            self._drop_object(known)
        self.objects[key] = entry
        if not same:
            if known is not None and known.uid == entry.uid:
                self._replacing(known, entry)
            self._put_object(entry)
        self._readable(key)

    def _keep_apart(self, key: Key, found: UndecodableObject) -> None:
        """The object cannot be read. Its last readable state stays as the state of this version, or is dropped."""
        known = self.objects.get(key)
        if known is not None and _older(found.resource_version, known.resource_version):
            return
        if known is not None and (self._forget_undecodable or found.uid not in ("", known.uid)):
            del self.objects[key]
            self._drop_object(known)
        elif known is not None and known.resource_version != found.resource_version:
            self.objects[key] = _of_version(known, found)
            self._put_object(self.objects[key])
        before = self.undecodable.get(key)
        self.undecodable[key] = found
        if before is None or (before.uid, before.problem) != (found.uid, found.problem):
            self._observer.undecodable(self.resource.plural, found.title, found.problem)
            self._readability_changed(found)

    def _readable(self, key: Key) -> None:
        """The object can be read, or is gone."""
        before = self.undecodable.pop(key, None)
        if before is not None:
            self._readability_changed(before)

    def _move_on(self, resource_version: str) -> None:
        self._position = resource_version
        if not _older(resource_version, self._newest):
            self._newest = resource_version

    def _read(self, raw: msgspec.Raw) -> Found[T]:
        try:
            return decoded(self.resource, self._decode, raw)
        except UndecodableError as error:
            return error.found


def _key(found: ObjectEntry[T] | UndecodableObject) -> Key:
    return found.namespace, found.name


def _of_version(known: ObjectEntry[T], found: UndecodableObject) -> ObjectEntry[T]:
    """The last readable state, with the resourceVersion of the state that cannot be read."""
    return msgspec.structs.replace(known, resource_version=found.resource_version)


def _older(resource_version: str, than: str) -> bool:
    """Whether the version is known to be older. A version that is not a number has no order."""
    numbers = _NUMBER.fullmatch(resource_version) and _NUMBER.fullmatch(than)
    return numbers is not None and int(resource_version) < int(than)
