"""A group that is in a crash loop because others restart it: the JobSet by its failurePolicy, or another client.

The controller cannot hold them back. It says what restarts the group, and what would stop that.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.group_conditions import CRASH_LOOP, GroupCondition
from recovery.core.diagnosis.queued import queued_by
from recovery.core.incident import budget
from recovery.core.incident.preconditions import ended
from recovery.core.model.durations import in_words
from recovery.core.model.facts import JobSetFacts
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.plan import suspension
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import message_of
from recovery.core.policy.resolved import Policy

_WITHOUT_LIMIT = "AndIgnoreMaxRestarts"
"""How the actions of a failurePolicy end that `maxRestarts` does not limit (KEP-262)."""


class _Terms(msgspec.Struct, frozen=True):
    """How many restarts a policy allows."""

    policy: str
    limit: int
    window: timedelta


def condition(context: ReconcileContext, ledger: Ledger) -> GroupCondition | None:
    """The condition CrashLoop. None: the group is in no crash loop."""
    why = seen(context, ledger)
    return GroupCondition(CRASH_LOOP, why.reason, message_of(why)) if why is not None else None


def seen(context: ReconcileContext, ledger: Ledger) -> Explanation | None:
    """What restarts the group without end, and what stops that. None: it is in no crash loop, or no longer."""
    workload, jobset, terms = context.workload, context.snapshot.jobset, _terms(context, ledger)
    if terms is None or ends_at(context, ledger) is None:
        return None
    if jobset is None or jobset.terminal_state or ended(workload) is not None:
        return None
    if workload.suspended and not suspension.in_force(workload):
        return None
    action, max_restarts = _restarts_by(jobset)
    return because(
        Reason.CRASH_LOOP,
        most=max(1, terms.limit),
        window=in_words(terms.window),
        policy=terms.policy,
        limit=terms.limit,
        jobset=jobset.name,
        action=action,
        max_restarts=max_restarts,
        kind=workload.kind,
        job=workload.name,
        kueue=queued_by(workload),
    )


def ends_at(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When the crash loop is over, if nothing restarts the group any more. None: it is in none."""
    terms = _terms(context, ledger)
    return budget.loops_until(ledger.budget, terms.limit, terms.window, context.now) if terms is not None else None


def _terms(context: ReconcileContext, ledger: Ledger) -> _Terms | None:
    """Those of the open incident, else those of the policy. None: no policy can be used."""
    if ledger.incident is not None:
        pinned = ledger.incident.pinned
        return _Terms(pinned.policy_name, pinned.budget_limit, timedelta(seconds=pinned.budget_window_seconds))
    policy = context.policy
    return _Terms(policy.name, policy.budget_limit, policy.budget_window) if isinstance(policy, Policy) else None


def _restarts_by(jobset: JobSetFacts) -> tuple[str, int]:
    """The action of the first rule that restarts without a limit (empty: there is none), and `maxRestarts`."""
    found = jobset.failure_policy
    if found is None:
        return "", 0
    actions = (rule.action for rule in found.rules if rule.action.endswith(_WITHOUT_LIMIT))
    return next(actions, ""), found.max_restarts
