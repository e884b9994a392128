"""Deletes the pods of a Job that is being deleted, many at a time.

A controller-manager with default limits sends 20 requests per second, so 128 hung ranks would wait for their turn and
then for their whole grace period. Our deletes are sent at once even if its limits are higher. The garbage collector
needs three requests for each pod: it reads the pod and its owner, and deletes the pod. It needs none for a pod that it
sees being deleted. For 128 pods at 500 requests per second, all clients made about 600 requests for single pods and
Jobs, 680 when the garbage collector deleted the pods without us, and no fewer than 590 when it had a head start of half
a second. `tests/bench/recoveries.py` counts them.

Each delete names the UID of its pod. The deletes of all groups together are bounded in flight (`in_flight_limit`).

Groups take turns as wholes, because a group only restarts after its last pod: with one pod of each group in turn, all
groups would restart as late as the last one. First comes the group that would be done first if it were alone: its
arrival, and the time that its number of pods takes. So sixteen pods do not wait for a thousand that came with them, and
the thousand wait only for groups that come within the next 2.5 s, not for every later one. A group
whose deletes are late has at most half of them while others wait.
"""

import asyncio
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

from recovery import api_verbs
from recovery.core.plan.actions import DeletePods, ForceDeletePods, PodRef
from recovery.executors.in_flight_limit import InFlightLimit
from recovery.ports import PODS, ApiClient, Clock, ConflictError, NotFoundError, TryLaterError

PODS_PER_SECOND = 400.0
"""For the order of groups only: about what an API server deletes in a second, with all that follows a delete."""

_ASK_AGAIN_SECONDS = 30.0
"""A delete is not repeated within this time: on a loaded server the watch shows the first one late."""


class PodTeardown:
    """Deletes pods. It remembers them, so that a reconcile before the watch event does not delete them again.

    One instance serves all groups.
    """

    def __init__(self, api: ApiClient, clock: Clock, *, triggers_wait: Callable[[], bool] = lambda: False) -> None:
        """`triggers_wait`: many groups wait for their triggers, which go before the pods of others."""
        self._api = api
        self._clock = clock
        self._asked = _Asked(clock)
        self._forced = _Asked(clock)
        """Separate: a pod that was deleted gracefully may have to be deleted by force a moment later."""
        self._limit = InFlightLimit(clock, triggers_wait=triggers_wait)
        self._waiting: list[tuple[float, int, _Batch]] = []
        """What is not sent yet, in the order of the turns. A batch that was cancelled has no pods any more."""
        self._arrivals = count()

    async def delete_pods(self, namespace: str, action: DeletePods | ForceDeletePods) -> None:
        """Delete all the pods of the action. Every one is tried; the first error is raised afterwards.

        A forced delete does not wait for the kubelet: with grace 0 the API server removes the object at once. Only the
        UID protects a live pod of the same name. A cancellation ends the deletes that are on their way.
        """
        if isinstance(action, ForceDeletePods):
            batch = _Batch(namespace, 0, self._forced)
        else:
            batch = _Batch(namespace, action.grace_seconds, self._asked)
        batch.pods.extend(pod for pod in action.pods if not batch.asked.recently(pod))
        if not batch.pods:
            return
        done_alone_at = self._clock.monotonic_seconds() + len(batch.pods) / PODS_PER_SECOND
        insort(self._waiting, (done_alone_at, next(self._arrivals), batch))
        self._send()
        try:
            await batch.over.wait()
        finally:
            batch.pods.clear()
            for task in batch.in_flight:
                task.cancel()
            await asyncio.gather(*batch.in_flight, return_exceptions=True)
        if batch.errors:
            raise batch.errors[0]

    def _send(self) -> None:
        """Send as many deletes as may be in flight."""
        while self._waiting and not self._limit.full:
            turn = self._turn()
            batch = self._waiting[turn][2]
            if batch.pods:
                pod = batch.pods.popleft()
                task, began = asyncio.create_task(self._delete(batch, pod)), self._limit.begin()
                batch.in_flight[task] = began
                # A callback: a task that is cancelled before it starts runs no line of its own.
                task.add_done_callback(partial(self._sent, batch, pod, began))
            if not batch.pods:
                del self._waiting[turn]

    def _turn(self) -> int:
        """Whose turn it is: the first group, except those with late deletes that have half of all in flight.

        The server may take ten seconds for each pod of one group, as behind a webhook that times out. The order alone
        would let such a group keep all others waiting until its last pod.
        """
        share = max(1, self._limit.most // 2)
        return next((turn for turn, (_, _, batch) in enumerate(self._waiting) if not self._hangs(batch, share)), 0)

    def _hangs(self, batch: "_Batch", share: int) -> bool:
        oldest = next(iter(batch.in_flight.values()), None)
        return oldest is not None and len(batch.in_flight) >= share and self._limit.is_late(oldest)

    def _sent(self, batch: "_Batch", pod: PodRef, began_seconds: float, task: "asyncio.Task[None]") -> None:
        """The delete is over, in one way or another: the next one may be sent."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._limit.end(began_seconds, answered=not task.cancelled(), refused=isinstance(error, TryLaterError))
        batch.in_flight.pop(task, None)
        if error is None:
            batch.asked.note(pod)
        else:
            batch.errors.append(error)
        if not batch.pods and not batch.in_flight:
            batch.over.set()
        self._send()

    async def _delete(self, batch: "_Batch", pod: PodRef) -> None:
        with suppress(NotFoundError, ConflictError):  # it is gone, or its name belongs to another pod by now
            await api_verbs.delete(
                self._api, PODS, pod.name, namespace=batch.namespace, uid=pod.uid, grace_seconds=batch.grace_seconds
            )


class _Asked:
    """The pods that were deleted within the last half minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_seconds: OrderedDict[str, float] = OrderedDict()
        """By UID, oldest first."""

    def note(self, pod: PodRef) -> None:
        self._at_seconds[pod.uid] = self._clock.monotonic_seconds()
        self._at_seconds.move_to_end(pod.uid)

    def recently(self, pod: PodRef) -> bool:
        old = self._clock.monotonic_seconds() - _ASK_AGAIN_SECONDS
        while self._at_seconds and next(iter(self._at_seconds.values())) <= old:
            self._at_seconds.popitem(last=False)
        return pod.uid in self._at_seconds


class _Batch:
    """The deletes of one group that are still to be sent or on their way."""

    def __init__(self, namespace: str, grace_seconds: int | None, asked: _Asked) -> None:
        self.namespace = namespace
        self.grace_seconds = grace_seconds
        self.asked = asked
        self.pods: deque[PodRef] = deque()
        """Not sent yet."""
        self.in_flight: dict[asyncio.Task[None], float] = {}
        """With the moment at which each was sent, oldest first."""
        self.errors: list[BaseException] = []
        self.over = asyncio.Event()
