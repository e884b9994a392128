"""Mistakes in the rules of a policy. Each gives one sentence: the path first, then how to fix it."""

import msgspec
import pytest

from recovery.core.model.rules import Rule
from recovery.core.policy.rule_validation import CLASSES, problems


def rules(*written: dict[str, object]) -> tuple[Rule, ...]:
    """Builds rules as a manifest states them, with name and action only where they matter."""
    named = [{"name": f"r{number}", "action": "RecreateGroup"} | each for number, each in enumerate(written)]
    return msgspec.convert(named, tuple[Rule, ...])


def wrong(*written: dict[str, object]) -> list[str]:
    return list(problems(rules(*written), "spec.rules"))


def codes(operator: str, *values: int) -> dict[str, object]:
    return {"onExitCodes": {"operator": operator, "values": list(values)}}


A: dict[str, object] = {"onClass": ["Killed"]}
B: dict[str, object] = {"onClass": ["UserError"]}

REFUSED: dict[str, tuple[list[dict[str, object]], str]] = {
    "two of one name": (
        [{"name": "gpu", "when": A}, {"when": B}, {"name": "gpu", "when": codes("In", 1)}],
        "spec.rules[2].name: spec.rules[0] is called gpu too; every rule needs a name of its own",
    ),
    "the same asked for again": (
        [{"name": "first", "when": A}, {"when": A, "action": "Ignore"}],
        "spec.rules[1].when: rule first asks for the same and goes before it; remove one of them",
    ),
    "everything, and more below": (
        [{"when": A}, {}, {"when": B}],
        "spec.rules[1].when: it matches every disruption, so no later rule ever applies; move it to the end",
    ),
    "Ignore and nothing else": (
        [{"action": "Ignore"}],
        "spec.rules[0].when: Ignore without any condition would apply to every disruption; say which ones it is about, "
        "or use `restart: None` to have nothing done at all",
    ),
    "FailJob and nothing else": (
        [{"action": "FailJob"}],
        "spec.rules[0].when: FailJob without any condition would apply to every disruption; say which ones it "
        "is about, or use `budget: {limit: 0, onExhausted: FailJob}` to have every failure end the job that "
        "costs budget: a preemption, and what a rule with `charge: false` matches, are still "
        "restarted",
    ),
    "no exit codes": (
        [{"when": codes("In")}],
        "spec.rules[0].when.onExitCodes.values: must have at least one exit code",
    ),
    "too many exit codes": (
        [{"when": codes("NotIn", *range(256))}],
        "spec.rules[0].when.onExitCodes.values: 256 are too many; use at most 255, or the other operator",
    ),
    "exit codes out of order": (
        [{"when": codes("NotIn", 2, 1)}],
        "spec.rules[0].when.onExitCodes.values: must be ordered, and none may stand twice",
    ),
    "an exit code twice": (
        [{"when": codes("In", 1, 1)}],
        "spec.rules[0].when.onExitCodes.values: must be ordered, and none may stand twice",
    ),
    "0 with In": (
        [{"when": codes("In", 0, 1)}],
        "spec.rules[0].when.onExitCodes.values: must not be 0 for the In operator; a container that ended well never "
        "matches",
    ),
    "a condition that no facts keep": (
        [{"when": {"onPodConditions": [{"type": "DisruptionTarget"}, {"type": "Ready", "status": "False"}]}}],
        "spec.rules[0].when.onPodConditions[1].type: Ready says how far a pod has come, not why it was lost, and no "
        "rule reads it; use DisruptionTarget, a condition of your own, or onClass",
    ),
    "a node that is well": (
        [{"when": {"onNodeConditions": [{"type": "Ready"}]}}],
        "spec.rules[0].when.onNodeConditions[0].status: Ready is True on every node that is well; use the other status",
    ),
    "another node that is well": (
        [{"when": {"onNodeConditions": [{"type": "DiskPressure", "status": "False"}]}}],
        "spec.rules[0].when.onNodeConditions[0].status: DiskPressure is False on every node that is well; use the "
        "other status",
    ),
    "no duration": (
        [{"when": {"onNodeConditions": [{"type": "GpuUnhealthy", "for": "a while"}]}}],
        "spec.rules[0].when.onNodeConditions[0].for: 'a while' is not a duration; write it like 24h, 15m, 10s or 500ms",
    ),
    "lookaround": (
        [{"when": {"onMessagePattern": "CUDA(?!.*OOM)"}}],
        "spec.rules[0].when.onMessagePattern: 'CUDA(?!.*OOM)' is no regular expression in RE2 syntax, which has "
        "neither lookaround nor backreferences; correct it (invalid perl operator: (?!)",
    ),
    "half of an expression": (
        [{"when": {"onMessagePattern": "("}}],
        "spec.rules[0].when.onMessagePattern: '(' is no regular expression in RE2 syntax, which has neither lookaround "
        "nor backreferences; correct it (missing ): ()",
    ),
    "half of a character": (
        [{"when": {"onMessagePattern": "a\ud800"}}],
        "spec.rules[0].when.onMessagePattern: 'a\\ud800' is no regular expression in RE2 syntax, which has neither "
        "lookaround nor backreferences; correct it (it holds half of a character)",
    ),
    "any message": (
        [{"when": {"onMessagePattern": ".*"}}],
        "spec.rules[0].when.onMessagePattern: '.*' matches every message, an empty one too; say what must stand in it",
    ),
    "no class": (
        [{"when": {"onClass": ["Killed", "Hardware"]}}],
        "spec.rules[0].when.onClass[1]: there is no class 'Hardware'; use one of NodeLost, HardwareFault, "
        "PodDisrupted, PodDeleted, Killed, OutOfMemory, Crashed, UserError, CommunicationFailure, JobFailed, Unknown",
    ),
    "a person's wish": (
        [{"when": {"onClass": ["Manual"]}}],
        "spec.rules[0].when.onClass[0]: no rule is asked about what a person asks for; remove Manual",
    ),
}


@pytest.mark.parametrize(("written", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_bad_rule_is_refused_by_its_field(written: list[dict[str, object]], sentence: str) -> None:
    assert wrong(*written) == [sentence]


RIGHT: dict[str, list[dict[str, object]]] = {
    "no rules": [],
    "one for everything": [{}],
    "Ignore for the rest": [{"when": A}, {"action": "Ignore"}],
    "FailJob for the rest": [{"when": A}, {"action": "FailJob"}],
    "Ignore of one ReplicatedJob": [{"action": "Ignore", "when": {"targetReplicatedJobs": ["launcher"]}}],
    "0 with NotIn": [{"when": codes("NotIn", 0, 42)}],
    "255 exit codes": [{"when": codes("In", *range(1, 256))}],
    "a node that does not answer": [
        {"when": {"onNodeConditions": [{"type": "Ready", "status": "Unknown", "for": "5m"}]}}
    ],
    "a node under pressure": [{"when": {"onNodeConditions": [{"type": "DiskPressure"}]}}],
    "a pod that found no node": [{"when": {"onPodConditions": [{"type": "PodScheduled", "status": "False"}]}}],
    "every class": [{"when": {"onClass": list(CLASSES)}}],
    "an expression": [{"when": {"onMessagePattern": r"(?i)xid\s+(79|48)\b"}}],
}


@pytest.mark.parametrize("written", RIGHT.values(), ids=RIGHT)
def test_a_right_rule_is_taken(written: list[dict[str, object]]) -> None:
    assert wrong(*written) == []


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = wrong(
        {"when": codes("In", 0)},
        {"name": "r0", "when": {"onClass": ["Hardware"], "onMessagePattern": "("}},
    )
    assert [each.partition(": ")[0] for each in told] == [
        "spec.rules[0].when.onExitCodes.values",
        "spec.rules[1].name",
        "spec.rules[1].when.onMessagePattern",
        "spec.rules[1].when.onClass[0]",
    ]
