"""An informer on an API with scripted answers, in virtual time."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator

import msgspec

from recovery.core.model.facts import UndecodableObject
from recovery.kube.informer import Informer
from recovery.kube.projections.metadata import Metadata, ObjectEntry
from recovery.ports import (
    RECOVERY_POLICIES,
)
from tests.unit.kube.testing import FakeClock, Middle, Observed, ScriptedApi, bookmark, event
from tests.unit.patience import GUARD_SECONDS

Stream = Iterable[bytes | Exception]


class Thing(msgspec.Struct, frozen=True):
    metadata: Metadata
    size: int = 0


def decode(raw: bytes | msgspec.Raw) -> ObjectEntry[int]:
    thing = msgspec.json.decode(raw, type=Thing)
    return thing.metadata.entry(thing.size)


def thing(name: str, rv: int, size: object = 0, uid: str = "") -> dict[str, object]:
    metadata = {"name": name, "namespace": "a", "uid": uid or f"uid-{name}", "resourceVersion": str(rv)}
    return {"metadata": {**metadata, "creationTimestamp": "2026-11-21T09:00:00Z"}, "size": size}


def added(name: str, rv: int, size: object = 0, uid: str = "") -> bytes:
    return event("ADDED", thing(name, rv, size, uid))


def modified(name: str, rv: int, size: object = 0, uid: str = "") -> bytes:
    return event("MODIFIED", thing(name, rv, size, uid))


def deleted(name: str, rv: int, size: object = 0, uid: str = "") -> bytes:
    return event("DELETED", thing(name, rv, size, uid))


def page(rv: int, *things: dict[str, object], more: str = "") -> bytes:
    metadata = {"resourceVersion": str(rv), "continue": more}
    return json.dumps({"kind": "ThingList", "metadata": metadata, "items": things or None}).encode()


def end(rv: int) -> bytes:
    return bookmark(rv, initial_events_end=True)


def error_event(code: int, message: str = "no") -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "reason": "Expired", "message": message})


class World:
    """An informer on scripted answers, and its reports."""

    def __init__(
        self, *, forget_undecodable: bool = False, decode: Callable[[msgspec.Raw], ObjectEntry[int]] = decode
    ) -> None:
        self.api = ScriptedApi()
        self.clock = FakeClock()
        self.observed = Observed()
        self.told: list[str] = []
        self.freshness: list[bool] = []
        """Each report of staleness. True: stale."""
        self.changed: list[str] = []
        """Each report of an object that cannot be read, or can be read again."""
        self.informer = Informer(
            self.api,
            RECOVERY_POLICIES,
            decode,
            put=lambda entry: self.told.append(f"put {entry.name}@{entry.resource_version}={entry.value}"),
            drop=lambda entry: self.told.append(f"drop {entry.name}@{entry.resource_version}={entry.value}"),
            clock=self.clock,
            entropy=Middle(),
            observer=self.observed,
            label_selector="l",
            readability_changed=lambda found: self.changed.append(f"{found.title} {_got(found)}"),
            forget_undecodable=forget_undecodable,
            freshness_changed=lambda: self.freshness.append(self.informer.stale_since is not None),
        )

    @property
    def undecodable(self) -> dict[str, str]:
        """The value that `size` had instead of a number, by object name."""
        return {found.title: _got(found) for found in self.informer.undecodable.values()}

    async def run(self, *streams: Stream) -> list[str]:
        """Run until the streams are used up; returns the reports."""
        self.api.streams.extend(streams)
        task = asyncio.create_task(self.informer.run())
        idle = asyncio.create_task(self.api.idle.wait())
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                await asyncio.wait([task, idle], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            task.cancel()
            idle.cancel()
        return self.told


def _got(found: UndecodableObject) -> str:
    return found.problem.partition("got `")[2].partition("`")[0]


LISTED: Stream = [added("x", 3, 1), added("y", 5, 1), end(7)]


def after(world: World, seconds: float, *lines: bytes | Exception) -> Iterator[bytes | Exception]:
    """A stream that is silent for that long before its lines."""
    world.clock.seconds += seconds
    yield from lines
