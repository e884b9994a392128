"""The lines of `explain` about whether the program of a job trains."""

from collections.abc import Iterator

from recovery.cli.formatting import moment
from recovery.core.diagnosis.meeting import Meeting
from recovery.core.diagnosis.membership import place, rank
from recovery.core.incident.standing import meeting_of
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Broken, Standing
from recovery.core.plan.actions import Plan
from recovery.core.sentences.protection import remedy
from recovery.core.sentences.text import and_more

_NAMED_MAX = 3
"""Hanging ranks that are named. All of them wait for the same rank."""

_WORDS = {
    Standing.FORMING: "its processes have not all met yet, and none hangs",
    Standing.MET: "all ranks have met, and none has ended since",
    Standing.BROKEN: "a rank ended, and the ranks that had met it hang",
}


def standing_lines(standing: Standing | None, snapshot: Snapshot, ledger: Ledger, found: Protection) -> Iterator[str]:
    """Whether the program trains. No line: the ledger does not say, or the job is not meant to run.

    `standing`: as `status` shows it. `found`: whether the job is protected.
    """
    if standing is None:
        return
    broken, meeting = _hangs(ledger), meeting_of(snapshot, ledger)
    if broken is not None:
        yield f"the group has been {Standing.BROKEN} since {moment(broken.since)}{_loss_words(broken.message, meeting)}"
        yield from _hanging_lines(meeting)
    elif found.reason is ProtectionReason.NODE_SILENT:
        yield f"standing {Standing.UNKNOWN}: {found.detail}"
    elif standing is Standing.BROKEN and meeting.broken_since is not None and meeting.hanging:
        evidence = ledger.incident.evidence if ledger.incident is not None else ()
        since = moment(meeting.broken_since)
        yield f"standing {standing} since {since}{_loss_words(evidence[0] if evidence else '', meeting)}"
        yield from _hanging_lines(meeting)
    elif standing in _WORDS:
        yield f"standing {standing}: {_WORDS[standing]}"


def decision_message(plan: Plan, ledger: Ledger, found: Protection) -> str:
    """The sentence of the decision. That a silent node is no failure yet does not matter to a group that hangs."""
    if _hangs(ledger) is None or plan.reason is not Reason.NODE_SILENT:
        return plan.message
    return f"nothing: the group hangs, and a node is silent. {remedy(found)}".rstrip()


def _hangs(ledger: Ledger) -> Broken | None:
    """Since when the group hangs between incidents. None: it does not, or an incident is open."""
    open_ = ledger.incident is not None and ledger.incident.closing is None
    return None if open_ else ledger.broken


def _loss_words(loss: str, meeting: Meeting) -> str:
    """Which rank was lost, as the incident's evidence names it, and how many others hang. `loss` empty: not known."""
    hung = meeting.hung
    ranks = f"{hung} ranks still run and hang" if hung != 1 else "1 rank still runs and hangs"
    words = "; ".join(part for part in (loss.strip().removesuffix("."), ranks if hung else "") if part)
    return f": {words}" if words else ""


def _hanging_lines(meeting: Meeting) -> Iterator[str]:
    """The ranks that hang, by Job and rank. No line: none does."""
    pods = sorted(meeting.hanging, key=lambda pod: (pod.job_uid, rank(pod)))
    if pods:
        named = ", ".join(map(place, pods[:_NAMED_MAX]))
        yield f"hanging: {named}{and_more(max(0, len(pods) - _NAMED_MAX))}"
