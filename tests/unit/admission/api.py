"""An API server in a dictionary: reads, watches and JSON patches of the few objects that admission deals with."""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import msgspec

from recovery.kube.informer import INITIAL_EVENTS_END
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_POLICIES,
    ApiError,
    ForbiddenError,
    NotFoundError,
    PatchKind,
    Resource,
    TestFailedError,
)

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace and name."""
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class StillClock:
    """Stands still until a test moves it; sleepers are woken by `wake`."""

    def __init__(self) -> None:
        self.time = NOW
        self.sleeping = asyncio.Event()
        self._waking = asyncio.Event()

    def now(self) -> datetime:
        return self.time

    def monotonic_seconds(self) -> float:
        return self.time.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.sleeping.set()
        await self._waking.wait()
        self._waking.clear()

    def wake(self) -> None:
        self.sleeping.clear()
        self._waking.set()


class FakeApi:
    """`patches` are those that were applied; `refusals` are raised by the next patches; `forbidden` may not be read."""

    def __init__(self, *objects: Object) -> None:
        self.objects: dict[Key, Object] = {}
        self.patches: list[tuple[Key, list[Object]]] = []
        self.attempts = 0
        self.refusals: list[ApiError] = []
        self.forbidden: set[Key] = set()
        self._version = 100
        self._watchers: list[tuple[str, asyncio.Queue[bytes]]] = []
        for found in objects:
            self.put(found)

    def put(self, found: Object) -> None:
        """Create or replace; the generation is the caller's."""
        self._version += 1
        stored = json.loads(json.dumps(found))
        meta = stored["metadata"]
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("uid", f"uid-{self._version}")
        key = (_plural(stored), meta.get("namespace", ""), meta["name"])
        known = key in self.objects
        self.objects[key] = stored
        self._tell(key, "MODIFIED" if known else "ADDED", stored)

    def remove(self, key: Key) -> None:
        self._version += 1
        gone = self.objects.pop(key)
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._tell(key, "DELETED", gone)

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        key = (resource.plural, namespace or "", name)
        if key in self.forbidden:
            raise ForbiddenError(f"cannot get {resource.plural}", status=403)
        if key not in self.objects:
            raise NotFoundError(f"{resource.plural} {name} not found", status=404)
        return json.dumps(self.objects[key]).encode()

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
    ) -> bytes:
        assert kind is PatchKind.JSON
        self.attempts += 1
        await asyncio.sleep(0)  # so that two writers can meet here
        if self.refusals:
            raise self.refusals.pop(0)
        key = (resource.plural, namespace or "", name)
        if key not in self.objects:
            raise NotFoundError(f"{resource.plural} {name} not found", status=404)
        operations = json.loads(msgspec.json.encode(body))
        assert all(op["op"] == "test" or not subresource or op["path"].startswith("/status") for op in operations)
        changed = json.loads(json.dumps(self.objects[key]))
        for operation in operations:
            _apply(changed, operation)
        self.patches.append((key, operations))
        self.put(changed)
        return json.dumps(self.objects[key]).encode()

    async def watch(self, resource: Resource, **_: Any) -> AsyncGenerator[bytes, None]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for key, found in list(self.objects.items()):
            if key[0] == resource.plural:
                yield _line("ADDED", found)
        end = {"metadata": {"resourceVersion": str(self._version), "annotations": {INITIAL_EVENTS_END: "true"}}}
        self._watchers.append((resource.plural, queue))
        yield _line("BOOKMARK", end)
        while True:
            yield await queue.get()

    def _tell(self, key: Key, kind: str, found: Object) -> None:
        for plural, queue in self._watchers:
            if plural == key[0]:
                queue.put_nowait(_line(kind, found))


def recovery_policy(name: str = "default", namespace: str = "team", *, age: int = 0, **spec: Any) -> Object:
    """Of the namespace, or of the cluster if `namespace` is empty; `age` in minutes."""
    resource = RECOVERY_POLICIES if namespace else CLUSTER_RECOVERY_POLICIES
    made = _object(resource, name, spec)
    made["metadata"]["creationTimestamp"] = f"2026-03-01T11:{59 - age:02}:00Z"
    if namespace:
        made["metadata"]["namespace"] = namespace
    return made


def recovery_config(**spec: Any) -> Object:
    return _object(RECOVERY_CONFIGS, "default", spec)


def _object(resource: Resource, name: str, spec: Object) -> Object:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "generation": 1, "creationTimestamp": "2026-03-01T11:00:00Z"},
        "spec": spec,
    }


def _plural(found: Object) -> str:
    kind = str(found["kind"]).lower()
    return kind.removesuffix("y") + "ies" if kind.endswith("y") else kind + "s"


def _line(kind: str, found: Object) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode()


def _apply(found: Any, operation: Object) -> None:
    """One operation of a JSON patch (RFC 6902), as far as it is used here."""
    *parents, last = operation["path"].lstrip("/").split("/")
    for part in parents:
        found = found[int(part)] if isinstance(found, list) else found[part]
    place: Any = (len(found) if last == "-" else int(last)) if isinstance(found, list) else last
    if operation["op"] == "test":
        if found[place] != operation["value"]:
            raise TestFailedError("the test did not hold", status=422)
    elif operation["op"] == "add" and isinstance(found, list):
        found.insert(place, operation["value"])
    else:
        assert operation["op"] == "add" or (found[place] is not None), "replace needs what it replaces"
        found[place] = operation["value"]
