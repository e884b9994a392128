"""Whether the budget of an open incident allows another attempt now."""

from datetime import datetime, timedelta

import msgspec

from recovery.core.incident import budget
from recovery.core.incident.lifecycle import MAX_ATTEMPTS
from recovery.core.model.durations import in_words
from recovery.core.model.ledger import RESTARTS_A_TRAINING, Attempt, AttemptAction, Ledger
from recovery.core.model.reason import Detail, Explanation, Reason, as_said, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError

OURS = RESTARTS_A_TRAINING | {AttemptAction.RECREATE_JOB_SET}
"""Actions that the controller triggers itself."""


class Refusal(msgspec.Struct, frozen=True):
    """Why no attempt may be made now. `frees_at`: when time alone allows one. None: never."""

    why: Explanation
    frees_at: datetime | None
    exhausted: bool = True
    """True: the budget is exhausted, so `budget.onExhausted` applies. False: the verdict refuses the attempt."""
    fail_job: bool = False
    """The verdict is to fail the JobSet."""


def restart_of(ledger: Ledger) -> Attempt | None:
    """The latest attempt that restarted the group. None: no attempt did."""
    attempts = ledger.current_incident.attempts
    return next((a for a in reversed(attempts) if a.action is not AttemptAction.NONE), None)


def ours(ledger: Ledger) -> tuple[Attempt, ...]:
    """The attempts of the open incident that we triggered."""
    return tuple(attempt for attempt in ledger.current_incident.attempts if attempt.action in OURS)


def left(ledger: Ledger, now: datetime) -> int:
    """How many recoveries the budget has left."""
    pinned = ledger.current_incident.pinned
    return budget.remaining(ledger.budget, pinned.budget_limit, _window(ledger), now)


def refused(ledger: Ledger, now: datetime, *, free: bool = False) -> Refusal | None:
    """Why the open incident may not have another attempt now. None: it may.

    `free`: the attempt costs no budget. The budget's limit does not apply then, but MAX_ATTEMPTS does.
    """
    open_ = ledger.current_incident
    step = open_.step
    if step.verdict is not None:
        return Refusal(as_said(step.verdict, step.message), None, exhausted=False, fail_job=step.fails_job)
    refusal = _by_budget(ledger, now, free=free)
    if refusal is None and step.fails_job:
        return Refusal(because(Reason.FAILING_JOB_SET), None)
    return refusal


def spent(ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> Explanation | None:
    """Why no incident that costs budget may begin. None: one may."""
    if not isinstance(policy, Policy):
        return None
    limit, window = policy.budget_limit, policy.budget_window
    if budget.remaining(ledger.budget, limit, window, now) > 0:
        return None
    return because(Reason.BUDGET_EXHAUSTED, policy=policy.name, limit=limit, window=in_words(window))


def judged(ledger: Ledger) -> bool:
    """The open incident is held until a person runs `recovery retry`, or the controller is failing its JobSet."""
    step = ledger.current_incident.step
    return step.verdict is not None or step.fails_job


def _by_budget(ledger: Ledger, now: datetime, *, free: bool) -> Refusal | None:
    """An incident is charged once, but gets no more attempts than the budget's limit. Otherwise one incident could
    restart its group forever.
    """
    open_, window = ledger.current_incident, _window(ledger)
    limit, name = open_.pinned.budget_limit, open_.pinned.policy_name
    extent: dict[str, Detail] = {"policy": name, "limit": limit, "window": in_words(window)}
    if (
        not open_.charged and not free
    ):  # only the platform or a person has restarted the group so far, so this attempt would be charged
        if left(ledger, now) > 0:
            return None
        frees_at = budget.frees_at(ledger.budget, limit, window, now)
        return Refusal(because(Reason.BUDGET_EXHAUSTED, **extent), frees_at)
    since = now - window
    if ledger.budget.reset_at is not None:
        since = max(since, ledger.budget.reset_at)
    made = [attempt.started_at for attempt in ours(ledger) if attempt.started_at > since]
    most = MAX_ATTEMPTS if free else min(limit, MAX_ATTEMPTS)
    if len(made) < most:
        return None
    by_budget = limit <= MAX_ATTEMPTS and not free
    sentence = Sentence.ATTEMPTS_BY_BUDGET if by_budget else Sentence.ATTEMPTS_WHATEVER_BUDGET
    why = explained(sentence, Reason.ATTEMPTS_EXHAUSTED, count=len(made), **extent)
    return Refusal(why, made[-most] + window if most else None)


def _window(ledger: Ledger) -> timedelta:
    return timedelta(seconds=ledger.current_incident.pinned.budget_window_seconds)
