"""Limits across groups: which nodes may be quarantined, when they are released, when the circuit breaker opens.

Pure functions, which turn the fleet's ledger and what was seen into the next ledger, or into the reason for a refusal.
Caps apply to all callers.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from recovery.core.fleet.breaker import breaker_of, since_reset, with_futile
from recovery.core.fleet.suspicion import counts_within, with_suspicions
from recovery.core.model.annotations import (
    NVSENTINEL_CORDON_ANNOTATION,
    QUARANTINE_ANNOTATION,
    RELEASE_ANNOTATION,
    STATE_TAINTS,
)
from recovery.core.model.facts import FleetFacts, NodeFacts, Taint
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
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

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

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
UNCONFIRMED_LASTS = timedelta(hours=24)
"""How long a quarantine lasts if only jobs blamed the node and RecoveryConfig does not set it."""


class Refused(msgspec.Struct, frozen=True):
    """Why a node is not quarantined: the sentence names the cap and where it is set."""

    why: Explanation


class Mark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The value of `QUARANTINE_ANNOTATION`: what the node itself says about its quarantine.

    It is written in one patch with the taint and any cordon, so it is the authority on who cordoned the node. It
    suffices to restore the node's entry after the ledger was lost.
    """

    reason: str
    since: datetime
    incident: str = ""
    by: str = ""
    release_at: datetime | None = None
    release_when: str = ""
    cordoned: bool = False
    """The cordon is ours. The node was schedulable before."""
    namespace: str = ""
    node_sign: str = ""
    beside: tuple[str, ...] | None = None
    """Keys of the taints that the node had when we cordoned it. None: we did not."""

    @property
    def taint_value(self) -> str:
        return BY_HAND if self.by or not self.incident else self.incident


_decode_mark = msgspec.json.Decoder(Mark).decode


def mark_of(entry: Quarantined, *, cordoned: bool, beside: tuple[str, ...] | None = None) -> Mark:
    """What the annotation of that quarantine says. `cordoned`: the cordon is ours. `beside`: as in `Mark`."""
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
        beside=beside,
    )


def parsed_mark(value: str | None) -> Mark | None:
    """None: there is none, or it cannot be parsed."""
    if value is None:
        return None
    try:
        mark = _decode_mark(value)
    except (ValueError, RecursionError):
        return None
    dates = (mark.since, *([mark.release_at] if mark.release_at is not None else []))
    return mark if all(each.tzinfo is not None for each in dates) else None


def parsed_time(value: str | None) -> datetime | None:
    """A person's RFC 3339 time. None: there is none, it cannot be parsed, or it has no time zone."""
    try:
        at = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return None
    return at if at.tzinfo is not None else None


def taint_value(entry: Quarantined) -> str:
    """The value of our taint on the node of that entry."""
    return mark_of(entry, cordoned=False).taint_value


def signs_of(entry: Quarantined) -> tuple[str, ...]:
    """The conditions and taints whose end releases the node. Empty: the quarantine does not end by health."""
    return tuple(sign.strip() for sign in entry.release_when.split(",") if sign.strip())


def own_taint(node: NodeFacts) -> str | None:
    """The value of our taint on the node. None: it has none."""
    ours = (each for each in node.taints if (each.key, each.effect) == (QUARANTINE_TAINT, TAINT_EFFECT))
    return next((each.value for each in ours), None)


def takes_no_pods(node: NodeFacts) -> bool:
    """The node is cordoned or quarantined, so it takes no new pods, of any group."""
    return node.unschedulable or own_taint(node) is not None


def cordoned_by_us(node: NodeFacts) -> bool:
    """The node is cordoned, and by our quarantine."""
    mark = parsed_mark(node.annotations.get(QUARANTINE_ANNOTATION))
    return node.unschedulable and own_taint(node) is not None and mark is not None and mark.cordoned


def cordons(node: NodeFacts, *, wanted: bool) -> bool:
    """Whether the cordon of the node is ours once it is quarantined. A cordon that is there already keeps its owner.
    `wanted`: RecoveryConfig says that a quarantine cordons the node."""
    return cordoned_by_us(node) if node.unschedulable else wanted


def claims_on_cordon(mark: Mark, taints: Iterable[Taint], annotations: Mapping[str, str]) -> tuple[str, ...]:
    """What else claims the cordon that the mark calls ours, in words: taints that came after it, and the annotation of
    NVSentinel. Its owner relies on the cordon, and did not have to set it again. NVSentinel would take its end for that
    of a person, and cancel the repair of the node. Taints for the present state of a node, which Kubernetes sets, and
    taints that were there before claim nothing. Empty: the cordon ends with our quarantine."""
    found = []
    if mark.beside is not None:
        found = [
            f"taint {each.key}"
            for each in taints
            if each.effect in _KEEPS_OFF
            and each.key not in (QUARANTINE_TAINT, *mark.beside)
            and not each.key.startswith(STATE_TAINTS)
        ]
    if annotations.get(NVSENTINEL_CORDON_ANNOTATION) == "True":
        found.append(f"annotation {NVSENTINEL_CORDON_ANNOTATION}")
    return tuple(dict.fromkeys(found))


def released_at(annotations: Mapping[str, str], now: datetime) -> datetime | None:
    """When a person released the node, as its annotation says. What counted against the node until then no longer does.
    None: no one has, or the time is so far ahead that it would release the node forever."""
    asked_at = parsed_time(annotations.get(RELEASE_ANNOTATION))
    return asked_at if asked_at is not None and asked_at <= now + CLOCK_AHEAD_MAX else None


def released_by_hand(entry: Quarantined, annotations: Mapping[str, str], now: datetime) -> datetime | None:
    """When a person ended that quarantine. `annotations`: those of its node. None: no one has."""
    asked_at = released_at(annotations, now)
    return asked_at if asked_at is not None and asked_at >= entry.since else None


def cleared(at: datetime, node: NodeFacts | None, now: datetime) -> bool:
    """A person has released the node since `at`, so what counted against it then no longer does. (People write whole
    seconds.)"""
    asked_at = released_at(node.annotations, now) if node is not None else None
    return asked_at is not None and at.replace(microsecond=0) <= asked_at


def cap(limits: FleetLimits, nodes: int) -> int:
    """How many nodes may be quarantined at once. `nodes`: how many the cluster has."""
    share = max(1, nodes * limits.max_percent // 100) if limits.max_percent > 0 else 0
    return share if limits.max_nodes is None else min(limits.max_nodes, share)


def namespace_cap(limits: FleetLimits, nodes: int) -> int:
    """How many of these quarantines the jobs of one namespace may cause without a sign of the node that confirms it."""
    return max(1, cap(limits, nodes) // 10)


def lasts_seconds(limits: FleetLimits, node_sign: str) -> float | None:
    """How long a quarantine by the controller lasts. None: time does not end it."""
    if limits.release_after_seconds is None and not node_sign:
        return UNCONFIRMED_LASTS.total_seconds()
    return limits.release_after_seconds


def _of_namespace(entries: Iterable[Quarantined], namespace: str) -> int:
    return sum(1 for each in entries if each.namespace == namespace and not (each.by or each.node_sign))


def admitted(
    ledger: FleetLedger,
    limits: FleetLimits,
    wanted: Quarantined,
    *,
    nodes: int,
    now: datetime,
    shows: NodeFacts | None,
) -> FleetLedger | Refused:
    """The ledger with that node quarantined, or the same ledger if it is already. Refused by permission or by a cap.

    `nodes`: how many the cluster has. The caps hold even if they are exceeded already. A quarantine by a person counts
    towards them, but is never refused, and gets no end by time here. `shows`: the node as it is. None: not known.
    """
    there = next((each for each in ledger.quarantined if each.node == wanted.node), None)
    if there is not None and _stands(there, wanted, shows, now):
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
    """Refuses to quarantine one of the last nodes on which the group, or another group that waits, could run. None:
    enough nodes are left. If that is not known, the node is spared, because it may be the last one.

    `members`: how many pods the group has. Nodes in the ledger count as taken, because their taint may not show yet.
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
    key, left, needed = min(short)  # the same group in every reconcile, so that the sentence does not change
    return _last_feasible(f"waiting group {key}", left, needed)


def _left(taken: Collection[str], feasible: tuple[str, ...], needed: int) -> int:
    """How many feasible nodes are not taken. A lower bound if above `needed`, because there may be thousands."""
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
    shown: Mapping[str, NodeFacts],
    reset_at: datetime | None = None,
    only_namespace: str | None = None,
) -> FleetLedger | Refused:
    """The ledger with the whole change. It admits the quarantines, counts suspicions and futile recoveries once for
    each incident, drops those that no longer count, and opens the breaker if the count is reached. The same change
    twice gives the same ledger. Refused: a quarantine was refused, so nothing of the change was applied.

    `shown`: the nodes as they are, by name. `reset_at`: when a person asked to close the breaker (None: never). Futile
    recoveries before that are forgotten, and a group whose trigger was delayed must not bring one back.
    `only_namespace`: as for `breaker_of`.
    """
    after = ledger
    for wanted in change.quarantine:
        outcome = admitted(after, limits, wanted, nodes=nodes, now=now, shows=shown.get(wanted.node))
        if isinstance(outcome, Refused):
            return outcome
        after = outcome
    # Entries that no longer count are dropped first. They must not count again, or hide new entries of the same name.
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
    """The ledger after a review of all entries. An entry becomes `applied` once its node shows our taint. It becomes
    `releasing` by time, by health (no sign of `release_when` holds any more, and the node is Ready), or by a person's
    annotation. It is dropped if another client removed our taint, the node is gone, or the release is complete.

    A person's release also drops the earlier suspicions of the node, quarantined or not, so that a single new one does
    not quarantine it again. If another client left only our annotation, the entry is `releasing` until that is removed.
    """
    found = tuple(_reviewed(entry, nodes.get(entry.node), now) for entry in ledger.quarantined)
    kept = tuple(entry for entry in found if entry is not None)
    breaker = ledger.breaker if limits.breaker_recoveries is not None else None
    held = tuple(each for each in ledger.suspicions if not cleared(each.at, nodes.get(each.node), now))
    after = msgspec.structs.replace(ledger, quarantined=kept, suspicions=held, breaker=breaker)
    return ledger if after == ledger else _pruned(after, limits, now)


def taken_in(ledger: FleetLedger, nodes: Iterable[NodeFacts], now: datetime) -> FleetLedger:
    """The ledger with the quarantines that nodes show and the ledger lacks: by a person, or ours from a lost ledger. A
    person's quarantine replaces the controller's on the same node."""
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
    """When the next release by time is due. None: never."""
    times = [each.release_at for each in ledger.quarantined if each.release_at is not None and not each.releasing]
    return max(now, min(times)) if times else None


def _stands(there: Quarantined, wanted: Quarantined, shows: NodeFacts | None, now: datetime) -> bool:
    """The entry already satisfies what is wanted. It does not if the node was recreated, or if the entry has ended and
    the reason is a new one. It has ended by what the ledger says, or by what the node shows and the next review finds.
    Otherwise a node that is faulty soon after its release would count as quarantined, and take pods. A person's entry
    satisfies any, and only a person's satisfies a person's."""
    if there.node_uid and wanted.node_uid and there.node_uid != wanted.node_uid:
        return False
    if wanted.by and not there.by:
        return False
    if there.by or (there.incident == wanted.incident and wanted.since <= there.since):
        return True
    found = there if shows is None else _reviewed(there, shows, now)
    return found is not None and not found.releasing


def _cap_field(limits: FleetLimits, nodes: int) -> str:
    """The field that sets the effective cap."""
    if limits.max_nodes is not None and limits.max_nodes <= cap(limits, nodes):
        return f"RecoveryConfig spec.quarantine.maxNodes {limits.max_nodes}"
    return f"RecoveryConfig spec.quarantine.maxPercent {limits.max_percent}"


def _after(moment: datetime, seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:  # beyond the last date that a datetime can hold
        return None


def _pruned(ledger: FleetLedger, limits: FleetLimits, now: datetime) -> FleetLedger:
    """The ledger without entries that no longer count."""
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
        # A cordon came with the taint, in one patch. If only the taint is left, a person removed the cordon, and the
        # next cordon is theirs.
        cordoned = entry.cordoned and node.unschedulable and (mark is None or mark.cordoned)
        entry = msgspec.structs.replace(entry, applied=True, cordoned=cordoned)
    elif entry.applied:
        taken = "others removed the taint"
        return msgspec.structs.replace(entry, releasing=taken) if bears_mark else None
    why = _release(entry, node, now)
    return msgspec.structs.replace(entry, releasing=why) if why else entry


def _release(entry: Quarantined, node: NodeFacts, now: datetime) -> str:
    """Why the node is to be released. Empty: it is not."""
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
