"""Bugs in what is looked at, and how fresh it is."""

import msgspec
import pytest

from recovery.controller.queue import GroupQueue
from recovery.controller.runner import Duty
from recovery.core.facts import GroupKey, Snapshot
from recovery.kube.store import KubeGroupStore


def cache_is_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live read is answered from the informers' cache, which is current but for a moment and costs nothing."""

    class CachedStore(KubeGroupStore):
        async def read_live(self, key: GroupKey) -> Snapshot:
            return msgspec.structs.replace(self.snapshot(key), live=True)

    monkeypatch.setattr("recovery.program.KubeGroupStore", CachedStore)


def only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge-triggered: a group is looked at when it changes.

    Nothing is looked at because a term begins, because time has passed since, or because the last look has failed.
    """

    class OnlyChanges(Duty):
        async def _resync(self) -> None:
            return

    class NoSecondTry(GroupQueue):
        def retry(self, key: GroupKey) -> float:
            return 0.0

    monkeypatch.setattr("recovery.controller.runner.Duty", OnlyChanges)
    monkeypatch.setattr("recovery.controller.runner.GroupQueue", NoSecondTry)
