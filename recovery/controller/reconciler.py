"""One reconcile of one group: facts, decision, ledger, actions, always in this order.

The ledger is written by compare-and-swap before the first destructive call. If another controller, or this one before
a crash, was faster, the write is refused and everything is read and decided again. A new process needs nothing of what
is kept here. It only bridges the lag of the cache: the last ledger written, until the cache shows it or its incident is
recorded, and the recorded incidents of deleted jobs, until the cache has dropped their ledgers.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec
import structlog

from recovery.controller.agent_exchange import AgentExchange
from recovery.controller.incident_recorder import IncidentRecorder
from recovery.controller.known_ledgers import KnownLedgers
from recovery.controller.observer import ControllerObserver
from recovery.controller.readable_ledger import readable
from recovery.controller.suspect_logs import DEADLINE_SECONDS, SuspectLogs
from recovery.core.decision.agent_answer import answer_of
from recovery.core.decision.decide import decide
from recovery.core.decision.deleted_workload import finished
from recovery.core.decision.protection import protection
from recovery.core.fleet.counted_marks import IncidentName
from recovery.core.fleet.totals import held_by
from recovery.core.incident.evidence_counts import first_seen
from recovery.core.incident.invariants import violations
from recovery.core.model.birth_settings import BirthTrial
from recovery.core.model.facts import GroupKey, Snapshot, WorkloadFacts
from recovery.core.model.ledger import Ledger, MessageRelation
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.reason import Reason, because
from recovery.core.model.writer_lease import WriterLease
from recovery.core.plan.actions import (
    Action,
    ChangeFleet,
    ClaimJob,
    CountIncidents,
    DeleteJob,
    DeleteJobSet,
    DeletePods,
    EmitEvent,
    ExtendBackoffLimit,
    FailJobSet,
    ForceDeletePods,
    LeaveOutAgent,
    Plan,
    RaiseBackoffLimit,
    ReadLive,
    RecordIncident,
    ResumeWorkload,
    SuspendWorkload,
    TouchJob,
    TryBirth,
)
from recovery.core.plan.log_to_read import log_to_read
from recovery.core.plan.parts import note
from recovery.core.plan.status_conditions import summarise
from recovery.core.policy.selection import PolicySet, applicable
from recovery.executors import agent_parameters, birth_settings, events, group_recreate, job_failure, suspension
from recovery.executors.fleet_ledger import FleetWriter
from recovery.executors.pod_teardown import PodTeardown
from recovery.executors.status import LedgerWriter, WorkloadReference, reference_to
from recovery.ports import (
    JOB_SETS,
    TRAIN_JOBS,
    ApiClient,
    ApiError,
    Clock,
    GroupStore,
    NotLeadingError,
    ReadAgainError,
    RefusedError,
    TryLaterError,
    UnknownOutcomeError,
)

_log = structlog.get_logger("recovery.controller")

_RECORD_AGAIN_AFTER = timedelta(seconds=30)
_WORKLOAD_KINDS = frozenset({TRAIN_JOBS.kind, JOB_SETS.kind})
_MAX_ROUNDS = 4
"""Live reads and refused writes within one reconcile; beyond that the queue's backoff takes over."""


class InvariantError(AssertionError):
    """The decision would have broken an invariant of the ledger: a bug, stopped before it was written."""


class RestlessGroupError(Exception):
    """Another client keeps changing the group: reconcile again after a while."""


class Reconciler:
    """Reconciles groups. One instance serves all groups; the queue runs one reconcile of each at a time."""

    def __init__(
        self,
        *,
        api: ApiClient,
        store: GroupStore,
        clock: Clock,
        observer: ControllerObserver,
        fleet: FleetWriter,
        logs: SuspectLogs | None = None,
        writer: Callable[[], WriterLease | None] = lambda: None,
        saw: Callable[[LedgerObject], None] = lambda _: None,
        only_pods_left: Callable[[GroupKey], None] = lambda _: None,
        triggers_wait: Callable[[], bool] = lambda: False,
        opened: Callable[[GroupKey], None] = lambda _: None,
        agents: AgentExchange | None = None,
    ) -> None:
        """`logs` None: logs of suspects are not read. `writer`: the Lease that ledgers name. `saw`: is called with each
        ledger that is decided on. `only_pods_left`: is called when the ledger and the triggers of a group are written
        and its reconcile begins to delete pods, which may last. `triggers_wait`: many groups have not come so far.
        `opened`: is called when a ledger write has opened an incident. `agents` None: no agent can report."""
        self._agents = agents
        self._logs = logs
        self._writer = writer
        self._saw = saw
        self._only_pods_left = only_pods_left
        self._opened = opened
        self._api = api
        self._store = store
        self._clock = clock
        self._observer = observer
        self._fleet = fleet
        self._ledgers = LedgerWriter(api, writer)
        self._teardown = PodTeardown(api, clock, triggers_wait=triggers_wait)
        self._records = IncidentRecorder(ledgers=self._ledgers, fleet=fleet, clock=clock, logs=logs)
        self._known = KnownLedgers(store)
        self._trials: dict[GroupKey, BirthTrial] = {}
        """The latest dry run with the birth settings of each group that has some."""
        self._recorded: dict[GroupKey, frozenset[IncidentName]] = {}
        """What is recorded and counted of workloads that are gone, but whose ledger is still in the cache."""

    async def reconcile(self, key: GroupKey) -> datetime | None:
        """Reconcile the group once. Returns when to reconcile it again. None: when something changes.

        Raises ApiError subclasses, RestlessGroupError, LedgerUnreadableError, InvariantError; the queue retries with
        backoff.
        """
        if not self._store.synced():
            raise TryLaterError("a cache is not in sync, so nothing is decided")
        snapshot, refused = self._store.snapshot(key), None
        if orphans := self._orphans(key, snapshot):
            refused = await self._record_orphans(key, orphans)
            snapshot = self._store.snapshot(key)
        again = await self._reconcile_present(key, snapshot)
        if refused is None:
            return again
        if self._store.snapshot(key).workload is None:
            raise refused
        # The current job must not wait for the record of a deleted one.
        _log.warning("an incident of a deleted job is not recorded yet", **self.log_keys(key), error=str(refused))
        later = self._clock.now() + _RECORD_AGAIN_AFTER
        return later if again is None else min(again, later)

    def ledgers_written(self) -> Iterator[LedgerObject]:
        """Our last writes that the cache has not shown yet, including those of jobs that are gone."""
        return self._known.ours()

    def in_incident(self, key: GroupKey) -> bool:
        """Whether a job of that name has an open incident, as far as this process knows."""
        return bool(self._known.open_incident(key))

    def log_keys(self, key: GroupKey) -> dict[str, str]:
        """What each log line about the group has: `job`, and `incident` while one is open."""
        open_ = self._known.open_incident(key)
        return {"job": str(key), "incident": open_} if open_ else {"job": str(key)}

    async def _reconcile_present(self, key: GroupKey, snapshot: Snapshot) -> datetime | None:
        policies = self._store.policies(key.namespace)
        changed: ReadAgainError | None = None
        for _ in range(_MAX_ROUNDS):
            workload = snapshot.workload
            if workload is None:
                if self._logs is not None:
                    self._logs.forget(key)
                if self._agents is not None:
                    self._agents.forget(key)
                self._observer.workload_gone(key)
                return None
            newest = self._known.newest(key, workload.uid)
            policy, now = applicable(policies, workload), self._clock.now()
            self._observer.facts_read(key, snapshot, policy)
            self._observer.protection_found(key, protection(workload, snapshot, newest, policy, now))
            known = readable(newest)
            if known is not None:
                self._saw(known)
            before = known.ledger if known is not None else Ledger()
            snapshot = self._with_agent(key, snapshot)
            plan = decide(self._with_trial(key, snapshot, before), before, policy, now)
            if any(isinstance(action, ReadLive) for action in plan.actions):
                snapshot, policies = await self._read_live(key)
                continue
            self._observer.decided(key, before, plan)
            if self._logs is not None and (wanted := log_to_read(snapshot, plan)) is not None:
                self._logs.begin(key, wanted)
            try:
                plan = await self._carry_out(key, workload, known, plan)
            except ReadAgainError as error:
                _log.info("reading again", **self.log_keys(key), error=str(error), status=error.status)
                if isinstance(error, UnknownOutcomeError):
                    await self._known.read_live(key, workload.uid)
                    raise  # the server itself has a problem: retry with backoff, not at once
                snapshot, policies = await self._read_live(key)
                if await self._collected(key, workload, plan):
                    await self._records.record_gone(key, reference_to(workload), plan.ledger)
                    self._known.forget(key, workload.uid)
                    return None
                changed = error
                continue
            if self._agents is not None and snapshot.agent is not None:
                answer = answer_of(snapshot, plan.ledger, policy, now)
                self._agents.answer(
                    key, snapshot.agent.sequence, answer, incident_open=plan.ledger.incident is not None
                )
            await self._keep_log(key, workload)
            return self._requeue_at(key, plan)
        raise RestlessGroupError(f"the objects of {key} changed under each of {_MAX_ROUNDS} tries") from changed

    def _with_agent(self, key: GroupKey, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the latest report of the group's agents, and whether they can be left out."""
        if self._agents is None:
            return snapshot
        agent = self._agents.facts(key)
        can = self._agents.parameters_in is not None and any(job.agent_image for job in snapshot.jobs)
        if agent is None and not can:
            return snapshot
        return msgspec.structs.replace(snapshot, agent=agent, leaves_out_agents=can)

    def _with_trial(self, key: GroupKey, snapshot: Snapshot, ledger: Ledger) -> Snapshot:
        """The snapshot with the latest dry run of the settings in the ledger."""
        trial = self._trials.get(key)
        if trial is None:
            return snapshot
        if ledger.birth_settings is None:
            del self._trials[key]
            return snapshot
        return msgspec.structs.replace(snapshot, birth_trial=trial)

    def _orphans(self, key: GroupKey, snapshot: Snapshot) -> tuple[LedgerObject, ...]:
        """The ledgers of deleted jobs of that name from which something is still to be recorded or counted."""
        if _workload_is_undecodable(snapshot):
            return ()  # nothing says which of the ledgers belongs to the unreadable workload
        orphans = []
        for each in self._known.orphans(key, snapshot.workload):
            if each.readable and held_by(each.workload_uid, each.ledger):
                orphans.append(each)
            else:
                self._known.forget(key, each.workload_uid)
        if not orphans:
            self._recorded.pop(key, None)
        return tuple(orphans)

    async def _record_orphans(self, key: GroupKey, orphans: tuple[LedgerObject, ...]) -> ApiError | None:
        """Record the incidents of deleted jobs, and count the time in which they hung, before their ledgers are deleted
        too. The ledgers are not written.

        Returns the last error that prevented it. None: there was none.
        """
        recorded = self._recorded.get(key, frozenset())
        names = {orphan.workload_uid: held_by(orphan.workload_uid, orphan.ledger) for orphan in orphans}
        # From the API server: a lagging cache must not declare the workload gone.
        new = any(not recorded.issuperset(held) for held in names.values())
        present = await self._store.read_live(key) if new else None
        if present is not None and _workload_is_undecodable(present):
            return None
        there = present.workload if present is not None else None
        refused: ApiError | None = None
        seen: set[IncidentName] = set()
        for orphan in orphans:
            uid = orphan.workload_uid
            if there is not None and uid == there.uid:
                continue
            if not recorded.issuperset(names[uid]):
                whose = WorkloadReference(orphan.workload_kind, orphan.group, uid)
                try:
                    await self._records.record_gone(key, whose, finished(orphan.ledger, uid, self._clock.now()))
                except ApiError as error:
                    refused = error
                    if not isinstance(error, TryLaterError | UnknownOutcomeError):  # e.g. its namespace is gone
                        self._known.forget(key, uid)
                    continue
            seen.update(names[uid])
            self._known.forget(key, uid)
        self._recorded[key] = frozenset(seen)
        return refused

    async def _carry_out(self, key: GroupKey, workload: WorkloadFacts, known: LedgerObject | None, plan: Plan) -> Plan:
        """Do what the plan says. Returns the plan as written, with the incidents that could not be counted yet."""
        for action in plan.first:
            if isinstance(action, CountIncidents):
                plan = await self._records.count(key, plan, action)
            elif isinstance(action, RecordIncident):
                plan = await self._records.record(key, workload, plan, action)
            else:
                await self._do(key, workload, action)
        before = known.ledger if known is not None else Ledger()
        # A change of only the sentences can wait for the action. If the action is refused again and again, they would
        # flip with every try.
        wordy = _but_for_words(plan.ledger) == _but_for_words(before) and any(map(_changes_cluster, plan.actions))
        if not wordy:
            await self._write(key, workload, known, plan.ledger)
        failures: list[tuple[Action, ApiError]] = []
        for action in plan.actions:
            # Events are emitted even then: the ledger is written already, so no later reconcile would emit them.
            if _changes_cluster(action) and any(_stops(*failure) for failure in failures):
                continue
            try:
                await self._do(key, workload, action)
            except ApiError as error:
                failures.append((action, error))
        refused = [e for action, e in failures if _changes_cluster(action) and isinstance(e, RefusedError)]
        if refused:
            await self._say_refused(key, workload, refused[0])
        if failures:
            raise failures[0][1]
        if wordy:
            await self._write(key, workload, known, plan.ledger)
        return plan

    async def _write(self, key: GroupKey, workload: WorkloadFacts, known: LedgerObject | None, after: Ledger) -> None:
        """The only way to write the ledger: check its invariants, swap it against `known`, then report the write."""
        before = known.ledger if known is not None else Ledger()
        if after == before and not self._claims(before):
            return
        broken = violations(before, after)
        if broken:
            raise InvariantError(f"{key}: {'; '.join(broken)}")
        self._known.keep(key, workload.uid, await self._ledgers.write(key.namespace, workload, known, after))
        self._observer.ledger_written(key, before, after)
        if before.incident is None and after.incident is not None:
            self._opened(key)
        _log_change(key, before, after)

    def _claims(self, ledger: Ledger) -> bool:
        """Whether the ledger is written only to name our Lease: a controller with a younger Lease has written it.
        That may always be the faster one. Without a write of ours it would never learn of us, and never hold."""
        writer, own = ledger.writer, self._writer()
        if writer is None or own is None or writer.namespace == own.namespace:
            return False
        return own.older_than(writer)

    async def _keep_log(self, key: GroupKey, workload: WorkloadFacts) -> None:
        """Write the suspect's log in a write of its own, so that its failure holds up nothing."""
        if self._logs is None or not self._logs.pending(key):
            return
        known = readable(self._known.newest(key, workload.uid))
        incident = known.ledger.incident if known is not None else None
        if known is None or incident is None:
            self._logs.forget(key)
            return
        found = self._logs.with_log(key, incident)
        if found is incident or incident.closing is not None:
            return  # it has not arrived yet, or the record will have it
        try:
            await self._write(key, workload, known, msgspec.structs.replace(known.ledger, incident=found))
        except (NotLeadingError, ReadAgainError, TryLaterError):
            return  # the next reconcile reads the ledger and tries again
        except ApiError as error:
            # The error message may quote the object, and so the log.
            _log.warning("the log of the suspect is not kept", **self.log_keys(key), status=error.status)
        self._logs.kept(key)

    async def _say_refused(self, key: GroupKey, workload: WorkloadFacts, refused: RefusedError) -> None:
        """Note the refusal in the ledger, which must not look as if the refused action had been done."""
        known = readable(self._known.newest(key, workload.uid))
        if known is None or known.ledger.incident is None or known.ledger.incident.closing is not None:
            return
        evidence = first_seen(known.ledger.incident)
        said = note(known.ledger, because(Reason.API_REFUSES, evidence=evidence, error=str(refused)))
        await self._write(key, workload, known, summarise(said, workload, self._clock.now()))

    async def _do(self, key: GroupKey, workload: WorkloadFacts, action: Action) -> None:
        match action:
            case DeleteJob() | ClaimJob() | RaiseBackoffLimit() | ExtendBackoffLimit() | TouchJob() | DeleteJobSet():
                await group_recreate.carry_out(self._api, key.namespace, action)
            case DeletePods() | ForceDeletePods():
                self._only_pods_left(key)
                await self._teardown.delete_pods(key.namespace, action)
            case ChangeFleet():
                await self._fleet.change(action.change)
            case SuspendWorkload():
                await suspension.suspend(self._api, key.namespace, workload, action)
            case ResumeWorkload():
                await suspension.resume(self._api, key.namespace, workload, action)
            case FailJobSet():
                await job_failure.fail_jobset(self._api, key.namespace, action, self._clock.now())
            case EmitEvent():
                await events.emit(self._api, key.namespace, workload, action, self._clock.now())
            case LeaveOutAgent():
                where = self._agents.parameters_in if self._agents is not None else None
                assert where is not None, "only then the snapshot says that agents can be left out"
                await agent_parameters.leave_out(self._api, where, action)
            case TryBirth():
                self._trials[key] = await birth_settings.try_birth(self._api, key.namespace, action)
            case CountIncidents() | RecordIncident() | ReadLive():
                raise AssertionError(
                    f"{type(action).__name__} is done by the reconcile itself, before its ledger write"
                )

    async def _read_live(self, key: GroupKey) -> tuple[Snapshot, PolicySet]:
        """Read live everything that the next decision depends on.

        This includes the policy: a switch to Observe is the emergency brake and must not wait for a watch. It includes
        the ledger: what another controller has requested must not look unrequested.
        """
        policies, snapshot = await asyncio.gather(
            self._store.read_policies_live(key.namespace), self._store.read_live(key)
        )
        cached = self._store.snapshot(key).workload
        if snapshot.workload is not None and (cached is None or cached.uid != snapshot.workload.uid):
            # The policies may take longer than the group, and the watch may have shown its end meanwhile.
            snapshot = await self._store.read_live(key)
        # Read the ledger after the group: a controller that acted on the group had recorded that before. Read it for
        # the workload that was found: it may not be the one that the cache knows by that name.
        if snapshot.workload is not None:
            await self._known.read_live(key, snapshot.workload.uid)
        return snapshot, policies

    async def _collected(self, key: GroupKey, workload: WorkloadFacts, plan: Plan) -> bool:
        """Whether the job is being deleted and its ledger was deleted before the end of its incident was written."""
        incident = plan.ledger.incident
        if incident is None or incident.closing is None or incident.closing.outcome_reason != "JobDeleted":
            return False
        return await self._store.read_ledger_live(key, workload.uid) is None

    def _requeue_at(self, key: GroupKey, plan: Plan) -> datetime | None:
        incident = plan.ledger.incident
        if incident is not None and incident.closing is not None:
            return self._clock.now()  # it is still to be recorded
        if self._logs is None or not self._logs.pending(key):
            return plan.requeue_at
        read_at = self._clock.now() + timedelta(seconds=DEADLINE_SECONDS)
        return read_at if plan.requeue_at is None else min(plan.requeue_at, read_at)


def _workload_is_undecodable(snapshot: Snapshot) -> bool:
    """The workload cannot be read, which does not mean that it is gone."""
    return snapshot.workload is None and any(each.kind in _WORKLOAD_KINDS for each in snapshot.undecodable)


def _stops(action: Action, error: ApiError) -> bool:
    """Whether the actions that follow must not be done without this one.

    If a suspension is refused, the group only restarts sooner. If a quarantine is refused, the group may restart on the
    same node. Its old pods have to be deleted anyway.
    """
    return _changes_cluster(action) and not (
        isinstance(action, SuspendWorkload | ChangeFleet) and isinstance(error, RefusedError)
    )


def _changes_cluster(action: Action) -> bool:
    return not isinstance(action, EmitEvent | TryBirth)


def _but_for_words(ledger: Ledger) -> Ledger:
    """The ledger without its latest sentence, in all fields that have it."""
    incident = ledger.incident
    return msgspec.structs.replace(
        ledger,
        reason=None,
        message="",
        incident=msgspec.structs.replace(
            incident, reason=Reason.UNKNOWN, message="", message_relation=MessageRelation.ATTEMPT
        )
        if incident is not None
        else None,
        conditions=tuple(msgspec.structs.replace(each, message="") for each in ledger.conditions),
    )


def _log_change(key: GroupKey, before: Ledger, after: Ledger) -> None:
    incident = after.incident
    log = incident.suspect_log if incident is not None else None
    if (
        incident is not None
        and log is not None
        and before.incident == msgspec.structs.replace(incident, suspect_log=None)
    ):
        return  # only the log of the suspect is new, which is not logged
    known = incident.id if incident is not None else after.history[0].id if after.history else ""
    said = after.message or f"{before.phase} -> {after.phase}"
    if incident is None and after.history != before.history:
        said = f"recorded as {after.history[0].outcome}"
    _log.info(
        said,
        job=str(key),
        incident=known,
        phase=str(after.phase),
        standing=str(after.standing),
        epoch=after.epoch,
        decision=after.action,
        reason=str(after.reason or ""),
    )
