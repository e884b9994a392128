"""Rules about how a trial must end, and how soon a controller must act."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from recovery.core.diagnosis.group_conditions import CRASH_LOOP
from recovery.core.fleet.counted_marks import marks, part_of, workload_part
from recovery.core.model.annotations import SUSPENDED_BY_ANNOTATION
from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.status_conditions import BUDGET_EXHAUSTED
from recovery.core.policy.spec import Mode, Restart
from recovery.executors.config_condition import SECOND_INSTALLATION
from recovery.ports import JOBS, LEASES, PODS, RECOVERY_CONFIGS, RECOVERY_GROUPS
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import ClearLoss, GroupView, JobView, deletion_begins, is_false, ours
from recovery.sim.trials.checkers.ledger_changes import LedgerState
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_KEPT_RUNNING = "PodKeptRunning"
"""The condition of a RecoveryGroup that names the container that keeps a failed pod Running."""
_TRAINS = frozenset({EventKind.ROUND_FORMED, EventKind.FINISHED})


class ConvergesAfterHealing(CheckerRule):
    """At the end of the healing, each job under Enforce trains with all its ranks, or there is a reason why it does
    not: it ended, its user suspended it, it is Held, or it is left alone on purpose. From then on the controller writes
    only the Lease."""

    QUIET_LONGEST = timedelta(minutes=15)
    """The quiet time at the end is a quarter of the healing, but at most this long."""
    ANSWERED_WITHIN = timedelta(minutes=2)
    """How long after a change by another client a write may still be the answer to it."""

    def ended(self) -> Iterator[Violation]:
        at = self.evidence.ends_at
        for key in self.evidence.jobs:
            group = self.world.group(key)
            trouble = self.trouble_of(group) if group.mode == Mode.ENFORCE else None
            if trouble is not None:
                state = self.world.ledgers.of_group(key)
                said = f"; its ledger says {state.ledger.phase}: {state.ledger.message}" if state is not None else ""
                healed = (at - self.evidence.healing_from).total_seconds()
                yield self.found(at, f"{healed:.0f} s after the last fault {trouble}{said}", key)
        yield from self._restless()

    def trouble_of(self, group: GroupView) -> str | None:
        """Why the group has not converged. None: it has, or there is a reason."""
        if group.ended is not None or group.paused_since is not None or self._has_reason(group):
            return None
        if self._never_began(group):
            return None
        if group.suspended:
            mark = group.annotations.get(SUSPENDED_BY_ANNOTATION)
            return f"it is suspended by incident {mark}" if mark else None
        members = self._members(group.key)
        if not members:
            return "it has no Job"
        if self._is_left_to_the_user(group, members) or self._has_no_room(group, members):
            return None
        for job in members:
            trouble = self._does_not_train(group, job)
            if trouble is not None:
                return trouble
        return None

    def _never_began(self, group: GroupView) -> bool:
        """One of its Jobs never had a pod, or its ranks have never met, and no incident is about that.

        A group that never trained is left to its Jobs. So is a group that has not trained since others resumed it, one
        that a user took over in the middle of an incident, and one that had failed and that Trainer begins again.
        """
        assert group.workload is not None, "one that is gone has ended"
        state = self.world.ledgers.of(group.workload["metadata"]["uid"])
        since = self.evidence.began_at
        if state is not None and state.open_incident is not None:
            return False
        if any(not job.indexes and job.began_at < group.since for job in group.jobs.values()):
            return True  # It had no pods before the policy existed, so this is a baseline.
        if (state is None or not state.spans) and not self._has_met(group):
            return True
        if any(self._not_since_resumed(group, job, state) for job in group.jobs.values()):
            return True
        if state is not None and state.spans:
            last = state.ledger.history[0] if state.ledger.history else None
            if last is None or last.outcome not in {Outcome.SUPERSEDED, Outcome.FAILED}:
                return False
            since = state.closed_at.get(last.id, last.ended_at)
        began: dict[str, bool] = {}
        for job in self.world.jobs.values():
            if job.group == group.key and group.owns(job) and job.began_at >= since:
                began[job.name] = began.get(job.name, False) or bool(job.indexes)
        return not all(began.values())

    def _not_since_resumed(self, group: GroupView, job: JobView, state: LedgerState | None) -> bool:
        """Others resumed this Job after the last incident, and its ranks have not all run at once since then."""
        if not job.member or not group.owns(job) or not job.resumed or job.ran:
            return False
        ends = state.closed_at.values() if state is not None else ()
        return all(closed_at < job.began_at for closed_at in ends)

    def _is_left_to_the_user(self, group: GroupView, members: list[JobView]) -> bool:
        """The policies of the Job or of the JobSet have decided about a loss, and the policy lets them decide."""
        overridden = (self.evidence.jobs[group.key].policy or {}).get("overrideNative")
        return not overridden and any(job.decisions for job in members)

    def _has_no_room(self, group: GroupView, members: list[JobView]) -> bool:
        """Not all its members run. During the healing the scheduler found no node for one of them, because users gave
        the jobs more pods than the nodes hold.

        The ranks that have a node give up their rendezvous and fail, and another rank takes the node. So at some
        moments no pod waits for a node: the missing ones wait for their Job, which delays pods after failures.
        """
        if all(job.running for job in members) or not self._was_unplaced(group.key, members):
            return False
        plan, needed = self.evidence.plan, 0
        for key, planned in self.evidence.jobs.items():
            group = self.world.group(key)
            wanted = sum(job.wanted for job in group.jobs.values() if job.member and not job.suspended)
            if group.ended is None:
                needed += -(-wanted // max(1, plan.node_gpus // planned.gpus_per_pod))
        return needed > len(self.world.nodes)

    def _was_unplaced(self, key: GroupKey, members: list[JobView]) -> bool:
        """During the healing the scheduler found no node for a pod of the group."""
        if any(is_false(pod, "PodScheduled") is not None for job in members for pod in job.pods.values()):
            return True
        for change, at in zip(reversed(self.evidence.changes), reversed(self.evidence.change_times), strict=True):
            if at < self.evidence.healing_from:
                return False
            unplaced = change.resource == PODS and is_false(change.body, "PodScheduled") is not None
            if unplaced and self.world.group_of(PODS, change.body) == key:
                return True
        return False

    def _has_met(self, group: GroupView) -> bool:
        """All ranks of one of its incarnations have met."""
        uids = {job.uid for job in self.world.jobs.values() if job.group == group.key and group.owns(job)}
        records = self.evidence.trace.records
        return any(record.kind is EventKind.ROUND_FORMED and record.job_uid in uids for record in records)

    def _has_reason(self, group: GroupView) -> bool:
        """The group is held, only observed, or left to Kubernetes, and the policy or the ledger says why."""
        if group.policy is not None and group.policy.restart is Restart.NONE:
            return True
        state = self.world.ledgers.of_group(group.key)
        if state is None or not state.ledger.message:
            return False
        incident = state.open_incident
        if incident is None:
            return _was_only_observed(group, state)
        left_alone = incident.mode != Mode.ENFORCE or incident.pinned.restart == Restart.NONE
        return left_alone or state.ledger.phase is Phase.HELD or _waits_for_a_person(state)

    def _does_not_train(self, group: GroupView, job: JobView) -> str | None:
        if job.deleted_by:
            return f"Job {job.name} is still being deleted"
        records = [record for record in self.evidence.trace.records if record.job_uid == job.uid]
        for record in reversed(records):
            if record.kind in _TRAINS or _is_hidden(record, job):
                return None
            if record.kind is EventKind.RANK_LOST and self._seems_whole(group, job):
                return None
            if record.kind is EventKind.RANK_LOST:
                return f"Job {job.name} has trained no more since {record.pod} was lost at {record.at:%H:%M:%S}"
        if any(_ended_unseen(record, job) for record in records):
            return None
        return f"Job {job.name} has {len(job.pods)} of {job.wanted} pods, and they have not met"

    def _seems_whole(self, group: GroupView, job: JobView) -> bool:
        """All its pods are Running. No controller can know more, because nothing says which container trains.

        Lost pods have been replaced. Each loss was part of an incident in which no restart was allowed, because it was
        Held or only observed. A rank that a user removed is no loss.
        """
        if job.container is not None or not job.ran or not job.running:
            return False
        state = self.world.ledgers.of_group(group.key)
        last = state.ledger.history[0] if state is not None and state.ledger.history else None
        if state is None or last is None:
            return not job.losses
        ended_at = state.closed_at.get(last.id, last.ended_at)
        unrestarted = last.outcome in {Outcome.HELD, Outcome.OBSERVED}
        return not job.losses or (unrestarted and all(loss.at <= ended_at for loss in job.losses))

    def _restless(self) -> Iterator[Violation]:
        """Writes in the quiet time at the end, reported once per group. A Held group may continue when its budget's
        window moves on. A controller that holds for another installation removes the condition that says so when it is
        stopped, and that is when the trial is over. Kueue goes on evicting a job whose pods are never all ready, and
        each time the controller records that the job is suspended or resumed."""
        healing = self.evidence.ends_at - self.evidence.healing_from
        since = self.evidence.ends_at - min(self.QUIET_LONGEST, healing / 4)
        writes: dict[GroupKey | None, list[tuple[datetime, ObjectChange]]] = {}
        for change, at in zip(reversed(self.evidence.changes), reversed(self.evidence.change_times), strict=True):
            if at < since:
                break
            if at >= self.evidence.ends_at and _ends_its_hold(change):
                continue
            if ours(change.actor) and change.resource != LEASES and not _by_time_or_announced(change):
                key = self.world.group_of(change.resource, change.body) or self._counted_group(change)
                if key is not None and self._answers_another_client(key, at):
                    continue
                writes.setdefault(key, []).append((at, change))
        for key, made in writes.items():
            state = self.world.ledgers.of_group(key) if key is not None else None
            if key is not None and (self.world.group(key).ended is not None or _held_lately(state, since)):
                continue
            if key is not None and (self._goes_on_failing(key) or self._seems_not_to_start(key)):
                continue
            if key is not None and self._has_no_room(self.world.group(key), self._members(key)):
                continue  # Its other ranks give up their rendezvous one after the other, and each end is recorded.
            at, change = made[-1]
            sentence = f"{len(made)} writes since {since:%H:%M:%S}, the first at {at:%H:%M:%S}: {change.actor} to"
            yield self.found(at, f"{sentence} {change.resource.plural} {change.body['metadata']['name']}", key)

    def _answers_another_client(self, key: GroupKey, at: datetime) -> bool:
        """Another client has suspended, resumed or changed the workload shortly before."""
        return any(at - self.ANSWERED_WITHIN <= each <= at for each in self.world.group(key).disturbances)

    def _members(self, key: GroupKey) -> list[JobView]:
        return [job for job in self.world.group(key).jobs.values() if job.member]

    def _counted_group(self, change: ObjectChange) -> GroupKey | None:
        """The group of a write of the RecoveryConfig that adds a closed incident to the totals, or that notes a futile
        recovery, for which it may open the circuit breaker. None: the write does neither."""
        if change.resource != RECOVERY_CONFIGS or change.type == "DELETED":
            return None
        after, before = (
            msgspec.convert((body or {}).get("status") or {}, FleetLedger) for body in (change.body, change.before)
        )
        if len(after.futile) > len(before.futile):
            return GroupKey(after.futile[-1].namespace, after.futile[-1].workload)
        if msgspec.structs.replace(after, totals=before.totals) != before:
            return None
        known = frozenset(marks(before.totals.counted))
        workloads = [part_of(mark) for mark in marks(after.totals.counted) if mark not in known]
        states = (state for state in self.world.ledgers if workload_part(state.workload_uid) in workloads[:1])
        return next((state.group for state in states), None)

    def _goes_on_failing(self, key: GroupKey) -> bool:
        """The group is left alone, so its hung ranks end one after the other. Each end leads to a write."""
        group, since = self.world.group(key), self.evidence.healing_from
        acted_on = group.mode == Mode.ENFORCE and group.policy is not None and group.policy.restart is not Restart.NONE
        acted_on = acted_on and group.paused_since is None
        jobs = [job for job in self.world.jobs.values() if job.group == key]
        return any(loss.at >= since for job in jobs if job.decisions or not acted_on for loss in job.losses)

    def _seems_not_to_start(self, key: GroupKey) -> bool:
        """The group's ranks have met, but no controller can know that. Nothing says which container trains, and another
        container, which cannot start, keeps the pods from being Running. So each `timeouts.start` leads to a restart.
        """
        jobs = self._members(key)
        met = {record.job_uid for record in self.evidence.trace.of(str(key), EventKind.ROUND_FORMED)}
        return bool(jobs) and all(job.container is None and not job.ran and job.uid in met for job in jobs)


def _ends_its_hold(change: ObjectChange) -> bool:
    """The condition that a controller holds for another installation is removed, and nothing else is written."""
    if change.resource != RECOVERY_CONFIGS or change.before is None:
        return False
    was, now = ((body.get("status") or {}) for body in (change.before, change.body))
    left = [each for each in was.get("conditions", ()) if each["type"] != SECOND_INSTALLATION]
    return len(left) < len(was.get("conditions", ())) and {**now, "conditions": left} == {**was, "conditions": left}


def _by_time_or_announced(change: ObjectChange) -> bool:
    """The write ends BudgetExhausted or CrashLoop between incidents, when the budget's window moves on. Or it is an
    Event about the RecoveryConfig: the Event describes another write, which is judged itself."""
    if change.resource == RECOVERY_GROUPS:
        return any(
            _shown(change.before, type_) is True and _shown(change.body, type_) is False
            for type_ in (BUDGET_EXHAUSTED, CRASH_LOOP)
        )
    return bool((change.body.get("involvedObject") or {}).get("kind") == RECOVERY_CONFIGS.kind)


def _shown(group: Mapping[str, Any] | None, type_: str) -> bool | None:
    """The status of the condition of that type. None: an incident is open, or the ledger has no such condition."""
    status = (group or {}).get("status") or {}
    found = [each["status"] == "True" for each in status.get("conditions", ()) if each["type"] == type_]
    return found[0] if found and not status.get("incident") else None


def _waits_for_a_person(state: LedgerState) -> bool:
    """The native policies have decided, but a sidecar keeps the pod Running. The ledger names the sidecar."""
    return any(each.type == _KEPT_RUNNING and each.status == "True" for each in state.ledger.conditions)


def _was_only_observed(group: GroupView, state: LedgerState) -> bool:
    """Its last incident was only observed, by mode or by an open circuit breaker, and no member was lost after it."""
    last = state.ledger.history[0] if state.ledger.history else None
    if last is None or last.outcome_reason is not Reason.OBSERVE_MODE:
        return False
    ended_at = state.closed_at.get(last.id, last.ended_at)
    return all(loss.at <= ended_at for job in group.jobs.values() for loss in job.losses)


def _ended_unseen(record: TraceRecord, job: JobView) -> bool:
    """A rank that waited for the others has ended, but nothing shows it: the training container is unknown, and another
    container keeps the pod Running."""
    if job.container is not None or record.kind is not EventKind.PROCESS_EXITED:
        return False
    pod = job.pods.get(record.pod_uid)
    alive = pod is not None and "deletionTimestamp" not in pod["metadata"]
    return alive and pod is not None and (pod.get("status") or {}).get("phase") == "Running"


def _is_hidden(record: TraceRecord, job: JobView) -> bool:
    """No controller can know that a rank was lost, because the training container is unknown. The pod has not failed or
    been deleted, or the phases never showed all pods Running at once."""
    if job.container is not None or record.kind is not EventKind.RANK_LOST:
        return False
    pod = job.pods.get(record.pod_uid)
    if not job.ran or pod is None or "deletionTimestamp" in pod["metadata"]:
        return not job.ran
    return (pod.get("status") or {}).get("phase") != "Failed"


def _held_lately(state: LedgerState | None, since: datetime) -> bool:
    """The group is Held, or was Held after `since`. Its writes then follow from a budget window that has moved on."""
    if state is None:
        return False
    return state.ledger.phase is Phase.HELD or (state.left_hold_at is not None and state.left_hold_at >= since)


class TimelyAction(CheckerRule):
    """Without faults of the API server or of controller processes, an incident is open within two seconds of a clear
    loss, and the Jobs that it takes down are deleted by then."""

    hears = frozenset({RECOVERY_GROUPS, JOBS})
    WITHIN = timedelta(seconds=2)
    CALM_BEFORE = timedelta(seconds=60)

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._aimed_at: dict[str, datetime] = {}
        self._deleted_at: dict[str, datetime] = {}

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == JOBS:
            if deletion_begins(change):
                self._deleted_at[change.body["metadata"]["uid"]] = at
            return
        made = self.written(change)
        if made is not None and made.trigger is not None and made.after.incident is not None:
            for uid in made.after.incident.target.job_uids:
                self._aimed_at.setdefault(uid, at)
        yield from ()

    def ended(self) -> Iterator[Violation]:
        for loss in self.world.clear_losses:
            begins, ends = loss.at - self.CALM_BEFORE, loss.at + loss.NOTICED_WITHIN
            undisturbed = self.world.undisturbed.seconds(begins, ends) >= (ends - begins).total_seconds()
            if undisturbed and not self.world.spoiled(loss):
                late = self._late(loss)
                if late is not None:
                    yield self.found(loss.at, f"{loss.text}, and {late}", loss.group)

    def _late(self, loss: ClearLoss) -> str | None:
        """What was not done in time, in words. None: everything was."""
        state = self.world.ledgers.of(loss.workload_uid)
        opened = [at for _, at in state.spans if at >= loss.at] if state is not None else []
        if state is None or not (opened or state.open_at(loss.at)):
            return "no incident was opened"
        if not state.open_at(loss.at) and opened[0] > loss.at + self.WITHIN:
            return f"the incident was opened only {(opened[0] - loss.at).total_seconds():.3f} s later"
        aimed_at = self._aimed_at.get(loss.job_uid)
        if aimed_at is None:
            return None
        deleted_at = self._deleted_at.get(loss.job_uid)
        # The restart may be a later one, for another reason, and may have been disturbed itself.
        if self.world.undisturbed.seconds(aimed_at, aimed_at + self.CALM_BEFORE) < self.CALM_BEFORE.total_seconds():
            return None
        if deleted_at is None:
            return "its Job was never deleted, though the ledger says so"
        seconds = (deleted_at - aimed_at).total_seconds()
        return None if deleted_at <= aimed_at + self.WITHIN else f"its Job was deleted {seconds:.3f} s after the ledger"
