"""Whether the program of a group trains, by the timeline of its processes and by what the ledger knows of its losses.

An incident may close although ranks hang, because no one restarts them: its policy only observes, or the loss was left
to Kubernetes. The group is then *Broken* between incidents. Its GPUs are as idle as in an incident, and are booked.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from recovery.core.diagnosis.evidence import gather
from recovery.core.diagnosis.meeting import Meeting, meet
from recovery.core.diagnosis.membership import group_runs_whole
from recovery.core.diagnosis.processes import processes_of
from recovery.core.incident import phases
from recovery.core.incident.closed_incident import totals_of_broken
from recovery.core.incident.lifecycle import owing, restarted, size_of
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Incident, Ledger, MessageRelation
from recovery.core.model.standing import BROKEN_SECONDS, Broken, Standing


def meeting_of(snapshot: Snapshot, ledger: Ledger) -> Meeting:
    """Who met whom, as the facts and the ledger show it."""
    return meet(_without_restarted(snapshot, ledger), _lost_at(ledger), _hung_of(ledger))


def _without_restarted(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """The snapshot without the gone Jobs that the restart of the open incident has replaced. JobSet creates the Jobs of
    a group one by one, so the first new one may train before the last old one is gone. Their ranks never met."""
    if ledger.incident is None or not snapshot.gone_jobs or not restarted(ledger):
        return snapshot
    replaced = frozenset(ledger.incident.target.job_uids)
    left = tuple(job for job in snapshot.gone_jobs if job.uid not in replaced)
    return msgspec.structs.replace(snapshot, gone_jobs=left)


def hangs(snapshot: Snapshot, ledger: Ledger) -> bool:
    """Ranks hang, or will hang as soon as a rank has ended that was asked to terminate."""
    found = meeting_of(snapshot, ledger)
    return found.standing is Standing.BROKEN or found.leaves_at is not None


def met_since(snapshot: Snapshot, ledger: Ledger, losses: Iterable[datetime | None]) -> bool:
    """The group runs whole, and all ranks have met since the last of these losses. False if one has no date."""
    if not group_runs_whole(snapshot):
        return False
    found = meeting_of(snapshot, ledger)
    met_at = found.met_at
    if found.standing is not Standing.MET or met_at is None:
        return False
    return all(loss is not None and loss <= met_at for loss in losses)


def _lost_at(ledger: Ledger) -> datetime | None:
    """Since when ranks of the present group hang, by the ledger. A new leader may see no trace of the rank that they
    wait for. None: none was seen to hang."""
    if ledger.incident is None:
        return ledger.broken.since if ledger.broken is not None else None
    return ledger.incident.lost_at if _is_about_present(ledger) else None


def noted_loss(ledger: Ledger, found: Meeting) -> Ledger:
    """The ledger of an open incident, with the moment since which ranks hang, or will hang, if the timeline shows one.

    The date of the evidence does not serve. A loss that is only inferred has none, and the moment at which a controller
    notices it may lie after the restart of the others, which have then met no one.
    """
    lost_at = found.broken_since or found.leaves_at
    if ledger.incident is None or lost_at is None or not _is_about_present(ledger):
        return ledger
    return ledger.with_incident(lost_at=lost_at)


def _is_about_present(ledger: Ledger) -> bool:
    """The losses of the open incident are losses of the present processes. Those before a restart are not."""
    return ledger.current_incident.step.withheld or not restarted(ledger)


def _hung_of(ledger: Ledger) -> int:
    """How many ranks the group had when it lost one, if others hang since. 0: they do not."""
    if ledger.broken is not None:
        return ledger.broken.ranks
    return ledger.incident.ranks if ledger.incident is not None and ledger.standing is Standing.BROKEN else 0


def left_broken(ledger: Ledger, found: Meeting, hang: str) -> Ledger:
    """The ledger whose incident has just closed although ranks hang. `hang`: that they do, as a sentence."""
    incident = ledger.current_incident
    assert incident.closing is not None, "the incident has just closed"
    assert found.broken_since is not None, "ranks hang since a loss"
    broken = Broken(
        since=found.broken_since,
        # The incident may end when all pods were Ready, while the lost rank still trained to its end in its old pod.
        booked_from=max(incident.closing.ended_at, found.broken_since),
        incident=incident.id,
        disruption_class=incident.booked_class,
        gpus=incident.gpus_now,
        ranks=incident.ranks,
        message=incident.evidence[0],
    )
    closing = msgspec.structs.replace(incident.closing, still_broken=True)
    said = f"{incident.message}; {hang}"
    noted = ledger.with_incident(closing=closing, message=said, message_relation=MessageRelation.ELSE)
    return msgspec.structs.replace(noted, broken=broken)


def broken_later(ledger: Ledger, snapshot: Snapshot, found: Meeting, now: datetime) -> Ledger:
    """The ledger of a group that hangs, and was not Broken when its last incident closed, or is not any more.

    A rank that the incident counted as lost ended only then: its pod trained on, on a node that did not answer. Or a
    user has said meanwhile that the program heals itself, and takes that back.

    The same ledger if no incident was about that rank, so that no one witnessed its loss.
    """
    broken_since, met_at, closed_at = found.broken_since, found.met_at, ledger.handled.until
    if broken_since is None or met_at is None or closed_at is None or not ledger.history:
        return ledger
    if ledger.met_at is None:
        return ledger  # no write has seen the ranks meet, and no object shows whether they have met since the loss
    handled = (
        (item, item.pod) for item in gather(snapshot) if item.key in ledger.handled.keys and item.pod is not None
    )
    losses = [
        (each.ended, item.text)
        for item, pod in handled
        for each in processes_of(pod)
        if each.ended is not None and each.began <= met_at and each.ended >= broken_since
    ]
    if not losses:
        return ledger
    (since, loss), closed = min(losses), ledger.history[0]
    ended_later = since >= closed_at.replace(microsecond=0)
    ranks, gpus = size_of(snapshot)
    broken = Broken(
        since=since,
        # What a user has said until now holds for the time until now. It may also be booked already.
        booked_from=max(closed.ended_at, since if ended_later and not closed.still_broken else now),
        incident=closed.id,
        disruption_class=closed.booked_class,
        gpus=gpus,
        ranks=ranks,
        message=loss,
    )
    hung = msgspec.structs.replace(closed, still_broken=True)
    return msgspec.structs.replace(ledger, broken=broken, history=(hung, *ledger.history[1:]))


def no_longer_broken(ledger: Ledger, workload_uid: str, at: datetime) -> Ledger:
    """The ledger of a group that is not Broken between incidents any more, with the idle GPU-seconds until then. The
    totals of the fleet lack them still."""
    broken = ledger.broken
    if broken is None:
        return ledger
    spent = round(max(0.0, (at - broken.booked_from).total_seconds()) * broken.gpus, 3)
    totals = phases.booked(ledger.totals, broken.disruption_class, BROKEN_SECONDS, spent)
    booked = msgspec.structs.replace(ledger, broken=None, totals=totals)
    return owing(booked, (totals_of_broken(workload_uid, broken, spent),)) if spent else booked


def just_closed(before: Ledger, after: Ledger) -> Incident | None:
    """The incident that this reconcile closes. None: it closes none."""
    was, now = before.incident, after.incident
    if now is None or now.closing is None:
        return None
    return None if was is not None and was.closing is not None else now
