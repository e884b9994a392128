"""The backoff before the next attempt in a row: we suspend the job, or else withhold the restart.

A suspension frees the GPUs meanwhile. If the job may not be suspended, because it has a deadline or Kueue owns the
suspension, the restart itself waits, but only while the platform cannot end the job meanwhile (`job_limits`).
"""

from datetime import timedelta

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import budget, phases
from recovery.core.incident.standing import met_since
from recovery.core.model.durations import in_words
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Explanation, Sentence, explained
from recovery.core.model.waits import Withheld
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.steps import say


def withheld(
    context: ReconcileContext, ledger: Ledger, why: Explanation, lost: tuple[Evidence, ...], hurry: Explanation | None
) -> Plan | None:
    """The plan that makes the restart wait for its backoff while the job keeps its pods. None: it does not wait.

    `lost`: what the restart is for. `hurry`: why it must not wait. None: it may.

    Each reconcile decides again, because a rule, the budget or one exit too many may end the wait.
    """
    open_ = ledger.current_incident
    number, not_ours = ledger.attempts_in_row + 1, suspension.not_ours(context)
    wait = budget.delay(open_.pinned, number)
    if not_ours is None or open_.resumed_by_others or hurry is not None or ledger.phase is Phase.HELD:
        return None
    waits = open_.withheld or _begin(context, ledger, wait, lost)
    # A clock that jumped back does not prolong the wait.
    if not timedelta() < waits.until - context.now <= wait:
        return None
    ledger = phases.enter(ledger, Phase.BACKOFF, context.now)
    waiting = explained(
        Sentence.WITHHELD,
        why.reason,
        why=why,
        until=f"{waits.until:%Y-%m-%dT%H:%M:%SZ}",
        number=number,
        wait=in_words(wait),
        not_ours=not_ours,
    )
    return say(ledger.with_incident(withheld=waits), waiting, requeue_at=waits.until)


def _begin(context: ReconcileContext, ledger: Ledger, wait: timedelta, lost: tuple[Evidence, ...]) -> Withheld:
    # An older CRD drops `withheld`, but not the phase, which dates the wait: a reconcile must not begin it again.
    waits_already = ledger.phase is Phase.BACKOFF
    began = ledger.current_incident.phases[-1].started_at if waits_already else context.now
    # Dated by the clocks that also date Jobs and processes; ours may differ.
    lost_at = min((item.at for item in lost if item.at is not None), default=context.now)
    return Withheld(until=began + wait, lost_at=lost_at)


def taken(
    context: ReconcileContext, ledger: Ledger, why: Explanation, hurry: Explanation | None
) -> tuple[Ledger, Explanation]:
    """The restart is made now: the ledger with one more attempt in a row and the suspension for its backoff, and why.
    `hurry`: as in `withheld`."""
    # No person forced this attempt.
    number = ledger.attempts_in_row + 1
    ledger = msgspec.structs.replace(ledger.with_incident(forced=False), attempts_in_row=number)
    open_ = ledger.current_incident
    wait = budget.delay(open_.pinned, number)
    refused = suspension.refused(context, open_)
    if wait and refused is not None:
        if open_.withheld is None:
            why = explained(Sentence.NO_BACKOFF, why.reason, why=why, refused=refused, hurry=hurry or "")
        elif hurry is not None:
            why = explained(Sentence.BACKOFF_ENDS_EARLY, why.reason, why=why, hurry=hurry)
        wait = timedelta()
    elif wait:
        why = explained(Sentence.STAYS_SUSPENDED, why.reason, why=why, wait=in_words(wait), number=number)
    return suspension.until(context.now + wait, ledger, context.workload, begin=bool(wait)), why


def lives_on(snapshot: Snapshot, waits: Withheld) -> bool:
    """A Job that lost a member still exists. If none does, another client has restarted the group."""
    return any(job.created_at <= waits.lost_at for job in member_jobs(snapshot))


def all_met_after(snapshot: Snapshot, ledger: Ledger, lost: tuple[Evidence, ...]) -> bool:
    """The group runs whole, and all ranks have met since the last of these losses: a restart would only cost progress.

    Also False if one has no date, or if there are none. A restart that waits is for a loss that the ledger knows.
    """
    waits = ledger.incident is not None and ledger.incident.withheld is not None
    # The rule about a faulty node wants the group off that node, however often its ranks meet there.
    if not (lost or waits) or any(item.kind is LossKind.NODE_FAULT for item in lost):
        return False
    return met_since(snapshot, ledger, [item.at for item in lost])
