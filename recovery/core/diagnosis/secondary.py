"""Whether an exit is secondary: the consequence of a loss that is not among the losses of its incident.

That loss may be a baseline, or belong to an incident in mode Observe. The process has been hanging since then. It exits
minutes later, which opens an incident of its own, where the exit looks like the cause.
"""

from datetime import datetime

import msgspec

from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind, gather
from recovery.core.diagnosis.freshness import baseline, fresh
from recovery.core.diagnosis.signature_table import signature_of
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.facts import ExitFacts, Snapshot

_NO_LOSS = frozenset(
    {
        LossKind.NODE_FAULT,
        LossKind.JOB_DELETED,
        LossKind.JOB_FAILING,
        LossKind.JOB_SET_FAILED,
        LossKind.MANUAL,
        LossKind.ROOM,
        LossKind.AGENT_BLOCKS_START,
    }
)


def waited(evidence: Evidence, snapshot: Snapshot) -> bool:
    """The process itself reports that it waited in vain for another rank. Signs of its node, which may appear later,
    do not change that."""
    row = signature_of(evidence, _without_nodes(snapshot))
    return row is not None and row.cascade


def follows_a_known_loss(evidence: Evidence, snapshot: Snapshot) -> bool:
    """The process outlived another member, and by the rules of `classify` its exit is the consequence of that loss.

    Losses from before the training, or before the latest report of progress, are left out: no rank hangs because of
    them.
    """
    if evidence.exit is None or evidence.pod is None or evidence.at is None:
        return False
    seen = gather(snapshot)
    of_training = (
        *fresh(snapshot, seen, since=None, handled=Handled(), now=evidence.at),
        *baseline(snapshot, seen, since=None, handled=Handled(), now=evidence.at),
    )
    progress = snapshot.workload.progress if snapshot.workload is not None else None
    since = progress.updated_at if progress is not None else None
    outlived = tuple(each for each in of_training if _outlived(evidence, evidence.exit, each, since))
    if not outlived:
        return False
    found = classify((evidence, *outlived), _without_nodes(snapshot)).findings
    return any(each.cascade and each.evidence.key == evidence.key for each in found)


def _outlived(evidence: Evidence, ended: ExitFacts, other: Evidence, progress_at: datetime | None) -> bool:
    """The other rank was lost while this process ran. Not within the second of the exit, where the order is unknown."""
    if other.kind in _NO_LOSS or other.at is None or evidence.at is None or ended.started_at is None:
        return False
    if other.pod is not None and evidence.pod is not None and other.pod.uid == evidence.pod.uid:
        return False
    if progress_at is not None and other.at < progress_at:
        return False
    return ended.started_at <= other.at and other.at.replace(microsecond=0) < evidence.at.replace(microsecond=0)


def _without_nodes(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot, nodes={}, gone_nodes=frozenset())
