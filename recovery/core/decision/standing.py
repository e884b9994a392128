"""Keeps the standing of a group in its ledger, whatever else a reconcile decides.

The phase says where the pods are, and the standing whether the program trains. They differ where all pods are Ready and
the ranks hang.
"""

from datetime import datetime

import msgspec

from recovery.core.decision import training_steps
from recovery.core.diagnosis.meeting import CLOCKS_DIFFER_BY, Meeting
from recovery.core.incident import phases
from recovery.core.incident.preconditions import ended, needs_force
from recovery.core.incident.standing import (
    broken_later,
    just_closed,
    left_broken,
    meeting_of,
    no_longer_broken,
    noted_loss,
)
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.model.standing import Standing
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import message_of
from recovery.core.policy.resolved import Policy

_NOT_HUNG = frozenset({Standing.FORMING, Standing.MET})
"""What ends a break. Unknown alone does not: the node of the ranks that hang may have fallen silent."""


def followed(context: ReconcileContext, before: Ledger, plan: Plan) -> Plan:
    """The plan whose ledger has the standing as of this reconcile, and the step that its training has reached."""
    after = plan.ledger
    if after == Ledger():
        return plan  # a group that never had an incident has no ledger
    found = meeting_of(context.snapshot, after)
    runs = _runs(context)
    standing = found.standing if runs else Standing.FORMING
    if just_closed(before, after) is not None:
        if standing is Standing.BROKEN:
            why = because(Reason.RANKS_HANG, hung=found.hung, ranks=after.current_incident.ranks)
            after = left_broken(after, found, message_of(why))
    elif after.broken is not None and (standing in _NOT_HUNG or _heals_itself(found) or _opens(after)):
        after = no_longer_broken(after, context.workload.uid, _over_at(context, after, found))
    elif after.broken is None and standing is Standing.BROKEN and after.incident is None:
        after = broken_later(after, context.snapshot, found, context.now)
    if standing is Standing.BROKEN and after.broken is None and not _opens(after):
        standing = Standing.UNKNOWN  # no incident witnessed the loss: see the condition EarlierLoss
    is_written = plan.ledger != before or after.broken != before.broken
    if is_written or standing is not before.standing:
        after = msgspec.structs.replace(after, standing=standing, met_at=_met_at(after, found, context.now))
        after = noted_loss(after, found) if runs else after
    message = after.incident.message if after.broken != before.broken and after.incident is not None else plan.message
    return training_steps.noted(context, before, msgspec.structs.replace(plan, ledger=after, message=message))


def still_broken(context: ReconcileContext, ledger: Ledger) -> Explanation | None:
    """Why nothing is done about a group that hangs between incidents. None: it does not hang."""
    broken = ledger.broken
    if broken is None:
        return None
    forced = isinstance(context.policy, Policy) and needs_force(context.workload, context.policy)
    return because(
        Reason.STILL_BROKEN,
        incident=broken.incident,
        loss=broken.message,
        job=context.workload.name,
        forced=int(forced),
    )


def _runs(context: ReconcileContext) -> bool:
    """The group may train: its workload has neither ended nor been suspended, and its JobSet is not terminal."""
    workload, jobset = context.workload, context.snapshot.jobset
    if ended(workload) is not None or workload.suspended or jobset is None or jobset.deleting_since is not None:
        return False
    return not jobset.suspended and not jobset.terminal_state


def _met_at(after: Ledger, found: Meeting, now: datetime) -> datetime | None:
    """When the ranks last met, for the ledger. A report of progress may have a date in the future. It would hide each
    break until then, also once a later report has another date."""
    known = found.met_at is not None and found.met_at <= now + CLOCKS_DIFFER_BY
    return found.met_at if known else after.met_at


def _heals_itself(found: Meeting) -> bool:
    """Ranks wait for one that ended, and the program is none whose ranks hang then. A user may say so only after the
    group was called Broken."""
    return bool(found.hanging) and found.standing is not Standing.BROKEN


def _opens(after: Ledger) -> bool:
    """An incident is open, and accounts for the time from its beginning on."""
    return after.incident is not None and after.incident.closing is None


def _over_at(context: ReconcileContext, after: Ledger, found: Meeting) -> datetime:
    """When no rank hung any more, as far as the facts date it. A delayed controller sees it late."""
    if _opens(after):
        return after.current_incident.started_at
    if _heals_itself(found):
        return context.now  # what was counted before does not fall
    ended = (context.workload.condition(each) for each in ("Complete", "Failed"))
    dates = [each.since for each in ended if each is not None and each.since is not None]
    if found.standing is Standing.MET and found.met_at is not None:
        dates.append(found.met_at)
    if found.standing is Standing.FORMING and found.over_at is not None:
        # The next incident begins with these ends, and no second is booked twice.
        return min(found.over_at, context.now)
    return phases.within_second(min(dates), context.now) if dates else context.now
