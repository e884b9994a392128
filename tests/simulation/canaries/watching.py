"""Bugs in when a group is reconciled, and how fresh its objects are."""

import asyncio
from typing import TypeVar

import msgspec
import pytest

from recovery.controller.queue import GroupQueue
from recovery.controller.runner import Duty
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.kube.group_store import KubeGroupStore
from recovery.kube.informer import Informer

T = TypeVar("T")


def lists_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An informer begins each stream with an empty cache and fills it from a new list.

    Alone this is harmless: objects that seem to be gone meanwhile are read live before any decision about them.
    """

    class ListsAgain(Informer[T]):
        async def _follow(self) -> None:
            self._position = ""
            while self.objects:
                self._drop_object(self.objects.popitem()[1])
            await super()._follow()

    monkeypatch.setattr("recovery.kube.group_store.Informer", ListsAgain)


def cache_is_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live read is answered from the informers' cache, which costs nothing and lags only a little.

    The other defence is removed too: the informers no longer keep their objects until a list is complete. Streams that
    only lag do not expose this bug: a suspension or a deletion would have to be overlooked in TrainJob, JobSet and Job
    at the same time (not once in 115 seeds).
    """

    class CachedStore(KubeGroupStore):
        async def read_live(self, key: GroupKey) -> Snapshot:
            return msgspec.structs.replace(self.snapshot(key), live=True)

    lists_again(monkeypatch)
    monkeypatch.setattr("recovery.manager.KubeGroupStore", CachedStore)


def only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge-triggered: a group is reconciled when it changes, or at the time that the last reconcile has asked for.

    It is not reconciled when a term begins, nor periodically, nor after a failed reconcile: pending work waits for the
    next change.
    """

    class OnlyChanges(Duty):
        async def _resync(self) -> None:
            await asyncio.Event().wait()  # a task that ends also ends the process, and the next one lists everything

    class NoSecondTry(GroupQueue):
        def retry(self, key: GroupKey, *, urgent: bool = False) -> float:
            return 0.0

    monkeypatch.setattr("recovery.controller.runner.Duty", OnlyChanges)
    monkeypatch.setattr("recovery.controller.runner.GroupQueue", NoSecondTry)
