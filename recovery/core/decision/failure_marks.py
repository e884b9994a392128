"""How the root of a disruption failed, to recognise a failure that comes back."""

from datetime import timedelta

import msgspec

from recovery.core.diagnosis.classify import DisruptionClass, Finding, normalised_message, step_in
from recovery.core.diagnosis.refusals import is_refused
from recovery.core.model.earlier_failures import NO_PROCESS, FailureMark
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because

EARLY = timedelta(minutes=10)
"""A process that failed within this time of its start failed early, as three of four failing processes do (Aegis)."""

_OWN = frozenset(
    {
        DisruptionClass.USER_ERROR,
        DisruptionClass.CRASHED,
        DisruptionClass.OUT_OF_MEMORY,
        DisruptionClass.UNKNOWN,
    }
)
"""Classes that may be the job's own fault. Bad nodes fail early, and the network fails everywhere at once."""


def mark_of(root: Finding, ledger: Ledger) -> FailureMark | None:
    ended, pod, open_ = root.evidence.exit, root.evidence.pod, ledger.current_incident
    if pod is not None and is_refused(pod):
        at = root.evidence.at or pod.accepted_at or open_.detected_at
        return FailureMark(open_.id, len(open_.attempts), at, NO_PROCESS, "", pod.node)
    if ended is None or pod is None:
        return None
    ran = None
    if ended.started_at is not None and ended.finished_at is not None:
        ran = (ended.finished_at - ended.started_at).total_seconds()
    return FailureMark(
        incident=open_.id,
        attempt=len(open_.attempts),
        at=root.evidence.at or open_.detected_at,
        exit_code=ended.code,
        message=normalised_message(ended.message) or ("OOMKilled" if ended.reason == "OOMKilled" else ""),
        node=pod.node,
        ran_seconds=ran,
        step=root.evidence.process.step if root.evidence.process is not None else step_in(ended.message),
    )


def comes_back(root: Finding, ledger: Ledger) -> Explanation | None:
    """The same exit code and message as before the latest restarts: another restart would not help. None: it is new."""
    mark = mark_of(root, ledger)
    if mark is None or not mark.message or root.blames_node or root.cascade or root.disruption_class not in _OWN:
        return None
    for earlier in reversed(ledger.failures):
        if (earlier.exit_code, earlier.message) != (mark.exit_code, mark.message):
            continue
        message = repr(mark.message)
        if mark.step is not None and earlier.step == mark.step:
            return because(Reason.BAD_CHECKPOINT, code=mark.exit_code, message=message, step=mark.step)
        elsewhere = bool(mark.node) and bool(earlier.node) and mark.node != earlier.node
        if _early(mark) and _early(earlier) and (elsewhere or root.disruption_class is DisruptionClass.USER_ERROR):
            return because(
                Reason.SAME_ERROR_AGAIN,
                code=mark.exit_code,
                message=message,
                node=mark.node,
                other=earlier.node if elsewhere else "",
            )
    return None


def seen_before(root: Finding, ledger: Ledger) -> bool:
    """The same exit code and message, at the same step if the step is known, have led to a restart before."""
    mark = mark_of(root, ledger)
    if mark is None or not mark.message:
        return False
    known = {(each.exit_code, each.message, each.step) for each in ledger.failures}
    return (mark.exit_code, mark.message, mark.step) in known


def _early(mark: FailureMark) -> bool:
    return mark.ran_seconds is not None and mark.ran_seconds < EARLY.total_seconds()


MAX_MARKS = 4


def remembered(ledger: Ledger, mark: FailureMark | None) -> Ledger:
    """The ledger that will recognise this failure if it returns after the restart that is now made for it."""
    if mark is None:
        return ledger
    others = tuple(m for m in ledger.failures if (m.incident, m.attempt) != (mark.incident, mark.attempt))
    return msgspec.structs.replace(ledger, failures=(*others, mark)[-MAX_MARKS:])
