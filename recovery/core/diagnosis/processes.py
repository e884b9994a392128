"""The processes of a pod, as far as the facts show them, and when all ranks have one."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from recovery.core.diagnosis.membership import Rank, rank
from recovery.core.model.facts import ExitFacts, PodFacts

Member = tuple[str, Rank]
"""UID of the Job, and the rank."""


class Process(msgspec.Struct, frozen=True):
    """One process of a rank, or one whose existence other facts prove."""

    member: Member
    began: datetime
    ended: datetime | None = None
    """When it ended. None: it runs."""
    well: bool = False
    """It exited with 0: its training is done, and no rank waits for it."""
    leaves_at: datetime | None = None
    """When its pod was asked to terminate. It meets no one from then on, but it may train until it ends. None: it was
    not."""
    joined_at: datetime | None = None
    """When it became Ready by a joined probe. None: it is not Ready, or Ready does not show that."""
    silent: bool = False
    """Its node does not answer. It may train on, even where the policy assumes that it is dead."""
    pod: PodFacts | None = None
    """Where it runs or ran. None: no object shows it, so it has ended."""

    def ran_at(self, moment: datetime) -> bool:
        return self.began <= moment and (self.ended is None or self.ended > moment)

    @property
    def meets_until(self) -> datetime | None:
        """From when on it meets no one. None: it may meet others."""
        return min((moment for moment in (self.leaves_at, self.ended) if moment is not None), default=None)


def processes_of(pod: PodFacts) -> list[Process]:
    """The processes of the pod, as far as the facts show them. None begins before its pod: a kubelet's clock may lag.

    A process ends with its container, else with its pod. A pod that is asked to terminate may train on, for as long as
    its grace period lasts.
    """
    member = (pod.job_uid, rank(pod))
    if not pod.training_known:
        began = pod.ready_since
        return [] if began is None else [_latest(pod, member, max(began, pod.created_at))]
    if not pod.containers:
        return []
    found = [
        Process(
            member,
            max(each.started_at, pod.created_at),
            each.finished_at or pod_ended_at(pod) or each.started_at,
            well=each.code == 0 and not _was_asked(pod, each),
            leaves_at=pod.deleting_since,
            pod=pod,
        )
        for each in (pod.containers[0].last_exit, pod.containers[0].exit)
        if each is not None and each.started_at is not None
    ]
    if pod.processes is not None:
        return found + [_span(pod, member, *span) for span in pod.processes.spans]
    starts = [each.running_since for each in pod.containers if each.running_since is not None]
    if len(starts) == len(pod.containers):
        found.append(_latest(pod, member, max(*starts, pod.created_at)))
    return found


def _was_asked(pod: PodFacts, ended: ExitFacts) -> bool:
    """The process ended because its pod was asked to terminate. A trainer that saves then may exit 0, and is not
    done."""
    asked = pod.deleting_since
    if asked is None or ended in pod.ended_before_deletion:
        return False
    return ended.finished_at is None or ended.finished_at >= asked


def _span(pod: PodFacts, member: Member, began: datetime, ended: datetime | None) -> Process:
    """A process that the agent in the pod reports. The end of its container is its end at the latest."""
    known = _latest(pod, member, max(began, pod.created_at))
    if ended is None or (known.ended is not None and known.ended <= ended):
        return known
    return msgspec.structs.replace(known, ended=max(ended, known.began), joined_at=None)


def _latest(pod: PodFacts, member: Member, began: datetime) -> Process:
    ended = pod_ended_at(pod)
    return Process(
        member,
        began,
        None if ended is None else max(ended, began),
        leaves_at=pod.deleting_since,
        joined_at=pod.ready_since if pod.joined_probe and pod.ready else None,
        pod=pod,
    )


def pod_ended_at(pod: PodFacts) -> datetime | None:
    """When the processes of a pod ended whose containers do not show it. None: they may run."""
    known = [pod.gone_at] if pod.gone_at is not None else []
    if pod.phase in {"Failed", "Succeeded"}:
        disrupted = (each.since for each in pod.conditions if each.type == "DisruptionTarget")
        known += [moment for moment in disrupted if moment is not None] or [pod.deleting_since or pod.created_at]
    return min(known, default=None)


def first_overlap(processes: Iterable[Process], wanted: Mapping[str, int]) -> datetime | None:
    """The first moment at which every rank has a process that may meet the others. None: there is none.

    `wanted`: how many ranks each Job has, by UID. An end and a start in one second do not overlap.
    """
    changes: list[tuple[datetime, int, Member]] = []
    for each in processes:
        until = each.meets_until
        if until is None or each.began < until:
            changes.append((each.began, +1, each.member))
        if until is not None and each.began < until:
            changes.append((until, -1, each.member))
    running: Counter[Member] = Counter()
    for moment, change, member in sorted(changes, key=lambda each: each[:2]):
        running[member] += change
        if not running[member]:
            del running[member]
        if has_all(running, wanted):
            return moment
    return None


def has_all(members: Collection[Member], wanted: Mapping[str, int]) -> bool:
    """There are as many of these ranks in each Job as it has."""
    if len(members) < sum(wanted.values()):
        return False  # most of the time
    count = Counter(job_uid for job_uid, _ in members)
    return all(count[job_uid] >= ranks for job_uid, ranks in wanted.items())
