"""Whether all members of a Job have run at once, and since when. If they have, the group has *trained*.

Before that moment a lost member does no harm: the others still wait for it, and its Job replaces it. After it, the
others hang. The store remembers the answer while the controller runs. After a restart of the controller it is inferred
from what the API objects still show: the earlier process of a restarted container (`lastState.terminated` has its start
and its end), the creation times of replaced pods, and ranks that have no pod. The inference can err in one case: while
no controller watched, a member was lost before the group first ran whole, and it was replaced, or left a hole, after
all the others ran. Then a group that never trained counts as trained, and is recreated once, within its budget. The
opposite error would be worse: a group with a member that was replaced unseen hangs, with all its pods Ready.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from recovery.core.diagnosis.membership import member_count, rank, stands_still
from recovery.core.diagnosis.processes import Member, first_overlap, processes_of
from recovery.core.model.derived import derived
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.ledger_bounds import LATEST

_LONGEST_GRACE = timedelta(days=1)
"""A longer grace period of a pod counts as this much: it may be too long to add to a date."""
_ENDS_REPORTED_WITHIN = timedelta(seconds=5)
"""How long after the grace period the Job controller has seen a pod end."""


def began_at(job: JobFacts) -> datetime:
    """When the Job's present run began: at its creation, or when the Job controller had resumed it.

    Pods of the run may be older than that: see `resumed_at`. Use it to measure how long a Job has been waiting.
    """
    resumed = resumed_at(job)
    return job.created_at if resumed is None else max(job.created_at, resumed)


def resumed_at(job: JobFacts) -> datetime | None:
    """When the Job controller wrote that the Job is resumed. None: the Job was never suspended, or still is.

    The controller creates the pods of the run first and writes this condition afterwards, in the same sync
    (`syncJob` and `manageJob` in pkg/controller/job/job_controller.go, Kubernetes 1.36). So most pods of the run are
    older than the condition, by seconds at the default limit of 20 requests a second.
    """
    return next((c.since for c in job.conditions if c.type == "Suspended" and c.status == "False"), None)


def suspended_at(job: JobFacts) -> datetime | None:
    """When the Job controller wrote that it has deleted the active pods of the suspended Job. None: the Job does not
    show it, because it was never suspended, or was resumed since."""
    return next((c.since for c in job.conditions if c.type == "Suspended" and c.status == "True"), None)


def pods_of_run(job: JobFacts, pods: Iterable[PodFacts], remembered: datetime | None = None) -> tuple[PodFacts, ...]:
    """The Job's pods that are known to be of its present run, including those that have vanished.

    A suspended Job keeps its UID and deletes only its active pods. So a living pod always belongs to the present run.
    The end of a pod of an earlier run is no loss. Such a pod was created before a suspension that was seen, or it
    ended, or its deletion was requested, before the Job was resumed. If both happened in the same second, the pod
    counts as earlier: a suspension may be that short (Kueue reverts suspensions by others at once), but a run takes
    longer until all its pods have started and one is lost.

    A pod that ends within its grace period after the resume may be of either run if its end has no exact date. It is
    left out: an end of an unknown run must not open an incident. If it was of the present run, the Job replaces it, and
    the replacement shows the loss.

    A suspension may be so short that the Job controller writes no condition about it. Then its pods show it.

    `remembered`: when all members were seen to run at once. Each rank had a pod of the present run then, so this is the
    one that ran, if no other pod of its rank is known. None: they were not seen to.
    """
    resumed = resumed_at(job)
    mine = tuple(pod for pod in pods if pod.job_uid == job.uid)
    over = _let_go_at(job, mine)
    if over is not None:
        mine = tuple(pod for pod in mine if pod.created_at >= over and not pod.let_go)
    if resumed is None:
        return mine
    # A suspension after the resume is not over. The Job controller has not written yet that it is.
    seen = job.suspended_at if job.suspended_at is not None and job.suspended_at <= resumed else None

    def of_run(pod: PodFacts) -> bool:
        ended = _ended_at_the_earliest(pod)
        if ended is None or pod.created_at > resumed:
            return True
        return ended > resumed and (seen is None or pod.created_at >= seen)

    found = tuple(filter(of_run, mine))
    if remembered is None or remembered < resumed:
        return found
    known = {rank(pod) for pod in found}

    def ran_with_all(pod: PodFacts) -> bool:
        started, last = started_at(pod), pod.deleting_since if pod.deleting_since is not None else pod.gone_at
        ran = started is not None and started <= remembered and last is not None and remembered <= last
        return ran and rank(pod) not in known and (seen is None or pod.created_at >= seen)

    return (*found, *filter(ran_with_all, mine))


@derived
def pods_of_runs(snapshot: Snapshot) -> Mapping[str, tuple[PodFacts, ...]]:
    """By Job UID: the pods that are known to be of its present run."""
    return {
        job.uid: pods_of_run(job, snapshot.pods, snapshot.trained_at.get(job.uid))
        for job in (*snapshot.jobs, *snapshot.gone_jobs)
    }


def _run_over_at(job: JobFacts, pods: Iterable[PodFacts]) -> datetime | None:
    """When an earlier run was over for certain. None: nothing shows that there was one."""
    known = (resumed_at(job), _let_go_at(job, (pod for pod in pods if pod.job_uid == job.uid)))
    return max((moment for moment in known if moment is not None), default=None)


def _let_go_at(job: JobFacts, pods: Iterable[PodFacts]) -> datetime | None:
    """When the Job deleted the last of the pods of an earlier run, by its pods. None: they do not show that.

    A Job that only becomes smaller keeps older pods, and lets go those whose rank it does not have any more. A Job that
    is itself deleted lets go pods that others delete.
    """
    if job.deleting_since is not None or job.gone_at is not None:
        return None
    left, over, wanted = [], None, member_count(job)
    for pod in pods:
        if pod.index is not None and pod.index >= wanted:
            continue  # the ranks that it keeps may all be lost while this one terminates
        if pod.let_go and pod.deleting_since is not None:
            over = pod.deleting_since if over is None else max(over, pod.deleting_since)
        elif _asked_at_the_earliest(pod) is None and pod.phase not in {"Failed", "Succeeded"}:
            left.append(pod)
    return None if over is None or any(pod.created_at < over for pod in left) else over


def _ended_at_the_earliest(pod: PodFacts) -> datetime | None:
    """When the pod ended, or its deletion was requested, whichever was first. None: it lives.

    A deletion after the end only removes the object. A pod whose deletion is requested may take its whole grace period
    to end. If the date is not exact, this is the earliest possible one.
    """
    asked = _asked_at_the_earliest(pod)
    if pod.phase not in {"Failed", "Succeeded"}:
        return asked
    ends = (c.exit.finished_at for c in pod.all_containers if c.exit is not None)
    exits = [moment for moment in ends if moment is not None]
    disrupted = [c.since for c in pod.conditions if c.type == "DisruptionTarget" and c.since is not None]
    ended = max(exits or disrupted, default=pod.created_at)
    return ended if asked is None else min(ended, asked)


def _asked_at_the_earliest(pod: PodFacts) -> datetime | None:
    """When the deletion of the pod was requested, or the earliest possible moment. None: it was not.

    The Job requests it with the grace period of the pod's spec. Two dates may be later than the request by that much:
    the date of a last delete, and the date at which an object was missed that was not seen being deleted.
    """
    asked = pod.deleting_since if pod.deleting_since is not None else pod.gone_at
    if asked is None:
        return None
    if asked >= LATEST:
        return pod.created_at
    exact = pod.deleting_since is not None and not pod.deletion_dated_again
    # Not subtracted from the date, because a grace period may be longer than a date allows.
    age = asked - pod.created_at
    return asked if exact else pod.created_at + max(age - timedelta(seconds=pod.grace_seconds), timedelta())


def trained_at(job: JobFacts, pods: Sequence[PodFacts], remembered: datetime | None) -> datetime | None:
    """`remembered`, or what the pods show if that moment belongs to a run before a suspension of the Job.

    A run begins with its first pod, which is older than the condition that the Job is resumed.
    """
    over = _run_over_at(job, pods)
    if remembered is None or over is None or remembered >= over:
        return remembered
    created = (pod.created_at for pod in pods_of_run(job, pods))
    if remembered >= min(created, default=over):
        return remembered
    return all_ran_at(job, pods)


def all_ran_at(job: JobFacts, pods: Sequence[PodFacts], *, watched: bool = False) -> datetime | None:
    """The earliest moment at which all members of `job` are known to have run at once. None: none is known.

    `pods`: its pods, including those that have vanished. `watched`: the Job was watched from before its first pod on,
    so nothing has to be inferred.
    """
    if stands_still(job):
        return None  # its pods of the next run may be older than the condition, and it counts failures of the last one
    members, wanted = pods_of_run(job, pods), member_count(job)
    counted = (pod for pod in members if pod.index is None or pod.index < wanted)  # the others were scaled away
    ran_at = _overlap_of(job, counted, wanted)
    if watched:
        return ran_at
    over = _run_over_at(job, pods)
    replaced = _before_replacements((job,), {job.uid: members}, over, {job.uid}) if _lost_unseen(job, pods) else None
    known = (ran_at, replaced, _before_hole(job, members, over))
    return min((moment for moment in known if moment is not None), default=None)


def group_ran_at(jobs: Sequence[JobFacts], pods: Sequence[PodFacts], watched: Collection[str]) -> dict[str, datetime]:
    """By UID, the Jobs of a group that show only together that they ran: a pod that replaces a lost one of the only
    rank of its Job is younger than the processes of the other Jobs. With the moment at which all ran at once.

    `watched`: the UIDs of Jobs of which no pod has come and gone unseen.
    """
    unseen = {job.uid for job in jobs if job.uid not in watched and _lost_unseen(job, _of(job, pods))}
    if len(jobs) < 2 or not unseen or any(map(stands_still, jobs)):
        return {}
    overs = [over for job in jobs if (over := _run_over_at(job, _of(job, pods))) is not None]
    members = {job.uid: pods_of_run(job, _of(job, pods)) for job in jobs}
    ran_at = _before_replacements(jobs, members, max(overs, default=None), unseen)
    return {} if ran_at is None else dict.fromkeys(unseen, ran_at)


def _of(job: JobFacts, pods: Iterable[PodFacts]) -> tuple[PodFacts, ...]:
    return tuple(pod for pod in pods if pod.job_uid == job.uid)


def _lost_unseen(job: JobFacts, pods: Iterable[PodFacts]) -> bool:
    """The Job has counted the failure of a pod of which nothing is known. `pods`: those of the Job, of each run, and
    perhaps others.

    A Job with a podFailurePolicy need not count a failure, so the figures of one that has counted any prove nothing.
    """
    return job.failed > 0 and not _shows_all_ends(job, pods)


def _shows_all_ends(job: JobFacts, pods: Iterable[PodFacts]) -> bool:
    mine = (pod for pod in pods if pod.job_uid == job.uid)
    ended = sum(pod.gone_at is not None or pod.phase == "Failed" for pod in mine)
    return ended >= job.failed and not job.pod_failure_rules


def started_at(pod: PodFacts) -> datetime | None:
    """The start of the earliest process of the pod that the facts still show. None: they show none."""
    return min((each.began for each in processes_of(pod)), default=None)


def shows_all_processes(job: JobFacts, pods: Iterable[PodFacts], *, fully_watched: bool) -> bool:
    """Each process of these pods is known, with its start, and the Job had no others, or only older ones of the same
    rank. `fully_watched`: that is known of the pods.

    Otherwise false if the Job has counted more failures than there are known ended pods, or if it may have had failures
    that it does not count. Always false if a container has been restarted more than once.
    """
    known = tuple(pods)
    are_all = fully_watched or _shows_all_ends(job, known)
    return are_all and all(map(_shows_its_processes, known))


def _shows_its_processes(pod: PodFacts) -> bool:
    if not pod.training_known:
        return False
    ends = (ended for container in pod.containers for ended in (container.last_exit, container.exit))
    dated = all(ended.started_at is not None for ended in ends if ended is not None)
    return dated and all(container.restarts <= 1 for container in pod.containers)


def _overlap_of(job: JobFacts, pods: Iterable[PodFacts], wanted: int) -> datetime | None:
    """The first moment at which this many ranks have a process."""
    return first_overlap((process for pod in pods for process in processes_of(pod)), {job.uid: wanted})


def _before_replacements(
    jobs: Sequence[JobFacts],
    pods: Mapping[str, Sequence[PodFacts]],
    over: datetime | None,
    unseen: Collection[str],
) -> datetime | None:
    """Infers the moment from replaced pods: the first known pods of some ranks were created only after all the others
    ran at once, and their Jobs have lost pods unseen. `pods`: those of the present run, by Job. `over`: when an earlier
    run was over. None: there was none. `unseen`: the UIDs of those Jobs.

    A lost pod that is still known stands for its rank instead of its replacement, because it shows whether it ran.
    """
    known: dict[Member, list[PodFacts]] = {}
    for pod in sorted((pod for job in jobs for pod in pods[job.uid]), key=lambda pod: pod.created_at):
        known.setdefault((pod.job_uid, rank(pod)), []).append(pod)
    wanted = {job.uid: member_count(job) for job in jobs}
    if len([each for each in known.values() if each[-1].gone_at is None]) != sum(wanted.values()):
        return None
    # A resumed Job may have counted failures in an earlier run. The Job controller creates pods in batches, and with
    # podReplacementPolicy Failed it creates each one only when a pod of the earlier run has ended.
    ranks, all_started_at = list(known.values()), None
    if over is not None:
        grace = timedelta(seconds=max(pod.grace_seconds for each in ranks for pod in each))
        all_started_at = over + min(grace, _LONGEST_GRACE) + _ENDS_REPORTED_WITHIN
    for count, late in enumerate(ranks[1:], 1):
        start = min((start for pod in ranks[count - 1] if (start := started_at(pod)) is not None), default=None)
        if start is None:
            return None
        all_started_at = start if all_started_at is None else max(all_started_at, start)
        if late[0].created_at <= all_started_at:
            continue
        earlier = ranks[:count]
        counts = Counter(each[0].job_uid for each in earlier)
        ran_at = first_overlap((process for each in earlier for pod in each for process in processes_of(pod)), counts)
        lost = {each[0].job_uid for each in ranks[count:]}
        # With startupPolicy InOrder, JobSet creates a Job only once the earlier ones run.
        begun = {job.uid for job in jobs if ran_at is not None and job.created_at <= ran_at}
        if ran_at is not None and late[0].created_at > ran_at and lost <= begun.intersection(unseen):
            return ran_at
    return None


def holes(job: JobFacts, pods: Iterable[PodFacts]) -> tuple[int, ...]:
    """Ranks of an Indexed Job without a known pod, not even one that has ended, although a higher rank has a pod.

    The Job controller creates pods in the order of their index, so each of these ranks had a pod once. Ranks above the
    highest known one may never have had a pod: a quota may refuse them.
    """
    if job.completions is None or job.succeeded:
        return ()
    known = {pod.index for pod in pods if pod.job_uid == job.uid and pod.index is not None}
    return tuple(index for index in range(min(max(known, default=0), member_count(job))) if index not in known)


def _before_hole(job: JobFacts, pods: Sequence[PodFacts], over: datetime | None) -> datetime | None:
    """Infers the moment from ranks without a pod that were lost after all the others ran.

    A member whose Ready shows that it has joined all the others proves this. Otherwise it is proven if all ranks except
    the holes run, none of them is a replacement, and the Job has counted a failure for each hole: then those failures
    are of the holes. A resumed Job may have counted them in an earlier run, so it proves nothing.
    """
    missing = holes(job, pods)
    members = sorted((pod for pod in pods if pod.gone_at is None), key=lambda pod: (pod.created_at, pod.index or 0))
    if not missing or any(pod.gone_at is not None for pod in pods):
        return None
    joined = [pod.ready_since for pod in members if pod.joined_probe and pod.ready and pod.ready_since is not None]
    if joined:
        return min(joined)
    whole_but_holes = len({pod.index for pod in members}) == len(members) == member_count(job) - len(missing)
    if not whole_but_holes or job.failed < len(missing) or over is not None:
        return None
    starts = [started_at(pod) for pod in members]
    known = [start for start in starts if start is not None]
    in_order = all((one.index or 0) < (two.index or 0) for one, two in pairwise(members))
    if len(known) != len(starts) or not in_order or members[-1].created_at > max(known):
        return None
    return max(known)


def replacements(job: JobFacts, pods: Sequence[PodFacts], trained_at: datetime, members: int) -> tuple[PodFacts, ...]:
    """Pods of `job` created after the group trained: each replaces a lost member.

    `members`: how many members the group had then. A higher rank was added later.

    A Job that has counted no failure has replaced no pod: it was scaled up, or it ignores that failure.
    """
    if job.failed == 0:
        return ()

    def added(pod: PodFacts) -> bool:
        return pod.index is not None and pod.index >= members

    made_since = (p for p in pods if p.job_uid == job.uid and p.gone_at is None and p.created_at > trained_at)
    return tuple(pod for pod in made_since if not added(pod))
