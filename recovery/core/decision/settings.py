"""What a verdict asks of the birth settings: a size of its own, a size that a user has set, nodes to avoid."""

import msgspec

from recovery.core.decision import avoidance, birth, resizing
from recovery.core.decision.verdict import RESTARTS, Alternative, Call, Verdict
from recovery.core.diagnosis.membership import member_count
from recovery.core.diagnosis.resized import resized
from recovery.core.incident import lifecycle, sizes
from recovery.core.model.birth_settings import BirthSettings
from recovery.core.model.facts import JobFacts
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, as_said, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, considered, message_of, note, say_of_attempt

_REFUSALS = frozenset(
    {Reason.BIRTH_SETTINGS_REFUSED, Reason.BIRTH_SETTINGS_NOT_APPLIED, Reason.BIRTH_SETTINGS_OVERRULED}
)


def with_size_kept(context: ReconcileContext, ledger: Ledger, verdict: Verdict) -> Verdict:
    """The verdict, but no restart if a user has resized a Job and its successor would not have that size.

    Under a policy with `elastic`, the successor gets that size by its birth settings.
    """
    if verdict.call not in RESTARTS or verdict.call in {Call.SHRINK, Call.GROW}:
        return verdict
    why = sizes.undone_by_restart(resizing.settled(context, ledger), context.snapshot)
    if why is None or _keeps_size(context, ledger) is not None:
        return verdict
    return _held(verdict, why)


def _held(verdict: Verdict, why: Explanation) -> Verdict:
    not_done = (*verdict.considered, *_not_done(verdict, why))
    return msgspec.structs.replace(verdict, call=Call.HOLD, why=why, node_names=(), considered=not_done)


def _not_done(verdict: Verdict, why: Explanation) -> tuple[Alternative, ...]:
    """The verdict was considered, for each of its nodes."""
    return tuple(Alternative(verdict.call, why, node) for node in verdict.node_names or ("",))


def _keeps_size(context: ReconcileContext, ledger: Ledger) -> JobFacts | None:
    """The Job whose successor can get the size that a user has set. None: its size is not ours to set."""
    job = sizes.resizable(context.snapshot)
    open_ = ledger.current_incident
    return None if open_.pinned.elastic is None or isinstance(job, Explanation) else job


def prepared(
    context: ReconcileContext, ledger: Ledger, found: Explanation, verdict: Verdict
) -> Plan | tuple[Ledger, Verdict]:
    """The ledger with the settings that the verdict asks for, and what is left of the verdict.

    A plan: a dry run must first show whether they work, or the verdict makes no sense without them.
    """
    job = sizes.only_job(context.snapshot)
    if job is None or not _changes_settings(context, verdict):
        return ledger, verdict
    earlier = _refused_earlier(ledger, verdict)
    if earlier is not None and resized(context.snapshot) is None:
        return ledger, avoidance.not_avoided(verdict, *_not_done(verdict, earlier))
    tried = birth.tried(context, ledger, _wish(context, ledger, job, verdict))
    if tried.trying is not None:
        what = because(Reason.TRYING_BIRTH_SETTINGS)
        after = tried.ledger
        if not after.current_incident.message:
            after = note(after, explained(Sentence.SEEN_THEN, what.reason, found=found, what=what))
        return as_before(after, actions=(tried.trying,), requeue_at=context.now + birth.TRY_AGAIN_AFTER)
    if tried.refused is None:
        return _avoiding(context, tried.ledger, verdict), verdict
    refusals = _not_done(verdict, tried.refused)
    ledger = lifecycle.consider(tried.ledger, tuple(considered(each.call, each.node, each.why) for each in refusals))
    if verdict.call is Call.SHRINK:
        return as_before(say_of_attempt(ledger, tried.refused))
    undone = sizes.undone_by_restart(ledger, context.snapshot)
    if undone is not None:
        return ledger, _held(verdict, undone)
    return ledger, avoidance.not_avoided(verdict, *refusals)


def _refused_earlier(ledger: Ledger, verdict: Verdict) -> Explanation | None:
    """Why this incident cannot avoid the nodes by birth settings. None: they were not refused.

    It tries each node once. Each reconcile repeats a verdict whose restart is withheld, and would repeat its dry run.
    """
    if verdict.call is not Call.AVOID_NODE:
        return None
    refusals = (
        each
        for each in ledger.current_incident.considered
        if each.action == verdict.call and each.node in verdict.node_names and each.reason in _REFUSALS
    )
    refused = next(refusals, None)
    return None if refused is None else as_said(refused.reason, refused.message)


def _changes_settings(context: ReconcileContext, verdict: Verdict) -> bool:
    """The Job's successor needs other settings than the Job was created with."""
    if verdict.call in {Call.SHRINK, Call.AVOID_NODE}:
        return True
    return verdict.call in RESTARTS and resized(context.snapshot) is not None


def _wish(context: ReconcileContext, ledger: Ledger, job: JobFacts, verdict: Verdict) -> BirthSettings | None:
    """The settings that the Job's successor is to be created with. None: its template alone is enough."""
    avoid = avoidance.hosts(avoidance.current(context, _avoiding(context, ledger, verdict)))
    nodes = verdict.nodes if verdict.call is Call.SHRINK else member_count(job)
    return birth.wished(context.snapshot, job, nodes, avoid)


def _avoiding(context: ReconcileContext, ledger: Ledger, verdict: Verdict) -> Ledger:
    if verdict.call is not Call.AVOID_NODE:
        return ledger
    for node in verdict.node_names:
        ledger = avoidance.entered(context, ledger, node, message_of(verdict.why))
    return ledger
