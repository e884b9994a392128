"""Deletes the pods of a Job that is being deleted, many at a time.

A controller-manager with default limits sends 20 requests per second, so 128 hung ranks would wait for their turn and
then for their whole grace period. Our deletes are sent at once even if its limits are higher. The garbage collector
needs three requests for each pod: it reads the pod and its owner, and deletes the pod. It needs none for a pod that it
sees being deleted. For 128 pods at 500 requests per second, all clients made about 600 requests for single pods and
Jobs, 680 when the garbage collector deleted the pods without us, and no fewer than 590 when it had a head start of half
a second. `tests/bench/recoveries.py` counts them.

Each delete names the UID of its pod. The deletes of all groups together are bounded, in flight and in rate, and the
groups take turns: the thousand pods of one group must not delay the few of another, nor any trigger.
"""

import asyncio
from collections import deque

from recovery import api_verbs
from recovery.core.plan.actions import DeletePods, ForceDeletePods, PodRef
from recovery.ports import PODS, ApiClient, Clock, ConflictError, NotFoundError

DELETES_IN_FLIGHT_MAX = 48
"""The API client has at most 64 writes in flight. The rest is for triggers and ledgers, which must not wait for an API
server that is slow to delete pods."""
DELETES_PER_SECOND = 400.0
"""A thousand pods in 2 s. The API server handles 3,400 per second (measured), but it has other clients, and its API
Priority and Fairness would queue our triggers behind our deletes."""
DELETES_AT_ONCE = 200
"""This many deletes need not wait for the rate: enough for the pods of most groups."""

_ASK_AGAIN_SECONDS = 30.0
"""A delete is not repeated within this time: on a loaded server the watch shows the first one late."""


class PodTeardown:
    """Deletes pods. It remembers them, so that a reconcile before the watch event does not delete them again.

    One instance serves all groups.
    """

    def __init__(self, api: ApiClient, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._asked_at: dict[str, float] = {}
        self._forced_at: dict[str, float] = {}
        """Separate: a pod that was deleted gracefully may have to be deleted by force a moment later."""
        self._slots = _SlotsInTurn(DELETES_IN_FLIGHT_MAX)
        self._rate = _Rate(clock, per_second=DELETES_PER_SECOND, at_once=DELETES_AT_ONCE)

    async def delete_pods(self, namespace: str, action: DeletePods | ForceDeletePods) -> None:
        """Delete all the pods of the action. Every one is tried; the first error is raised afterwards.

        A forced delete does not wait for the kubelet: with grace 0 the API server removes the object at once. Only the
        UID protects a live pod of the same name.
        """
        if isinstance(action, ForceDeletePods):
            grace_seconds: int | None = 0
            asked_at = self._forced_at
        else:
            grace_seconds, asked_at = action.grace_seconds, self._asked_at
        now = self._clock.monotonic_seconds()
        for uid in [uid for uid, at in asked_at.items() if now - at >= _ASK_AGAIN_SECONDS]:
            del asked_at[uid]
        pods = [pod for pod in action.pods if pod.uid not in asked_at]
        party = object()
        results = await asyncio.gather(
            *(self._delete(party, namespace, pod, grace_seconds) for pod in pods), return_exceptions=True
        )
        for pod, result in zip(pods, results, strict=True):
            if result is None:
                asked_at[pod.uid] = now
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _delete(self, party: object, namespace: str, pod: PodRef, grace_seconds: int | None) -> None:
        await self._slots.take(party)
        try:
            await self._rate.pass_on()
            await api_verbs.delete(
                self._api, PODS, pod.name, namespace=namespace, uid=pod.uid, grace_seconds=grace_seconds
            )
        except (NotFoundError, ConflictError):
            return  # it is gone, or its name belongs to another pod by now
        finally:
            self._slots.give_back()


class _SlotsInTurn:
    """A semaphore that serves waiting parties in turn. Within a party: first come, first served."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}
        """By party; the order of the parties is the order of their turns."""

    async def take(self, party: object) -> None:
        """Wait for a slot. A caller that gets one must call `give_back`."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was granted at the same moment
                self.give_back()
            raise

    def give_back(self) -> None:
        """Hand the slot to the party whose turn it is."""
        while self._waiting:
            party = next(iter(self._waiting))
            turns = self._waiting.pop(party)
            turn = turns.popleft()
            if turns:
                self._waiting[party] = turns
            if not turn.done():  # a cancelled one needs no slot
                turn.set_result(None)
                return
        self._free += 1


class _Rate:
    """A token bucket, stored as the moment at which it is full again."""

    def __init__(self, clock: Clock, *, per_second: float, at_once: int) -> None:
        self._clock = clock
        self._token_seconds = 1 / per_second
        self._full_seconds = at_once / per_second
        self._full_at_seconds = float("-inf")

    async def pass_on(self) -> None:
        """Take a token, and wait until it is due. A cancelled wait loses its token, which only delays others."""
        now = self._clock.monotonic_seconds()
        self._full_at_seconds = max(self._full_at_seconds, now) + self._token_seconds
        wait_seconds = self._full_at_seconds - self._full_seconds - now
        if wait_seconds > 0:
            await self._clock.sleep(wait_seconds)
