"""The few objects that admission handles, on an API server in memory, and a clock."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_POLICIES,
    ApiRequest,
    ForbiddenError,
    Resource,
)
from tests.unit.fake_api import Object, ObjectsApi

Key = tuple[str, str, str]
"""Plural, namespace and name."""
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class StillClock:
    """A clock that stands still until a test moves it. `wake` wakes the sleepers."""

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


class PolicyApi(ObjectsApi):
    """Serves objects by their kind. Reads of `forbidden` are refused."""

    def __init__(self, *objects: Object) -> None:
        super().__init__()
        self.forbidden: set[Key] = set()
        for found in objects:
            self.store(found)

    def store(self, found: Object) -> None:
        """Create the object or replace it, as a copy. The caller sets the generation."""
        self.put(_resource(found), json.loads(json.dumps(found)))

    def object(self, key: Key) -> Object:
        found = self.find(*key)
        assert found is not None
        return found

    @property
    def patches(self) -> list[tuple[Key, list[Object]]]:
        """The patches that were applied."""
        return [((patch.resource.plural, patch.namespace or "", patch.name), patch.body) for patch in self.applied]

    async def answer(self, request: ApiRequest) -> bytes:
        key = (request.resource.plural, request.namespace or "", request.name)
        if request.verb == "get" and key in self.forbidden:
            raise ForbiddenError(f"{request}: forbidden", status=403)
        return await super().answer(request)


def recovery_policy(name: str = "default", namespace: str = "team", *, age: int = 0, **spec: Any) -> Object:
    """A policy of the namespace, or of the cluster if `namespace` is empty. `age` is in minutes."""
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


def _resource(found: Object) -> Resource:
    kind = str(found["kind"])
    return Resource("", "v1", kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s"), kind)
