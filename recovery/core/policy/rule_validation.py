"""Validates the rules of a policy beyond what a schema can. If a rule is invalid, the controller refuses the policy.

A rule that can never decide, or that decides everything, is a mistake of its author that may cost a job. Such a rule is
refused as well.
"""

from collections.abc import Iterator

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.model import patterns
from recovery.core.model.durations import unreadable
from recovery.core.model.rules import ExitCodes, NodeConditionRule, Operator, PodConditionRule, Rule, RuleAction, When

_NO_FAILURES = frozenset({DisruptionClass.MANUAL, DisruptionClass.GROWTH})
CLASSES = tuple(str(each) for each in DisruptionClass if each not in _NO_FAILURES)
"""Classes that a rule can name. No rule is matched with a person's request, or with a group that grows."""
EXIT_CODES_MAX = 255
_PROGRESS = frozenset({"Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"})
"""Pod conditions that only show how far a pod has started. The facts do not contain them."""
_WELL = frozenset({("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")})
"""Conditions that every healthy node has."""
_INSTEAD = {
    RuleAction.IGNORE: "use `restart: None` to have nothing done at all",
    # A recovery that is not charged does not depend on the budget.
    RuleAction.FAIL_JOB: (
        "use `budget: {limit: 0, onExhausted: FailJob}` to have every failure end the job that costs budget: a "
        "preemption, and what a rule with `charge: false` matches, are still restarted"
    ),
}


def problems(rules: tuple[Rule, ...], path: str) -> Iterator[str]:
    """One sentence for each problem: the path of the field, what is wrong, and how to fix it."""
    for number, rule in enumerate(rules):
        here = f"{path}[{number}]"
        yield from _twice(rule, rules[:number], path, here)
        yield from _of_everything(rule, number, len(rules), here)
        yield from _of_when(rule.when, f"{here}.when")


def _twice(rule: Rule, before: tuple[Rule, ...], path: str, here: str) -> Iterator[str]:
    for number, other in enumerate(before):
        if other.name == rule.name:
            yield f"{here}.name: {path}[{number}] is called {rule.name} too; every rule needs a name of its own"
            break
    for other in before:
        # `_of_everything` reports rules below a rule with an empty `when`.
        if other.when == rule.when != When():
            yield f"{here}.when: rule {other.name} asks for the same and goes before it; remove one of them"
            break


def _of_everything(rule: Rule, number: int, count: int, here: str) -> Iterator[str]:
    """A rule with an empty `when` matches every disruption. It must be the last, and not Ignore or FailJob alone."""
    if rule.when != When():
        return
    if number < count - 1:
        yield f"{here}.when: it matches every disruption, so no later rule ever applies; move it to the end"
    elif count == 1 and rule.action in _INSTEAD:
        yield (
            f"{here}.when: {rule.action} without any condition would apply to every disruption; say which ones it is "
            f"about, or {_INSTEAD[rule.action]}"
        )


def _of_when(when: When, path: str) -> Iterator[str]:
    if when.on_exit_codes is not None:
        yield from _of_exit_codes(when.on_exit_codes, f"{path}.onExitCodes")
    for number, pod_condition in enumerate(when.on_pod_conditions):
        yield from _of_pod_condition(pod_condition, f"{path}.onPodConditions[{number}]")
    for number, node_condition in enumerate(when.on_node_conditions):
        yield from _of_node_condition(node_condition, f"{path}.onNodeConditions[{number}]")
    if when.on_message_pattern is not None:
        yield from _of_pattern(when.on_message_pattern, f"{path}.onMessagePattern")
    for number, name in enumerate(when.on_class):
        if name == DisruptionClass.MANUAL:
            yield f"{path}.onClass[{number}]: no rule is asked about what a person asks for; remove {name}"
        elif name not in CLASSES:
            yield f"{path}.onClass[{number}]: there is no class {name!r}; use one of {', '.join(CLASSES)}"


def _of_exit_codes(wanted: ExitCodes, path: str) -> Iterator[str]:
    """The limits of a Job's podFailurePolicy (`validatePodFailurePolicyRuleOnExitCodes` of Kubernetes)."""
    values = wanted.values
    if not values:
        yield f"{path}.values: must have at least one exit code"
    if len(values) > EXIT_CODES_MAX:
        yield f"{path}.values: {len(values)} are too many; use at most {EXIT_CODES_MAX}, or the other operator"
    if list(values) != sorted(set(values)):
        yield f"{path}.values: must be ordered, and none may stand twice"
    if wanted.operator is Operator.IN and 0 in values:
        yield f"{path}.values: must not be 0 for the In operator; a container that ended well never matches"


def _of_pod_condition(wanted: PodConditionRule, path: str) -> Iterator[str]:
    if wanted.type in _PROGRESS or (wanted.type, wanted.status) == ("PodScheduled", "True"):
        yield (
            f"{path}.type: {wanted.type} says how far a pod has come, not why it was lost, and no rule reads it; "
            "use DisruptionTarget, a condition of your own, or onClass"
        )


def _of_node_condition(wanted: NodeConditionRule, path: str) -> Iterator[str]:
    if (wanted.type, wanted.status) in _WELL:
        yield f"{path}.status: {wanted.type} is {wanted.status} on every node that is well; use the other status"
    yield from unreadable(wanted.held_for, f"{path}.for")


def _of_pattern(pattern: str, path: str) -> Iterator[str]:
    try:
        found = patterns.compiled(pattern)
    except patterns.PatternError as error:
        yield (
            f"{path}: {pattern!r} is no regular expression in RE2 syntax, which has neither lookaround nor "
            f"backreferences; correct it ({error})"
        )
        return
    if found.search("") is not None:
        yield f"{path}: {pattern!r} matches every message, an empty one too; say what must stand in it"
