"""Writes the fleet's ledger, RecoveryConfig.status, to the API server by compare-and-swap.

One instance serves all groups of a process and admits one writer at a time. Otherwise the writes of forty groups that
lose nodes at once would conflict. Between processes the resourceVersion decides.
"""

import asyncio
from collections.abc import Callable
from functools import cache

import msgspec
import structlog

from recovery import api_verbs
from recovery.core.fleet import quarantine, totals
from recovery.core.fleet.counted_marks import IncidentName, mark_of, part_of, workload_part
from recovery.core.fleet.quarantine import Refused
from recovery.core.model.config import ConfigFacts
from recovery.core.model.fleet_ledger import FleetChange, FleetLedger
from recovery.core.model.ledger import IncidentTotals
from recovery.core.model.reason import Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.kubernetes_events import fleet_events
from recovery.core.plan.parts import message_of
from recovery.core.policy.resolved import fleet_limits
from recovery.core.policy.spec import Mode, PolicyError
from recovery.decoding import ObjectVersion
from recovery.executors import events, node_quarantine
from recovery.ports import (
    RECOVERY_CONFIGS,
    ApiClient,
    ApiError,
    Clock,
    ConflictError,
    GroupStore,
    NotLeadingError,
    PatchKind,
    ReadAgainError,
    TryLaterError,
)

_log = structlog.get_logger("recovery.controller")

_TRIES_MAX = 5


class QuarantineRefusedError(ReadAgainError):
    """The fleet's ledger does not allow the quarantine as it stands now: decide again. The message says why."""


class _Written(msgspec.Struct):
    metadata: ObjectVersion


class FleetWriter:
    """Changes the fleet's ledger. It remembers its own last write while the cache lags behind it."""

    def __init__(self, api: ApiClient, store: GroupStore, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._writing = asyncio.Lock()
        self._own: ConfigFacts | None = None
        """The RecoveryConfig as of our last write or live read. None: there was neither, or no RecoveryConfig."""
        self._doubtful = False
        """Our state may be out of date, or the outcome of a write is unknown: read live first."""
        self._closed: dict[IncidentName, IncidentTotals] = {}
        """Closed incidents that are being added to the totals: the next write adds them all."""
        self.changed = asyncio.Event()
        """Set when a group has changed the ledger and the quarantine of its nodes has been tried."""

    def newest(self) -> ConfigFacts | None:
        """The RecoveryConfig as far as this process knows. None: there is none."""
        cached, own = self._store.config(), self._own
        if cached is None or own is None:
            return cached
        # resourceVersions of one resource are ordered: Kubernetes 1.35.
        return own if int(own.resource_version) > int(cached.resource_version) else cached

    async def change(self, change: FleetChange) -> None:
        """Write the change to the ledger, and then quarantine its nodes.

        A change that was made before, in part or as a whole, is completed. Raises QuarantineRefusedError if the caps or
        the permissions no longer allow it, ConflictError if others keep writing, and other ApiErrors. Without a
        RecoveryConfig, or while it pauses everything, a change that only counts is dropped. Closed incidents are added
        to the totals even during a pause.
        """
        if change.closed:
            await self._count(change.closed)
            change = msgspec.structs.replace(change, closed=())
            if change == FleetChange():
                return
        config = await self.swap(lambda config: self._with(config, change))
        if config is None:
            if change.quarantine:
                raise QuarantineRefusedError("there is no RecoveryConfig, and without one no node is quarantined")
            return
        entries = {entry.node: entry for entry in config.fleet.quarantined}
        wanted = (entries.get(each.node) for each in change.quarantine)
        due = [each for each in wanted if each is not None and not (each.applied or each.releasing or each.by)]
        try:
            outcomes = await asyncio.gather(
                *(node_quarantine.apply(self._api, entry, self._clock.now()) for entry in due), return_exceptions=True
            )
        finally:
            self.changed.set()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def swap(self, update: Callable[[ConfigFacts], FleetLedger | Refused]) -> ConfigFacts | None:
        """Replace the ledger by what `update` makes of it. An unchanged ledger is not written.

        Returns the RecoveryConfig as it is then. None: there is none. `update` may be called several times. Its refusal
        counts only for a ledger that was just read from the API server. Raises as `change`.
        """
        async with self._writing:
            for left in reversed(range(_TRIES_MAX)):
                live = self._doubtful or self._store.config() is None
                config = await self._read() if live else self.newest()
                if config is None:
                    return None
                after = update(config)
                if isinstance(after, Refused):
                    if live:
                        raise QuarantineRefusedError(message_of(after.why))
                    self._doubtful = True
                    continue
                if after == config.fleet:
                    return config
                try:
                    return await self._write(config, after)
                except ConflictError:
                    if not left:
                        raise
        raise QuarantineRefusedError("the RecoveryConfig changes faster than it can be read")

    async def _count(self, closed: tuple[IncidentTotals, ...]) -> None:
        """Add closed incidents to the totals. One write adds those of all groups that are waiting."""
        if self.newest() is None:
            return  # without a RecoveryConfig there are no totals, and no request is made to learn that
        names = {(each.workload_uid, each.number, each.started_at): each for each in closed}
        self._closed |= names
        try:
            await self.swap(self._with_closed)
        finally:
            for name in names:
                self._closed.pop(name, None)

    def _with_closed(self, config: ConfigFacts) -> FleetLedger:
        if config.unreadable:
            raise TryLaterError(f"the totals of RecoveryConfig {config.name} cannot be read: {config.unreadable}")
        known = config.fleet.totals
        held = cache(self._held)  # it is only called for old marks
        after = totals.with_closed(
            known,
            self._closed.values(),
            self._clock.now(),
            may_return=lambda mark: mark in held() or part_of(mark) in held(),
        )
        return config.fleet if after is known else msgspec.structs.replace(config.fleet, totals=after)

    def _held(self) -> frozenset[str]:
        """The marks of all that ledgers may still ask to count. Of an unreadable ledger: what they begin with."""
        found: set[str] = set()
        for group in self._store.ledger_objects():
            if group.readable:
                found.update(map(mark_of, totals.held_by(group.workload_uid, group.ledger)))
            else:
                found.add(workload_part(group.workload_uid))
        return frozenset(found)

    async def _read(self) -> ConfigFacts | None:
        self._own = await self._store.read_config_live()
        self._doubtful = False
        return self._own

    async def _write(self, config: ConfigFacts, ledger: FleetLedger) -> ConfigFacts:
        body = {
            # With the resourceVersion in it, the patch is refused with 409 if anything was written in between.
            "metadata": {"uid": config.uid, "resourceVersion": config.resource_version},
            # A merge patch: the conditions in the same status are written by admission. It has only what changes: the
            # rest grows with every incident.
            "status": _difference(msgspec.to_builtins(config.fleet), msgspec.to_builtins(ledger)),
        }
        self._doubtful = True
        answer = await api_verbs.patch(
            self._api, RECOVERY_CONFIGS, config.name, body, kind=PatchKind.MERGE, subresource="status"
        )
        version = msgspec.json.decode(answer, type=_Written).metadata.resource_version
        self._own = msgspec.structs.replace(config, fleet=ledger, resource_version=version)
        self._doubtful = False
        await self._report(config.fleet, self._own)
        return self._own

    async def _report(self, before: FleetLedger, config: ConfigFacts) -> None:
        """Report that the circuit breaker has opened or closed: once for all groups, by the process that wrote it.

        A process that ends between the write and the Event emits no Event. The ledger and its metric still show it.
        """
        for event in fleet_events(before, config.fleet):
            _log.warning(event.note, config=config.name)
            try:
                await events.emit_on_config(self._api, config, event, self._clock.now())
            except NotLeadingError:
                raise
            except ApiError as error:  # no recovery waits for an Event
                _log.warning("an Event on the RecoveryConfig is not written", reason=event.reason, error=str(error))

    def _with(self, config: ConfigFacts, change: FleetChange) -> FleetLedger | Refused:
        if config.stop is not None:
            return Refused(config.stop) if change.quarantine else config.fleet
        try:
            limits = fleet_limits(config.spec)
        except PolicyError as error:
            return Refused(explained(Sentence.NO_USABLE_CONFIG, Reason.GLOBAL_PAUSE, error=str(error)))
        nodes, now = self._store.nodes(), self._clock.now()
        # A person may have quarantined the nodes first.
        meant = [nodes[each.node] for each in change.quarantine if each.node in nodes]
        known = quarantine.taken_in(config.fleet, meant, now)
        reset_at = config.reset_breaker_at
        return quarantine.changed(
            known,
            limits,
            change,
            nodes=len(nodes),
            now=now,
            shown=nodes,
            reset_at=reset_at,
            only_namespace=self._only_namespace() if change.futile else None,
        )

    def _only_namespace(self) -> str | None:
        """The only namespace in which a policy may recover workloads. None: there are several, or none."""
        enforced = {
            namespace
            for namespace in {key.namespace for key in self._store.keys()}  # noqa: SIM118 - no mapping
            if any(policy.spec.mode is Mode.ENFORCE for policy in self._store.policies(namespace).policies)
        }
        return enforced.pop() if len(enforced) == 1 else None


def _difference(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    """The merge patch that makes `after` of `before`, in their order: equal statuses give equal requests."""
    patch: dict[str, object] = {key: None for key in before if key not in after}
    for key, value in after.items():
        was = before.get(key)
        if isinstance(value, dict) and isinstance(was, dict):
            if inner := _difference(was, value):
                patch[key] = inner
        elif value != was or key not in before:
            patch[key] = value
    return patch
