"""Counts the signs of an incident by kind, because the ledger keeps the words of the first ones only.

The status of a group of a thousand ranks must stay small. A person must see that sixteen pods were deleted, and not
only the three of which the ledger has the words.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.model.evidence_count import EvidenceCount
from recovery.core.model.ledger import Incident
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

MAX_EVIDENCE_COUNTS = 16
"""Any client may invent a reason for a DisruptionTarget condition. Beyond this many the detail is not kept."""

MEMBER_MISSING = "MemberMissing"
MEMBER_REPLACED = "MemberReplaced"


def counted(counts: tuple[EvidenceCount, ...], evidence: Iterable[Evidence]) -> tuple[EvidenceCount, ...]:
    """`counts` with this evidence added, which none of them includes yet."""
    found = {(each.kind, each.detail): each for each in counts}
    for item in evidence:
        kind, detail = _kind(item), item.disrupted_by
        if (kind, detail) not in found and len(found) >= MAX_EVIDENCE_COUNTS:
            detail = ""
        before = found.get((kind, detail), EvidenceCount(kind, 0, detail))
        found[kind, detail] = msgspec.structs.replace(
            before,
            count=before.count + 1,
            first_at=min(_dates(before.first_at, item.at), default=None),
            last_at=max(_dates(before.last_at, item.at), default=None),
        )
    return tuple(found.values())


def _kind(item: Evidence) -> str:
    """A member that was replaced unseen, or that has no pod, need not have been deleted."""
    if item.kind is not LossKind.POD_DELETED:
        return str(item.kind)
    if item.inferred:
        return MEMBER_REPLACED
    return str(item.kind) if item.pod is not None else MEMBER_MISSING


def _dates(*moments: datetime | None) -> tuple[datetime, ...]:
    return tuple(each for each in moments if each is not None)


def first_seen(incident: Incident) -> Explanation:
    """What opened the incident, with how much of the same kind was seen with it."""
    counts, first = incident.evidence_counts, incident.evidence[0]
    if counts[0].count == 1:
        return because(Reason.MEMBER_LOST, evidence=first)
    return explained(Sentence.LOST_TOGETHER, Reason.MEMBER_LOST, losses=losses(counts[0]), first=first)


def losses(found: EvidenceCount) -> Explanation:
    """The count, and the time within which all of it happened."""
    seconds = 0  # no sign has a date
    if found.first_at is not None and found.last_at is not None:
        seconds = int((found.last_at - found.first_at).total_seconds()) + 1  # the dates are whole seconds
    return explained(
        Sentence.LOSSES, Reason.MEMBER_LOST, kind=found.kind, count=found.count, detail=found.detail, seconds=seconds
    )
