"""Bugs in what is reconciled, and how fresh it is."""

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

    Alone this is harmless: what it takes for gone meanwhile is read live before anything is decided on it.
    """

    class ListsAgain(Informer[T]):
        async def _follow(self) -> None:
            self._position = ""
            while self.objects:
                self._drop_object(self.objects.popitem()[1])
            await super()._follow()

    monkeypatch.setattr("recovery.kube.group_store.Informer", ListsAgain)


def cache_is_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live read is answered from the informers' cache, which is current but for a moment and costs nothing.

    The other defence goes as well: the informers no longer keep what they know until a list is complete. Streams that
    merely lag do not make this bug bite: a suspension or a deletion would have to be overlooked in TrainJob, JobSet and
    Job at the same time (not once in 115 seeds).
    """

    class CachedStore(KubeGroupStore):
        async def read_live(self, key: GroupKey) -> Snapshot:
            return msgspec.structs.replace(self.snapshot(key), live=True)

    lists_again(monkeypatch)
    monkeypatch.setattr("recovery.manager.KubeGroupStore", CachedStore)


def only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge-triggered: a group is reconciled when it changes, or when the last reconcile has asked for a moment.

    Not because a term begins, not once in a while, and not because the last reconcile has failed: what was pending then
    waits for the next change.
    """

    class OnlyChanges(Duty):
        async def _resync(self) -> None:
            await asyncio.Event().wait()  # one that ends, ends the process, and the next process lists everything

    class NoSecondTry(GroupQueue):
        def retry(self, key: GroupKey) -> float:
            return 0.0

    monkeypatch.setattr("recovery.controller.runner.Duty", OnlyChanges)
    monkeypatch.setattr("recovery.controller.runner.GroupQueue", NoSecondTry)
