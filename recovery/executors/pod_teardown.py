"""Deletes the pods of a Job that is being deleted, many at a time.

A stock controller-manager does 20 requests a second; 128 hung ranks would wait for their turn and then sit out their
whole grace. The deletes are bounded in flight by the API client, and each names the UID of the pod that is meant.
"""

import asyncio

from recovery.core.plan import DeletePods, PodRef
from recovery.ports import PODS, ApiClient, Clock, ConflictError, NotFoundError

_ASK_AGAIN_SECONDS = 30.0
"""A pod is not asked again within this time: on a loaded server the watch shows the first request late."""


class PodTeardown:
    """Remembers what it asked for, so that looks between request and watch event do not ask twice."""

    def __init__(self, api: ApiClient, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._asked_at: dict[str, float] = {}

    async def delete_pods(self, namespace: str, action: DeletePods) -> None:
        """Delete all the pods of the action. Every one is tried; the first error is raised afterwards."""
        now = self._clock.monotonic_seconds()
        self._asked_at = {uid: at for uid, at in self._asked_at.items() if now - at < _ASK_AGAIN_SECONDS}
        pods = [pod for pod in action.pods if pod.uid not in self._asked_at]
        results = await asyncio.gather(
            *(self._delete(namespace, pod, action.grace_seconds) for pod in pods), return_exceptions=True
        )
        for pod, result in zip(pods, results, strict=True):
            if result is None:
                self._asked_at[pod.uid] = now
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _delete(self, namespace: str, pod: PodRef, grace_seconds: int | None) -> None:
        try:
            await self._api.delete(PODS, pod.name, namespace=namespace, uid=pod.uid, grace_seconds=grace_seconds)
        except (NotFoundError, ConflictError):
            return  # it is gone, or its name belongs to another pod by now
