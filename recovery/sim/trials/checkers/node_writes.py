"""Rules about what controllers do to nodes, and to pods on lost nodes: quarantine, its caps, and force-deletes."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from recovery.core.drill.node_marks import CORDON_MANAGER, parsed_mark
from recovery.core.model.annotations import NVSENTINEL_CORDON_ANNOTATION, RELEASE_ANNOTATION, STATE_TAINTS
from recovery.core.model.drill import NODE_MARK_ANNOTATION, NodeMark
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, FleetLedger, Quarantined
from recovery.ports import NODES, PODS, RECOVERY_CONFIGS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import CONTROLLERS, ours
from recovery.sim.trials.health_agent import held_by_agent
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence, Violation

_LONGEST_RECONCILE = timedelta(seconds=90)
"""The longest time from a reconcile's reads until its write arrives. Requests may be late or repeated."""
_COUNTED_WITHIN = timedelta(minutes=5)
"""A controller's count of the nodes may be this old."""

_decode: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def taints_of(node: Body | None) -> list[Body]:
    return list((node or {}).get("spec", {}).get("taints") or ())


def quarantined(node: Body | None) -> bool:
    """The node carries our taint."""
    return any(taint["key"] == QUARANTINE_TAINT for taint in taints_of(node))


def cordoned(node: Body | None) -> bool:
    return bool((node or {}).get("spec", {}).get("unschedulable"))


def fleet_of(config: Body | None) -> FleetLedger:
    """The fleet's ledger in the status of the RecoveryConfig."""
    return msgspec.convert((config or {}).get("status") or {}, FleetLedger)


def _allows(evidence: TrialEvidence, what: str) -> bool:
    return bool(evidence.plan.config.get("allow", {}).get(what))


class QuarantineWithinCap(CheckerRule):
    """The controller never quarantines more nodes than the RecoveryConfig allows, whichever replica leads and whatever
    crashes. Nodes that people quarantine count once they are in the ledger, but they do not break the rule."""

    hears = frozenset({NODES, RECOVERY_CONFIGS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._by_hand: set[str] = set()
        """Nodes that another client has quarantined."""
        self._noted: set[str] = set()
        """Nodes in the fleet's ledger."""
        self._tainted: dict[str, None] = {}
        self._counts: list[tuple[datetime, int]] = []
        """How many nodes there were, and from which moment on."""
        self._nodes = 0

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_CONFIGS:
            yield from self._ledger(change, at)
            return
        name = change.body["metadata"]["name"]
        if change.type != "MODIFIED":
            self._nodes += 1 if change.type == "ADDED" else -1
            self._counts.append((at, self._nodes))
        is_now, was = change.type != "DELETED" and quarantined(change.body), quarantined(change.before)
        if is_now and not was:
            self._tainted[name] = None
            if not ours(change.actor):
                self._by_hand.add(name)
                return
            cap = self._cap(at)
            # The controller does not know yet what a person has quarantined in the last half minute.
            known = [node for node in self._tainted if node not in self._by_hand or node in self._noted]
            if len(known) > max(cap, len(self._by_hand)):
                names = ", ".join(known)
                sentence = f"{change.actor} quarantines {name}: now {len(known)} nodes are, of {cap} allowed"
                yield self.found(at, f"{sentence}: {names}")
        elif was and not is_now:
            self._tainted.pop(name, None)
            self._by_hand.discard(name)

    def _ledger(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        self._noted = {entry.node for entry in fleet_of(change.body).quarantined}
        if not ours(change.actor) or change.type == "DELETED":
            return
        after, before = fleet_of(change.body).quarantined, fleet_of(change.before).quarantined
        known = {entry.node for entry in before}
        added = [entry for entry in after if entry.node not in known and not entry.by]
        cap = self._cap(at)
        if added and len(after) > cap:
            names = ", ".join(entry.node for entry in after)
            sentence = f"{change.actor} enters {added[0].node} as quarantined at revision {change.revision}"
            yield self.found(at, f"{sentence}: now {len(after)} nodes are, of {cap} allowed: {names}")

    def _cap(self, at: datetime) -> int:
        """The largest cap that a controller may have computed. Nodes join and leave while it counts."""
        quarantine = self.evidence.plan.config.get("quarantine", {})
        percent = quarantine.get("maxPercent", 5)
        lately = [count for since, count in self._counts if since >= at - _COUNTED_WITHIN]
        before = [count for since, count in self._counts if since < at - _COUNTED_WITHIN][-1:]
        nodes = max((*lately, *before), default=0)
        cap = max(1, nodes * percent // 100) if percent else 0
        most = quarantine.get("maxNodes")
        return cap if most is None else min(cap, int(most))


class QuarantinePermitted(CheckerRule):
    """A node is cordoned or tainted only where the RecoveryConfig allows it, and only after the ledger of the fleet has
    named the node."""

    hears = frozenset({NODES})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if not ours(change.actor) or change.type != "MODIFIED":
            return
        node = change.body["metadata"]["name"]
        added = (quarantined(change.body) and not quarantined(change.before)) or (
            cordoned(change.body) and not cordoned(change.before)
        )
        if not added:
            return
        entry = self.world.quarantine_of(node)
        if entry is None:
            yield self.found(
                at, f"{change.actor} quarantines {node} at revision {change.revision}, unknown to its ledger"
            )
        elif not entry.by and not _allows(self.evidence, "cordon"):
            yield self.found(at, f"{change.actor} quarantines {node}, which RecoveryConfig does not allow")


class ForeignKept(CheckerRule):
    """The controller never removes a taint or a cordon that someone else has set on a node, nor a cordon of its own
    that another client claims by a taint that it has set since, or by NVSentinel's annotation. Only what the mark of a
    drill says is taken back, when the time of the drill is over."""

    hears = frozenset({NODES})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._cordoned_by: dict[str, str] = {}
        self._beside: dict[str, frozenset[str]] = {}
        """The taints of each node when it was cordoned."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        name, before, body = change.body["metadata"]["name"], change.before, change.body
        if change.type == "MODIFIED" and ours(change.actor):
            mark = _taken_back(before, body, at)
            drilled = mark.taint if mark is not None else None
            left = [(taint["key"], taint["effect"], taint.get("value", "")) for taint in taints_of(body)]
            left += [(drilled.key, drilled.effect, drilled.value)] if drilled is not None else []
            for taint in taints_of(before):
                which = (taint["key"], taint["effect"], taint.get("value", ""))
                if which not in left and taint["key"] != QUARANTINE_TAINT:
                    yield self.found(at, f"{change.actor} takes the taint {which[0]}={which[2]} off {name}")
            by_drill = mark is not None and mark.cordon and self._cordoned_by.get(name) == CORDON_MANAGER
            uncordons = cordoned(before) and not cordoned(body) and not by_drill
            if uncordons and not ours(self._cordoned_by.get(name, "")):
                by = self._cordoned_by.get(name, "another client")
                yield self.found(at, f"{change.actor} uncordons {name}, which {by} had cordoned")
            elif uncordons:
                claims = [f"taint {key}" for key in sorted(_foreign(body) - self._beside.get(name, frozenset()))]
                if held_by_agent(body):
                    claims.append(f"annotation {NVSENTINEL_CORDON_ANNOTATION}")
                if claims:
                    yield self.found(at, f"{change.actor} uncordons {name}, which {claims[0]} claims")
        if cordoned(body) and not cordoned(before):
            by_quarantine = quarantined(body) and not quarantined(before)  # The controller may end one by a person.
            self._cordoned_by[name] = f"{CONTROLLERS}0" if by_quarantine else change.actor
            self._beside[name] = _foreign(before)


def _taken_back(before: Body | None, after: Body, at: datetime) -> NodeMark | None:
    """The mark of a drill whose time is over, if this change removes it."""
    was, now = (
        ((node or {}).get("metadata", {}).get("annotations") or {}).get(NODE_MARK_ANNOTATION)
        for node in (before, after)
    )
    mark = parsed_mark(was) if now is None else None
    return mark if mark is not None and at >= mark.expires_at else None


def _foreign(node: Body | None) -> frozenset[str]:
    """The keys of the taints that keep pods off, without ours and those that Kubernetes sets for the node's state."""
    return frozenset(
        taint["key"]
        for taint in taints_of(node)
        if taint["effect"] in {"NoSchedule", "NoExecute"}
        and taint["key"] != QUARANTINE_TAINT
        and not taint["key"].startswith(STATE_TAINTS)
    )


class QuarantineOnNode(CheckerRule):
    """A quarantine in the ledger of the fleet is on its node, if that exists, as the controller's taint. The controller
    has two undisturbed minutes for it, after the entry is written and after another client has removed the taint."""

    hears = frozenset({NODES, RECOVERY_CONFIGS})
    LATE_AFTER_SECONDS = 120.0

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._missing: dict[str, datetime] = {}
        """Since when each node that the ledger calls quarantined has had no taint of ours."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        missing = {
            entry.node
            for entry in self.world.fleet.quarantined
            if (node := self.world.nodes.get(entry.node)) is not None
            and entry.node_uid in {"", node["metadata"]["uid"]}
            and not quarantined(node)
        }
        for name in [name for name in self._missing if name not in missing]:
            yield from self._judge(name, at)
            del self._missing[name]
        for name in missing:
            self._missing.setdefault(name, at)

    def ended(self) -> Iterator[Violation]:
        for name in self._missing:
            yield from self._judge(name, self.evidence.ends_at)

    def _judge(self, name: str, at: datetime) -> Iterator[Violation]:
        since = self._missing[name]
        if self.world.undisturbed.seconds(since, at) > self.LATE_AFTER_SECONDS:
            yield self.found(at, f"node {name} had no taint from {since:%H:%M:%S} to {at:%H:%M:%S}, though quarantined")


class QuarantineReleased(CheckerRule):
    """A quarantined node is released when its time has come, or when a person asks for it."""

    hears = frozenset({NODES, RECOVERY_CONFIGS})
    LATE_AFTER_SECONDS = 120.0

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._due: dict[str, tuple[datetime, str]] = {}
        """When each node with our taint must be released, and why at that time."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_CONFIGS:
            for entry in fleet_of(change.body).quarantined:
                self._expect(entry)
            return
        name, body = change.body["metadata"]["name"], change.body
        if change.type == "DELETED" or (quarantined(change.before) and not quarantined(body)):
            yield from self._judge(name, at)
            self._due.pop(name, None)
        elif self._asked(body) != self._asked(change.before) and quarantined(body):
            self._soonest(name, at, "a person asked for it")

    def ended(self) -> Iterator[Violation]:
        for name in list(self._due):
            yield from self._judge(name, self.evidence.ends_at)

    def _asked(self, node: Body | None) -> str | None:
        annotations = (node or {}).get("metadata", {}).get("annotations") or {}
        return annotations.get(RELEASE_ANNOTATION)

    def _expect(self, entry: Quarantined) -> None:
        if entry.release_at is not None and quarantined(self.world.nodes.get(entry.node)):
            self._soonest(entry.node, entry.release_at, "its time had come")

    def _soonest(self, name: str, due: datetime, why: str) -> None:
        known = self._due.get(name)
        if known is None or due < known[0]:
            self._due[name] = (due, why)

    def _judge(self, name: str, at: datetime) -> Iterator[Violation]:
        if name not in self._due:
            return
        due, why = self._due[name]
        if self.world.undisturbed.seconds(due, at) > self.LATE_AFTER_SECONDS:
            yield self.found(at, f"node {name} was quarantined until {at:%H:%M:%S}, though {why} at {due:%H:%M:%S}")


class ForceOnlyTheDead(CheckerRule):
    """A pod is force-deleted only where its node is gone or out of service, or where both the RecoveryConfig and the
    policy allow the controller to assume that a silent node is dead."""

    hears = frozenset({NODES, PODS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._proven_until: dict[str, datetime | None] = {}
        """Until when each node was proven dead. None: it still is."""
        self._silent: dict[str, tuple[datetime, datetime | None]] = {}
        """Since when and until when each node did not answer. Until None: it still does not."""
        self._node_of: dict[tuple[str, str], str] = {}

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        metadata = change.body["metadata"]
        if change.resource == PODS:
            self._node_of[metadata["namespace"], metadata["name"]] = change.body["spec"].get("nodeName", "")
            return
        name, gone = metadata["name"], change.type == "DELETED"
        ready = _ready(change.body)
        out = any(taint["key"] == "node.kubernetes.io/out-of-service" for taint in taints_of(change.body))
        if gone or (out and ready != "True"):
            self._proven_until[name] = None
        elif name in self._proven_until and self._proven_until[name] is None:
            self._proven_until[name] = at
        if ready == "Unknown" and not gone:
            since, until = self._silent.get(name, (at, at))
            self._silent[name] = (since if until is None else at, None)
        elif name in self._silent and self._silent[name][1] is None:
            self._silent[name] = (self._silent[name][0], at)
        yield from ()

    def heard(self, record: RequestRecord) -> Iterator[Violation]:
        request = record.request
        if request.verb != "delete" or request.resource != PODS or not record.applied or request.name is None:
            return
        options = _decode.decode(request.body) if request.body else {}
        if options.get("gracePeriodSeconds") != 0:
            return
        node = self._node_of.get((request.namespace or "", request.name), "")
        if self._is_dead(node, record):
            return
        group = self.world.group_of_request(record)
        yield self.found(
            record.at, f"{record.actor} force-deletes {request}, whose node {node} is not known dead", group
        )

    def _is_dead(self, node: str, record: RequestRecord) -> bool:
        lately = record.at - _LONGEST_RECONCILE
        if node in self._proven_until:
            until = self._proven_until[node]
            if until is None or until >= lately:
                return True
        group = self.world.group_of_request(record)
        plan = self.evidence.jobs.get(group) if group is not None else None
        fencing = ((plan.policy or {}) if plan is not None else {}).get("teardown", {}).get("fencing", {})
        if fencing.get("mode") != "AssumeDead" or not _allows(self.evidence, "assumeDead") or node not in self._silent:
            return False
        return self._silent[node][1] is None or self._silent[node][1] >= lately  # type: ignore[operator]


def _ready(node: Body) -> str:
    conditions = node.get("status", {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")
