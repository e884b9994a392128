"""What can keep the controller from a restart, in one order, and which move asks which of it.

A move is a way to come to a restart. `ASKED` says which guards it asks, and `first_stop` asks them. The order has a
reason: a training that finishes needs no restart; the user's own policies go before ours; what may not be written is
not counted against a budget; and only a restart that may be made can be needless.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from recovery.core.decision import backoff
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis import native_policies
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.finish_overdue import left_to_finish
from recovery.core.diagnosis.membership import member_jobs, place, pods_of
from recovery.core.incident import attempt_limits
from recovery.core.incident.attempt_limits import Refusal
from recovery.core.incident.preconditions import barred, no_trigger
from recovery.core.model.facts import PodFacts, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.spec import Restart


class Guard(StrEnum):
    """What can keep the controller from a restart."""

    FINISHED = "Finished"
    """A rank has completed its training, so the others are about to complete theirs."""
    NATIVE = "Native"
    """A podFailurePolicy or another policy of the user's own objects decides."""
    BARRED = "Barred"
    """Mode Observe, a pause, an open breaker or stale facts forbid the write."""
    AFTER_START = "AfterStart"
    """Under RecreateGroupAfterStart a member has not started yet."""
    LIMIT = "Limit"
    """The incident is held until a person asks for a retry, or its JobSet is being failed."""
    MET = "Met"
    """All ranks have met since the last loss, so a plain restart would only cost progress."""


GUARDS = tuple(Guard)
"""The order in which they are asked."""


class Move(StrEnum):
    """A way to come to a restart."""

    FIRST = "First"
    """The first restart of an incident is decided."""
    LOST_AGAIN = "LostAgain"
    """A member was lost again after a restart."""
    ANOTHER = "Another"
    """The group did not come back in time, or the wait of a withheld or held restart is over."""
    CARRY_OUT = "CarryOut"
    """A restart that the ledger has decided is carried out."""
    BY_HAND = "ByHand"
    """A person asks for a restart."""
    GROW = "Grow"
    """There is room for a smaller group to grow."""
    NEW_JOB = "NewJob"
    """A Job waits too long before it replaces pods of a group whose ranks have not met yet."""
    NO_AGENT = "NoAgent"
    """The agent keeps a pod from starting, and the ranks have not met yet."""
    NEW_JOB_SET = "NewJobSet"
    """The JobSet has failed for good, and the policy says RecreateJobSet."""


ASKED: Mapping[Move, tuple[Guard, ...]] = MappingProxyType(
    {
        Move.FIRST: GUARDS,
        # After a restart `after_restart` asks for native policies: what they decide does not end the incident.
        Move.LOST_AGAIN: (Guard.FINISHED, Guard.BARRED, Guard.AFTER_START, Guard.LIMIT, Guard.MET),
        Move.ANOTHER: (Guard.FINISHED, Guard.BARRED, Guard.LIMIT, Guard.MET),
        Move.CARRY_OUT: (Guard.FINISHED, Guard.NATIVE, Guard.BARRED),
        Move.BY_HAND: (Guard.FINISHED, Guard.BARRED),
        Move.GROW: (Guard.FINISHED, Guard.BARRED),
        Move.NEW_JOB: (Guard.FINISHED, Guard.BARRED, Guard.AFTER_START),
        # Not AFTER_START: the member that it would wait for is the one that cannot start.
        Move.NO_AGENT: (Guard.FINISHED, Guard.BARRED),
        # `terminal_jobset` asks for native policies first: a JobSet that they fail stays as it is.
        Move.NEW_JOB_SET: (Guard.FINISHED, Guard.BARRED, Guard.LIMIT),
    }
)
"""Which guards a move asks, in the order of GUARDS."""


class Question(msgspec.Struct, frozen=True):
    """What the guards are asked about."""

    context: ReconcileContext
    ledger: Ledger
    evidence: tuple[Evidence, ...] = ()
    """What the restart would be for."""
    news: tuple[Evidence, ...] = ()
    """The evidence for native policies that do not end or restart the whole Job."""
    forced: bool = False
    """Neither mode Observe nor a pause of the job bars the restart."""
    begun: bool = False
    """The ledger has decided the restart, on facts that were current then."""
    overdue: bool = False
    """The training takes too long to finish, so a person decides, whatever others have decided."""
    verdict: Verdict | None = None
    """None: not found yet, so no one can say whether the restart is a plain one."""


class Stop(msgspec.Struct, frozen=True):
    """A restart does not begin now, and which guard says so."""

    guard: Guard
    why: Explanation
    refusal: Refusal | None = None
    """LIMIT: what the group is held for. None: another guard."""


def first_stop(move: Move, question: Question) -> Stop | None:
    """The first guard that keeps the controller from this restart. None: none does."""
    for guard in ASKED[move]:
        stop = _ASK[guard](question)
        if stop is not None:
            return stop
    return None


def native_decision(
    context: ReconcileContext, ledger: Ledger, all_of_it: tuple[Evidence, ...], news: tuple[Evidence, ...]
) -> Explanation | None:
    """What the user's native policies decide. None: nothing, or the policy overrides them.

    `all_of_it`: the evidence for a policy that ends or restarts the whole Job. `news`: the evidence for the others.
    """
    if ledger.current_incident.pinned.override_native:
        return native_policies.trained_to_the_end(news)
    ends = native_policies.takes_down(context.snapshot, all_of_it)
    stay = not verdicts.recreates_ignored(context, ledger)
    return ends or native_policies.decision(context.snapshot, news, ignored_stay=stay)


def waits_for(snapshot: Snapshot, ledger: Ledger) -> Explanation | None:
    """Under RecreateGroupAfterStart: the member that has to start before a restart is of use. None: none has to.

    As in LeaderWorkerSet: while a pod of the group is Pending, the others wait for it anyway, and a group that is
    recreated again and again while it waits for capacity never starts.
    """
    pinned = ledger.current_incident.pinned
    if pinned.restart != Restart.RECREATE_GROUP_AFTER_START:
        return None
    pending = [pod for job in member_jobs(snapshot) for pod in pods_of(snapshot, job) if _is_pending(pod)]
    if not pending:
        return None
    first = min(pending, key=lambda pod: (pod.index is None, pod.index, pod.name))
    return because(Reason.GROUP_PENDING, policy=pinned.policy_name, restart=pinned.restart, pod=place(first))


def _is_pending(pod: PodFacts) -> bool:
    """Its training has yet to start. A sidecar that never starts keeps the phase Pending whatever the training does."""
    started = any(each.running_since or each.exit or each.last_exit for each in pod.containers)
    return pod.phase == "Pending" and not started and pod.deleting_since is None


# --- the guards ------------------------------------------------------------------------------------------------------


def _stop(guard: Guard, why: Explanation | None) -> Stop | None:
    return None if why is None else Stop(guard, why)


def _finished(question: Question) -> Stop | None:
    return _stop(Guard.FINISHED, left_to_finish(question.context.snapshot, question.ledger.handled))


def _native(question: Question) -> Stop | None:
    if question.overdue or question.ledger.current_incident.step.fails_job:
        return None  # that does not help a training that does not finish, and the controller has caused the failure
    decided = native_decision(question.context, question.ledger, question.evidence, question.news)
    return _stop(Guard.NATIVE, decided)


def _barred(question: Question) -> Stop | None:
    context, forced = question.context, question.forced
    if question.begun:
        return _stop(Guard.BARRED, barred(context.workload, context.policy, forced=forced))
    return _stop(Guard.BARRED, no_trigger(context.snapshot, context.workload, context.policy, forced=forced))


def _after_start(question: Question) -> Stop | None:
    if question.overdue:
        return None
    return _stop(Guard.AFTER_START, waits_for(question.context.snapshot, question.ledger))


def _limit(question: Question) -> Stop | None:
    if not attempt_limits.judged(question.ledger):
        return None
    refusal = attempt_limits.refused(question.ledger, question.context.now)
    return None if refusal is None else Stop(Guard.LIMIT, refusal.why, refusal)


def _met(question: Question) -> Stop | None:
    verdict, ledger = question.verdict, question.ledger
    if verdict is None or verdict.call is not Call.RECREATE_GROUP:
        return None
    if not backoff.all_met_after(question.context.snapshot, ledger, question.evidence):
        return None
    met = explained(Sentence.RANKS_HAVE_MET, Reason.MEMBERS_RUN_AGAIN, ranks=ledger.current_incident.ranks)
    return Stop(Guard.MET, met)


_ASK: Mapping[Guard, Callable[[Question], Stop | None]] = MappingProxyType(
    {
        Guard.FINISHED: _finished,
        Guard.NATIVE: _native,
        Guard.BARRED: _barred,
        Guard.AFTER_START: _after_start,
        Guard.LIMIT: _limit,
        Guard.MET: _met,
    }
)
