"""Which evidence is fresh. Only fresh evidence opens or reopens an incident.

Evidence is not fresh if an incident has dealt with it, if it dates from before the group ran whole, or if it is a
baseline. A baseline is older than the policy, or it is old and its rank runs again.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.diagnosis.deleted_jobs import trained_beside
from recovery.core.diagnosis.evidence import Evidence, LossKind, happened_by
from recovery.core.diagnosis.meeting import first_met_at
from recovery.core.diagnosis.membership import group_runs_whole, rank
from recovery.core.diagnosis.trained import pods_of_runs, started_at
from recovery.core.diagnosis.training_container import ended_well
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot

STALE_AFTER = timedelta(minutes=15)
"""Evidence older than this is a baseline if its rank runs again."""


def fresh(
    snapshot: Snapshot,
    evidence: Iterable[Evidence],
    *,
    since: datetime | None,
    handled: Handled,
    now: datetime,
) -> tuple[Evidence, ...]:
    """The evidence that is neither a baseline nor dealt with already.

    `since`: when the policy was created, or its mode became Enforce. Earlier evidence is a baseline, unless the lost
    rank still does not run. None: the Jobs are younger than that, and a kubelet's clock must not make their evidence
    look older.
    """
    ages = _ages(snapshot, evidence, since=since, handled=handled, now=now)
    return tuple(item for item, age in ages if age is _Age.NEW)


def baseline(
    snapshot: Snapshot, evidence: Iterable[Evidence], *, since: datetime | None, handled: Handled, now: datetime
) -> tuple[Evidence, ...]:
    """Losses of a group that trained which are too old for any action. Their ranks run again, but the other ranks may
    have been hanging since."""
    ages = _ages(snapshot, evidence, since=since, handled=handled, now=now)
    return tuple(item for item, age in ages if age is _Age.BASELINE)


def without_replaced(snapshot: Snapshot, evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """The evidence without losses that the Jobs replaced before the group ran whole: no rank hangs because of them."""
    trained = {uid: run for uid, run in _runs(snapshot).items() if run.trained_at is not None}
    return tuple(
        item for item in evidence if item.job_uid not in trained or not trained[item.job_uid].before_training(item)
    )


class _Age(StrEnum):
    NEW = "new"
    BASELINE = "baseline"
    SETTLED = "settled"
    """An incident has dealt with it, or it dates from before the group ran whole."""


def _ages(
    snapshot: Snapshot, evidence: Iterable[Evidence], *, since: datetime | None, handled: Handled, now: datetime
) -> list[tuple[Evidence, _Age]]:
    keys = frozenset(handled.keys)
    begun, gone = _runs(snapshot), {job.uid for job in snapshot.gone_jobs}
    ended = {job.uid for job in (*snapshot.jobs, *snapshot.gone_jobs) if job.jobset_uid == handled.terminal_jobset_uid}

    def age_of_deleted(item: Evidence) -> _Age:
        """A Job that was deleted before the last incident ended was deleted in it, mostly by the controller. One of a
        JobSet that has ended goes with it, such as after its TTL."""
        at, run = item.at, begun.get(item.job_uid)
        if item.key in keys or item.job_uid in ended or at is None or run is None or run.trained_at is None:
            return _Age.SETTLED
        if handled.until is not None and at <= handled.until:
            return _Age.SETTLED
        before = since is not None and at < since.replace(microsecond=0)
        is_over = now - at > STALE_AFTER and group_runs_whole(snapshot)
        return _Age.SETTLED if before or is_over else _Age.NEW

    def age(item: Evidence) -> _Age:
        if item.kind is LossKind.JOB_DELETED or item.job_uid in gone:
            return age_of_deleted(item)
        run = begun.get(item.job_uid)
        if item.key in keys or run is None or run.before_training(item):
            return _Age.SETTLED
        at = happened_by(snapshot, item)
        if at is None:
            return _Age.NEW
        if item.inferred and handled.until is not None and at <= handled.until:
            return _Age.SETTLED
        before = since is not None and at < since.replace(microsecond=0) and not run.is_unfilled(item)
        if before or (now - at > STALE_AFTER and run.runs_again(item)):
            return _Age.BASELINE
        return _Age.NEW

    return [(item, age(item)) for item in evidence]


class _Run(msgspec.Struct, frozen=True):
    """The run with which a Job's evidence is compared."""

    trained_at: datetime | None
    """None: the members of all Jobs have not run at once yet. So lost ones are replaced, and no rank hangs."""
    pods_by_rank: dict[int | str, list[PodFacts]]

    def runs_again(self, item: Evidence) -> bool:
        """The lost rank is filled again, by the same pod or by another one, so no rank waits for it any more. Another
        pod also fills the rank if it has completed its training.

        The rest of the group does not matter: an old loss must not become fresh again when another member is lost.
        """
        if item.pod is None:
            return False
        if _ran_since(item) is not None:
            return True  # it has exited again since, which is separate evidence
        return any(_fills(p, item.pod) for p in self.pods_by_rank[rank(item.pod)])

    def is_unfilled(self, item: Evidence) -> bool:
        """A rank was lost, and none of its pods runs. The other ranks wait for it, no matter how old the loss is."""
        lost = item.pod is not None and item.is_loss
        return lost and not item.inferred and not self.runs_again(item)

    def before_training(self, item: Evidence) -> bool:
        """The loss came before the group ran whole for the first time."""
        trained, pod = self.trained_at, item.pod
        if item.process is not None and item.process.by is not None:
            return False  # the agents restart only what ran whole, and their clock is not the kubelets'
        if trained is None:
            return True
        if pod is None or item.inferred:
            return False
        if item.kind is LossKind.PROCESS_ENDED:
            return item.at is not None and item.at < trained
        if item.kind is LossKind.CONTAINER_RESTARTED:
            # A container that crashed before the group first ran whole has been running since that moment or earlier.
            # One that crashed in a running group started again after it.
            ran_since = _ran_since(item)
            if ran_since is not None:
                return ran_since <= trained
            mine = [c for c in pod.containers if item.exit is None or item.exit in (c.exit, c.last_exit)]
            return not any(c.running_since is None or c.running_since > trained for c in mine)
        if pod.index is None:
            return item.at is not None and item.at < trained
        # Its successor ran when the group first ran whole. The deletion is not compared: the API server dates it, the
        # kubelets date the starts, and their clocks may differ.
        return any(
            (other.created_at > pod.created_at or (other.created_at == pod.created_at and other.gone_at is None))
            and (start := started_at(other)) is not None
            and start <= trained
            for other in self.pods_by_rank[rank(pod)]
            if other.uid != pod.uid
        )


def _fills(pod: PodFacts, lost: PodFacts) -> bool:
    if pod.deleting_since is not None:
        return False
    done = pod.phase == "Succeeded" or (pod.phase != "Failed" and ended_well(pod))
    return (pod.running and pod.ready) or (done and pod.uid != lost.uid and pod.gone_at is None)


def _ran_since(item: Evidence) -> datetime | None:
    """When the next process after this exit began, if it has ended as well. None: it has not, or there is none."""
    if item.kind is not LossKind.CONTAINER_RESTARTED or item.pod is None or item.exit is None:
        return None
    later = (each.exit for each in item.pod.containers if each.exit is not None and each.last_exit is item.exit)
    return next((ended.started_at for ended in later), None)


def _runs(snapshot: Snapshot) -> dict[str, _Run]:
    """The runs by Job UID. A launcher alone trains nothing."""
    pods, found = pods_of_runs(snapshot), {}
    for job in (*snapshot.jobs, *snapshot.gone_jobs):
        if job.gone_at is not None:
            peers = [job, *trained_beside(snapshot, job)]
        else:
            peers = [other for other in snapshot.jobs if _side_by_side(job, other)]
        trained = first_met_at(snapshot, peers, pods)
        by_rank: dict[int | str, list[PodFacts]] = {}
        for pod in pods[job.uid]:
            by_rank.setdefault(rank(pod), []).append(pod)
        found[job.uid] = _Run(trained, by_rank)
    return found


def _side_by_side(one: JobFacts, other: JobFacts) -> bool:
    """Both Jobs are members of one group at the same time. A Job whose deletion was requested before the other was
    created belongs to the earlier group. If a pod or a finalizer keeps it, its own successor is created later than
    those of the other Jobs."""
    if (one.jobset_uid, one.restart_attempt) != (other.jobset_uid, other.restart_attempt):
        return False
    pairs = ((one, other), (other, one))
    return all(
        old.deleting_since is None or new.created_at < old.deleting_since for old, new in pairs if old is not new
    )
