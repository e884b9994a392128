"""Which incidents under Observe share one RecoveryIncident, and what that record then contains.

The ledger keeps the whole fold, and its record is written with absolute figures. So a repeat after a crash between the
two writes writes the same figures: it neither loses an incident nor counts one twice.
"""

from datetime import timedelta

import msgspec

from recovery.core.diagnosis.classify import Disruption
from recovery.core.model.enforce_estimate import summed
from recovery.core.model.folded_incidents import FoldedIncidents, FoldedNode, NumberRange
from recovery.core.model.ledger import Incident, IncidentHandling, Ledger, Outcome
from recovery.core.policy.spec import Mode

MAX_FOLDS = 8
"""At most this many folds are open per group, one for each kind of failure."""
MAX_RANGES = 32
MAX_NODES = 16
"""A fold that would exceed MAX_RANGES or MAX_NODES continues in a new record, because status must stay bounded."""


def fingerprint_of(disruption: Disruption) -> str:
    """What distinguishes the failure from others: class, cause, signature and the rank where it showed first."""
    root = disruption.root
    pod = root.evidence.pod
    rank = "" if pod is None else pod.job_name if pod.index is None else f"{pod.job_name}-{pod.index}"
    return "/".join((root.disruption_class, disruption.cause, root.signature, rank))


def folds_with(ledger: Ledger, incident: Incident) -> tuple[tuple[FoldedIncidents, ...], FoldedIncidents | None]:
    """The ledger's folds with this closed incident added, and the fold whose record it shares. None: it has its own
    record.

    Folds to which no incident can be added any more are dropped.
    """
    reset_after = timedelta(seconds=incident.pinned.reset_after_seconds)
    open_ = tuple(each for each in ledger.folds if incident.started_at - each.ended_at <= reset_after)
    if not _folds(incident):
        return open_, None
    known = next((each for each in open_ if each.fingerprint == incident.fingerprint), None)
    if known is not None and known.latest_evidence == incident.opened_by and known.covers(incident.number):
        return open_, known if known.count > 1 else None
    fold = _extended(known, incident) if known is not None else None
    return _replaced(open_, fold or _begun(incident)), fold


def recorded_alone(ledger: Ledger, incident: Incident) -> Ledger:
    """The ledger where the incident has its own record, because the fold's record could not be written. Later incidents
    fold into this one."""
    return msgspec.structs.replace(ledger, folds=_replaced(ledger.folds, _begun(incident)))


def _folds(incident: Incident) -> bool:
    closing = incident.closing
    return (
        incident.mode == Mode.OBSERVE
        and incident.drill is None
        and closing is not None
        and closing.outcome is Outcome.OBSERVED
        and incident.handling is IncidentHandling.AUTOMATIC
    )


def _replaced(folds: tuple[FoldedIncidents, ...], fold: FoldedIncidents) -> tuple[FoldedIncidents, ...]:
    others = tuple(each for each in folds if each.fingerprint != fold.fingerprint)
    return (*others, fold)[-MAX_FOLDS:]


def _begun(incident: Incident) -> FoldedIncidents:
    """The fold of one incident."""
    closing = incident.closing
    assert closing is not None, "only closed incidents are folded"
    idle: dict[str, float] = {}
    for span in incident.phases:
        if span.idle_gpu_seconds:
            idle[span.phase] = round(idle.get(span.phase, 0.0) + span.idle_gpu_seconds, 3)
    lost = round(sum(idle.values()), 3)
    return FoldedIncidents(
        fingerprint=incident.fingerprint,
        numbers=(NumberRange(incident.number, incident.number),),
        count=1,
        started_at=incident.started_at,
        latest_started_at=incident.started_at,
        latest_evidence=incident.opened_by,
        ended_at=closing.ended_at,
        duration_seconds=(closing.ended_at - incident.started_at).total_seconds(),
        idle_gpu_seconds=idle,
        released_gpu_seconds=round(sum(span.released_gpu_seconds for span in incident.phases), 3),
        restarts=incident.restarts,
        would={incident.would: 1} if incident.would else {},
        enforce_estimate=incident.enforce_estimate,
        nodes={each.node: FoldedNode(1, lost) for each in incident.suspects if each.node},
    )


def _extended(fold: FoldedIncidents, incident: Incident) -> FoldedIncidents | None:
    """The fold with this incident added. None: the fold is full."""
    one = _begun(incident)
    last = fold.numbers[-1]
    follows = last.last + 1 == incident.number
    numbers = (
        (*fold.numbers[:-1], NumberRange(last.first, incident.number)) if follows else (*fold.numbers, *one.numbers)
    )
    nodes = dict(fold.nodes)
    for name, node in one.nodes.items():
        before = nodes.get(name, FoldedNode(0, 0.0))
        idle = round(before.idle_gpu_seconds + node.idle_gpu_seconds, 3)
        nodes[name] = FoldedNode(before.incidents + 1, idle)
    if len(numbers) > MAX_RANGES or len(nodes) > MAX_NODES:
        return None
    return FoldedIncidents(
        fingerprint=fold.fingerprint,
        numbers=numbers,
        count=fold.count + 1,
        started_at=fold.started_at,
        latest_started_at=one.started_at,
        latest_evidence=one.latest_evidence,
        ended_at=max(fold.ended_at, one.ended_at),
        duration_seconds=fold.duration_seconds + one.duration_seconds,
        idle_gpu_seconds=_added(fold.idle_gpu_seconds, one.idle_gpu_seconds),
        released_gpu_seconds=round(fold.released_gpu_seconds + one.released_gpu_seconds, 3),
        restarts=fold.restarts + one.restarts,
        would={key: fold.would.get(key, 0) + one.would.get(key, 0) for key in {**fold.would, **one.would}},
        enforce_estimate=summed((fold.enforce_estimate, one.enforce_estimate)),
        nodes=nodes,
    )


def _added(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {key: round(one.get(key, 0.0) + other.get(key, 0.0), 3) for key in {**one, **other}}
