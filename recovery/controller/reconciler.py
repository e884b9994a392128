"""One look at one group: facts, decision, ledger, deeds. In this order, always.

The ledger is written by compare-and-swap before the first destructive call. If another controller, or this one before
a crash, was faster, the write is refused and everything is read and decided again. Nothing is kept here that a new
process would miss, but for the last ledger written: a cache that lags behind our own write must not make us decide on
the past.
"""

from datetime import datetime

import structlog

from recovery.controller.observer import ControllerObserver
from recovery.core.decide import decide
from recovery.core.facts import GroupKey, WorkloadFacts
from recovery.core.incident import say
from recovery.core.invariants import violations
from recovery.core.ledger import SCHEMA_VERSION, Ledger, LedgerObject
from recovery.core.plan import (
    Action,
    DeleteJob,
    DeletePods,
    EmitEvent,
    Plan,
    RaiseBackoffLimit,
    ReadLive,
    RecordIncident,
    TouchJob,
)
from recovery.core.policy import applicable
from recovery.core.summary import summarise
from recovery.executors import events, group_recreate
from recovery.executors.pod_teardown import PodTeardown
from recovery.executors.status import LedgerWriter
from recovery.ports import (
    ApiClient,
    ApiError,
    Clock,
    GroupStore,
    ReadAgainError,
    RefusedError,
    TryLaterError,
    UnknownOutcomeError,
)

_log = structlog.get_logger("recovery.controller")

_MAX_ROUNDS = 4
"""Live reads and refused writes within one look; beyond that the queue's backoff takes over."""


class InvariantError(AssertionError):
    """The decision would have broken an invariant of the ledger: a bug, stopped before it was written."""


class RestlessGroupError(Exception):
    """Somebody keeps changing the group under our hands: look again after a while."""


class LedgerUnreadableError(Exception):
    """The RecoveryGroup was written by a newer controller, or is damaged: nothing is decided without it."""


class Reconciler:
    """Looks at groups. One instance serves all groups; the queue sees to it that each is looked at once at a time."""

    def __init__(self, *, api: ApiClient, store: GroupStore, clock: Clock, observer: ControllerObserver) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._observer = observer
        self._ledgers = LedgerWriter(api)
        self._teardown = PodTeardown(api, clock)
        self._written: dict[GroupKey, LedgerObject] = {}

    async def look(self, key: GroupKey) -> datetime | None:
        """Look at the group once and do what it calls for. Returns when to look again, None: when something changes.

        Raises ApiError subclasses, RestlessGroupError, LedgerUnreadableError, InvariantError; the queue retries with
        backoff.
        """
        if not self._store.synced():
            raise TryLaterError("a cache is not in sync, so nothing is decided")
        snapshot = self._store.snapshot(key)
        policies = self._store.policies(key.namespace)
        changed: ReadAgainError | None = None
        for _ in range(_MAX_ROUNDS):
            workload = snapshot.workload
            if workload is None:
                self._written.pop(key, None)
                return None
            known = self._known_ledger(key, workload)
            before = known.ledger if known is not None else Ledger()
            plan = decide(snapshot, before, applicable(policies, workload), self._clock.now())
            if any(isinstance(action, ReadLive) for action in plan.actions):
                # The policy too: a switch to Observe is the emergency brake, and must not wait for a watch.
                policies = await self._store.read_policies_live(key.namespace)
                snapshot = await self._store.read_live(key)
                continue
            self._observer.decided(key, before, plan)
            try:
                await self._carry_out(key, workload, known, plan)
            except ReadAgainError as error:
                _log.info("reading again", job=str(key), error=str(error), status=error.status)
                await self._forget(key, workload)
                if isinstance(error, UnknownOutcomeError):
                    raise  # the server has trouble of its own: with backoff, not at once
                changed = error
                snapshot = await self._store.read_live(key)
                continue
            return self._next_look(plan)
        raise RestlessGroupError(f"the objects of {key} changed under each of {_MAX_ROUNDS} tries") from changed

    async def _carry_out(self, key: GroupKey, workload: WorkloadFacts, known: LedgerObject | None, plan: Plan) -> None:
        for action in plan.first:
            await self._do(key, workload, action)
        await self._write(key, workload, known, plan.ledger)
        refused: ApiError | None = None
        undone = False  # a deed, not only an Event
        for action in plan.actions:
            if refused is not None and not isinstance(action, EmitEvent):
                continue
            try:
                await self._do(key, workload, action)
            except ApiError as error:
                undone = undone or not isinstance(action, EmitEvent)
                refused = refused or error
        # Events are emitted even so: the ledger says it already, and no later look would say it again.
        if undone and isinstance(refused, RefusedError):
            await self._say_refused(key, workload, refused)
        if refused is not None:
            raise refused

    async def _write(self, key: GroupKey, workload: WorkloadFacts, known: LedgerObject | None, after: Ledger) -> None:
        """The one way into the ledger: asked for its invariants, swapped against `known`, told once it is true."""
        before = known.ledger if known is not None else Ledger()
        if after == before:
            return
        broken = violations(before, after)
        if broken:
            raise InvariantError(f"{key}: {'; '.join(broken)}")
        self._written[key] = await self._ledgers.write(key.namespace, workload, known, after)
        self._observer.ledger_written(key, before, after)
        _log_change(key, before, after)

    async def _say_refused(self, key: GroupKey, workload: WorkloadFacts, refused: RefusedError) -> None:
        """A deed that the API server will not have done must not stand in the ledger as if it had been."""
        known = self._known_ledger(key, workload)
        if known is None or known.ledger.incident is None or known.ledger.incident.closing is not None:
            return
        said = f"{known.ledger.incident.evidence[0]}; decided, but the API server refuses it: {refused}"
        await self._write(key, workload, known, summarise(say(known.ledger, said), workload, self._clock.now()))

    async def _do(self, key: GroupKey, workload: WorkloadFacts, action: Action) -> None:
        match action:
            case DeleteJob():
                await group_recreate.delete_job(self._api, key.namespace, action)
            case DeletePods():
                await self._teardown.delete_pods(key.namespace, action)
            case RaiseBackoffLimit():
                await group_recreate.raise_backoff_limit(self._api, key.namespace, action)
            case TouchJob():
                await group_recreate.touch_job(self._api, key.namespace, action)
            case RecordIncident():
                await self._ledgers.record(key.namespace, workload, action.incident)
            case EmitEvent():
                await events.emit(self._api, key.namespace, workload, action, self._clock.now())
            case ReadLive():
                raise AssertionError("a live read is done by the look itself")

    def _known_ledger(self, key: GroupKey, workload: WorkloadFacts) -> LedgerObject | None:
        """The newest ledger known: the cache's, or our own last write while the cache lags behind it."""
        cached = self._store.ledger_object(key, workload.uid)
        ours = self._written.get(key)
        if ours is not None and ours.workload_uid != workload.uid:
            del self._written[key]
            ours = None
        newest = cached if ours is None or (cached is not None and _at_least(cached, ours)) else ours
        if newest is not None and newest.schema_version != SCHEMA_VERSION:
            raise LedgerUnreadableError(
                f"RecoveryGroup {newest.namespace}/{newest.name} has schemaVersion {newest.schema_version}, this "
                f"controller knows {SCHEMA_VERSION}: it holds; run the controller version that wrote it"
            )
        return newest

    async def _forget(self, key: GroupKey, workload: WorkloadFacts) -> None:
        """After a refused or lost write: what the API server has is the truth."""
        live = await self._store.read_ledger_live(key, workload.uid)
        if live is None:
            self._written.pop(key, None)
        else:
            self._written[key] = live

    def _next_look(self, plan: Plan) -> datetime | None:
        incident = plan.ledger.incident
        if incident is not None and incident.closing is not None:
            return self._clock.now()  # it is still to be recorded
        return plan.look_again_at


def _at_least(cached: LedgerObject, ours: LedgerObject) -> bool:
    """The cache has seen our write. (resourceVersions of one resource are ordered since Kubernetes 1.35.)"""
    if cached.uid != ours.uid:
        return True
    return int(cached.resource_version) >= int(ours.resource_version)


def _log_change(key: GroupKey, before: Ledger, after: Ledger) -> None:
    incident = after.incident
    known = incident.id if incident is not None else after.history[0].id if after.history else ""
    said = after.reason if after.reason != before.reason else f"{before.phase} -> {after.phase}"
    if incident is None and after.history != before.history:
        said = f"recorded as {after.history[0].outcome}"
    _log.info(said, job=str(key), incident=known, phase=str(after.phase), epoch=after.epoch, decision=after.action)
