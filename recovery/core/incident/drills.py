"""Which failures are drills, and what a drill leaves out of the accounts of real failures.

A drill runs through the same decisions as a real failure. But it costs no budget, makes no node suspect, opens no
circuit breaker, and leaves the next real failure no backoff.
"""

from datetime import datetime

from recovery.core.diagnosis.classify import Disruption
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.model.drill import DrillFacts, DrillRef, NamedPod
from recovery.core.model.facts import PodFacts, Snapshot
from recovery.core.model.ledger import Ledger


def ref_of(snapshot: Snapshot, disruption: Disruption, now: datetime) -> DrillRef | None:
    """The drill that caused the disruption. None: no drill has named the pod before that was lost first."""
    found = _naming(snapshot, _first_lost(disruption, disruption.root.evidence), now)
    if found is None:
        return None
    drill, named = found
    return DrillRef(name=drill.name, uid=drill.uid, repeat=named.repeat)


def caused(ledger: Ledger, snapshot: Snapshot, disruption: Disruption, root: Evidence, now: datetime) -> bool:
    """The drill of the open incident caused this loss. `root`: the evidence of the disruption that decides."""
    open_ = ledger.current_incident
    if open_.drill is None:
        return False
    first = _first_lost(disruption, root)
    if open_.opened_by in {root.key, first.key}:  # the time of the drill may be over by now
        return True
    found = _naming(snapshot, first, now)
    return found is not None and found[0].uid == open_.drill.uid


def _first_lost(disruption: Disruption, root: Evidence) -> Evidence:
    """The root, or the pod because of which its Job fails: both may be seen at once, and the Job's failure decides."""
    if root.kind is not LossKind.JOB_FAILING:
        return root
    return next((each.evidence for each in disruption.findings if each.evidence.pod is not None), root)


def not_repaired(ledger: Ledger) -> bool:
    """The open incident is a drill, and nothing has restarted the group since. So the platform reacts to the drill."""
    open_ = ledger.current_incident
    return open_.drill is not None and not open_.restarted


def _naming(snapshot: Snapshot, root: Evidence, now: datetime) -> tuple[DrillFacts, NamedPod] | None:
    """A drill that was stopped before it acted may still name a pod that the next drill has named too. The drill that
    has not ended caused the loss, because a job has one drill at a time. If all have ended, the newest did."""
    if root.pod is None:
        return None
    order = sorted(snapshot.drills, key=lambda each: (each.spec.end is None, each.created_at, each.uid), reverse=True)
    for drill in order:
        named = _replaced(drill, snapshot, root.pod, now) if root.inferred else drill.names(root.pod.uid, now)
        if named is not None:
            return drill, named
    return None


def _replaced(drill: DrillFacts, snapshot: Snapshot, replacement: PodFacts, now: datetime) -> NamedPod | None:
    """The pod of the drill that the replacement stands for. No controller led when it was lost, and it is gone by now,
    so only its name shows which rank it was. Only the newest repeat counts: pods of earlier ones were lost before."""
    if replacement.created_at < drill.created_at.replace(microsecond=0):
        return None
    present = {pod.uid for pod in snapshot.pods if pod.gone_at is None}
    rank = f"{replacement.job_name}-{replacement.index}-"
    named = [each for each in drill.counting if drill.names(each.pod_uid, now) is not None]
    newest = max((each.repeat for each in named), default=0)
    return next(
        (each for each in named if each.repeat == newest and each.pod.startswith(rank) and each.pod_uid not in present),
        None,
    )


def last_failure_ended_at(ledger: Ledger) -> datetime | None:
    """Since when the group has had no failure but those that drills caused. None: it never had one, or only drills are
    remembered."""
    until = ledger.handled.until
    if not ledger.history or ledger.history[0].ended_at != until:
        return until
    return next((each.ended_at for each in ledger.history if each.drill is None or each.charged), None)
