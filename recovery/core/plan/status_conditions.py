"""What `RecoveryGroup.status` shows people: columns and conditions, all derived from the ledger's own facts."""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.group_conditions import CRASH_LOOP, GroupCondition
from recovery.core.incident import budget
from recovery.core.incident.preconditions import paused
from recovery.core.incident.proofs import RECOVERY_PROVEN
from recovery.core.model.drill import DRILL_CLASS
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.group_totals import BudgetState
from recovery.core.model.ledger import ClosedIncident, Incident, Ledger, Phase
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.reason import Explanation, Reason
from recovery.core.model.standing import Standing
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from recovery.core.sentences import render
from recovery.core.sentences.standing import sentence_of

BUDGET_EXHAUSTED = "BudgetExhausted"
_PROVEN = {Reason.RECOVERY_PROVEN: "True", Reason.PROOF_EXPIRED: "False", Reason.PROOF_OUTDATED: "False"}
"""The status of the condition RecoveryProven by its reason. Any other reason leaves it Unknown."""


def summarise(
    ledger: Ledger,
    workload: WorkloadFacts,
    now: datetime,
    observed: tuple[GroupCondition, ...] | None = None,
    policy: Policy | PolicyError | None = None,
    proven: Explanation | None = None,
) -> Ledger:
    """The ledger with its columns and conditions up to date. The same facts give the same ledger.

    `observed`: the conditions that the pods show. None: the pods were not examined, and the known conditions stay.
    `policy`: its budget applies between incidents. An incident has pinned its own. Without a usable policy, the known
    budget stays.
    `proven`: what is known about the recovery of the group. None: that was not examined, and the known condition stays.
    """
    incident = ledger.incident
    open_ = incident if incident is not None and incident.closing is None else None
    last = ledger.history[0] if ledger.history else None
    shown = msgspec.structs.replace(ledger, next_attempt_at=_next_attempt_at(ledger, open_))
    if incident is not None:
        attempt = incident.attempt
        shown = msgspec.structs.replace(
            shown,
            cause=_cause(incident),
            action=str(attempt.action) if attempt is not None else "None",
            reason=incident.reason,
            message=incident.message,
            idle_gpus=incident.gpus_now if ledger.holds_gpus_idle else 0,
            budget=_pinned_budget(ledger.budget, incident, now),
        )
    elif last is not None:
        idle = ledger.broken.gpus if ledger.broken is not None else 0
        shown = msgspec.structs.replace(
            shown,
            cause=_cause(last),
            reason=last.reason,
            message=last.message,
            idle_gpus=idle,
        )
    terms = _of_policy(ledger, policy)
    if terms is not None:
        left = _budget(ledger.budget, terms.budget_limit, terms.budget_window, now)
        shown = msgspec.structs.replace(shown, budget=left)
    own = (
        *_conditions(shown, open_, workload, now, exhausted=_exhausted(shown, open_, terms)),
        *_about_proof(shown, proven, now),
    )
    return msgspec.structs.replace(shown, conditions=(*own, *_observed(shown, own, observed, now)))


def _cause(incident: Incident | ClosedIncident) -> str:
    """The cause in the column. No one who looks at the columns should take a drill for a failure."""
    return DRILL_CLASS if incident.drill is not None else incident.cause


def _next_attempt_at(ledger: Ledger, open_: Incident | None) -> datetime | None:
    if open_ is None:
        return None
    if open_.suspension is not None and open_.suspension.until is not None:
        # No one knows when there will be room.
        return None if open_.suspension.for_room else open_.suspension.until
    if open_.step.withheld:
        # A loss that has ended by itself needs no restart, so none is announced.
        return None if open_.reason is Reason.MEMBERS_RUN_AGAIN else open_.step.until
    return ledger.next_attempt_at if ledger.phase is Phase.HELD else None


def budget_has_news(ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> bool:
    """Between incidents: the ledger does not show what the policy's budget allows now, because its limit has changed or
    its window has moved."""
    terms = _of_policy(ledger, policy)
    if terms is None:
        return False
    left = budget.remaining(ledger.budget, terms.budget_limit, terms.budget_window, now)
    return ledger.budget.limit != terms.budget_limit or _said_exhausted(ledger) != (left == 0)


def proof_has_news(ledger: Ledger, proven: Explanation | None) -> bool:
    """Between incidents: the ledger has a proof, and does not show what is known about it now."""
    if ledger.proof is None or proven is None:
        return False
    said = next((each for each in ledger.conditions if each.type == RECOVERY_PROVEN), None)
    return said is None or (said.reason, said.message) != (proven.reason, render(proven))


def _about_proof(ledger: Ledger, proven: Explanation | None, now: datetime) -> tuple[LedgerCondition, ...]:
    known = next((each for each in ledger.conditions if each.type == RECOVERY_PROVEN), None)
    if proven is None:
        return (known,) if known is not None else ()
    status = _PROVEN.get(proven.reason, "Unknown")
    return (_condition(known, RECOVERY_PROVEN, status, str(proven.reason), render(proven), now),)


def _of_policy(ledger: Ledger, policy: Policy | PolicyError | None) -> Policy | None:
    """The policy whose terms apply to the budget. None: an incident has pinned other terms, no incident can have been
    charged yet, or no policy can be used."""
    if ledger.incident is not None or not ledger.totals.incidents:
        return None
    return policy if isinstance(policy, Policy) else None


def in_crash_loop(ledger: Ledger) -> bool:
    """Others restart the group more often than its budget allows, as of the latest write."""
    return _says(ledger, CRASH_LOOP)


def is_proven(ledger: Ledger) -> bool:
    """A recovery proves that the group recovers, as of the latest write."""
    return _says(ledger, RECOVERY_PROVEN)


def _said_exhausted(ledger: Ledger) -> bool:
    return _says(ledger, BUDGET_EXHAUSTED)


def _says(ledger: Ledger, type_: str) -> bool:
    return any((each.type, each.status) == (type_, "True") for each in ledger.conditions)


def _exhausted(ledger: Ledger, open_: Incident | None, terms: Policy | None) -> bool:
    """The budget is exhausted, except for an open incident that was charged: it continues, unless it is held.

    `terms` None: no terms of the policy apply.
    """
    if ledger.incident is None and terms is None:
        return _said_exhausted(ledger)
    goes_on = open_ is not None and open_.charged and ledger.phase is not Phase.HELD
    return ledger.budget.remaining == 0 and not goes_on


def _pinned_budget(state: BudgetState, incident: Incident, now: datetime) -> BudgetState:
    window = timedelta(seconds=incident.pinned.budget_window_seconds)
    return _budget(state, incident.pinned.budget_limit, window, now)


def _budget(state: BudgetState, limit: int, window: timedelta, now: datetime) -> BudgetState:
    charges = budget.in_window(state, window, now)
    return msgspec.structs.replace(state, charges=charges, limit=limit, remaining=max(0, limit - len(charges)))


def _conditions(
    ledger: Ledger, open_: Incident | None, workload: WorkloadFacts, now: datetime, *, exhausted: bool
) -> tuple[LedgerCondition, ...]:
    held = ledger.phase is Phase.HELD
    is_paused = paused(workload)
    broken = ledger.broken if open_ is None else None
    healthy = "IncidentOpen" if open_ is not None else "NoIncident" if broken is None else Standing.BROKEN
    wanted = (
        ("Healthy", healthy == "NoIncident", healthy),
        ("Recovering", open_ is not None and not held, ledger.phase if open_ is not None else "NoIncident"),
        (BUDGET_EXHAUSTED, exhausted, "LimitReached" if exhausted else "BudgetLeft"),
        ("Paused", is_paused, "Annotation" if is_paused else "NotPaused"),
    )
    known = {condition.type: condition for condition in ledger.conditions}
    message = open_.message if open_ is not None else sentence_of(broken) if broken is not None else ""
    return tuple(
        _condition(known.get(type_), type_, "True" if holds else "False", str(reason), message, now)
        for type_, holds, reason in wanted
    )


def _observed(
    ledger: Ledger, own: tuple[LedgerCondition, ...], observed: tuple[GroupCondition, ...] | None, now: datetime
) -> tuple[LedgerCondition, ...]:
    """The conditions that the pods show. One that was never true is not listed. One that no longer holds is False."""
    ours = {condition.type for condition in own}
    known = {condition.type: condition for condition in ledger.conditions if condition.type not in ours}
    if observed is None:
        return tuple(known.values())
    holds = {condition.type: condition for condition in observed}
    return tuple(
        _condition(known.get(type_), type_, "True", holds[type_].reason, holds[type_].message, now)
        if type_ in holds
        else _condition(known[type_], type_, "False", "NotObserved", "", now)
        for type_ in sorted({*known, *holds})
    )


def _condition(
    before: LedgerCondition | None, type_: str, status: str, reason: str, message: str, now: datetime
) -> LedgerCondition:
    since = before.last_transition_time if before is not None and before.status == status else now
    return LedgerCondition(type=type_, status=status, reason=reason, message=message, last_transition_time=since)
