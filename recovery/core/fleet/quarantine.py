"""Restraint across groups: which nodes may be quarantined, when they are released, when the circuit breaker opens.

Pure: from the fleet's ledger and what was seen to the next ledger, or to the reason why not. Caps hold for all callers.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from recovery.core.fleet.breaker import breaker_of, since_reset, with_futile
from recovery.core.fleet.suspicion import counts_within, with_suspicions
from recovery.core.model.annotations import QUARANTINE_ANNOTATION, RELEASE_ANNOTATION
from recovery.core.model.facts import FleetFacts, NodeFacts
from recovery.core.model.fleet_ledger import (
    BY_HAND,
    CLOCK_AHEAD_MAX,
    QUARANTINE_TAINT,
    TAINT_EFFECT,
    FleetChange,
    FleetLedger,
    FleetLimits,
    Quarantined,
)
from recovery.core.model.reason import Explanation, Reason, Sentence, because, explained

QUARANTINE_REFUSALS = frozenset(
    {
        Reason.QUARANTINE_CAP,
        Reason.QUARANTINE_NAMESPACE_CAP,
        Reason.QUARANTINE_NOT_ALLOWED,
        Reason.QUARANTINE_LAST_NODES,
        Reason.MESSAGE_UNCONFIRMED,
        Reason.FEASIBLE_NODES_UNKNOWN,
    }
)
"""The reasons for which a node is not quarantined."""

UNCONFIRMED_LASTS = timedelta(hours=24)
"""How long a quarantine lasts that only jobs called for, where RecoveryConfig does not say."""


class Refused(msgspec.Struct, frozen=True):
    """Why a node is not quarantined: the sentence names the cap and where it is set."""

    why: Explanation


class Mark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The value of `QUARANTINE_ANNOTATION`: what the node itself says about its quarantine.

    It is written in one patch with taint and cordon, so it is the truth about the cordon, and enough to take a node
    back into a ledger that was lost.
    """

    reason: str
    since: datetime
    incident: str = ""
    by: str = ""
    release_at: datetime | None = None
    release_when: str = ""
    cordoned: bool = False
    """The cordon is ours: the node was schedulable before."""
    namespace: str = ""
    node_sign: str = ""

    @property
    def taint_value(self) -> str:
        return BY_HAND if self.by or not self.incident else self.incident


_decode_mark = msgspec.json.Decoder(Mark).decode


def mark_of(entry: Quarantined, *, cordoned: bool) -> Mark:
    """What the annotation of that quarantine says. `cordoned`: the cordon is ours."""
    return Mark(
        reason=entry.reason,
        since=entry.since,
        incident=entry.incident,
        by=entry.by,
        release_at=entry.release_at,
        release_when=entry.release_when,
        cordoned=cordoned,
        namespace=entry.namespace,
        node_sign=entry.node_sign,
    )


def parsed_mark(value: str | None) -> Mark | None:
    """None: there is none, or it cannot be made out."""
    if value is None:
        return None
    try:
        mark = _decode_mark(value)
    except (ValueError, RecursionError):
        return None
    dates = (mark.since, *([mark.release_at] if mark.release_at is not None else []))
    return mark if all(each.tzinfo is not None for each in dates) else None


def parsed_time(value: str | None) -> datetime | None:
    """A person's RFC 3339 time. None: there is none, or it cannot be made out, or it has no zone."""
    try:
        at = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return None
    return at if at.tzinfo is not None else None


def taint_value(entry: Quarantined) -> str:
    """The value of our taint on the node of that entry."""
    return mark_of(entry, cordoned=False).taint_value


def signs_of(entry: Quarantined) -> tuple[str, ...]:
    """The conditions and taints without which its node is well again; empty: it does not end by health."""
    return tuple(sign.strip() for sign in entry.release_when.split(",") if sign.strip())


def own_taint(node: NodeFacts) -> str | None:
    """The value of our taint on the node. None: it has none."""
    ours = (each for each in node.taints if (each.key, each.effect) == (QUARANTINE_TAINT, TAINT_EFFECT))
    return next((each.value for each in ours), None)


def released_at(annotations: Mapping[str, str], now: datetime) -> datetime | None:
    """When a person released the node, as its annotation says. What was held against the node until then does not count
    any more. None: no one has, or the time is so far ahead that it would release the node for ever."""
    asked_at = parsed_time(annotations.get(RELEASE_ANNOTATION))
    return asked_at if asked_at is not None and asked_at <= now + CLOCK_AHEAD_MAX else None


def released_by_hand(entry: Quarantined, annotations: Mapping[str, str], now: datetime) -> datetime | None:
    """When a person ended that quarantine. `annotations`: of its node. None: no one has."""
    asked_at = released_at(annotations, now)
    return asked_at if asked_at is not None and asked_at >= entry.since else None


def cleared(at: datetime, node: NodeFacts | None, now: datetime) -> bool:
    """A person has released the node since: what was held against it at that time does not count any more. (People
    write whole seconds.)"""
    asked_at = released_at(node.annotations, now) if node is not None else None
    return asked_at is not None and at.replace(microsecond=0) <= asked_at


def cap(limits: FleetLimits, nodes: int) -> int:
    """How many of so many nodes may be quarantined at once."""
    share = max(1, nodes * limits.max_percent // 100) if limits.max_percent > 0 else 0
    return share if limits.max_nodes is None else min(limits.max_nodes, share)


def namespace_cap(limits: FleetLimits, nodes: int) -> int:
    """How many of them jobs of one namespace may cause where no sign of the node confirms it."""
    return max(1, cap(limits, nodes) // 10)


def lasts_seconds(limits: FleetLimits, node_sign: str) -> float | None:
    """How long a quarantine by the controller lasts. None: time does not end it."""
    if limits.release_after_seconds is None and not node_sign:
        return UNCONFIRMED_LASTS.total_seconds()
    return limits.release_after_seconds


def _of_namespace(entries: Iterable[Quarantined], namespace: str) -> int:
    return sum(1 for each in entries if each.namespace == namespace and not (each.by or each.node_sign))


def admitted(
    ledger: FleetLedger, limits: FleetLimits, wanted: Quarantined, *, nodes: int, now: datetime
) -> FleetLedger | Refused:
    """The ledger with that node quarantined; the same ledger if it is already. Refused by permission or by a cap.

    `nodes`: how many the cluster has. One node more than the caps allow is never admitted, whatever was before. A
    quarantine by a person counts, and is never refused; time does not end it.
    """
    there = next((each for each in ledger.quarantined if each.node == wanted.node), None)
    if there is not None and _stands(there, wanted):
        return ledger
    others = tuple(each for each in ledger.quarantined if each.node != wanted.node)
    release_at = wanted.release_at
    if not wanted.by:
        if not limits.may_cordon:
            return Refused(because(Reason.QUARANTINE_NOT_ALLOWED))
        if len(others) >= cap(limits, nodes):
            return Refused(
                because(
                    Reason.QUARANTINE_CAP,
                    count=len(others),
                    cap=cap(limits, nodes),
                    field=_cap_field(limits, nodes),
                )
            )
        if wanted.namespace and not wanted.node_sign and wanted.namespace not in limits.trusted_namespaces:
            count, most = _of_namespace(others, wanted.namespace), namespace_cap(limits, nodes)
            if count >= most:
                why = because(Reason.QUARANTINE_NAMESPACE_CAP, namespace=wanted.namespace, count=count, cap=most)
                return Refused(why)
        release_at = release_at or _after(min(wanted.since, now), lasts_seconds(limits, wanted.node_sign))
    entry = msgspec.structs.replace(wanted, release_at=release_at, applied=False, releasing="")
    return msgspec.structs.replace(ledger, quarantined=(*others, entry))


def spared(ledger: FleetLedger, wanted: str, fleet: FleetFacts, members: int) -> Refused | None:
    """The node is among the last on which the group could run, or another group that waits: it is not taken away.
    None: enough are left. While that is not known the node is spared: it may be the last one.

    `members`: pods of the group. Nodes that stand in the ledger count as taken away: their taint may be on its way.
    """
    if fleet.feasible is None or fleet.waiting is None:
        return Refused(because(Reason.FEASIBLE_NODES_UNKNOWN))
    taken = {entry.node for entry in ledger.quarantined} - {wanted}
    needed = -(-members // max(1, fleet.pods_per_node))
    feasible = fleet.with_accelerators if fleet.with_accelerators is not None else fleet.feasible
    own = _left(taken, feasible, needed)
    if wanted in feasible and own <= needed:
        return _last_feasible("the group", own, needed)
    short = [
        (other.key, left, other.needed)
        for other in fleet.waiting
        if wanted in other.feasible and (left := _left(taken, other.feasible, other.needed)) <= other.needed
    ]
    if not short:
        return None
    key, left, needed = min(short)  # the same one in every reconcile, so that the sentence stays
    return _last_feasible(f"waiting group {key}", left, needed)


def _left(taken: Collection[str], feasible: tuple[str, ...], needed: int) -> int:
    """How many are feasible and not taken, exactly where that may be no more than needed: they are thousands."""
    least = len(feasible) - len(taken)
    return least if least > needed else sum(node not in taken for node in feasible)


def _last_feasible(whose: str, left: int, needed: int) -> Refused:
    sentence = Sentence.LAST_NODES if needed <= left else Sentence.TOO_FEW_NODES
    return Refused(explained(sentence, Reason.QUARANTINE_LAST_NODES, whose=whose, needed=needed, left=left))


def changed(
    ledger: FleetLedger,
    limits: FleetLimits,
    change: FleetChange,
    *,
    nodes: int,
    now: datetime,
    reset_at: datetime | None = None,
    only_namespace: str | None = None,
) -> FleetLedger | Refused:
    """The ledger with all of the change: quarantines admitted, suspicions and futile recoveries counted once for each
    incident, those that no longer count dropped, the breaker opened where the count is reached. The same change twice
    gives the same ledger. Refused: a quarantine was; then nothing of the change is in.

    `reset_at`: when a person asked for the breaker to be closed (None: never). A recovery that was in vain before that
    is forgotten, and a group whose trigger was put off must not bring it back. `only_namespace`: the one in which
    anything is enforced (None: there are several), as `breaker_of` reads it.
    """
    after = ledger
    for wanted in change.quarantine:
        outcome = admitted(after, limits, wanted, nodes=nodes, now=now)
        if isinstance(outcome, Refused):
            return outcome
        after = outcome
    # What no longer counts goes first: it must neither be counted once more nor hide what comes under the same name.
    counting = _pruned(after, limits, now)
    grown = msgspec.structs.replace(
        counting,
        suspicions=with_suspicions(counting.suspicions, limits, change.suspicions, now),
        futile=with_futile(counting.futile, limits, since_reset(change.futile, reset_at, now), now),
    )
    if after == ledger and grown == counting:
        return ledger
    after = grown
    if after.breaker is None:
        after = msgspec.structs.replace(after, breaker=breaker_of(after.futile, limits, only_namespace, now))
    return after


def reviewed(ledger: FleetLedger, limits: FleetLimits, nodes: Mapping[str, NodeFacts], now: datetime) -> FleetLedger:
    """What the keeper of the fleet finds due: entries marked `applied` once their node shows our taint; `releasing`
    by time, by health (nothing of `release_when` holds any more on a node that is Ready), by a person's annotation;
    dropped where another client took our taint away, or the node is gone, or the release has been carried out.

    A person's release also takes away the suspicions of before it, whether the node is quarantined or not: the next
    single one must not quarantine it again. Where only our annotation is left on the node, that is removed
    first: until then the entry is `releasing`.
    """
    found = tuple(_reviewed(entry, nodes.get(entry.node), now) for entry in ledger.quarantined)
    kept = tuple(entry for entry in found if entry is not None)
    breaker = ledger.breaker if limits.breaker_recoveries is not None else None
    held = tuple(each for each in ledger.suspicions if not cleared(each.at, nodes.get(each.node), now))
    after = msgspec.structs.replace(ledger, quarantined=kept, suspicions=held, breaker=breaker)
    return ledger if after == ledger else _pruned(after, limits, now)


def taken_in(ledger: FleetLedger, nodes: Iterable[NodeFacts], now: datetime) -> FleetLedger:
    """The ledger with those of the nodes that bear a quarantine of which it does not know: by a person, or ours from a
    ledger that was lost. A person's takes the place of the controller's on the same node."""
    known = {entry.node: entry for entry in ledger.quarantined}
    for node in nodes:
        there = known.get(node.name)
        if there is not None and (there.by or own_taint(node) != BY_HAND):
            continue
        found = _found(node, now)
        if found is not None:
            known.pop(node.name, None)  # the newest come last
            known[node.name] = found
    after = tuple(known.values())
    return ledger if after == ledger.quarantined else msgspec.structs.replace(ledger, quarantined=after)


def next_review_at(ledger: FleetLedger, now: datetime) -> datetime | None:
    """When time alone will call for the next review. None: never."""
    times = [each.release_at for each in ledger.quarantined if each.release_at is not None and not each.releasing]
    return max(now, min(times)) if times else None


def _stands(there: Quarantined, wanted: Quarantined) -> bool:
    """The entry is what is wanted. One of a node that was recreated is not, nor one that another incident had and that
    is on its way out; a person's stands for everybody's."""
    if there.node_uid and wanted.node_uid and there.node_uid != wanted.node_uid:
        return False
    if wanted.by and not there.by:
        return False
    return bool(there.by) or not there.releasing or there.incident == wanted.incident


def _cap_field(limits: FleetLimits, nodes: int) -> str:
    """The field whose cap holds."""
    if limits.max_nodes is not None and limits.max_nodes <= cap(limits, nodes):
        return f"RecoveryConfig spec.quarantine.maxNodes {limits.max_nodes}"
    return f"RecoveryConfig spec.quarantine.maxPercent {limits.max_percent}"


def _after(moment: datetime, seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:  # longer than time goes on
        return None


def _pruned(ledger: FleetLedger, limits: FleetLimits, now: datetime) -> FleetLedger:
    """Without what no longer counts."""
    suspicions = tuple(
        each for each in ledger.suspicions if counts_within(each.at, limits.suspected_within_seconds, now)
    )
    futile = tuple(each for each in ledger.futile if counts_within(each.at, limits.breaker_within_seconds, now))
    return msgspec.structs.replace(ledger, suspicions=suspicions, futile=futile)


def _reviewed(entry: Quarantined, node: NodeFacts | None, now: datetime) -> Quarantined | None:
    """None: the entry is dropped."""
    if node is None or (entry.node_uid and node.uid and entry.node_uid != node.uid):
        return None
    taint, mark = own_taint(node), parsed_mark(node.annotations.get(QUARANTINE_ANNOTATION))
    ours = taint == taint_value(entry)
    bears_mark = mark is not None and mark.taint_value == taint_value(entry)
    if entry.releasing:
        return entry if ours or bears_mark else None
    if ours:
        # The taint came with the cordon, in one patch: where it is alone, a person took the cordon away, and the next
        # cordon is theirs.
        cordoned = entry.cordoned and node.unschedulable and (mark is None or mark.cordoned)
        entry = msgspec.structs.replace(entry, applied=True, cordoned=cordoned)
    elif entry.applied:
        taken = "others removed the taint"
        return msgspec.structs.replace(entry, releasing=taken) if bears_mark else None
    why = _release(entry, node, now)
    return msgspec.structs.replace(entry, releasing=why) if why else entry


def _release(entry: Quarantined, node: NodeFacts, now: datetime) -> str:
    """Why the node is to be released; empty: it is not."""
    asked_at = released_by_hand(entry, node.annotations, now)
    if asked_at is not None:
        return f"released by hand at {asked_at:%Y-%m-%dT%H:%M:%SZ}"
    if entry.release_at is not None and entry.release_at <= now:
        return f"its time was over at {entry.release_at:%Y-%m-%dT%H:%M:%SZ}"
    signs = signs_of(entry)
    if signs and node.ready and not any(_holds(sign, node) for sign in signs):
        return f"the node is Ready, and {' and '.join(signs)} {'has' if len(signs) == 1 else 'have'} ended"
    return ""


def _holds(sign: str, node: NodeFacts) -> bool:
    """`GpuUnhealthy`: a condition that is True, or a taint of that key. `GpuHealthy=False`: that condition is False."""
    name, named, status = sign.partition("=")
    if any(each.type == name and each.status == (status or "True") for each in node.conditions):
        return True
    return not named and any(each.key == name for each in node.taints)


def _found(node: NodeFacts, now: datetime) -> Quarantined | None:
    """The quarantine that the node's own annotation describes. None: there is none, or it cannot be read."""
    taint, mark = own_taint(node), parsed_mark(node.annotations.get(QUARANTINE_ANNOTATION))
    if taint is None:
        return None
    if mark is None or mark.taint_value != taint:
        if taint != BY_HAND:
            return None
        mark = Mark(reason="tainted by hand", since=now, by="someone")
    return Quarantined(
        node=node.name,
        node_uid=node.uid,
        reason=mark.reason,
        since=mark.since,
        incident=mark.incident if taint != BY_HAND else "",
        by="" if taint != BY_HAND else mark.by or "someone",
        release_at=mark.release_at,
        release_when=mark.release_when,
        applied=True,
        cordoned=mark.cordoned and node.unschedulable,
        namespace=mark.namespace,
        node_sign=mark.node_sign,
    )
