"""Which pods of a drill count as named: a failure of one of them is a drill, and costs no budget.

The controller decides that before anything has happened to the pods. The client waits for the answer.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from recovery.core.model.config import DrillsSpec
from recovery.core.model.drill import DRILL_MAX_SECONDS, DrillFacts, DrillRefusal, NamedPod
from recovery.core.model.facts import PodFacts, Snapshot
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.plan.parts import message_of

DAY = timedelta(hours=24)


def accepted(
    drill: DrillFacts,
    beside: Iterable[DrillFacts],
    snapshot: Snapshot,
    limits: DrillsSpec,
    now: datetime,
    *,
    recovering: bool,
) -> tuple[int, DrillRefusal | None]:
    """How many pods of the drill count, and why the others never will.

    `beside`: the other drills of its workload. `recovering`: the group recovers from this drill, so its pods may be on
    their way down. A pod that counts goes on counting. A drill that is refused stays refused: its client has been told.
    """
    status, spec = drill.status, drill.spec
    if not waits(drill):
        return status.named, status.refusal
    # Another workload of the name has other pods, and losses of those are booked on another ledger.
    same = snapshot.workload is not None and snapshot.workload.uid == spec.workload_ref.uid
    why = _not_now(drill, tuple(beside), limits, now) or _no_members(
        spec.pods[status.named :], snapshot if same else None, recovering=recovering, job=_job(drill)
    )
    if why is not None:
        return status.named, DrillRefusal(why.reason, message_of(why))
    return len(spec.pods), None


def waits(drill: DrillFacts) -> bool:
    """The client waits for an answer about pods that it has named."""
    status, spec = drill.status, drill.spec
    return status.refusal is None and spec.end is None and len(spec.pods) > status.named


def _not_now(
    drill: DrillFacts, beside: tuple[DrillFacts, ...], limits: DrillsSpec, now: datetime
) -> Explanation | None:
    longest = drill.created_at + timedelta(seconds=DRILL_MAX_SECONDS)
    if drill.spec.expires_at <= now or drill.spec.expires_at > longest:
        return because(Reason.DRILL_TOO_LONG, expires=f"{drill.spec.expires_at:%Y-%m-%dT%H:%M:%SZ}")
    # Of two drills of one second, the one of which pods count already may be the one with the higher UID.
    running = (drill, *(each for each in beside if runs(each, now)))
    first = min(running, key=lambda each: (each.status.named == 0, each.created_at, each.uid))
    if first is not drill and drill.status.named == 0:
        return because(Reason.DRILL_OVERLAPS, other=first.name)
    repeats = sum(_repeats(each.counting) for each in beside if counts_today(each, now))
    count = repeats + _repeats(drill.spec.pods)
    if count > limits.per_job_and_day:
        before = count - 1
        return because(Reason.DRILL_LIMIT_OF_DAY, count=before, limit=limits.per_job_and_day)
    return None


def runs(drill: DrillFacts, now: datetime) -> bool:
    """The drill has not ended, and may still name pods."""
    return drill.spec.end is None and drill.status.refusal is None and now < drill.over_at


def counts_today(drill: DrillFacts, now: datetime) -> bool:
    """Its repeats count towards the limit of a day."""
    return drill.status.named > 0 and now - drill.created_at < DAY


def _repeats(pods: Iterable[NamedPod]) -> int:
    """How many repeats the pods are. A repeat that names a rank again after it was replaced counts once more: otherwise
    one repeat could name the pods of each restart, and hide a crash loop."""
    of_ranks: dict[tuple[int, str], set[str]] = {}
    for each in pods:
        rank = each.pod if each.index is None else each.pod.rpartition("-")[0]
        of_ranks.setdefault((each.repeat, rank), set()).add(each.pod_uid)
    most: dict[int, int] = {}
    for (repeat, _), uids in of_ranks.items():
        most[repeat] = max(most.get(repeat, 0), len(uids))
    return sum(most.values())


def _job(drill: DrillFacts) -> str:
    return f"{drill.namespace}/{drill.spec.workload_ref.name}"


def _no_members(
    pods: Iterable[NamedPod], snapshot: Snapshot | None, *, recovering: bool, job: str
) -> Explanation | None:
    """A pod that has failed already must not become a drill afterwards. One that goes down with its group has not.

    A pod that vanished while its Job exists is still in the snapshot. One that is in none can be no evidence any more.
    `snapshot` None: the workload of the drill does not exist.
    """
    if snapshot is None:
        return because(Reason.DRILL_NAMES_NO_MEMBER, pod=next(iter(pods)).pod, job=job)
    members = {each.uid: each for each in snapshot.pods}
    for named in pods:
        pod = members.get(named.pod_uid)
        if recovering and (pod is None or (pod.deleting_since is not None and pod.gone_at is None)):
            continue
        if pod is None or pod.gone_at is not None or not _is_whole(pod) or not _is_described(pod, named):
            return because(Reason.DRILL_NAMES_NO_MEMBER, pod=named.pod, job=job)
    return None


def _is_described(pod: PodFacts, named: NamedPod) -> bool:
    """The client says its name and its rank, by which it is counted, and known after it is gone."""
    return (pod.name, pod.index) == (named.pod, named.index)


def _is_whole(pod: PodFacts) -> bool:
    """Nothing has happened to the pod yet. A pod that still starts is whole."""
    goes = pod.dead_since is not None or pod.deleting_since is not None
    return not goes and pod.phase not in {"Succeeded", "Failed"}
