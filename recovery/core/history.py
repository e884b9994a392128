"""Whether the members of a Job have all run at once, and since when: a group that has *trained*.

Before that moment a lost member harms nobody: the others still wait for it, and its Job replaces it. After it, the
others hang. The answer is remembered by the store while the controller runs. After a restart of the controller it is
inferred from what the API objects still tell: the earlier process of a restarted container (`lastState.terminated` has
its start and its end), and the creation times of replaced pods. The inference can err only where a Job counted a failed
pod and paused between creating its pods for longer than they took to start; then a group that never trained is taken
for one that did, and is recreated once, within its budget.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from recovery.core.facts import JobFacts, PodFacts

_Span = tuple[datetime, datetime | None]


def member_count(job: JobFacts) -> int:
    """How many pods of the Job must run for the group to be whole."""
    if job.completions is None:
        return job.parallelism
    return min(job.parallelism, job.completions)


def all_ran_at(job: JobFacts, pods: Sequence[PodFacts]) -> datetime | None:
    """The earliest moment at which all members of `job` are known to have run at once; None: none is known.

    `pods`: its pods, those that vanished under it included.
    """
    spans = _spans_by_index(job, pods)
    if len(spans) == member_count(job):
        first_starts = max(mine[0][0] for mine in spans.values())
        last_starts = max(mine[-1][0] for mine in spans.values())
        for moment in (first_starts, last_starts):
            if all(any(_covers(span, moment) for span in mine) for mine in spans.values()):
                return moment
    return _before_replacements(job, pods)


def _spans_by_index(job: JobFacts, pods: Sequence[PodFacts]) -> dict[int, list[_Span]]:
    """By completion index: when its processes ran, oldest first."""
    spans: dict[int, list[_Span]] = {}
    for pod in pods:
        if pod.job_uid == job.uid and pod.index is not None:
            mine = _process_spans(pod)
            if mine:
                spans.setdefault(pod.index, []).extend(mine)
    for mine in spans.values():
        mine.sort(key=lambda span: span[0])
    return spans


def _process_spans(pod: PodFacts) -> list[_Span]:
    if not pod.containers:
        return []
    container = pod.containers[0]
    spans: list[_Span] = [
        (ended.started_at, ended.finished_at)
        for ended in (container.last_exit, container.exit)
        if ended is not None and ended.started_at is not None
    ]
    if all(c.running_since is not None for c in pod.containers):
        spans.append((max(c.running_since for c in pod.containers if c.running_since is not None), pod.gone_at))
    return spans


def _covers(span: _Span, moment: datetime) -> bool:
    start, end = span
    return start <= moment and (end is None or moment <= end)


def _before_replacements(job: JobFacts, pods: Sequence[PodFacts]) -> datetime | None:
    """Infer from replaced pods: some were created only after all the others ran, and the Job counted failures."""
    members = sorted((p for p in pods if p.job_uid == job.uid and p.gone_at is None), key=lambda p: p.created_at)
    if job.failed == 0 or len(members) != member_count(job):
        return None
    ran_at: datetime | None = None
    for earlier, later in pairwise(members):
        spans = _process_spans(earlier)
        if not spans:
            return None
        ran_at = spans[0][0] if ran_at is None else max(ran_at, spans[0][0])
        if later.created_at > ran_at:
            return ran_at
    return None


def replacements(job: JobFacts, pods: Sequence[PodFacts], trained_at: datetime) -> tuple[PodFacts, ...]:
    """Pods of `job` created after the group trained: each stands in for a member that was lost."""
    return tuple(p for p in pods if p.job_uid == job.uid and p.gone_at is None and p.created_at > trained_at)
