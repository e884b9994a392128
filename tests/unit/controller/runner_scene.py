"""A runner whose store, reconciler and election are under a test's control."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from recovery.controller import runner
from recovery.controller.agent_exchange import AgentExchange
from recovery.controller.leadership import Leadership, SoleLeader
from recovery.controller.leadership_guard import LeadershipTerm
from recovery.controller.runner import Controller
from recovery.core.model.config import ConfigFacts
from recovery.core.model.drill import DrillFacts
from recovery.core.model.facts import GroupKey, NodeFacts, Snapshot, UndecodableObject
from recovery.core.model.ledger import Incident
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.progress import Progress
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.ports import (
    ApiClient,
    GroupChanged,
)
from recovery.sim.virtual_time import VirtualClock
from tests.unit.controller.fakes import Ears, LedgersApi
from tests.unit.controller.test_queue import Chance

ONE, OTHER = GroupKey("ml", "one"), GroupKey("ml", "other")


class Keys:
    """A `ports.GroupStore` that knows only which groups exist."""

    def __init__(self, *keys: GroupKey) -> None:
        self.known = list(keys)
        self.ledgers: list[LedgerObject] = []
        self.ledgers_gone: list[GroupKey] = []
        self.is_synced = True
        self.changed: GroupChanged | None = None

    def change(self, key: GroupKey, *, loss: bool = False) -> None:
        assert self.changed is not None, "nobody listens yet"
        self.changed(key, loss=loss)

    def synced(self) -> bool:
        return self.is_synced

    def keys(self) -> Iterable[GroupKey]:
        return iter(self.known)

    def subscribe(self, changed: GroupChanged) -> None:
        self.changed = changed

    def snapshot(self, key: GroupKey) -> Snapshot:
        raise NotImplementedError

    def progress(self, key: GroupKey) -> Progress | None:
        raise NotImplementedError

    def policies(self, namespace: str) -> PolicySet:
        raise NotImplementedError

    def every_policy(self) -> Iterable[PolicyFacts]:
        return ()

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        raise NotImplementedError

    def drills(self) -> Iterable[DrillFacts]:
        return ()

    def saw_drill(self, body: bytes) -> None:
        raise NotImplementedError

    async def read_incidents_live(self, namespace: str, workload_uid: str) -> Sequence[Incident]:
        raise NotImplementedError

    def stale(self) -> Mapping[str, datetime]:
        return {}

    def undecodable(self) -> Mapping[str, int]:
        return {}

    def unidentified_ledgers(self) -> Sequence[UndecodableObject]:
        return ()

    def ledgers_of(self, key: GroupKey) -> Sequence[LedgerObject]:
        return [each for each in self.ledger_objects() if (each.namespace, each.group) == (key.namespace, key.name)]

    def ledger_objects(self) -> Iterable[LedgerObject]:
        return self.ledgers

    def collected(self) -> Iterable[GroupKey]:
        return self.ledgers_gone

    def nodes(self) -> Mapping[str, NodeFacts]:
        return {}

    def config(self) -> ConfigFacts | None:
        return None

    async def read_config_live(self) -> ConfigFacts | None:
        return None

    async def read_node_live(self, name: str) -> NodeFacts | None:
        return None

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        raise NotImplementedError

    async def read_live(self, key: GroupKey) -> Snapshot:
        raise NotImplementedError

    async def read_policies_live(self, namespace: str) -> PolicySet:
        raise NotImplementedError

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        raise NotImplementedError


class FakeReconciler:
    """Stands in for the Reconciler. Tests set how long it takes and when it fails."""

    def __init__(self) -> None:
        self.begun: list[tuple[GroupKey, float]] = []
        self.ended: list[tuple[GroupKey, float]] = []
        self.seconds = 0.0
        self.failures: dict[GroupKey, list[BaseException]] = {}
        self.again_in: dict[GroupKey, list[float]] = {}
        self.incidents: set[GroupKey] = set()
        """The groups that have an open incident."""
        self.at_once = 0
        self.most_at_once = 0

    async def reconcile(self, key: GroupKey) -> datetime | None:
        clock = VirtualClock()
        self.begun.append((key, clock.monotonic_seconds()))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        if self.failures.get(key):
            raise self.failures[key].pop(0)
        self.ended.append((key, clock.monotonic_seconds()))
        again = self.again_in.get(key)
        return clock.now() + timedelta(seconds=again.pop(0)) if again else None

    def ledgers_written(self) -> Iterator[LedgerObject]:
        return iter(())

    def in_incident(self, key: GroupKey) -> bool:
        return key in self.incidents

    def log_keys(self, key: GroupKey) -> dict[str, str]:
        return {"job": str(key), "incident": "i-1"}

    def of(self, key: GroupKey) -> list[float]:
        """The times at which reconciles of that group began."""
        return [at for reconciled, at in self.begun if reconciled == key]


class PinnedPolicy:
    """A `Leadership` that a test grants and takes away."""

    def __init__(self) -> None:
        self.won = asyncio.Event()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.released_at: list[float] = []
        self.term: LeadershipTerm | None = None

    def follow(self, current: Callable[[], bool]) -> None: ...

    async def acquire(self) -> LeadershipTerm:
        await self.won.wait()
        self.won.clear()
        self.lost = asyncio.get_running_loop().create_future()
        self.term = LeadershipTerm(VirtualClock(), renewed_at=VirtualClock().monotonic_seconds())
        return self.term

    async def hold(self, term: LeadershipTerm) -> str:
        why = await self.lost
        term.end()
        return why

    async def release(self) -> None:
        self.released_at.append(VirtualClock().monotonic_seconds())


class Scene:
    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *keys: GroupKey,
        leadership: Leadership | None = None,
        agents: AgentExchange | None = None,
    ) -> None:
        """`leadership` None: the runner leads from the start."""
        self.reconciles = FakeReconciler()
        self.apis: list[ApiClient] = []
        """The clients with which the reconciles of each term write."""
        monkeypatch.setattr(runner, "Reconciler", self._reconciler)
        self.store = Keys(*keys)
        self.ears = Ears()
        self.stop = asyncio.Event()
        self.api = LedgersApi()
        self.controller = Controller(
            api=self.api,
            store=self.store,
            clock=VirtualClock(),
            entropy=Chance(),
            observer=self.ears,
            leadership=leadership or SoleLeader(VirtualClock()),
            agents=agents,
        )

    def _reconciler(self, *, api: ApiClient, **_: object) -> FakeReconciler:
        self.apis.append(api)
        return self.reconciles

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[None]"]:
        task = asyncio.create_task(self.controller.run(self.stop))
        try:
            yield task
        finally:
            self.stop.set()
            await asyncio.wait({task}, timeout=60)
            ended = task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert ended, "it does not end"
        await task
