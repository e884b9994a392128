"""Rules about whether a restart was justified."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from recovery.core.incident import phases
from recovery.core.model.ledger import AttemptAction, Incident, Phase
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.ports import JOBS, RECOVERY_GROUPS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import (
    LONGEST_RECONCILE,
    Force,
    GroupView,
    JobView,
    deletion_begins,
    is_unknown,
    ours,
)
from recovery.sim.trials.checkers.ledger_changes import LedgerChange
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence, Violation
from recovery.workloads.jobset import REPLICATED_JOB_LABEL

_GIVEN_UP_WITHOUT_PODS_SECONDS = 120.0
_CLOCKS_DIFFER = timedelta(seconds=10)
_STALE_AFTER = timedelta(minutes=16)
"""A loss of a group that runs whole is a baseline after 15 minutes. One more minute allows for clocks and for
reconciles under way."""
_ON_THE_WAY = frozenset({Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS})


class JustifiedRestart(CheckerRule):
    """Each restart has one of three reasons: a loss in the very incarnation that it takes down, a request of a person,
    or an attempt that took too long. Only a restart that the platform really made is adopted. A loss must be one of the
    training, not of the containers beside it, and of the run that the last resume of the Job began."""

    hears = frozenset({RECOVERY_GROUPS, JOBS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._judged: set[str] = set()
        """UIDs of Jobs whose restart was judged when the ledger entered it."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == JOBS:
            yield from self._deleted(change, at)
            return
        made = self.written(change)
        added = made.added if made is not None else None
        if made is None or added is None or made.after.incident is None:
            return
        incident, group = made.after.incident, self.world.group(made.group)
        self._judged.update(incident.target.job_uids)
        unjustified = {
            AttemptAction.RECREATE_GROUP: self._recreates,
            AttemptAction.REPLACE_NODE: self._recreates,
            AttemptAction.AVOID_NODE: self._recreates,
            AttemptAction.SHRINK: self._shrinks,
            AttemptAction.GROW: self._grows,
            AttemptAction.RECREATE_JOB_SET: self._recreates_jobset,
            AttemptAction.ADOPTED: self._adopts,
        }[added.action](made, incident, group)
        if unjustified is not None:
            sentence = f"{made.actor} enters restart {added.number} of incident {incident.id}, but {unjustified}"
            yield self.found(at, f"{sentence}; it says: {added.whole_message}", made.group)

    def _deleted(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        uid = change.body["metadata"]["uid"]
        job = self.world.jobs.get(uid)
        if job is None or uid in self._judged or not (ours(change.actor) and deletion_begins(change)):
            return
        if not (job.losses or job.late or job.troubles) and not self.world.group(job.group).asked:
            yield self.found(at, f"{change.actor} deletes Job {job.name} ({uid}), which has lost no member", job.group)

    def _recreates(self, made: LedgerChange, incident: Incident, group: GroupView) -> str | None:
        if made.by_hand:
            return None if group.asked else "no user has asked for it"
        targets = list(self.world.jobs_of(incident.target.job_uids))
        if any(job.losses or job.late or job.troubles for job in (*targets, *self._lost_beside(group, targets))):
            return None
        if _ends_avoidance(made) and any(not job.running for job in targets):
            return None
        if made.same is not None:
            if made.before.phase is Phase.HELD:
                return None  # The reason for holding it was judged before.
            late = any(_took_too_long(job, incident.pinned, made.at) for job in targets)
            before = made.before.incident
            # Perhaps no replica led since the old group was deleted, or resumed, so the ledger still says that it is
            # taken down, or waits.
            others = before is not None and not set(before.target.job_uids) & set(incident.target.job_uids)
            behind = made.before.phase in phases.GOING_DOWN | {Phase.BACKOFF} and others
            on_its_way = made.before.phase in _ON_THE_WAY or behind
            if on_its_way and (late or self.world.undisturbed.clocks_jumped()):
                return None
        jobs = ", ".join(incident.target.job_uids)
        return f"no member of Job {jobs} was lost, and it had not been on its way for long"

    def _lost_beside(self, group: GroupView, targets: Sequence[JobView]) -> Iterator[JobView]:
        """The Jobs that another client deleted while the targets trained. A successor may be a target by now."""
        began_at = min((job.began_at for job in targets), default=None)
        if began_at is None:
            return
        for job in self.world.jobs.values():
            others = job.group == group.key and job.deleted_by and not ours(job.deleted_by)
            if others and any(loss.at > began_at for loss in job.losses):
                yield job

    def _shrinks(self, made: LedgerChange, incident: Incident, group: GroupView) -> str | None:
        targets = self.world.jobs_of(incident.target.job_uids)
        if any(job.losses or job.late or job.troubles or not job.running for job in targets):
            return None
        return "all its members run"

    def _grows(self, made: LedgerChange, incident: Incident, group: GroupView) -> str | None:
        state = made.before.elastic
        return None if state is not None and state.nodes < state.wanted_nodes else "it is no smaller group"

    def _recreates_jobset(self, made: LedgerChange, incident: Incident, group: GroupView) -> str | None:
        added = made.added
        uid = added.job_set_uid if added is not None else ""
        return None if uid in group.failed_jobsets else f"JobSet {uid} has not failed"

    def _adopts(self, made: LedgerChange, incident: Incident, group: GroupView) -> str | None:
        before = made.before.incident
        known = before.target if before is not None and before.id == incident.id else None
        if any(count >= incident.target.from_restarts > 0 for _, count in group.restarts):
            return None
        uids = dict.fromkeys((*(known.job_uids if known is not None else ()), *incident.target.job_uids))
        if any(job.deleted_by and not ours(job.deleted_by) for job in self.world.jobs_of(uids)):
            return None
        if known is not None and known.job_set_uid in group.deleted_jobsets:
            return None
        return f"JobSet {made.group.name} has not restarted it, and no other client has deleted it or its Jobs"


def _ends_avoidance(made: LedgerChange) -> bool:
    """The restart ends the avoidance of nodes, because the pods find no others."""
    added = made.added
    ended = added is not None and added.reason is Reason.AVOIDANCE_ENDED
    return ended and bool(made.before.avoided) and not made.after.avoided


def _took_too_long(job: JobView, pinned: PinnedPolicy, at: datetime) -> bool:
    """The Job has not been ready for the shortest time after which an attempt is given up. A timeout of 0 is none."""
    timeouts = (pinned.start_timeout_seconds, pinned.rendezvous_timeout_seconds)
    shortest = min((_GIVEN_UP_WITHOUT_PODS_SECONDS, *(seconds for seconds in timeouts if seconds)))
    return at - job.began_at >= timedelta(seconds=shortest) - _CLOCKS_DIFFER and not job.ready


class BaselineUntouched(CheckerRule):
    """A group that runs whole is not restarted for a loss from before its policy existed, from before the policy was
    switched to Enforce, or from more than 15 minutes ago."""

    hears = frozenset({RECOVERY_GROUPS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        if made is None or made.trigger is None or made.after.incident is None or not made.opened or made.by_hand:
            return
        if made.trigger.action is AttemptAction.GROW:
            return  # The restart uses new room. It does not depend on earlier losses.
        incident, group = made.after.incident, self.world.group(made.group)
        targets = list(self.world.jobs_of(incident.target.job_uids))
        newest = max(
            (loss for job in targets for loss in (*job.losses, *job.late, *job.troubles)),
            key=lambda loss: loss.at,
            default=None,
        )
        if newest is None:
            return  # `JustifiedRestart` judges this.
        lag = self.world.undisturbed.watch_lag()
        if not self._runs_whole(targets):
            return
        if newest.at < group.since.replace(microsecond=0) - lag:
            if at - group.since <= LONGEST_RECONCILE and self._is_held_up(group.since - LONGEST_RECONCILE, at):
                return  # The controller may have read the group and sent the write before the policy changed.
            what = f"its policy has been what it is since {group.since:%H:%M:%S}"
        elif at - newest.at > _STALE_AFTER + lag and not self.world.undisturbed.clocks_jumped():
            what = "all its members run"
        else:
            return
        sentence = f"{made.actor} restarts it for what is a baseline: {newest.text} at {newest.at:%H:%M:%S}, and {what}"
        yield self.found(at, sentence, made.group)

    def _runs_whole(self, targets: Iterable[JobView]) -> bool:
        """No rank is missing. Ranks on a node that does not answer count as lost, no matter how long ago the policy
        changed, because their containers only show what its kubelet reported last."""
        return all(job.ready and not any(map(self._is_on_silent_node, job.pods.values())) for job in targets)

    def _is_on_silent_node(self, pod: Body) -> bool:
        node = self.world.nodes.get(pod["spec"].get("nodeName", ""))
        return node is not None and is_unknown(node, "Ready")

    def _is_held_up(self, since: datetime, until: datetime) -> bool:
        return self.world.undisturbed.seconds(since, until) < (until - since).total_seconds()


class ResizeKept(CheckerRule):
    """No restart by the controller undoes the size that a user gave a Job, although JobSet recreates a Job with the
    size of its template. The group is Held until a person asks for the restart, or it has settings at birth that bring
    it back with that size, or with a size that it was given later."""

    hears = frozenset({JOBS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        job = self.world.jobs.get(change.body["metadata"]["uid"])
        if job is None or not job.member or not (ours(change.actor) and deletion_begins(change)):
            return
        group = self.world.group(job.group)
        template = _template_size(group, job)
        if template is None or template == job.wanted or group.asked or self._is_sized(job):
            return
        sentence = f"{change.actor} deletes Job {job.name} of {job.wanted} pods, and its template has {template}"
        yield self.found(at, sentence, job.group)

    def _is_sized(self, job: JobView) -> bool:
        """By the ledger, the Job's successor gets the same size, or a size that the controller chose."""
        state = self.world.ledgers.of_group(job.group)
        if state is None:
            return False
        settings, incident = state.ledger.birth_settings, state.ledger.incident
        attempt = incident.attempt if incident is not None else None
        if attempt is not None and attempt.action in {AttemptAction.SHRINK, AttemptAction.GROW}:
            return True
        return settings is not None and settings.nodes == job.wanted


def _template_size(group: GroupView, job: JobView) -> int | None:
    """How many pods the JobSet's template gives the Job's successor. None: there is no such template."""
    replicated = (group.jobset or {"spec": {}})["spec"].get("replicatedJobs", ())
    name = job.body["metadata"]["labels"].get(REPLICATED_JOB_LABEL)
    template = next((each.get("template") for each in replicated if each["name"] == name), None)
    if template is None:
        return None
    spec = template["spec"]
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    return parallelism if completions is None else min(parallelism, completions)


class NativeFirst(CheckerRule):
    """Where the policy of a Job or JobSet has decided, or the training has succeeded, no restart by the controller
    repeats or contradicts that.

    A decision counts from the read on which the process decided, because the process could not know what came later. A
    podFailurePolicy has decided once the training has exited, even where containers beside it keep the pod Running.
    """

    def heard(self, record: RequestRecord) -> Iterator[Violation]:
        if not record.applied or record.request.resource != RECOVERY_GROUPS or record.fault is not None:
            return
        made = self.world.ledgers.newest
        if made is None or made.revision != record.revision or made.trigger is None:
            return
        if made.trigger.action is AttemptAction.RECREATE_JOB_SET or self._overridden(made):
            return
        read_at = self.world.read_at(record, made.group)
        decided = self._decided(made, read_at) if read_at is not None else None
        if decided is not None:
            sentence = f"{made.actor} restarts it at revision {made.revision}, though {decided[1]} at {decided[0]}"
            yield self.found(record.at, f"{sentence}, and it had read the group at {read_at}", made.group)

    def _is_over(self, job: JobView, made: LedgerChange) -> bool:
        """The incidents about the Job's losses are closed: the platform has decided, and the Job still runs. So this
        restart has another reason, such as a fault of a node."""
        state = self.world.ledgers.of_group(made.group)
        closed_at = max(state.closed_at.values(), default=None) if state is not None else None
        return closed_at is not None and all(loss.at <= closed_at for loss in job.losses)

    def _overridden(self, made: LedgerChange) -> bool:
        plan = self.evidence.jobs.get(made.group)
        return plan is not None and bool((plan.policy or {}).get("overrideNative"))

    def _decided(self, made: LedgerChange, read_at: int) -> tuple[int, str] | None:
        incident = made.after.incident
        assert incident is not None, "it has a trigger"
        targets = list(self.world.jobs_of(incident.target.job_uids))
        first = sum(attempt.action is not AttemptAction.NONE for attempt in incident.attempts) == 1
        # A decision about a loss does not concern a growth either, because that only uses new room.
        asked = made.by_hand or (made.trigger is not None and made.trigger.action is AttemptAction.GROW)
        for job in targets:
            for each in job.decisions:
                due = first and not self._is_over(job, made)
                if each.revision <= read_at and _stands(each.force, first=due, by_hand=asked):
                    return each.revision, each.text
        if made.by_hand:
            return None
        for revision, count in self.world.group(made.group).restarts:
            if revision <= read_at and any(job.restart_attempt < count for job in targets):
                return revision, f"JobSet {made.group.name} restarts the group itself"
        return None


def _stands(force: Force, *, first: bool, by_hand: bool) -> bool:
    """The decision rules out this attempt."""
    return force is Force.SUCCESS or (not by_hand and (first or force is Force.EVERY))
