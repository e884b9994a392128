"""Storms: nodes that are lost together have a common cause.

Three nodes lost within a minute are a storm. Two suffice if they are in one rack. A storm is charged to the budget of a
group once, no matter how often it hits the group, and makes none of its nodes suspect.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.facts import FleetFacts
from recovery.core.model.ledger import ClosedIncident, Incident, Ledger
from recovery.core.model.lost_node import LostNode

_WITHIN = timedelta(seconds=60)
"""Losses that are at most this far apart may have one cause. A longer gap ends a storm."""
_NODES = 3
_NODES_OF_RACK = 2
_RACKS_NAMED = 3


class Storm(msgspec.Struct, frozen=True):
    """Nodes that were lost together."""

    id: str
    """For one group, the id stays the same for as long as the storm lasts."""
    what: str
    """In words: `2 nodes of rack r17 were lost within a minute`."""
    latest_at: datetime
    """The latest loss, as the node dates it. A clock that is ahead of ours puts it into the future."""


class _Loss(msgspec.Struct, frozen=True):
    """A lost node and when it was lost, never later than now: if its clock is ahead, it was lost with the others."""

    node: LostNode
    at: datetime


def storm_of(node: str, fleet: FleetFacts, ledger: Ledger, now: datetime) -> Storm | None:
    """The storm in which `node` was lost. None: in none. A node that is not reported lost yet counts as lost just now.

    A storm begins for a group when its node is one of three that were lost within one minute, or one of two in its
    rack. It lasts for as long as any nodes are lost without a gap of more than a minute. If the ledger of the group
    knows a storm that still lasts (from its open incident, else from its latest closed incident in a storm), the storm
    keeps its id, even if its first losses are forgotten by now, other racks have joined, or single nodes follow.
    Otherwise the id names the first loss that the fleet still remembers, and the rack if all losses are in one.
    """
    losses = [_Loss(lost, min(lost.since, now)) for lost in fleet.lost]
    own = next((loss for loss in losses if loss.node.name == node), None)
    at = own.at if own is not None else now
    run = _linked(losses, at)
    if not run:
        return None
    together = _together(losses, own, at)
    known = _known(ledger, run)
    if not together and not known:
        return None
    return Storm(known or _named(together, losses, at), _what(together, run), max(loss.node.since for loss in run))


def noted(ledger: Ledger, storm: Storm, now: datetime) -> Ledger:
    """The ledger whose incident is part of that storm."""
    latest_at = min(storm.latest_at, now)
    return ledger.with_incident(storm=storm.id, storm_what=storm.what, storm_latest_at=latest_at)


def seen_at_the_end(ledger: Ledger, fleet: FleetFacts | None, now: datetime) -> Ledger:
    """The ledger with the storm of its incident, as it is known when the incident ends.

    The first node of a storm is lost alone (kube-controller-manager checks nodes every five seconds), and the verdict
    on it may be older than the second loss. `fleet` None: it was not read.
    """
    ended = ledger.current_incident
    node = ended.suspects[0].node if ended.suspects else ""
    if fleet is None or ended.disruption_class != DisruptionClass.NODE_LOST:
        return ledger
    if all(lost.name != node for lost in fleet.lost):
        return ledger
    storm = storm_of(node, fleet, ledger, now)
    return noted(ledger, storm, now) if storm is not None else ledger


def charged_before(ledger: Ledger, storm: Storm) -> ClosedIncident | None:
    """The closed incident that was charged to the group's budget for this storm. None: no incident was.

    Only the history is searched. It is bounded, so a group is not restarted forever without a charge.
    """
    return next((closed for closed in ledger.history if closed.charged and closed.storm == storm.id), None)


def _together(losses: Sequence[_Loss], own: _Loss | None, at: datetime) -> Sequence[_Loss]:
    """The losses that are a storm because of their times alone, else because of their rack. Empty: they are none."""
    near = _within_a_minute(losses, at)
    if len(near) >= _NODES:
        return near
    if own is None or not own.node.rack:
        return ()
    near = _within_a_minute([loss for loss in losses if loss.node.rack == own.node.rack], at)
    return near if len(near) >= _NODES_OF_RACK else ()


def _known(ledger: Ledger, run: Sequence[_Loss]) -> str:
    """The id of the storm in the ledger that continues in these losses. Empty: the ledger has none, or it is over."""
    opened: tuple[Incident, ...] = (ledger.incident,) if ledger.incident is not None else ()
    records: tuple[Incident | ClosedIncident, ...] = (*opened, *ledger.history)
    latest = next((record for record in records if record.storm), None)
    if latest is None or latest.storm_latest_at is None:
        return ""
    goes_on = run[0].at - _WITHIN <= latest.storm_latest_at <= run[-1].at + _WITHIN
    return latest.storm if goes_on else ""


def _linked(losses: Sequence[_Loss], at: datetime) -> tuple[_Loss, ...]:
    """The losses before and after that moment that connect to it without a gap. `losses` is sorted by time."""
    here = bisect_right(losses, at, key=_at)
    return (*reversed(_without_gap(reversed(losses[:here]), at)), *_without_gap(losses[here:], at))


def _without_gap(losses: Iterable[_Loss], at: datetime) -> list[_Loss]:
    found: list[_Loss] = []
    for loss in losses:
        if abs(loss.at - at) > _WITHIN:
            break
        at = loss.at
        found.append(loss)
    return found


def _within_a_minute(losses: Sequence[_Loss], at: datetime) -> Sequence[_Loss]:
    """The most losses within any one minute that contains that moment. `losses` is sorted by time."""
    spans = [
        (bisect_left(losses, start, key=_at), bisect_right(losses, start + _WITHIN, key=_at))
        for start in {at, *(loss.at for loss in losses if at - _WITHIN <= loss.at <= at)}
    ]
    begin, end = max(spans, key=lambda span: (span[1] - span[0], span))
    return losses[begin:end]


def _at(loss: _Loss) -> datetime:
    return loss.at


def _rack(losses: Sequence[_Loss]) -> str:
    """The rack that all of them share. Empty: they share none."""
    racks = {loss.node.rack for loss in losses}
    return racks.pop() if len(racks) == 1 else ""


def _named(near: Sequence[_Loss], losses: Sequence[_Loss], at: datetime) -> str:
    """The id of a storm that the ledger does not know."""
    rack = _rack(near)
    first = _linked([loss for loss in losses if not rack or loss.node.rack == rack], at)[0].node.since
    return f"storm-{rack}-{first:%Y%m%dT%H%M%SZ}" if rack else f"storm-{first:%Y%m%dT%H%M%SZ}"


def _what(together: Sequence[_Loss], run: Sequence[_Loss]) -> str:
    if together:
        return f"{_nodes(together)} were lost within a minute"
    if len(run) > 1:
        return f"{_nodes(run)} were lost, one soon after another"
    return f"node {run[0].node.name} was lost soon after others"


def _nodes(losses: Sequence[_Loss]) -> str:
    """`7 nodes of racks r1, r2, r3 and 2 others`; the racks that were hit most come first."""
    count = f"{len(losses)} nodes"
    hits = Counter(loss.node.rack for loss in losses if loss.node.rack)
    racks = sorted(hits, key=lambda rack: (-hits[rack], rack))
    if not racks:
        return count
    others = len(racks) - _RACKS_NAMED
    listed = [*racks[:_RACKS_NAMED], *([f"{others} others" if others > 1 else "1 other"] if others > 0 else [])]
    named = f"rack {racks[0]}" if len(racks) == 1 else f"racks {', '.join(listed[:-1])} and {listed[-1]}"
    return f"{count} of {named}" if hits.total() == len(losses) else f"{count}, some of them of {named},"
