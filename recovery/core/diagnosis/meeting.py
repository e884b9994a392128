"""Who met whom: one timeline of the processes of a group, and whether they train.

All ranks of a group meet once each of them has a process. When a process of such a set ends, the others hang in a
collective operation until they end too. Processes that begin meanwhile wait: no rank joins a set that has met. Once
none hangs and every rank has a process again, they meet.

So Ready alone says nothing: a lost pod is replaced, or its container restarted, and all pods are Ready, while the other
ranks hang.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum

import msgspec

from recovery.core.diagnosis.collective import collective_of
from recovery.core.diagnosis.deleted_jobs import deleted_alone, deleted_at, trained_beside
from recovery.core.diagnosis.membership import (
    member_count,
    member_jobs,
    rank,
    stands_still,
)
from recovery.core.diagnosis.processes import Member, Process, first_overlap, has_all, processes_of
from recovery.core.diagnosis.resized import members_for_certain
from recovery.core.diagnosis.trained import pods_of_runs, shows_all_processes, trained_at
from recovery.core.model.collective import Collective
from recovery.core.model.derived import derived
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.standing import Standing

CLOCKS_DIFFER_BY = timedelta(seconds=2)
"""A report of progress and the end of a process are dated by the clocks of two nodes."""

_SECOND = timedelta(seconds=1)


class Meeting(msgspec.Struct, frozen=True):
    """What the timeline shows at its end."""

    standing: Standing
    met_at: datetime | None = None
    """When the latest set met. None: none has."""
    broken_since: datetime | None = None
    """When the first process of that set ended, if others of the set hang since. None: none hangs."""
    lost_at: datetime | None = None
    """When the last process of that set ended so far. None: none hangs."""
    hanging: tuple[PodFacts, ...] = ()
    """The pods whose ranks hang. Without those of silent nodes, whose ranks may have ended."""
    over_at: datetime | None = None
    """When the last process of that set ended. None: one runs, or none has met."""
    leaves_at: datetime | None = None
    """When a process of the latest set was asked to terminate, if it still runs. When it ends, the others hang. None:
    no process was asked."""

    @property
    def hung(self) -> int:
        """How many ranks hang."""
        return len(self.hanging)


@derived
def meet(snapshot: Snapshot, lost_at: datetime | None = None, hung_of: int = 0) -> Meeting:
    """The meeting of the present member Jobs, and of those that were deleted while others of their group are left.

    `lost_at`: when the group lost a rank, by the ledger. The ranks that ran then had met it, even if no object shows
    that any more. None: the ledger knows of no such loss.

    `hung_of`: how many ranks the group had then, if the ledger says that they hang since. If fewer of them are known, a
    Job was made smaller, which restarts no process. 0: the ledger does not say so.
    """
    program = collective_of(snapshot)
    jobs = [job for job in member_jobs(snapshot) if not stands_still(job)]
    deleted = deleted_alone(snapshot)
    counted = [job for job in (*jobs, *deleted) if job.uid in program.counts]
    pods = pods_of_runs(snapshot)
    processes = [
        process
        for job in counted
        for pod in pods[job.uid]
        if pod.index is None or pod.index < member_count(job)
        for process in _processes(pod, snapshot)
    ]
    events = list(_events(processes))
    for group in (jobs, *([job, *trained_beside(snapshot, job)] for job in deleted)):
        of_group = [job for job in counted if job in group]
        for met_at, surely in _known_meetings(snapshot, group, pods):
            unseen = _unseen(snapshot, of_group, processes, pods, met_at)
            events.append(_Event(met_at, _Order.MET, unseen=unseen, surely=surely))
            events += [_Event(each.ended, _Order.ENDED, each) for each in unseen if each.ended is not None]
    if lost_at is not None:
        unseen = _unseen(snapshot, counted, processes, pods, lost_at - _SECOND)
        events.append(_Event(lost_at, _Order.LOST, unseen=unseen, hung_of=hung_of))
    done = ((uid, rank(pod)) for uid, ranks in snapshot.done.items() for pod in ranks)
    wanted = {job.uid: member_count(job) for job in counted if job in jobs}
    certain = {job.uid: members_for_certain(snapshot, job) for job in counted}
    scan = _Scan(wanted, certain, done, whole=len(jobs) >= max(1, snapshot.expected_jobs))
    for event in sorted(events, key=lambda event: (event.at, event.order)):
        scan.happened(event)
    return _judged(snapshot, program.collective, scan.result())


def _judged(snapshot: Snapshot, collective: Collective, found: Meeting) -> Meeting:
    """The meeting, with what only other facts show: reports of progress, and what the program is."""
    progress = snapshot.workload.progress if snapshot.workload is not None else None
    # A report of 0 % may only say that a process has begun.
    if found.lost_at is not None and progress is not None and progress.ratio != 0.0:
        reported = progress.updated_at > found.lost_at + CLOCKS_DIFFER_BY
        found = Meeting(Standing.MET, met_at=progress.updated_at) if reported else found
    if found.standing is Standing.BROKEN and collective is not Collective.REQUIRED:
        # The ranks that are left go on, or heal themselves within a time of their own.
        standing = Standing.MET if collective is Collective.INDEPENDENT else Standing.UNKNOWN
        found = msgspec.structs.replace(found, standing=standing)
    return found


def _processes(pod: PodFacts, snapshot: Snapshot) -> list[Process]:
    """The processes of the pod. Where its node does not exist any more, they have ended, even if the object remains."""
    node = snapshot.nodes.get(pod.node)
    if pod.dead_since is not None and pod.gone_at is None and node is None:
        pod = msgspec.structs.replace(pod, gone_at=pod.dead_since)
    if node is None or node.reachable:
        return processes_of(pod)
    return [msgspec.structs.replace(each, silent=each.ended is None) for each in processes_of(pod)]


def _unseen(
    snapshot: Snapshot,
    jobs: Iterable[JobFacts],
    processes: Sequence[Process],
    pods: Mapping[str, Sequence[PodFacts]],
    moment: datetime,
) -> list[Process]:
    """Processes of ranks that ran at that moment, although no object shows one. Each ended before the next pod or
    process of its rank began. If there is none, its end has no date, and counts as that moment, or as the deletion of
    its Job. A rank whose pod was there and had not started yet did not run.

    Only of Indexed Jobs: elsewhere no pod takes another one's place.
    """
    shown = {each.member for each in processes if each.ran_at(moment)}
    shown |= {(uid, rank(pod)) for uid, done in snapshot.done.items() for pod in done}
    ran = {each.pod.uid for each in processes if each.pod is not None and each.began <= moment}
    waits = (pod for mine in pods.values() for pod in mine if pod.uid not in ran and _was_there(pod, moment))
    shown |= {(pod.job_uid, rank(pod)) for pod in waits}
    later = [(each.member, each.began) for each in processes]
    later += [((uid, rank(pod)), pod.created_at) for uid, mine in pods.items() for pod in mine]
    after: dict[Member, datetime] = {}
    for member, began in later:
        if began > moment:
            after[member] = min(began, after.get(member, began))
    return [
        Process((job.uid, index), moment, after.get((job.uid, index), deleted_at(job) or moment))
        for job in jobs
        if job.completions is not None
        for index in range(members_for_certain(snapshot, job))
        if (job.uid, index) not in shown
    ]


def _known_meetings(
    snapshot: Snapshot, jobs: Sequence[JobFacts], pods: Mapping[str, Sequence[PodFacts]]
) -> Iterator[tuple[datetime, bool]]:
    """When all ranks of these Jobs have met, and whether that is sure: inferred for the first time, and by the ledger
    for the last time."""
    first = first_met_at(snapshot, jobs, pods)
    if first is not None:
        yield first, False
    by_ledger = [snapshot.met_at.get(job.uid) for job in jobs]
    moments = [moment for moment in by_ledger if moment is not None]
    if moments and len(moments) == len(by_ledger):
        yield max(moments), True


def _was_there(pod: PodFacts, moment: datetime) -> bool:
    """The pod existed at that moment, and its facts show all of its processes."""
    if not pod.training_known or pod.created_at > moment or pod.gone_at is not None:
        return False
    return not any(each.restarts for each in pod.containers)


def first_met_at(
    snapshot: Snapshot, jobs: Sequence[JobFacts], pods: Mapping[str, Sequence[PodFacts]]
) -> datetime | None:
    """When all ranks of these Jobs are known to have run at once for the first time. None: they never have.

    If nodes are scarce, each Job may have run whole while another one waited. Then no rank hangs. This is only detected
    if every process is known, and no recovery has ended since with all Jobs running. Otherwise, if each Job has run
    whole, the group counts as having run whole.
    """
    ran = [trained_at(job, pods[job.uid], snapshot.trained_at.get(job.uid)) for job in jobs]
    moments = [moment for moment in ran if moment is not None]
    if len(moments) < len(ran) or len(jobs) < snapshot.expected_jobs or not jobs:
        return None
    if len(jobs) == 1 or all(job.uid in snapshot.met_at for job in jobs):
        return max(moments)
    # A rank that a user has added since took no part in that.
    wanted = {job.uid: members_for_certain(snapshot, job) for job in jobs}
    known = [pod for job in jobs for pod in pods[job.uid] if pod.index is None or pod.index < wanted[job.uid]]
    watched = snapshot.fully_watched
    shown = has_all({(pod.job_uid, rank(pod)) for pod in known}, wanted) and all(
        shows_all_processes(job, pods[job.uid], fully_watched=job.uid in watched) for job in jobs
    )
    latest = max(moments)
    oldest: dict[Member, datetime] = {}
    for pod in known:
        member = (pod.job_uid, rank(pod))
        oldest[member] = min(pod.created_at, oldest.get(member, pod.created_at))
    # Before the last Job ran whole they cannot have met, and from then on each process is known.
    if not shown or any(created > latest for created in oldest.values()):
        return latest
    return first_overlap((each for pod in known for each in processes_of(pod)), wanted)


# --- the timeline --------------------------------------------------------------------------------------------------


class _Order(IntEnum):
    """The order of what has the same date. Dates are whole seconds, and to meet takes longer than one."""

    LOST = 0
    """By the ledger, a rank was lost: those that run had met it."""
    ENDED = 1
    LEAVES = 2
    BEGAN = 3
    MET = 4
    """All ranks are known to run at once."""
    JOINED = 5


class _Event(msgspec.Struct, frozen=True):
    at: datetime
    order: _Order
    process: Process | None = None
    unseen: Sequence[Process] = ()
    """LOST and MET: the processes that ran at that moment although no object shows them."""
    surely: bool = False
    """MET: whatever the objects show."""
    hung_of: int = 0
    """LOST: of how many ranks some hang from then on, whatever the objects show. 0: the objects show it."""


def _events(processes: Iterable[Process]) -> Iterator[_Event]:
    for each in processes:
        until = each.meets_until
        if until is not None and until <= each.began:
            continue  # it has met no one
        yield _Event(each.began, _Order.BEGAN, each)
        if each.leaves_at is not None:
            yield _Event(each.leaves_at, _Order.LEAVES, each)
        if each.ended is not None:
            yield _Event(each.ended, _Order.ENDED, each)
        elif each.joined_at is not None and each.joined_at > each.began:
            yield _Event(each.joined_at, _Order.JOINED, each)


class _Scan:
    """The state of the group while its timeline is read."""

    def __init__(
        self, wanted: Mapping[str, int], certain: Mapping[str, int], done: Iterable[Member], *, whole: bool
    ) -> None:
        """`wanted`: how many ranks each Job has. `certain`: how many of them a user has not added. `done`: ranks whose
        training is known to be done. `whole`: all Jobs of the group exist."""
        self._wanted, self._certain, self._whole = wanted, certain, whole
        self._done = set(done)
        self._waiting: dict[Member, Process] = {}
        """The processes that run and have met no one, by rank."""
        self._set: dict[int, Process] = {}
        """The processes of the latest set that still run, by `id()`. They hang if `_broken_since` is set."""
        self._met_at: datetime | None = None
        self._broken_since: datetime | None = None
        self._lost_at: datetime | None = None
        self._over_at: datetime | None = None
        self._doubtful = False
        """A process of the latest set has ended that may not have been one of it."""

    def happened(self, event: _Event) -> None:
        """Take the next event into account."""
        process = event.process
        if process is None:
            self._is_known(event)
        elif event.order is _Order.BEGAN:
            self._waiting[process.member] = process
        elif event.order is _Order.LEAVES:
            self._stops_waiting(process)
        elif event.order is _Order.ENDED:
            self._ended(process, event.at)
        elif self._waiting.get(process.member) is process and self._is_filled():
            self._meet(event.at)  # a barrier ends only with all, so the ranks that hung have joined it too
        if self._waiting and not self._set and self._is_filled():
            self._meet(event.at)

    def _is_known(self, event: _Event) -> None:
        """All that run at that moment, seen or not, have met. LOST: those that no object shows have just ended."""
        is_loss = event.order is _Order.LOST
        # Two groups, of the present Jobs and of a deleted one with those beside it, may know of the same meeting.
        is_known = not (is_loss or event.surely) and self._met_at is not None
        if is_known and self._met_at != event.at:
            return
        if not (is_known or (is_loss and self._set)):
            self._meet(event.at)
        self._set |= {id(each): each for each in event.unseen}
        for each in event.unseen:
            # If nothing shows a later process of that rank, its end has the date of this event.
            if is_loss or (each.ended is not None and each.ended <= event.at):
                self._ended(each, event.at)
        if self._set and len(self._set) + len(self._done) < event.hung_of:
            self._broken_since = self._broken_since or event.at
            self._lost_at = event.at

    def result(self) -> Meeting:
        if self._broken_since is not None:
            hanging = tuple(each.pod for each in self._set.values() if each.pod is not None and not each.silent)
            standing = Standing.BROKEN if hanging else Standing.UNKNOWN
            return Meeting(standing, self._met_at, self._broken_since, self._lost_at, hanging)
        trains = bool(self._set) or (bool(self._done) and not self._waiting)
        if not trains or self._met_at is None:
            return Meeting(Standing.FORMING, self._met_at, over_at=self._over_at)
        leaves_at = min((each.leaves_at for each in self._set.values() if each.leaves_at is not None), default=None)
        doubtful = self._doubtful or any(each.silent for each in self._set.values())
        return Meeting(Standing.UNKNOWN if doubtful else Standing.MET, self._met_at, leaves_at=leaves_at)

    def _ended(self, process: Process, at: datetime) -> None:
        self._stops_waiting(process)
        if process.well:
            self._done.add(process.member)
        if self._set.pop(id(process), None) is None:
            return
        if not process.well and self._may_be_added(process):
            self._doubtful = True
        elif not process.well:
            self._broken_since = self._broken_since or at
            self._lost_at = at
        if not self._set:
            self._broken_since, self._lost_at, self._over_at, self._doubtful = None, None, at, False

    def _may_be_added(self, process: Process) -> bool:
        """A user has added the rank. If the size of the program is fixed, as where the pod template has it, the others
        train without it, and it gives up. No object shows whether they have met it."""
        job_uid, index = process.member
        return isinstance(index, int) and index >= self._certain[job_uid]

    def _stops_waiting(self, process: Process) -> None:
        if self._waiting.get(process.member) is process:
            del self._waiting[process.member]

    def _is_filled(self) -> bool:
        """Every rank has a process, or its training is done."""
        if len(self._waiting) + len(self._done) + len(self._set) < sum(self._wanted.values()):
            return False  # most of the time, and asked after each event
        filled = {*self._waiting, *self._done, *(each.member for each in self._set.values())}
        return self._whole and has_all(filled, self._wanted)

    def _meet(self, at: datetime) -> None:
        """All that run have met."""
        self._set |= {id(each): each for each in self._waiting.values()}
        self._waiting.clear()
        self._met_at, self._broken_since, self._lost_at, self._over_at = at, None, None, None
        self._doubtful = False
