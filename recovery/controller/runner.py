"""Runs the controller until it has to stop: as a standby, or as the leader with the queue and its reconciles.

A standby keeps its caches current and does nothing with them. Each term begins with an empty memory: the ledgers record
what the last leader did. If a cache lags behind them, the compare-and-swap of the first write detects it.

The reconcile boundary is here: the one place that catches all exceptions, because the failure of one group must never
affect the others.
"""

import asyncio
from collections.abc import Callable, Iterator

import structlog

from recovery.background import BackgroundTaskError, endless, first_of, is_to_end
from recovery.controller.agent_exchange import AgentExchange
from recovery.controller.drill_reconciler import DrillReconciler
from recovery.controller.fleet_reconciler import FleetReconciler
from recovery.controller.incident_sweeper import IncidentSweeper
from recovery.controller.leadership import ROLES_READ_WITHIN_SECONDS, Leadership
from recovery.controller.leadership_guard import LeadershipGuard, LeadershipTerm
from recovery.controller.loss_waits import LossWaits
from recovery.controller.observer import ControllerObserver
from recovery.controller.other_controllers import OtherControllers
from recovery.controller.policy_reconciler import PolicyReconciler
from recovery.controller.queue import COALESCE_SECONDS, GroupQueue, Taken
from recovery.controller.readable_ledger import LedgerUnreadableError
from recovery.controller.reconciler import InvariantError, Reconciler, RestlessGroupError
from recovery.controller.suspect_logs import SuspectLogs
from recovery.core.model.agent_facts import AgentFacts, AgentState
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.writer_lease import WriterLease
from recovery.executors import config_condition
from recovery.executors.fleet_ledger import FleetWriter
from recovery.ports import (
    ApiClient,
    ApiError,
    Clock,
    Entropy,
    ForbiddenError,
    GroupStore,
    NamespaceTerminatingError,
    NotLeadingError,
    RefusedError,
    TryLaterError,
)

_log = structlog.get_logger("recovery.controller")

_RECONCILES_AT_ONCE = 256
"""A reconcile holds one of these until it deletes pods, so the trigger of no group waits for the pods of others: of 500
groups lost at once, 244 got theirs after 40 to 74 s when it held one until the last pod was deleted. With a low limit,
a few groups whose requests hang would delay the next one. The client's connections and requests in flight bound what
reaches the API server. Between its triggers and the last answer about its pods a reconcile is not over: it retries,
logs and reports what goes wrong with them, and the end of the term cancels them with it."""
_MANY_RECONCILES = 16
"""With so many reconciles before their triggers, the pods of other groups are deleted more slowly."""
_RESYNC_SECONDS = 600.0
_SYNC_POLL_SECONDS = 0.05
_CONDITION_SECONDS = 5.0
"""How long a hold begins or ends later because of a condition that nothing depends on."""
_FINISH_SECONDS = 20.0
"""How long a stop waits for reconciles in progress: less than a pod's default grace period of 30 s."""


class Controller:
    """One controller process over one store. It reconciles groups only while it leads."""

    def __init__(
        self,
        *,
        api: ApiClient,
        store: GroupStore,
        clock: Clock,
        entropy: Entropy,
        observer: ControllerObserver,
        leadership: Leadership,
        reads_logs: bool = False,
        agents: AgentExchange | None = None,
    ) -> None:
        """`reads_logs`: the controller may and does read the logs of suspects. `agents` None: no agent can report."""
        self._agents = agents
        self._reads_logs = reads_logs
        self._api = api
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._leadership = leadership
        self._others = OtherControllers(api=api, store=store, clock=clock)
        leadership.follow(lambda: store.synced() and not store.stale())
        self._duty: Duty | None = None
        """None: standing by."""

    @property
    def leads(self) -> bool:
        """Whether this process does the duty of the leader now. Any thread may ask."""
        return self._duty is not None

    @property
    def queue_depth(self) -> int:
        return self._duty.queue.depth if self._duty is not None else 0

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then let the reconciles in progress finish. The store's informers run elsewhere.

        It stands for election only once all caches are synced: a leader has to know the cluster.
        """
        while not self._store.synced():
            if stop.is_set():
                return
            await self._clock.sleep(_SYNC_POLL_SECONDS)
        self._store.subscribe(self._changed)
        if self._agents is not None:
            self._agents.subscribe(self._reported, self._observer.agents_reported)
        _log.info("all caches are synced; watching")
        while (term := await self._elected(stop)) is not None:
            await self._lead(term, stop)
        await self._leadership.release()

    def _changed(self, key: GroupKey, *, loss: bool) -> None:
        """Queue the group. A standby need not: once it leads, it reconciles every group."""
        if self._duty is not None:
            self._duty.changed(key, loss=loss)

    def _reported(self, key: GroupKey, facts: AgentFacts) -> None:
        """Queue the group whose agents have reported. The group waits while they ask."""
        self._changed(key, loss=facts.state is AgentState.ASKING)

    async def _elected(self, stop: asyncio.Event) -> LeadershipTerm | None:
        """Wait for the election. Returns the term that begins. None: `stop` was set first."""
        acquiring, stopping = asyncio.create_task(self._leadership.acquire()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return None if stop.is_set() else acquiring.result()
        finally:
            acquiring.cancel()
            stopping.cancel()
            await asyncio.gather(acquiring, stopping, return_exceptions=True)

    async def _lead(self, term: LeadershipTerm, stop: asyncio.Event) -> None:
        """Keep the Lease and work until the term is over, or until `stop` is set and the work is done."""
        working = asyncio.create_task(self._work(term, stop))
        holding = asyncio.create_task(self._leadership.hold(term))
        try:
            await asyncio.wait({working, holding}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                _log.info("no longer leading: asked to stop")
            else:
                _log.warning(f"no longer leading: {holding.result()}")
        finally:
            term.end()
            working.cancel()
            holding.cancel()
            await asyncio.gather(working, holding, return_exceptions=True)

    async def _work(self, term: LeadershipTerm, stop: asyncio.Event) -> None:
        """Do the duty of the leader, but hold while a controller with an older Lease acts. Returns after `stop`."""
        self._others.begin(term)
        while not stop.is_set():
            if (other := self._others.first()) is None:
                await self._act(term, stop)
            else:
                await self._hold(other, term, stop)

    async def _act(self, term: LeadershipTerm, stop: asyncio.Event) -> None:
        """Do the duty until `stop` is set and the work is done, or until this process has to hold."""
        _log.info("leading")
        if self._agents is not None:
            self._agents.begin_term()
        self._observer.leadership_changed(leads=True)
        self._duty = Duty(
            # Reconciles of this term write in this term only, even if the process leads again before they have ended.
            api=LeadershipGuard(self._api, term, self._others.first),
            store=self._store,
            clock=self._clock,
            entropy=self._entropy,
            observer=self._observer,
            reads_logs=self._reads_logs,
            term=term,
            saw=self._others.saw,
            agents=self._agents,
        )
        working = asyncio.create_task(self._duty.run(stop))
        to_hold = asyncio.create_task(self._others.until_first())
        try:
            await asyncio.wait({working, to_hold}, return_when=asyncio.FIRST_COMPLETED)
            (working if working.done() else to_hold).result()
        finally:
            self._duty = None
            working.cancel()
            to_hold.cancel()
            await asyncio.gather(working, to_hold, return_exceptions=True)
            self._observer.leadership_changed(leads=False)

    async def _hold(self, other: WriterLease, term: LeadershipTerm, stop: asyncio.Event) -> None:
        """Do nothing until the other controller has been silent for long enough, or `stop` is set."""
        _log.warning(
            f"no longer leading: it holds, because the controller of the older Lease {other}, recovers the jobs"
        )
        self._observer.holds_for_another(holds=True)
        passing, stopping = asyncio.create_task(self._others.until_alone()), asyncio.create_task(stop.wait())
        try:
            await self._set_condition(config_condition.holds(term.lease, other, self._clock.now()), term)
            await asyncio.wait({passing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            passing.cancel()
            stopping.cancel()
            await asyncio.gather(passing, stopping, return_exceptions=True)
            self._observer.holds_for_another(holds=False)
        await self._set_condition(None, term)

    async def _set_condition(self, condition: LedgerCondition | None, term: LeadershipTerm) -> None:
        """Say on the RecoveryConfig that this controller holds. None: it no longer does. A failure stops nothing."""
        try:
            async with asyncio.timeout(_CONDITION_SECONDS):
                await config_condition.write(LeadershipGuard(self._api, term), condition)
        except (TimeoutError, ApiError) as error:
            _log.warning("the condition of the RecoveryConfig is not written", error=str(error))


class Duty:
    """What the leader does in one term: the queue, the reconciles of groups, the fleet's and the policies'."""

    def __init__(
        self,
        *,
        api: ApiClient,
        store: GroupStore,
        clock: Clock,
        entropy: Entropy,
        observer: ControllerObserver,
        term: LeadershipTerm,
        saw: Callable[[LedgerObject], None],
        reads_logs: bool = False,
        agents: AgentExchange | None = None,
    ) -> None:
        """`saw`: is called with each ledger that is decided on."""
        self._store = store
        self._clock = clock
        self._observer = observer
        self.queue = GroupQueue(clock, entropy)
        self._waits = LossWaits(clock, observer)
        fleet = FleetWriter(api, store, clock)
        self._fleet_reconciler = FleetReconciler(api=api, store=store, clock=clock, fleet=fleet)
        self._policy_reconciler = PolicyReconciler(api=api, store=store, clock=clock)
        self._drill_reconciler = DrillReconciler(api=api, store=store, clock=clock)
        self._logs = SuspectLogs(api) if reads_logs else None
        self._reconciler = Reconciler(
            api=api,
            store=store,
            clock=clock,
            observer=observer,
            fleet=fleet,
            logs=self._logs,
            writer=lambda: term.lease,
            saw=saw,
            only_pods_left=self._give_slot_back,
            triggers_wait=lambda: len(self._holding) >= _MANY_RECONCILES,
            opened=self._waits.opened,
            agents=agents,
        )
        self._sweeper = IncidentSweeper(api=api, store=store, clock=clock, ledgers=self._ledgers)
        self._slots = asyncio.Semaphore(_RECONCILES_AT_ONCE)
        self._holding: set[GroupKey] = set()
        """The groups whose reconciles hold one of the slots."""
        self._forbidden_since: dict[GroupKey, float] = {}
        """For groups whose latest reconciles have all met a 403: since when, by our monotonic clock."""

    def _ledgers(self) -> Iterator[LedgerObject]:
        yield from self._store.ledger_objects()
        yield from self._reconciler.ledgers_written()

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile every group, and each that changes, until `stop` is set and the reconciles in progress are over.

        A cancellation ends them at once. Raises BackgroundTaskError if a background task ends.
        """
        try:
            await first_of(
                asyncio.create_task(self._reconcile_until(stop), name="reconciles"),
                asyncio.create_task(endless("resync", self._resync)),
                asyncio.create_task(endless("fleet review", self._review_fleet)),
                asyncio.create_task(endless("sweep of incidents", self._sweep)),
                asyncio.create_task(endless("policy review", self._review_policies)),
                asyncio.create_task(endless("drill review", self._review_drills)),
            )
        finally:
            if self._logs is not None:
                await self._logs.close()

    async def _reconcile_until(self, stop: asyncio.Event) -> None:
        """The work of `run`. A failure outside the reconcile boundary is a bug that would leave its group unwatched."""
        running: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []

        def over(task: asyncio.Task[None]) -> None:
            running.discard(task)
            if not task.cancelled() and (failure := task.exception()) is not None:
                failures.append(failure)
                self.queue.close()

        stopper = asyncio.create_task(self._close_when(stop))
        try:
            # The slot comes first: a group that is taken keeps its turn, also if another one is lost meanwhile.
            while await self._wait_for_slot(stopper) and (taken := await self.queue.take()) is not None:
                self._observer.queue_waited(taken.waited_seconds)
                self._holding.add(taken.key)
                task = asyncio.create_task(self._reconcile(taken))
                running.add(task)
                task.add_done_callback(over)
            if failures:
                error = failures[0]
                raise BackgroundTaskError("reconciles", f"{type(error).__name__}: {error}") from error
            if running:
                await asyncio.wait(running, timeout=_FINISH_SECONDS)
        finally:
            for task in (stopper, *running):
                task.cancel()
            await asyncio.gather(stopper, *running, return_exceptions=True)

    async def _wait_for_slot(self, stopper: "asyncio.Task[None]") -> bool:
        """Wait until another reconcile may begin. False: the stop came first, which must not wait for hanging ones."""
        slot = asyncio.create_task(self._slots.acquire())
        try:
            await asyncio.wait({slot, stopper}, return_when=asyncio.FIRST_COMPLETED)
            return slot.done()
        finally:
            slot.cancel()

    def _give_slot_back(self, key: GroupKey) -> None:
        """The group's reconcile needs its slot no longer. It may have given it back before."""
        if key in self._holding:
            self._holding.discard(key)
            self._slots.release()

    async def _close_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.queue.close()

    async def _review_fleet(self) -> None:
        """`run` returns when a write was refused because the term is over. The end of the term cancels this task."""
        await self._fleet_reconciler.run()
        await asyncio.Event().wait()

    async def _review_policies(self) -> None:
        """As `_review_fleet`."""
        await self._policy_reconciler.run()
        await asyncio.Event().wait()

    async def _review_drills(self) -> None:
        """As `_review_fleet`."""
        await self._drill_reconciler.run()
        await asyncio.Event().wait()

    async def _sweep(self) -> None:
        """As `_review_fleet`."""
        await self._sweeper.run()
        await asyncio.Event().wait()

    async def _resync(self) -> None:
        """Level-triggered: every group is reconciled from time to time, changed or not. It costs no request.

        This includes groups whose job is gone, with or without their ledger: the job may have been deleted while no
        replica led.
        """
        while True:
            of_ledgers = (GroupKey(ledger.namespace, ledger.group) for ledger in self._store.ledger_objects())
            for key in dict.fromkeys((*self._store.keys(), *of_ledgers, *self._store.collected())):
                self.queue.add_after(key, COALESCE_SECONDS, urgent=self._reconciler.in_incident(key))
            await self._clock.sleep(_RESYNC_SECONDS)

    def changed(self, key: GroupKey, *, loss: bool) -> None:
        """Queue the group. `loss`: it may have lost a member."""
        if loss:
            self._waits.noticed(key)
        self.queue.add(key, urgent=loss or self._reconciler.in_incident(key))
        self._drill_reconciler.changed(key)

    async def _reconcile(self, taken: Taken) -> None:
        key, started = taken.key, self._clock.monotonic_seconds()
        self._waits.begun(key)
        forbidden_since = self._forbidden_since.pop(key, None)
        error: str | None = None
        try:
            requeue_at = await self._reconciler.reconcile(key)
        except asyncio.CancelledError as failure:
            if is_to_end():
                raise
            error = type(failure).__name__
            self._again(taken, failure)
        except NotLeadingError as over:
            _log.info("left to the next leader", **self._reconciler.log_keys(key), error=str(over))
        except Exception as failure:  # noqa: BLE001 - the reconcile boundary
            error = type(failure).__name__
            if isinstance(failure, ForbiddenError):
                self._forbidden_since[key] = started if forbidden_since is None else forbidden_since
            self._again(taken, failure)
        else:
            self.queue.succeeded(key)
            self._waits.succeeded(key)
            if requeue_at is not None:
                seconds = (requeue_at - self._clock.now()).total_seconds()
                self.queue.add_after(key, seconds, urgent=self._reconciler.in_incident(key))
        finally:
            self.queue.done(key)
            self._give_slot_back(key)
            self._observer.reconcile_finished(key, self._clock.monotonic_seconds() - started, error)

    def _again(self, taken: Taken, failure: BaseException) -> None:
        """Try again later. A possible loss that could not be judged is still urgent."""
        key = taken.key
        self._waits.failed(key)
        urgent = taken.urgent or self._reconciler.in_incident(key)
        self._say(key, failure, self.queue.retry(key, urgent=urgent))

    def _may_have_just_started(self, key: GroupKey) -> bool:
        """Whether the API server that forbids a request of this group may have just started."""
        return self._clock.monotonic_seconds() - self._forbidden_since[key] < ROLES_READ_WITHIN_SECONDS

    def _say(self, key: GroupKey, failure: BaseException, retry_in_seconds: float) -> None:
        """Log one line for an expected failure, and a traceback only for a bug."""
        line = {
            **self._reconciler.log_keys(key),
            "error": str(failure),
            "retry_in_seconds": round(retry_in_seconds, 1),
        }
        match failure:
            case TryLaterError():
                _log.info("nothing can be done yet", **line)
            case RestlessGroupError():
                _log.warning("no decision could be carried out yet", **line)
            case ForbiddenError() if self._may_have_just_started(key):
                _log.warning("the API server forbids this; it is asked again", **line)
            case NamespaceTerminatingError():
                _log.info("its namespace is being deleted", **line)
            case RefusedError():
                _log.error("the API server refuses this for good", **line)
            case ApiError():
                _log.warning("the outcome of a request is not known", **line)
            case LedgerUnreadableError():
                _log.error("holding", **line)
            case InvariantError():
                _log.error("a decision was stopped", **line)
            case _:
                _log.error("a reconcile failed: this is a bug", **line, exc_info=failure)
