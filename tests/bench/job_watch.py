"""When a pod's loss and its Job's deletion became visible on a watch: the start and the end of the time to trigger."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import msgspec

from recovery import api_verbs
from recovery.ports import JOBS, PODS, ApiClient, Resource


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Object


class JobWatch:
    """Watches one pod and one Job."""

    def __init__(self) -> None:
        self._pod_lost: float | None = None
        self._job_deleted: float | None = None

    @classmethod
    @asynccontextmanager
    async def running(cls, api: ApiClient, namespace: str, pod: str, job: str) -> AsyncIterator[Self]:
        watch = cls()
        tasks = [
            asyncio.create_task(watch._follow(api, PODS, namespace, pod)),
            asyncio.create_task(watch._follow(api, JOBS, namespace, job)),
        ]
        try:
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def trigger_milliseconds(self) -> float:
        """Milliseconds from the pod's Failed phase to the Job's deletion; NaN if one of them was not seen."""
        if self._pod_lost is None or self._job_deleted is None:
            return float("nan")
        return (self._job_deleted - self._pod_lost) * 1000.0

    async def _follow(self, api: ApiClient, resource: Resource, namespace: str, name: str) -> None:
        lines = api_verbs.watch(
            api, resource, namespace=namespace, field_selector=f"metadata.name={name}", timeout_seconds=600
        )
        async for line in lines:
            event = msgspec.json.decode(line, type=_Event)
            if resource is PODS and self._pod_lost is None and event.object.status.phase == "Failed":
                self._pod_lost = time.monotonic()
            if resource is JOBS and self._job_deleted is None and event.object.metadata.deletion_timestamp:
                self._job_deleted = time.monotonic()
