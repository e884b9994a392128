"""Matches the rules of a policy with a disruption: which rule decides, and whether late evidence could change that.

A rule is matched with one cause at a time. Its requirements on exits and their messages apply only to the exits that
are part of this cause. If a pod was drained, deleted or lost with its node, the exits of its containers are
consequences, and no rule sees them.
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
"""A message pattern is searched in the first characters of a text, at most this many. The kubelet keeps no more."""
_EXCERPT_MAX = 80
_ALWAYS = datetime.min.replace(tzinfo=UTC)


class Match(msgspec.Struct, frozen=True):
    """A rule that matches a finding."""

    rule: Rule
    number: int
    """Its place in `spec.rules`, from 0."""
    why: str
    """What matched, in words: `exit code 42 of container trainer is in [42, 43]`."""
    finding: Finding


class Answer(msgspec.Struct, frozen=True):
    """What the rules say about a disruption."""

    match: Match | None = None
    """The rule that decides. None: no rule matches, and `restart` applies."""
    also: tuple[Match, ...] = ()
    """The same rule matches these causes too, each on another node. Empty if the rule does not act on nodes."""
    ignored: tuple[Match, ...] = ()
    """The causes that an Ignore rule removes. The remaining ones decide. None remains: the disruption is ignored."""
    changes_at: datetime | None = None
    """When an earlier rule could match only because time passes (`for` of a node condition). None: never."""


class _Holds(msgspec.Struct, frozen=True):
    """A requirement that holds, or will hold."""

    why: str
    """In words."""
    due: datetime = _ALWAYS
    """From when on it holds. If that is in the future, it holds only if nothing changes until then."""
    since: datetime | None = None
    """The same as the facts date it, by clocks that may differ from ours. None: the facts do not date it."""


def ask(rules: tuple[Rule, ...], disruption: Disruption, snapshot: Snapshot, now: datetime) -> Answer:
    """The first rule that matches the root of the disruption.

    Only causes are matched. A consequence (`Finding.cascade`) matches no rule unless there is no cause, so a FailJob
    rule never sees the exit code of a cascade. If an Ignore rule matches a cause, that cause is removed, and the next
    one becomes the root. Consequences are ignored with their cause. What a person asks for is no failure, so no rule
    applies to it.
    """
    causes = [finding for finding in disruption.findings if not finding.cascade] or list(disruption.findings)
    ignored: list[Match] = []
    decides: Match | None = None
    also: tuple[Match, ...] = ()
    changes: list[datetime] = []
    for number, finding in enumerate(causes):
        if finding.evidence.kind is LossKind.MANUAL:
            continue
        match = _first(rules, finding, snapshot, now, changes)
        if match is None or match.rule.action is not RuleAction.IGNORE:
            decides = match
            also = _on_other_nodes(rules, match, causes[number + 1 :], snapshot, now) if match is not None else ()
            break
        ignored.append(match)
    return Answer(decides, also, tuple(ignored), min(changes, default=None))


def _on_other_nodes(
    rules: tuple[Rule, ...], decides: Match, others: Iterable[Finding], snapshot: Snapshot, now: datetime
) -> tuple[Match, ...]:
    """The first cause on each other node that the deciding rule matches as well."""
    if decides.rule.action not in {RuleAction.REPLACE_NODE, RuleAction.AVOID_NODE}:
        return ()
    seen, found = {_node_of(decides.finding), ""}, []
    for finding in others:
        node = _node_of(finding)
        match = _first(rules, finding, snapshot, now, []) if node not in seen else None
        if match is not None and match.number == decides.number:
            seen.add(node)
            found.append(match)
    return tuple(found)


def _node_of(finding: Finding) -> str:
    """Empty: it is not known."""
    return finding.evidence.pod.node if finding.evidence.pod is not None else ""


def _first(
    rules: tuple[Rule, ...], finding: Finding, snapshot: Snapshot, now: datetime, changes: list[datetime]
) -> Match | None:
    """The first rule that matches. Adds to `changes` when earlier rules would match only because time passes."""
    for number, rule in enumerate(rules):
        holds = _met(rule.when, finding, snapshot)
        if holds is None or (rule.action is RuleAction.FAIL_JOB and _is_secondary(finding, rule.when, snapshot)):
            continue
        if holds.due <= now:
            return Match(rule, number, holds.why, finding)
        changes.append(holds.due)
    return None


def _is_secondary(finding: Finding, when: When, snapshot: Snapshot) -> bool:
    """The exit follows from a loss that is not among the findings, so its code is no reason to fail the job. A rule
    with a message pattern applies nevertheless. So does a rule with a class, unless the exit follows a known loss.
    """
    item = finding.evidence
    if when.on_message_pattern:
        return False
    return (waited(item, snapshot) and not when.on_class) or follows_a_known_loss(item, snapshot)


def may_change(rules: tuple[Rule, ...], disruption: Disruption, snapshot: Snapshot) -> bool:
    """Late evidence could make an Ignore or FailJob rule decide, or reverse such a decision.

    False if no such rule applies to the ReplicatedJobs of the disruption.
    """
    failures = [each.evidence for each in disruption.findings if each.evidence.kind is not LossKind.MANUAL]
    names = {_replicated_job(item, snapshot) for item in failures}
    return any(
        rule.action in {RuleAction.IGNORE, RuleAction.FAIL_JOB} and _may_target(rule, names)
        for rule in rules
        if failures
    )


def _may_target(rule: Rule, names: set[str]) -> bool:
    """The rule may apply to these ReplicatedJobs. An empty name is unknown, so it may be any of them."""
    targets = rule.when.target_replicated_jobs
    return not targets or "" in names or not names.isdisjoint(targets)


# --- faults of nodes under running members --------------------------------------------------------------------------


def node_faults(rules: tuple[Rule, ...], snapshot: Snapshot, now: datetime) -> tuple[Evidence, ...]:
    """Evidence that a member runs on a node whose conditions or taints a rule names.

    Only rules about nodes alone (conditions, taints, ReplicatedJobs) with action RecreateGroup, ReplaceNode or
    AvoidNode create it: their authors want action although the member still runs. The key names the pod and the rule,
    so a rule acts once for each pod. The evidence dates from when the rule began to hold. It has no date if the taint
    has no `timeAdded` and no other requirement is dated. Then it counts only for ReplaceNode: a group that tolerates
    the taint may return to the node, and RecreateGroup would repeat forever.
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
    """When more of them will appear only because time passes (`for`). None: never."""
    ahead = (holds.due for _, _, holds in _faults(rules, snapshot) if holds.due > now)
    return min(ahead, default=None)


def _faults(rules: Iterable[Rule], snapshot: Snapshot) -> Iterator[tuple[PodFacts, Rule, _Holds]]:
    """Each running member with each such rule that holds for its node, or will hold because time passes."""
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
    """Checks only what the rule requires of the node."""
    node = snapshot.nodes.get(pod.node)
    wanted = []
    if when.on_node_conditions:
        wanted.append(_any(_node_condition(each, node) for each in when.on_node_conditions))
    if when.on_node_taints:
        wanted.append(_any(_node_taint(each, node) for each in when.on_node_taints))
    return _all(wanted)


def node_signs(when: When, node: NodeFacts) -> str:
    """All conditions and taints of the node that meet the rule, as `Quarantined.release_when` names them:
    `GpuUnhealthy, GpuHealthy=False, vendor.example/bad`. Empty: the rule names none, or the node has none of them.
    """
    conditions = (each for each in when.on_node_conditions if _node_condition(each, node) is not None)
    taints = (each.key for each in when.on_node_taints if _node_taint(each, node) is not None)
    signs = (each.type if each.status == "True" else f"{each.type}={each.status}" for each in conditions)
    return ", ".join(dict.fromkeys((*signs, *taints)))


# --- the requirements of a rule -------------------------------------------------------------------------------------


def _met(when: When, finding: Finding, snapshot: Snapshot) -> _Holds | None:
    """All requirements of the rule, for this cause. None: one of them does not hold."""
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
    """The item that holds from the earliest moment on, of several the first in the list. None: no item holds."""
    return min((each for each in items if each is not None), key=lambda each: each.due, default=None)


def _class(when: When, finding: Finding) -> _Holds | None:
    found = str(finding.disruption_class)
    return _Holds(f"the class is {found}") if found in when.on_class else None


def _target(when: When, item: Evidence, snapshot: Snapshot) -> _Holds | None:
    found = _replicated_job(item, snapshot)
    return _Holds(f"it belongs to ReplicatedJob {found}") if found in when.target_replicated_jobs else None


def _replicated_job(item: Evidence, snapshot: Snapshot) -> str:
    """The ReplicatedJob of the evidence. Empty: its Job is not known."""
    return next((job.replicated_job for job in snapshot.jobs if job.uid == item.job_uid), "")


def _exit_code(wanted: ExitCodes, item: Evidence) -> _Holds | None:
    """Matches as the Job controller does, except that a container beside the training matches only if it is named."""
    for container, ended in _exits(item, wanted.container_name):
        listed = ended.code in wanted.values
        if listed != (wanted.operator is Operator.IN):
            continue
        values = ", ".join(map(str, wanted.values))
        verb = "is in" if listed else "is not in"
        return _Holds(f"exit code {ended.code} of container {container} {verb} [{values}]")
    return None


def _exits(item: Evidence, name: str | None = None) -> Iterator[tuple[str, ExitFacts]]:
    """The exits that are part of the evidence: all of a failed pod, or the one before a restart in place.

    `name`: only exits of this container. None: exits of training and init containers. A sidecar ends when the training
    has ended (the kubelet sends SIGTERM to native sidecars), so a rule that matches its exit would decide every loss.
    If the training containers are not known, None stands for no container.
    Exit code 0 never matches, not even NotIn. Earlier restarts were separate evidence, and do not count again.
    """
    pod = item.pod
    if pod is None:
        return
    unnamed = (*pod.init_containers, *pod.containers) if pod.training_known else ()
    for container in unnamed if name is None else (each for each in pod.all_containers if each.name == name):
        mine = (container.exit, container.last_exit) if item.kind is LossKind.CONTAINER_RESTARTED else ()
        ended = container.exit if item.kind is LossKind.POD_FAILED else item.exit if item.exit in mine else None
        if item.kind is LossKind.PROCESS_ENDED and container in pod.containers:
            ended = item.exit  # torchrun's own exit code would always be 1
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
    """The texts in which a message pattern is searched, each with the place where it stands."""
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
    """The node has the condition for as long as the rule requires. How long an undated one has held is not known."""
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
    """The condition Ready, which the facts keep in separate fields."""
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
