"""Asks the rules of a policy about a disruption: which one decides, and whether late evidence could still change that.

A rule is asked about one cause at a time. What it says about exits and messages is held against the exits that this
cause is made of: how a container ended because its pod was drained, deleted or lost with its node is the consequence,
and no rule ever sees it.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from recovery.core.diagnosis.classify import Disruption, Finding
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.membership import member_jobs, place, pods_of, stands_still
from recovery.core.diagnosis.secondary import follows_a_known_loss, waited
from recovery.core.model import patterns
from recovery.core.model.durations import DurationError, parse_duration
from recovery.core.model.facts import Condition, ExitFacts, NodeFacts, PodFacts, Snapshot
from recovery.core.model.rules import (
    ExitCodes,
    NodeConditionRule,
    NodeTaintRule,
    Operator,
    PodConditionRule,
    Rule,
    RuleAction,
    When,
)

TEXT_MAX = 4096
"""Of each text that a message pattern is held against, so many characters count; the kubelet keeps no more either."""
_EXCERPT_MAX = 80
_ALWAYS = datetime.min.replace(tzinfo=UTC)


class Match(msgspec.Struct, frozen=True):
    """A rule that matches a finding."""

    rule: Rule
    number: int
    """Its place in `spec.rules`, from 0."""
    why: str
    """What of it matched, in words: `exit code 42 of container trainer is in [42, 43]`."""
    finding: Finding


class Answer(msgspec.Struct, frozen=True):
    """What the rules say about a disruption."""

    match: Match | None = None
    """The rule that decides. None: none matches, and `restart` applies."""
    ignored: tuple[Match, ...] = ()
    """The causes that an Ignore rule takes out; what is left decides. All of them: the disruption is ignored."""
    changes_at: datetime | None = None
    """When time alone could make an earlier rule match (`for` of a node condition). None: never."""


class _Holds(msgspec.Struct, frozen=True):
    """A requirement is met."""

    why: str
    """In words."""
    due: datetime = _ALWAYS
    """From when on; a moment ahead: if nothing changes until then."""
    since: datetime | None = None
    """The same, as far as the facts date it, by clocks that need not agree with ours. None: they do not."""


def ask(rules: tuple[Rule, ...], disruption: Disruption, snapshot: Snapshot, now: datetime) -> Answer:
    """The first rule that matches the root of the disruption.

    Only causes are asked about: what is consequence (`Finding.cascade`) matches no rule, but where nothing else is
    known, so that a FailJob rule never meets the exit code of a cascade. A cause that an Ignore rule matches is taken
    out, and the next one is the root; what is only consequence is ignored with the cause that it follows from. What a
    person asks for is no failure: no rule is asked about it.
    """
    causes = [finding for finding in disruption.findings if not finding.cascade] or list(disruption.findings)
    ignored: list[Match] = []
    decides: Match | None = None
    changes: list[datetime] = []
    for finding in causes:
        if finding.evidence.kind is LossKind.MANUAL:
            continue
        match = _first(rules, finding, snapshot, now, changes)
        if match is None or match.rule.action is not RuleAction.IGNORE:
            decides = match
            break
        ignored.append(match)
    return Answer(decides, tuple(ignored), min(changes, default=None))


def _first(
    rules: tuple[Rule, ...], finding: Finding, snapshot: Snapshot, now: datetime, changes: list[datetime]
) -> Match | None:
    """The first rule that matches; when time alone would make one before it match is added to `changes`."""
    for number, rule in enumerate(rules):
        holds = _met(rule.when, finding, snapshot)
        if holds is None or (rule.action is RuleAction.FAIL_JOB and _is_secondary(finding, rule.when, snapshot)):
            continue
        if holds.due <= now:
            return Match(rule, number, holds.why, finding)
        changes.append(holds.due)
    return None


def _is_secondary(finding: Finding, when: When, snapshot: Snapshot) -> bool:
    """It is the consequence of a loss that is not among the findings: no reason to end a job for its exit code. A rule
    that names its message means it, and so does one that names the class of those who wait.
    """
    item = finding.evidence
    if when.on_message_pattern:
        return False
    return (waited(item, snapshot) and not when.on_class) or follows_a_known_loss(item, snapshot)


def may_change(rules: tuple[Rule, ...], disruption: Disruption, snapshot: Snapshot) -> bool:
    """Evidence that is still to come could make a rule with Ignore or FailJob decide, or unmake such a decision.

    Only where there is such a rule for the ReplicatedJobs of the disruption.
    """
    failures = [each.evidence for each in disruption.findings if each.evidence.kind is not LossKind.MANUAL]
    names = {_replicated_job(item, snapshot) for item in failures}
    return any(
        rule.action in {RuleAction.IGNORE, RuleAction.FAIL_JOB} and _may_target(rule, names)
        for rule in rules
        if failures
    )


def _may_target(rule: Rule, names: set[str]) -> bool:
    """A loss of which it is unknown where it belongs may be of any ReplicatedJob."""
    targets = rule.when.target_replicated_jobs
    return not targets or "" in names or not names.isdisjoint(targets)


# --- faults of nodes under running members --------------------------------------------------------------------------


def node_faults(rules: tuple[Rule, ...], snapshot: Snapshot, now: datetime) -> tuple[Evidence, ...]:
    """Evidence that rules themselves make of nodes: a member runs on one whose conditions or taints a rule names.

    Only of rules that ask for nothing but nodes (conditions, taints, ReplicatedJobs), with action RecreateGroup,
    ReplaceNode or AvoidNode: who writes such a rule wants it acted upon though the member still runs. Its key names the
    pod and the rule, so that it is dealt with once for each pod. It is dated from when the rule began to hold; None: a
    taint does not say (`timeAdded`), and none of the other requirements does. Such a one is evidence for ReplaceNode
    only: a group that tolerates the taint may come back to it, and RecreateGroup would begin again for ever.
    """
    return tuple(
        Evidence(
            key=f"{pod.uid}/rule/{rule.name}",
            kind=LossKind.NODE_FAULT,
            text=f"{place(pod)} runs on a faulty node: {holds.why} (rule {rule.name})",
            job_uid=pod.job_uid,
            at=holds.since,
            pod=pod,
        )
        for pod, rule, holds in _faults(rules, snapshot)
        if holds.due <= now and (holds.since is not None or rule.action is RuleAction.REPLACE_NODE)
    )


def next_node_fault_at(rules: Iterable[Rule], snapshot: Snapshot, now: datetime) -> datetime | None:
    """When time alone (`for`) will make more of them. None: never."""
    ahead = (holds.due for _, _, holds in _faults(rules, snapshot) if holds.due > now)
    return min(ahead, default=None)


def _faults(rules: Iterable[Rule], snapshot: Snapshot) -> Iterator[tuple[PodFacts, Rule, _Holds]]:
    """For each member that runs, every such rule about its node, those that will hold by time alone included."""
    asking = [rule for rule in rules if _asks_of_nodes_alone(rule)]
    if not asking:
        return
    for job in member_jobs(snapshot):
        if stands_still(job):
            continue
        for pod in pods_of(snapshot, job):
            if (
                not (pod.phase == "Running" or pod.running)
                or pod.deleting_since is not None
                or pod.dead_since is not None
            ):
                continue
            for rule in asking:
                targets = rule.when.target_replicated_jobs
                holds = _node_holds(rule.when, pod, snapshot)
                if holds is not None and (not targets or job.replicated_job in targets):
                    yield pod, rule, holds


_LEAVES_THE_NODE = frozenset({RuleAction.RECREATE_GROUP, RuleAction.REPLACE_NODE, RuleAction.AVOID_NODE})


def _asks_of_nodes_alone(rule: Rule) -> bool:
    when = rule.when
    other = when.on_exit_codes or when.on_pod_conditions or when.on_message_pattern or when.on_class
    nodes = when.on_node_conditions or when.on_node_taints
    return bool(nodes) and not other and rule.action in _LEAVES_THE_NODE


def _node_holds(when: When, pod: PodFacts, snapshot: Snapshot) -> _Holds | None:
    """What it asks of nodes, and nothing else of it."""
    node = snapshot.nodes.get(pod.node)
    wanted = []
    if when.on_node_conditions:
        wanted.append(_any(_node_condition(each, node) for each in when.on_node_conditions))
    if when.on_node_taints:
        wanted.append(_any(_node_taint(each, node) for each in when.on_node_taints))
    return _all(wanted)


def node_signs(when: When, node: NodeFacts) -> str:
    """All conditions and taints of the node that meet the rule, as `Quarantined.release_when` names them:
    `GpuUnhealthy, GpuHealthy=False, vendor.example/bad`. Empty: the rule asks for none, or the node has none of them.
    """
    conditions = (each for each in when.on_node_conditions if _node_condition(each, node) is not None)
    taints = (each.key for each in when.on_node_taints if _node_taint(each, node) is not None)
    signs = (each.type if each.status == "True" else f"{each.type}={each.status}" for each in conditions)
    return ", ".join(dict.fromkeys((*signs, *taints)))


# --- the requirements of a rule -------------------------------------------------------------------------------------


def _met(when: When, finding: Finding, snapshot: Snapshot) -> _Holds | None:
    """All that the rule asks for, of this cause. None: something of it does not hold."""
    item = finding.evidence
    wanted: list[_Holds | None] = []
    if when.on_class:
        wanted.append(_class(when, finding))
    if when.target_replicated_jobs:
        wanted.append(_target(when, item, snapshot))
    if when.on_exit_codes is not None:
        wanted.append(_exit_code(when.on_exit_codes, item))
    if when.on_pod_conditions:
        wanted.append(_any(_pod_condition(each, item.pod) for each in when.on_pod_conditions))
    if when.on_message_pattern is not None:
        wanted.append(_message(when.on_message_pattern, item))
    if when.on_node_conditions or when.on_node_taints:
        wanted.append(_node_holds(when, item.pod, snapshot) if item.pod is not None else None)
    return _all(wanted) if wanted else _Holds("it matches every disruption")


def _all(wanted: list[_Holds | None]) -> _Holds | None:
    held = [each for each in wanted if each is not None]
    if len(held) < len(wanted):
        return None
    dated = [each.since for each in held if each.since is not None]
    return _Holds(" and ".join(each.why for each in held), max(each.due for each in held), max(dated, default=None))


def _any(items: Iterable[_Holds | None]) -> _Holds | None:
    """One that holds, else the one that will first; of several, the first of the list."""
    return min((each for each in items if each is not None), key=lambda each: each.due, default=None)


def _class(when: When, finding: Finding) -> _Holds | None:
    found = str(finding.disruption_class)
    return _Holds(f"the class is {found}") if found in when.on_class else None


def _target(when: When, item: Evidence, snapshot: Snapshot) -> _Holds | None:
    found = _replicated_job(item, snapshot)
    return _Holds(f"it belongs to ReplicatedJob {found}") if found in when.target_replicated_jobs else None


def _replicated_job(item: Evidence, snapshot: Snapshot) -> str:
    """Empty: its Job is not known."""
    return next((job.replicated_job for job in snapshot.jobs if job.uid == item.job_uid), "")


def _exit_code(wanted: ExitCodes, item: Evidence) -> _Holds | None:
    """As the Job controller matches them, but that a container beside the training has to be named."""
    for container, ended in _exits(item, wanted.container_name):
        listed = ended.code in wanted.values
        if listed != (wanted.operator is Operator.IN):
            continue
        values = ", ".join(map(str, wanted.values))
        verb = "is in" if listed else "is not in"
        return _Holds(f"exit code {ended.code} of container {container} {verb} [{values}]")
    return None


def _exits(item: Evidence, name: str | None = None) -> Iterator[tuple[str, ExitFacts]]:
    """The exits that the evidence is made of: all of a failed pod, or the one that was followed by a restart in place.

    `name`: of this container alone. None: of the training and of init containers, because a sidecar ends when the
    training has ended (a kubelet sends native sidecars SIGTERM), and a rule about that exit would decide about every
    loss. Where nothing is known to train, exits count for nothing.
    A container that ended well never matches, under NotIn neither. Earlier restarts were evidence of their own, and are
    not counted once more.
    """
    pod = item.pod
    if pod is None:
        return
    unnamed = (*pod.init_containers, *pod.containers) if pod.training_known else ()
    for container in unnamed if name is None else (each for each in pod.all_containers if each.name == name):
        mine = (container.exit, container.last_exit) if item.kind is LossKind.CONTAINER_RESTARTED else ()
        ended = container.exit if item.kind is LossKind.POD_FAILED else item.exit if item.exit in mine else None
        if ended is not None and ended.code != 0:
            yield container.name, ended


def _pod_condition(wanted: PodConditionRule, pod: PodFacts | None) -> _Holds | None:
    if pod is None:
        return None
    found = next((each for each in pod.conditions if _is(each, wanted)), None)
    return None if found is None else _Holds(f"pod {pod.name} has condition {_shown(found)}")


def _message(pattern: str, item: Evidence) -> _Holds | None:
    for where, text in _texts(item):
        found = patterns.excerpt(pattern, text[:TEXT_MAX])
        if found is not None:
            shown = " ".join(found.split())
            cut = shown if len(shown) <= _EXCERPT_MAX else f"{shown[:_EXCERPT_MAX]}..."
            return _Holds(f"the {where} matches {pattern}: {cut!r}" if cut else f"the {where} matches {pattern}")
    return None


def _texts(item: Evidence) -> Iterator[tuple[str, str]]:
    """What a message pattern is held against: where it stands, and what it says."""
    pod = item.pod
    if pod is None:
        return
    for container, ended in _exits(item):
        if ended.message:
            yield f"termination message of container {container}", ended.message
    for each in (*pod.init_containers, *pod.containers):
        if each.waiting_reason:
            yield f"waiting reason of container {each.name}", each.waiting_reason
        if each.waiting_message:
            yield f"waiting message of container {each.name}", each.waiting_message
    if pod.message:
        yield f"message of pod {pod.name}", pod.message


def _node_condition(wanted: NodeConditionRule, node: NodeFacts | None) -> _Holds | None:
    """As long as it asks for. Of a condition without a time it is unknown how long it has held."""
    if node is None:
        return None
    found = next((each for each in (_readiness(node), *node.conditions) if _is(each, wanted)), None)
    if found is None:
        return None
    try:
        held_for = parse_duration(wanted.held_for, "for")
    except DurationError:
        return None
    words = f"node {node.name} has condition {_shown(found)}"
    if not held_for:
        return _Holds(words, since=found.since)
    if found.since is None:
        return None
    due = found.since + held_for
    return _Holds(f"{words} for {wanted.held_for}", due, due)


def _readiness(node: NodeFacts) -> Condition:
    """The condition Ready, which the facts keep in fields of its own."""
    status = "True" if node.ready else "False" if node.reachable else "Unknown"
    return Condition("Ready", status, reason=node.ready_reason, since=node.ready_since)


def _node_taint(wanted: NodeTaintRule, node: NodeFacts | None) -> _Holds | None:
    for taint in node.taints if node is not None else ():
        same_value = wanted.value is None or wanted.value == taint.value
        same_effect = wanted.effect is None or wanted.effect == taint.effect
        if wanted.key == taint.key and same_value and same_effect:
            value = f"={taint.value}" if taint.value else ""
            name = node.name if node is not None else ""
            return _Holds(f"node {name} has taint {taint.key}{value}:{taint.effect}", since=taint.since)
    return None


def _is(found: Condition, wanted: PodConditionRule | NodeConditionRule) -> bool:
    return (found.type, found.status) == (wanted.type, wanted.status) and wanted.reason in {"", found.reason}


def _shown(condition: Condition) -> str:
    reason = f" ({condition.reason})" if condition.reason else ""
    return f"{condition.type}={condition.status}{reason}"
