"""Keeps the fleet's ledger and its nodes consistent: completes what a crash interrupted, adopts what people did, and
releases nodes that are due.

A quarantine enters the ledger before its node is changed, and leaves it only after the node has been released. So the
next leader finds every quarantine in progress, and nothing has to be remembered.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

import structlog

from recovery.core.fleet.breaker import breaker_reset
from recovery.core.fleet.quarantine import next_review_at, reviewed, taken_in
from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import NodeFacts
from recovery.core.model.fleet_ledger import FleetLedger, Quarantined
from recovery.core.policy.resolved import fleet_limits
from recovery.core.policy.spec import PolicyError
from recovery.executors import node_quarantine
from recovery.executors.fleet_ledger import FleetWriter
from recovery.ports import ApiClient, ApiError, Clock, GroupStore, NotLeadingError, UndecodableError

_log = structlog.get_logger("recovery.controller")

REVIEW_SECONDS = 30.0
"""Between two reviews, if nothing requires one earlier. A review that finds nothing due costs no request."""
_GATHER_SECONDS = 1.0
"""How long a change waits for others, so that one write marks what forty groups have quarantined at once."""
_ROUNDS_MAX = 4
"""One round writes and acts, the next one writes what was done. If more are needed, another client works against us."""
_READS_AT_ONCE = 32


class FleetReconciler:
    """Reviews the fleet's ledger while this process leads."""

    def __init__(self, *, api: ApiClient, store: GroupStore, clock: Clock, fleet: FleetWriter) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._fleet = fleet
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)
        self._troubled = False
        """The last review failed, and that was logged."""

    async def run(self) -> None:
        """Review until cancelled, or until this process may no longer lead."""
        while True:
            self._fleet.changed.clear()
            due_at: datetime | None = None
            try:
                due_at = await self.reconcile()
                self._troubled = False
            except NotLeadingError:
                return
            except Exception as error:  # noqa: BLE001 - the fleet's trouble must not end the groups' recoveries
                self._say(error)
            await self._wait(due_at)

    async def reconcile(self) -> datetime | None:
        """Do what is due. Returns when the next review is due even without a change. None: never. Raises ApiError."""
        failed: ApiError | None = None
        for _ in range(_ROUNDS_MAX):
            config = self._fleet.newest()
            if config is None or config.unreadable:
                return None
            concerned = self._concerned(config, self._store.nodes())
            if not concerned and self._next(config, self._store.nodes()) == config.fleet:
                break
            config = await self._write(await self._nodes(concerned))
            if config is None:
                return None
            failed = await self._carry_out(config)
            if failed is not None or not _pending(config):
                break
        if failed is not None:
            raise failed
        newest = self._fleet.newest()
        return None if newest is None else next_review_at(newest.fleet, self._clock.now())

    async def _write(self, nodes: Mapping[str, NodeFacts]) -> ConfigFacts | None:
        before: list[FleetLedger] = []

        def update(config: ConfigFacts) -> FleetLedger:
            before[:] = [config.fleet]
            return self._next(config, nodes)

        config = await self._fleet.swap(update)
        if config is not None:
            self._log_changes(before[0], config.fleet)
        return config

    def _next(self, config: ConfigFacts, nodes: Mapping[str, NodeFacts]) -> FleetLedger:
        """The ledger as it has to be. What people did on nodes is adopted only if we may quarantine nodes ourselves."""
        now = self._clock.now()
        ledger = breaker_reset(config.fleet, config.reset_breaker_at, now)
        if _may_quarantine(config):
            ledger = taken_in(ledger, nodes.values(), now)
        return reviewed(ledger, fleet_limits(config.spec), nodes, now)

    def _concerned(self, config: ConfigFacts, nodes: Mapping[str, NodeFacts]) -> tuple[str, ...]:
        """The nodes whose ledger entry has to change or to be carried out."""
        before = config.fleet.quarantined
        after = self._next(config, nodes).quarantined
        differ = (*(each for each in before if each not in after), *(each for each in after if each not in before))
        return tuple(dict.fromkeys(each.node for each in (*differ, *_pending(config))))

    async def _nodes(self, concerned: Iterable[str]) -> Mapping[str, NodeFacts]:
        """All nodes from the cache, but the concerned ones from the API server: a lagging cache must neither drop an
        entry whose node has our taint, nor adopt a quarantine that has just been released."""
        nodes = dict(self._store.nodes())
        names = tuple(concerned)
        for name, node in zip(names, await asyncio.gather(*map(self._node, names)), strict=True):
            if node is None:
                nodes.pop(name, None)
            else:
                nodes[name] = node
        return nodes

    async def _node(self, name: str) -> NodeFacts | None:
        async with self._reads:
            try:
                return await self._store.read_node_live(name)
            except UndecodableError:
                known = self._store.nodes().get(name)
                if known is None:
                    raise
                return known  # its last readable state: one node must not block the review of all

    async def _carry_out(self, config: ConfigFacts) -> ApiError | None:
        """Quarantine and release the nodes. Every one is tried; the first error is returned."""
        outcomes = await asyncio.gather(*(self._do(entry) for entry in _pending(config)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, ApiError):
                raise outcome
        return next((outcome for outcome in outcomes if isinstance(outcome, ApiError)), None)

    async def _do(self, entry: Quarantined) -> None:
        if entry.releasing:
            await node_quarantine.release(self._api, entry)
        else:
            await node_quarantine.apply(self._api, entry, self._clock.now())

    async def _wait(self, due_at: datetime | None) -> None:
        seconds = REVIEW_SECONDS
        if due_at is not None:
            seconds = min(seconds, max(_GATHER_SECONDS, (due_at - self._clock.now()).total_seconds()))
        changing = asyncio.create_task(self._fleet.changed.wait())
        sleeping = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait({changing, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changing.cancel()
            sleeping.cancel()
            await asyncio.gather(changing, sleeping, return_exceptions=True)
        if self._fleet.changed.is_set():
            await self._clock.sleep(_GATHER_SECONDS)

    def _log_changes(self, before: FleetLedger, after: FleetLedger) -> None:
        """Log what has changed for each node, after the write."""
        was = {each.node: each for each in before.quarantined}
        now = {each.node: each for each in after.quarantined}
        for node, entry in was.items():
            if node not in now:
                self._log("quarantine ended", entry, why=entry.releasing or "its taint, or the node, is gone")
            elif now[node].releasing and not entry.releasing:
                self._log("releasing a node", entry, why=now[node].releasing)
            elif now[node].applied and not entry.applied:
                self._log("quarantined", entry, reason=entry.reason)
        for node, entry in now.items():
            if node not in was:
                self._log("quarantine taken in", entry, by=entry.by, reason=entry.reason)

    def _log(self, said: str, entry: Quarantined, **more: str) -> None:
        """Log one line, with the incident that caused the quarantine, and its job if a ledger still names the two."""
        keys = {"incident": entry.incident} if entry.incident else {}
        for known in self._store.ledger_objects() if entry.incident else ():
            incident = known.ledger.incident
            ids = {each.id for each in known.ledger.history} | ({incident.id} if incident is not None else set())
            if entry.incident in ids:
                keys["job"] = f"{known.namespace}/{known.group}"
        _log.info(said, node=entry.node, **keys, **more)

    def _say(self, error: Exception) -> None:
        """Log one line for an expected failure, and a traceback only for a bug."""
        if isinstance(error, ApiError | PolicyError):
            log = _log.info if self._troubled else _log.warning
            log("the quarantined nodes are not reviewed", error=str(error), retry_in_seconds=REVIEW_SECONDS)
        else:
            _log.error("a review of the fleet failed: this is a bug", error=str(error), exc_info=error)
        self._troubled = True


def _may_quarantine(config: ConfigFacts) -> bool:
    return config.spec.allow.cordon and config.stop is None


def _pending(config: ConfigFacts) -> tuple[Quarantined, ...]:
    """Entries still to be carried out on their nodes. Releases too, while quarantines are paused or not allowed."""
    may = _may_quarantine(config)
    return tuple(
        each for each in config.fleet.quarantined if each.releasing or (may and not each.applied and not each.by)
    )
