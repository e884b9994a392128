"""Rules that limit what the jobs of one namespace can do to all others by quarantines and by the circuit breaker."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.core.model.fleet_ledger import Futile, Quarantined
from recovery.core.model.ledger import Incident
from recovery.ports import NODES, PODS, RECOVERY_CONFIGS, RECOVERY_GROUPS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import LONGEST_RECONCILE, is_true, ours
from recovery.sim.trials.checkers.node_writes import fleet_of, taints_of
from recovery.sim.trials.failure_signs import GPU_CONDITION, MONITOR_TAINT
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_HARDWARE_WORD = "Xid"
"""A message of a trial blames a node if it contains this word."""
_QUICK = timedelta(seconds=60)
"""A process that ends sooner in a starting group counts as an exit, no matter what its message says."""


@dataclass(frozen=True)
class _Exit:
    """A failed process of a pod."""

    seen_at: datetime
    message: str
    ran: timedelta | None
    """None: the kubelet does not say."""


class _OfTenants(CheckerRule):
    """Knows whose each incident is, and when each node last bore a sign of a fault."""

    hears = frozenset({NODES, RECOVERY_CONFIGS, RECOVERY_GROUPS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self.incidents: dict[str, tuple[str, Incident]] = {}
        """The group, as `namespace/name`, and the incident as it was opened, by its id."""
        self._ill: dict[str, datetime | None] = {}
        """When each node last showed a sign of a fault. None: it shows one now."""
        self._entered: set[tuple[str, str]] = set()

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_GROUPS:
            made = self.written(change)
            if made is not None and made.opened and made.after.incident is not None:
                self.incidents[made.after.incident.id] = (str(made.group), made.after.incident)
        elif change.resource == NODES:
            self._note_signs(change, at)
        elif change.type != "DELETED" and ours(change.actor):
            yield from self.fleet_changed(change, at)

    def fleet_changed(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        """Judges a write of the fleet's ledger by a controller."""
        raise NotImplementedError

    def entered(self, change: ObjectChange) -> list[Quarantined]:
        """The nodes that the write quarantines for an incident, without those that it restores to a lost ledger."""
        entries = {(each.node, each.incident): each for each in fleet_of(change.body).quarantined if not each.by}
        new = [each for key, each in entries.items() if key not in self._entered]
        self._entered |= entries.keys()
        return new

    def namespace_of(self, incident: str) -> str:
        """Empty: no ledger has the incident, as for the start of a group."""
        return self.incidents[incident][0].partition("/")[0] if incident in self.incidents else ""

    def is_trusted(self, namespace: str) -> bool:
        return namespace in self.evidence.plan.config.get("quarantine", {}).get("trustedNamespaces", ())

    def was_ill(self, node: str, at: datetime) -> bool:
        """The node may have shown a sign of a fault when the controller read it."""
        until = self._ill.get(node, datetime.min.replace(tzinfo=at.tzinfo))
        return until is None or at - until <= LONGEST_RECONCILE

    def _note_signs(self, change: ObjectChange, at: datetime) -> None:
        name = change.body["metadata"]["name"]
        if change.type != "DELETED" and _shows_sign(change.body):
            self._ill[name] = None
        elif self._ill.get(name, at) is None:
            self._ill[name] = at


def _shows_sign(node: Body) -> bool:
    tainted = any(taint["key"] == MONITOR_TAINT for taint in taints_of(node))
    return tainted or is_true(node, GPU_CONDITION) is not None


class MessagesConfirmed(_OfTenants):
    """No node is quarantined only because of messages from jobs of one namespace: the node shows a sign of a fault, a
    job of another namespace failed there, or the RecoveryConfig trusts the namespace."""

    hears = frozenset({NODES, PODS, RECOVERY_CONFIGS, RECOVERY_GROUPS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._exits: dict[tuple[str, str], dict[tuple[str, str, str], _Exit]] = {}
        """By namespace and node: each exit, by pod, container and the end that the kubelet reports."""
        self._suspected_by: dict[str, set[str]] = {}
        """The namespaces whose jobs ever caused a suspicion against each node."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == PODS:
            self._note_exits(change.body, at)
        else:
            yield from super().saw(change, at)

    def fleet_changed(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        for each in fleet_of(change.body).suspicions:
            namespace = self.namespace_of(each.incident) or each.namespace
            self._suspected_by.setdefault(each.node, set()).add(namespace)
        for entry in self.entered(change):
            yield from self._judge(entry, change.actor, at)

    def _judge(self, entry: Quarantined, actor: str, at: datetime) -> Iterator[Violation]:
        namespace = self.namespace_of(entry.incident)
        if not namespace or self.is_trusted(namespace) or self.was_ill(entry.node, at):
            return
        if self._suspected_by.get(entry.node, set()) - {namespace}:
            return
        began_at = self.incidents[entry.incident][1].started_at - LONGEST_RECONCILE
        exits = [each for each in self._exits.get((namespace, entry.node), {}).values() if each.seen_at >= began_at]
        if exits and all(
            _HARDWARE_WORD in each.message and each.ran is not None and each.ran >= _QUICK for each in exits
        ):
            why = f"only messages of namespace {namespace} blame it"
            yield self.found(at, f"{actor} quarantines {entry.node} for incident {entry.incident}, though {why}")

    def _note_exits(self, pod: Body, at: datetime) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        known = self._exits.setdefault((metadata["namespace"], node), {})
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            for state in ("state", "lastState"):
                ended = (container.get(state) or {}).get("terminated")
                if ended is None or ended["exitCode"] == 0:
                    continue
                key = (metadata["uid"], container["name"], ended.get("finishedAt") or "")
                known.setdefault(key, _Exit(at, ended.get("message") or "", _ran(ended)))


def _ran(ended: Body) -> timedelta | None:
    began_at, ended_at = ended.get("startedAt"), ended.get("finishedAt")
    if began_at is None or ended_at is None:
        return None
    return datetime.fromisoformat(ended_at) - datetime.fromisoformat(began_at)


class NamespaceWithinShare(_OfTenants):
    """Among the nodes that show no sign of a fault, the jobs of one namespace have at most a tenth of the cap
    quarantined, and at least one, unless the RecoveryConfig trusts the namespace."""

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._nodes: set[str] = set()
        """All nodes that ever existed. A controller counts no more than these."""
        self._proven: set[tuple[str, str]] = set()
        """Node and incident of each quarantine at which the node showed a sign of a fault."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == NODES:
            self._nodes.add(change.body["metadata"]["name"])
        yield from super().saw(change, at)

    def fleet_changed(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        added = self.entered(change)
        self._proven |= {(each.node, each.incident) for each in added if self.was_ill(each.node, at)}
        unproven = [
            each
            for each in fleet_of(change.body).quarantined
            if not each.by and (each.node, each.incident) not in self._proven
        ]
        share = max(1, self._cap() // 10)
        for namespace in {self._namespace(each) for each in added if each in unproven}:
            names = [each.node for each in unproven if self._namespace(each) == namespace]
            if namespace and not self.is_trusted(namespace) and len(names) > share:
                what = f"{len(names)} nodes of {share} that namespace {namespace} may have without a sign"
                yield self.found(at, f"{change.actor} quarantines {what}: {', '.join(names)}")

    def _namespace(self, entry: Quarantined) -> str:
        return self.namespace_of(entry.incident) or entry.namespace

    def _cap(self) -> int:
        quarantine = self.evidence.plan.config.get("quarantine", {})
        cap = max(1, len(self._nodes) * int(quarantine.get("maxPercent", 5)) // 100)
        return min(cap, int(quarantine.get("maxNodes", cap)))


class BreakerShared(_OfTenants):
    """No job opens the circuit breaker alone: at most a third of `recoveries`, and at least one, counts from one
    job."""

    def fleet_changed(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        after = fleet_of(change.body)
        limit = self.evidence.plan.config.get("circuitBreaker", {}).get("recoveries")
        if limit is None or after.breaker is None or fleet_of(change.before).breaker is not None:
            return
        of_job = Counter(self._job(each) for each in after.futile)
        counted = sum(min(recoveries, max(1, limit // 3)) for recoveries in of_job.values())
        if counted < limit:
            jobs = ", ".join(f"{recoveries} of {job}" for job, recoveries in sorted(of_job.items()))
            yield self.found(at, f"{change.actor} opens the circuit breaker, where {counted} of {limit} count: {jobs}")

    def _job(self, futile: Futile) -> str:
        return self.incidents[futile.incident][0] if futile.incident in self.incidents else futile.incident
