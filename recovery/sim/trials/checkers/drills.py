"""Rules about drills: which incidents are drills, what they cost, and that they leave nothing on nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from recovery.core.drill.node_marks import CORDON_MANAGER, parsed_mark
from recovery.core.model.drill import DRILL_CONDITION_TYPE, NODE_MARK_ANNOTATION, DrillFacts, NodeMark
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import AttemptAction, Incident
from recovery.core.model.reason import Reason
from recovery.kube.projections.drills import decode_drill
from recovery.ports import NODES, PODS, RECOVERY_CONFIGS, RECOVERY_DRILLS, RECOVERY_GROUPS
from recovery.scenario.modelled_job import PodFailures
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import deletion_begins, is_true, ours
from recovery.sim.trials.checkers.ledger_changes import LedgerChange
from recovery.sim.trials.checkers.node_writes import cordoned, fleet_of, taints_of
from recovery.sim.trials.checkers.policy_rules import rule_of
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_RESIZES = frozenset({AttemptAction.GROW, AttemptAction.SHRINK})
_WHOLE_SECONDS = timedelta(seconds=1)
"""The API server dates what happens to pods in whole seconds."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class _Harm:
    """What first happened to a pod that runs."""

    revision: int
    at: datetime
    group: GroupKey
    actor: str


class DrillNamed(CheckerRule):
    """An incident is a drill only if a RecoveryDrill had named a pod of the group, and the controller had acknowledged
    that, before anything happened to the pod. What a drill has caused costs no budget and makes no node suspect. In a
    trial with drills, the first restart of any other incident is charged, unless a person asked for it, a rule, the
    podFailurePolicy or the storm of the incident makes it free, or it only changes the size or the nodes."""

    hears = frozenset({PODS, RECOVERY_DRILLS, RECOVERY_GROUPS, RECOVERY_CONFIGS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._named: dict[str, tuple[str, int]] = {}
        """By UID of the pod: UID of the drill that named it, and the revision of the acknowledgment."""
        self._harmed: dict[str, _Harm] = {}
        self._drills: dict[str, str] = {}
        """The drill of each incident that is one, by id of the incident."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if not self.evidence.plan.drills:
            return
        if change.resource == PODS:
            self._note_pod(change, at)
        elif change.resource == RECOVERY_DRILLS:
            self._note_drill(change)
        elif change.resource == RECOVERY_CONFIGS:
            yield from self._suspects(change, at)
        elif (made := self.written(change)) is not None and made.after.incident is not None:
            for sentence in self._wrong(made, made.after.incident):
                yield self.found(at, sentence, made.group)

    def _note_drill(self, change: ObjectChange) -> None:
        drill = decode_drill(_encode(change.body)).value
        for pod in drill.spec.pods[: drill.status.named]:
            self._named.setdefault(pod.pod_uid, (drill.uid, change.revision))

    def _note_pod(self, change: ObjectChange, at: datetime) -> None:
        uid = change.body["metadata"]["uid"]
        group = self.world.group_of(PODS, change.body)
        if uid not in self._harmed and group is not None and (deletion_begins(change) or _has_ended(change.body)):
            self._harmed[uid] = _Harm(change.revision, at, group, change.actor)

    def _suspects(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        for each in fleet_of(change.body).suspicions:
            if each.incident in self._drills and each not in fleet_of(change.before).suspicions:
                yield self.found(at, f"{change.actor} makes node {each.node} suspect of drill {each.incident}")

    def _wrong(self, made: LedgerChange, incident: Incident) -> Iterator[str]:
        drill = incident.drill.uid if incident.drill is not None else ""
        if made.opened and drill:
            self._drills[incident.id] = drill
            if not self._is_named(made.group, drill):
                yield f"incident {incident.id} is a drill, and none of its pods was named before it was lost"
        charged = made.after.totals.charged > made.before.totals.charged
        if charged and drill and incident.restarts == 1 and not self._strangers(made.group, drill, incident):
            yield f"incident {incident.id} is charged for what drill {drill} has caused"
        if made.trigger is None or charged or drill or made.by_hand:
            return
        if incident.restarts == 1 and not incident.charged and not self._is_free(made, incident):
            yield f"the restart of incident {incident.id} is not charged, and no drill caused it"

    def _is_named(self, group: GroupKey, drill: str) -> bool:
        named = ((uid, revision) for uid, (by, revision) in self._named.items() if by == drill)
        found = ((self._harmed[uid], revision) for uid, revision in named if uid in self._harmed)
        return any(harm.group == group and harm.revision > revision for harm, revision in found)

    def _strangers(self, group: GroupKey, drill: str, incident: Incident) -> bool:
        """Something happened to a pod that the drill has not named, and no controller process did it."""
        since = incident.started_at - _WHOLE_SECONDS
        return any(
            harm.group == group
            and harm.at >= since
            and not ours(harm.actor)
            and self._named.get(uid, ("", 0))[0] != drill
            for uid, harm in self._harmed.items()
        )

    def _is_free(self, made: LedgerChange, incident: Incident) -> bool:
        rule, job, added = rule_of(incident), self.evidence.jobs.get(made.group), made.added
        return (
            (rule is not None and not rule.charge)
            or (job is not None and job.pod_failures is not PodFailures.NONE)
            or bool(incident.storm)
            or (added is not None and (added.action in _RESIZES or added.reason is Reason.AVOIDANCE_ENDED))
        )


def _has_ended(pod: Body) -> bool:
    """A container of it has ended, or the pod has."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    return status.get("phase") in {"Failed", "Succeeded"} or any(
        each.get("restartCount", 0) or "terminated" in (each.get("state") or {}) for each in containers
    )


class DrillTakenBack(CheckerRule):
    """When a trial is over, no node has a mark, a taint, a cordon or the condition of a drill that has ended. Two
    undisturbed minutes after its time is over, that is so too if its client has died, except for the condition, which a
    person removes."""

    hears = frozenset({NODES, RECOVERY_DRILLS})
    LATE_AFTER_SECONDS = 120.0

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._drills: dict[str, DrillFacts] = {}
        """As last seen, by UID."""
        self._changed: dict[str, set[str]] = {}
        """By node: what a drill has changed in its spec, in words, and what has not been changed back."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_DRILLS:
            drill = decode_drill(_encode(change.body)).value
            self._drills[drill.uid] = drill
            return
        name = change.body["metadata"]["name"]
        now, before = _spec_words(change.body), _spec_words(change.before)
        if change.actor == CORDON_MANAGER:
            self._changed.setdefault(name, set()).update(now - before)
        if name in self._changed:
            self._changed[name] &= now
        yield from ()

    def _is_late(self, mark: NodeMark, at: datetime) -> bool:
        return not mark.condition and self.world.undisturbed.seconds(mark.expires_at, at) > self.LATE_AFTER_SECONDS

    def ended(self) -> Iterator[Violation]:
        at = self.evidence.ends_at
        for name, node in self.world.nodes.items():
            annotations = node["metadata"].get("annotations") or {}
            mark = parsed_mark(annotations.get(NODE_MARK_ANNOTATION))
            drill = self._drills.get(mark.uid) if mark is not None else None
            if mark is not None and drill is not None and drill.spec.end is None and not self._is_late(mark, at):
                continue
            left = [NODE_MARK_ANNOTATION] if NODE_MARK_ANNOTATION in annotations else []
            left += sorted(self._changed.get(name, ()))
            left += [DRILL_CONDITION_TYPE] if is_true(node, DRILL_CONDITION_TYPE) is not None else []
            if left:
                yield self.found(at, f"a drill has left on node {name}: {', '.join(left)}")


def _spec_words(node: Body | None) -> set[str]:
    words = {f"taint {taint['key']}:{taint['effect']}" for taint in taints_of(node)}
    return words | {"cordon"} if cordoned(node) else words
