"""What must hold between any two ledgers of one group that are written one after the other, whatever happened.

The reconciler checks this before each write, so that a bug in a decision does not reach the cluster. The tests check it
after each decision. Every sentence begins with the name of the broken invariant.
"""

from datetime import datetime
from itertools import pairwise

import msgspec

from recovery.core.incident.evidence_counts import MAX_EVIDENCE_COUNTS
from recovery.core.incident.lifecycle import MAX_ATTEMPTS, MAX_EVIDENCE, MAX_HANDLED, MAX_HISTORY, MAX_UNCOUNTED
from recovery.core.incident.phases import MAX_SPANS
from recovery.core.incident.requests import Verb
from recovery.core.incident.steps import contradictions
from recovery.core.incident.transitions import ALLOWED_NEXT, ATTEMPTS, BY_RESTART, ending_of, taken
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import (
    RESIZES,
    Attempt,
    AttemptAction,
    ClosedIncident,
    Closing,
    Incident,
    Ledger,
    Phase,
)
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.core.policy.spec import Mode

_ROUNDING_GPU_SECONDS = 0.01
"""Spans are booked in thousandths. Rounding errors add up in merged spans and in totals."""


def violations(before: Ledger, after: Ledger) -> tuple[str, ...]:
    """A sentence for each invariant that would break if `after` replaced `before`. Empty: none would."""
    found = [
        *_totals(before, after),
        *_epoch(before, after),
        *_charges(before, after),
        *_drills(before, after),
        *_identity(before, after),
        *_history(before, after),
        *_bounds(after),
        *_broken(before, after),
    ]
    if after.incident is not None:
        found += [*_phases(after, after.incident), *_attempts(after, after.incident)]
        found += _state_machine(before, after, after.incident)
        found += contradictions(after)
    elif after.phase is not Phase.HEALTHY:
        found.append(f"Phase: {after.phase} without an incident")
    return tuple(found)


def _same(before: Ledger, after: Ledger) -> Incident | None:
    """The incident of `before`, if `after` still has it."""
    if before.incident is None or after.incident is None or before.incident.id != after.incident.id:
        return None
    return before.incident


def _totals(before: Ledger, after: Ledger) -> list[str]:
    """Totals never fall, because counters in /metrics come from them. They rise by what the spans book."""
    old, new = before.totals, after.totals
    counts: list[tuple[str, float, float]] = [
        ("incidents", old.incidents, new.incidents),
        ("restarts", old.restarts, new.restarts),
        ("restarts after drills", old.drill_restarts, new.drill_restarts),
        ("charged", old.charged, new.charged),
        *((f"failures of {key}", value, new.failures.get(key, 0)) for key, value in old.failures.items()),
        ("restarts that Enforce would have made", old.enforce_estimate.restarts, new.enforce_estimate.restarts),
        ("released GPU-seconds", old.released_gpu_seconds, new.released_gpu_seconds),
        ("seconds with fewer nodes", old.reduced_seconds, new.reduced_seconds),
        ("gained GPU-seconds", old.gained_gpu_seconds, new.gained_gpu_seconds),
        *((f"idle in {key}", value, new.idle_gpu_seconds.get(key, 0)) for key, value in old.idle_gpu_seconds.items()),
        *(
            (f"idle of {key} in {phase}", value, new.idle_gpu_seconds_by_class.get(key, {}).get(phase, 0))
            for key, of_class in old.idle_gpu_seconds_by_class.items()
            for phase, value in of_class.items()
        ),
    ]
    found = [f"MonotoneTotals: {what} falls from {was} to {is_}" for what, was, is_ in counts if is_ < was]
    booked = sum(new.idle_gpu_seconds.values()) - sum(old.idle_gpu_seconds.values())
    of_classes = _of_classes(new) - _of_classes(old)
    if abs(booked - of_classes) > _ROUNDING_GPU_SECONDS:
        found.append(f"IdleByClass: the totals rise by {booked} GPU-seconds by phase, by {of_classes} by class")
    hung = new.idle_gpu_seconds.get(BROKEN_SECONDS, 0.0) - old.idle_gpu_seconds.get(BROKEN_SECONDS, 0.0)
    found += _booked_broken(before, after, hung)
    booked -= hung
    same = _same(before, after)
    spent = _idle(after.incident) - _idle(same)
    if after.incident is not None and abs(booked - spent) > _ROUNDING_GPU_SECONDS:
        found.append(f"IdleBooked: the totals rise by {booked} GPU-seconds, the spans by {spent}")
    if after.incident is None and booked > _ROUNDING_GPU_SECONDS:
        found.append(f"IdleBooked: the totals rise by {booked} GPU-seconds without an incident")
    released, freed = new.released_gpu_seconds - old.released_gpu_seconds, _released(after.incident) - _released(same)
    if abs(released - (freed if after.incident is not None else 0.0)) > _ROUNDING_GPU_SECONDS:
        found.append(f"ReleasedBooked: the totals rise by {released} GPU-seconds, the spans by {freed}")
    return found


def _booked_broken(before: Ledger, after: Ledger, hung: float) -> list[str]:
    """What the totals rise by for a group that hung between incidents. It is booked when that ends, and up to the
    failure of the next incident at most, so that no second counts twice."""
    broken, opened = before.broken, after.incident
    if broken is None or after.broken is not None:
        most = 0.0
    elif opened is not None and _same(before, after) is None:
        most = (opened.started_at - broken.booked_from).total_seconds() * broken.gpus
    else:
        return []  # only the clock knows when it ended
    if hung <= max(0.0, most) + _ROUNDING_GPU_SECONDS:
        return []
    return [f"BrokenBooked: the totals rise by {hung} GPU-seconds of a group that hangs, of at most {most}"]


def _idle(incident: Incident | None) -> float:
    return sum(span.idle_gpu_seconds for span in incident.phases) if incident is not None else 0.0


def _of_classes(totals: Totals) -> float:
    return sum(seconds for of_class in totals.idle_gpu_seconds_by_class.values() for seconds in of_class.values())


def _released(incident: Incident | None) -> float:
    return sum(span.released_gpu_seconds for span in incident.phases) if incident is not None else 0.0


def _epoch(before: Ledger, after: Ledger) -> list[str]:
    """The epoch is the fencing token. Each restart, ours or adopted, raises it by one; a write has one at most."""
    rise = after.epoch - before.epoch
    if rise not in {0, 1}:
        return [f"Epoch: goes from {before.epoch} to {after.epoch} in one write"]
    known = _same(before, after)
    last = known.attempt.number if known is not None and known.attempt is not None else 0
    attempts = after.incident.attempts if after.incident is not None else ()
    added = sum(1 for attempt in attempts if attempt.number > last and attempt.action is not AttemptAction.NONE)
    if rise != added:
        return [f"Epoch: rises by {rise}, but {added} restart attempts were added"]
    if after.totals.restarts - before.totals.restarts != rise:
        return [f"Epoch: rises by {rise}, but the restarts go from {before.totals.restarts} to {after.totals.restarts}"]
    return []


def _charges(before: Ledger, after: Ledger) -> list[str]:
    """An incident is charged at most once, and no charge exceeds the limit of the budget."""
    found = []
    if after.budget.remaining < 0:
        found.append(f"Budget: {after.budget.remaining} remaining")
    known, now = _same(before, after), after.incident
    was_charged = known is not None and known.charged
    is_charged = now is not None and now.charged
    if was_charged and not is_charged:
        found.append("OneCharge: the charge of an incident is forgotten")
    charged = 1 if is_charged and not was_charged else 0
    if after.totals.charged - before.totals.charged != charged:
        rise = after.totals.charged - before.totals.charged
        found.append(f"OneCharge: {rise} charges are counted, {charged} belong to an incident that had none")
    if now is not None and now.suspension is not None and (now.closing is not None or now.mode != Mode.ENFORCE):
        found.append(f"Suspension: incident {now.id} is {'closed' if now.closing is not None else 'only observed'}")
    if known is not None and now is not None and known.resumed_by_others:
        if not now.resumed_by_others:
            found.append(f"Suspension: the ledger forgets that another client has resumed incident {now.id}")
        if now.suspension is not None:
            found.append(f"Suspension: incident {now.id} wants what another client has ended")
    fresh = [charge for charge in after.budget.charges if charge not in before.budget.charges]
    if len(fresh) > charged:
        found.append(f"OneCharge: {len(fresh)} charges are entered, {charged} belong to an incident that had none")
    if now is not None and charged and len(after.budget.charges) > now.pinned.budget_limit:
        found.append(f"BudgetLimit: {len(after.budget.charges)} charges against a limit of {now.pinned.budget_limit}")
    return found


def _drills(before: Ledger, after: Ledger) -> list[str]:
    """A restart that repairs what a drill has caused belongs to an incident of a drill, and costs no budget."""
    known, now = _same(before, after), after.incident
    rise = after.totals.drill_restarts - before.totals.drill_restarts
    if now is None:
        return [f"Drill: {rise} restarts of drills are counted without an incident"] if rise else []
    found = []
    if now.drill_restarts > (now.restarts if now.drill is not None else 0):
        found.append(f"Drill: incident {now.id} has {now.drill_restarts} restarts of drills, of {now.restarts}")
    made = now.drill_restarts - (known.drill_restarts if known is not None else 0)
    if made != rise:
        found.append(f"Drill: {rise} restarts of drills are counted, incident {now.id} has made {made}")
    was_charged = known is not None and known.charged
    if made > 0 and now.charged and not was_charged:
        found.append(f"Drill: incident {now.id} is charged for a restart that repairs what its drill has caused")
    return found


def _identity(before: Ledger, after: Ledger) -> list[str]:
    """An incident closes before the next one opens. What was fixed when it opened does not change."""
    old, new = before.incident, after.incident
    if old is None:
        if new is not None and (new.number != before.totals.incidents + 1 or after.totals.incidents != new.number):
            return [f"IncidentNumber: {new.number} after {before.totals.incidents} incidents"]
        return []
    if old.closing is not None:
        if new is None:
            newest = after.history[0].id if after.history else "none"
            return [] if newest == old.id else [f"ClosedIsRecorded: {old.id} is forgotten, the newest is {newest}"]
        return [] if new == old else [f"ClosedIsFinal: the closed incident {old.id} is changed"]
    if new is None or new.id != old.id:
        return [f"ClosesFirst: the open incident {old.id} gives way to {new.id if new is not None else 'none'}"]
    fixed = ["number", "started_at", "detected_at", "mode", "pinned", "gpus", "disruption_class", "cause", "drill"]
    if after.epoch == before.epoch or not RESIZES & {attempt.action for attempt in new.attempts}:
        fixed.append("ranks")
    return [
        f"Pinned: {name} of incident {old.id} is changed" for name in fixed if getattr(old, name) != getattr(new, name)
    ]


def _history(before: Ledger, after: Ledger) -> list[str]:
    if after.history == before.history:
        return []
    begins = before.broken is None and after.broken is not None and bool(before.history)
    if begins and after.history == (msgspec.structs.replace(before.history[0], still_broken=True), *before.history[1:]):
        return []
    if before.incident is None or before.incident.closing is None or after.incident is not None:
        return ["History: it changes although no closed incident is put away"]
    if after.history[1:] != before.history[: MAX_HISTORY - 1]:
        return ["History: an earlier incident is changed or dropped"]
    return []


def _broken(before: Ledger, after: Ledger) -> list[str]:
    """A group is Broken between incidents only while the last one says so, until the next one opens. It says so when it
    closes, or later."""
    broken, incident = after.broken, after.incident
    if broken is None:
        return []
    if incident is not None and incident.closing is None:
        return [f"Broken: incident {incident.id} is open"]
    if before.broken is not None:
        return [] if broken == before.broken else ["Broken: it changes without an end"]
    last = _last_closed(after)
    if last is None or not last.still_broken or last.ended_at > broken.booked_from:
        return ["Broken: no incident closes with ranks that hang"]
    return []


def _last_closed(ledger: Ledger) -> Closing | ClosedIncident | None:
    """The last incident that has closed, put away or not."""
    closing = ledger.incident.closing if ledger.incident is not None else None
    return closing if closing is not None else next(iter(ledger.history), None)


def _bounds(after: Ledger) -> list[str]:
    """Status is part of an API object: nothing in it may grow without bound with time or with the size of a group."""
    sizes = [
        ("history", len(after.history), MAX_HISTORY),
        ("handled evidence", len(after.handled.keys), MAX_HANDLED),
        ("answered requests", len(after.requests), len(Verb)),
        ("uncounted incidents", len(after.uncounted), MAX_UNCOUNTED),
    ]
    if after.incident is not None:
        sizes += [
            ("attempts", len(after.incident.attempts), MAX_ATTEMPTS),
            ("evidence", len(after.incident.evidence), MAX_EVIDENCE),
            ("evidence counts", len(after.incident.evidence_counts), 2 * MAX_EVIDENCE_COUNTS),
            ("phases", len(after.incident.phases), MAX_SPANS),
        ]
    return [f"Bounded: {size} items of {what}, at most {limit}" for what, size, limit in sizes if size > limit]


def _phases(after: Ledger, incident: Incident) -> list[str]:
    spans, closing = incident.phases, incident.closing
    if not spans:
        return [f"Phases: incident {incident.id} has none"]
    found = []
    if spans[0].started_at != incident.started_at:
        found.append(f"Phases: the first begins at {spans[0].started_at}, the failure was at {incident.started_at}")
    found += [
        f"Phases: {one.phase} ends at {one.ended_at}, {other.phase} begins at {other.started_at}"
        for one, other in pairwise(spans)
        if one.ended_at != other.started_at
    ]
    for span in spans:
        if span.ended_at is None:
            continue
        seconds = (span.ended_at - span.started_at).total_seconds()
        if seconds < 0:
            found.append(f"Phases: {span.phase} lasts {seconds} s")
        booked = span.idle_gpu_seconds + span.released_gpu_seconds
        if span is spans[0] and len(spans) >= MAX_SPANS:
            continue  # it may be several merged spans, in which the group had different sizes
        gpus = incident.gpus_in(span)
        if abs(seconds * gpus - booked) > _ROUNDING_GPU_SECONDS * MAX_SPANS:
            found.append(f"IdleBooked: {booked} GPU-seconds for {seconds} s of {gpus} GPUs")
    return [*found, *_end(after, spans[-1].ended_at, spans[-1].phase, closing.ended_at if closing else None)]


def _end(after: Ledger, last_end: datetime | None, last: Phase, closed_at: datetime | None) -> list[str]:
    """Open: the last phase has no end and is the group's. Closed: both ended together, and the group is Healthy."""
    if last_end != closed_at:
        return [f"Phases: the last one ends at {last_end}, the incident at {closed_at}"]
    expected = last if closed_at is None else Phase.HEALTHY
    return [] if after.phase is expected else [f"Phase: the group is {after.phase}, its incident {expected}"]


def _attempts(after: Ledger, incident: Incident) -> list[str]:
    found = [
        f"Attempts: {other.number} of epoch {other.epoch} follows {one.number} of epoch {one.epoch}"
        for one, other in pairwise(incident.attempts)
        if other.number <= one.number or other.epoch < one.epoch
    ]
    restarts = [attempt for attempt in incident.attempts if attempt.action is not AttemptAction.NONE]
    if restarts and restarts[-1].epoch != after.epoch:
        found.append(f"Epoch: it is {after.epoch}, the latest restart was of {restarts[-1].epoch}")
    target, latest = incident.target, restarts[-1].action if restarts else None
    recreated = latest is AttemptAction.RECREATE_JOB_SET  # its Jobs may be gone
    if restarts and not (target.job_set_uid and (target.job_uids or target.epoch or recreated)):
        found.append(f"Target: incident {incident.id} has restarted a group without naming its Jobs or its epoch")
    if bool(target.epoch) != (latest is AttemptAction.RESTART_IN_PLACE) or (target.epoch and target.job_uids):
        found.append(f"Target: incident {incident.id} names the epoch {target.epoch!r} for the action {latest}")
    return found


# --- the state machine: the tables of `transitions` ------------------------------------------------------------------


def _state_machine(before: Ledger, after: Ledger, incident: Incident) -> list[str]:
    """Phases, attempts and the ending follow their tables. What the ledger already held is not checked again."""
    known = _same(before, after)
    if known is not None and known.closing is not None:
        return []
    return [
        *_transitions(known, incident, restarted=after.epoch > before.epoch),
        *_attempt_lives(known, after, incident),
        *_ending(incident),
    ]


def _transitions(known: Incident | None, incident: Incident, *, restarted: bool) -> list[str]:
    found = []
    for source, target in taken(known, incident):
        if target not in ALLOWED_NEXT[source]:
            found.append(f"Transition: {target} does not follow {source}")
        elif (source, target) in BY_RESTART and not restarted:
            found.append(f"Transition: {target} follows {source} only by a restart")
    return found


def _attempt_lives(known: Incident | None, after: Ledger, incident: Incident) -> list[str]:
    stood = {attempt.number: attempt for attempt in known.attempts} if known is not None else {}
    latest = max(stood, default=0)
    found: list[str] = []
    for attempt in incident.attempts:
        was = stood.get(attempt.number)
        if was is not None:
            found += _changed(was, attempt, incident)
        elif attempt.number > latest:
            found += _begun(attempt, after, incident)
    return found


def _begun(attempt: Attempt, after: Ledger, incident: Incident) -> list[str]:
    life, name = ATTEMPTS[attempt.action], f"Attempts: {attempt.number} ({attempt.action})"
    found = []
    if incident.mode not in life.modes:
        found.append(f"{name} begins in an incident of mode {incident.mode}")
    if after.phase not in life.begins_in:
        found.append(f"{name} begins in phase {after.phase}")
    earlier = [each for each in incident.attempts if each.number < attempt.number]
    left_alone = {each.action for each in (*earlier, attempt)} == {AttemptAction.NONE}
    if earlier and left_alone:  # it would only repeat the one before it
        found.append(f"{name} follows {earlier[-1].number} without a restart")
    return found


def _changed(was: Attempt, attempt: Attempt, incident: Incident) -> list[str]:
    """An attempt in the ledger does not change, except for who made the restart and for its message."""
    name = f"Attempts: {was.number} ({was.action})"
    pinned = ("epoch", "started_at", "job_set_uid", "nodes")
    found = [f"{name} has another {each}" for each in pinned if getattr(was, each) != getattr(attempt, each)]
    if attempt.action is was.action:
        return found
    restarts = [each.number for each in incident.attempts if each.action is not AttemptAction.NONE]
    if attempt.action not in ATTEMPTS[was.action].becomes or attempt.number != restarts[-1]:
        found.append(f"{name} becomes {attempt.action}")
    return found


def _ending(incident: Incident) -> list[str]:
    closing = incident.closing
    if closing is None:
        return []
    ending, name = ending_of(closing.outcome, closing.outcome_reason), f"Ending: {closing.outcome}"
    if ending is None:
        return [f"{name} has the reason {closing.outcome_reason}"]
    found = []
    if incident.mode not in ending.modes:
        found.append(f"{name} ({ending.reason}) of an incident of mode {incident.mode}")
    if incident.phases and incident.phases[-1].phase not in ending.phases:
        found.append(f"{name} ({ending.reason}) from phase {incident.phases[-1].phase}")
    return found
