"""The facts as decisions read them: with what agents, policy and ledger add to what the API server shows."""

from datetime import datetime

import msgspec

from recovery.core.decision import in_place, suspensions
from recovery.core.diagnosis import agent_view, matching
from recovery.core.diagnosis.freshness import STALE_AFTER
from recovery.core.diagnosis.membership import member_jobs, pods_of, stands_still
from recovery.core.diagnosis.processes import processes_of
from recovery.core.diagnosis.resized import resized
from recovery.core.diagnosis.trained import began_at
from recovery.core.incident import fencing
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.node_fault import Fault
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError


def as_judged(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> Snapshot:
    """The snapshot with what the policy and the ledger add to the facts. Only this snapshot shows all evidence."""
    # Some facts have no date. They keep the date of the reconcile that first noticed them.
    since = max(now - STALE_AFTER, policy.since) if isinstance(policy, Policy) else now - STALE_AFTER
    is_open = ledger.incident is not None and ledger.incident.closing is None
    follows = is_open and in_place.under_way(ledger) is not None
    proven = is_open and ledger.current_incident.joins_proven
    snapshot = agent_view.with_processes(
        snapshot, ledger.handled.keys, since, now, restarts_in_place=follows, joins_proven=proven
    )
    noticed = ledger.incident.detected_at if ledger.incident is not None else now
    snapshot = suspensions.remembered(_marked(snapshot, policy, now, min(noticed, now)), ledger)
    return _as_the_ledger_knows(snapshot, ledger)


def _marked(snapshot: Snapshot, policy: Policy | PolicyError | None, now: datetime, noticed: datetime) -> Snapshot:
    """The snapshot with the policy's marks: pods that count as dead, and node faults that a rule names."""
    snapshot = fencing.marked(snapshot, policy, now, noticed)
    faults = matching.node_faults(policy.rules, snapshot, now) if isinstance(policy, Policy) and policy.rules else ()
    by_pod: dict[str, Fault] = {}
    for item in faults:
        if item.pod is None:
            continue
        # A taint without a date is new evidence once for each node, not for each pod that is placed there later.
        key = item.key if item.at is not None else item.key.replace(item.pod.uid, item.pod.node)
        by_pod.setdefault(item.pod.uid, Fault(key, item.text, item.at))
    if not by_pod:
        return snapshot
    pods = tuple(
        msgspec.structs.replace(pod, fault=by_pod[pod.uid]) if pod.uid in by_pod else pod for pod in snapshot.pods
    )
    return msgspec.structs.replace(snapshot, pods=pods)


def _as_the_ledger_knows(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """The snapshot, which also shows when the ranks met that the ledger has seen meet.

    A controller that has just started infers that from the pods it finds. If a member was lost and replaced earlier, it
    would infer that the group has run whole only since then, and that the loss came before the training. The ledger
    counts only if a process of that meeting is known: if all of them are new, they may have met since.
    """
    met_at = ledger.met_at
    if met_at is None or resized(snapshot) is not None:
        return snapshot  # a rank that a user has added since took no part in that
    of_then = [job for job in member_jobs(snapshot) if began_at(job) <= met_at and not stands_still(job)]
    pods = (pod for job in of_then for pod in pods_of(snapshot, job))
    if not any(process.ran_at(met_at) for pod in pods for process in processes_of(pod)):
        return snapshot
    trained_at = {job.uid: min(met_at, snapshot.trained_at.get(job.uid, met_at)) for job in of_then}
    return msgspec.structs.replace(
        snapshot, trained_at={**snapshot.trained_at, **trained_at}, met_at=dict.fromkeys(trained_at, met_at)
    )
