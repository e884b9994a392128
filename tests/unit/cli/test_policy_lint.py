"""`recovery lint` of our own kinds: the findings that the API server and the webhook would give, without either."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recovery.cli.lint_checks import lint_all
from recovery.launch.documents import documents
from recovery.launch.findings import Severity
from tests.unit.cli.manifests import recovery

REPOSITORY = Path(__file__).parents[3]


def told(kind: str, spec: str, name: str = "default", namespace: str = "research") -> list[tuple[int, str, str]]:
    """Line, code and fix of each finding. The spec begins at line 5."""
    where = f", namespace: {namespace}" if kind == "RecoveryPolicy" else ""
    text = (
        f"apiVersion: recovery.trainjob.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}{where}}}\nspec:\n{spec}\n"
    )
    given = documents(text)
    return [
        (given[0].line_of(finding.place.path), f"{finding.code.name}: {finding.message}", finding.fix)
        for finding in lint_all(given)
    ]


def test_three_slips_are_told_at_once_each_at_its_line_with_its_fix() -> None:
    assert told("RecoveryPolicy", "  mode: Enforced\n  budget:\n    limt: 4\n    window: soon") == [
        (
            5,
            'policy-refused: spec.mode: Unsupported value: "Enforced": supported values: "Observe", "Enforce"',
            "did you mean Enforce?",
        ),
        (7, "unknown-field: there is no field spec.budget.limt", "did you mean limit? Else remove it"),
        (
            8,
            'policy-refused: spec.budget.window: Invalid value: "soon": not a duration',
            "write it like 24h, 15m, 10s or 500ms",
        ),
    ]


def test_a_value_that_breaks_the_schema_is_told_once_and_hides_no_rule_of_others() -> None:
    spec = "  rules:\n  - name: 7\n    action: Ignore\n  teardown: {graceSeconds: none}\n  timeouts: {start: 15}"
    found = [(line, said.split(":")[1].strip()) for line, said, _ in told("RecoveryPolicy", spec)]
    assert found == [(6, "spec.rules[0].name"), (8, "spec.teardown.graceSeconds"), (9, "spec.timeouts.start")]


LOOK_UP = "see docs/reference.md for what the field takes"


@pytest.mark.parametrize(
    ("spec", "line", "said", "fix"),
    [
        ("  mode: 'En\"forced'", 5, 'spec.mode: Unsupported value: "En\\"forced"', "did you mean Enforce?"),
        (
            "  rules:\n  - name: a\n    action: Ignore\n    when: {onClass: [Preempted]}",
            8,
            'spec.rules[0].when.onClass[0]: Unsupported value: "Preempted"',
            "Preempted is a cause of class PodDisrupted: write PodDisrupted",
        ),
        ("  priority: high", 5, "spec.priority: Invalid value", "write a whole number"),
        ("  rules:\n  - action: FailJob", 6, "spec.rules[0].name: Required value", "write spec.rules[0].name"),
        (
            "  rules:\n  - name: a\n    action: RestartInPlace",
            7,
            "spec.rules[0].action: RestartInPlace needs spec.inPlace.enabled: true",
            "add it, or use RecreateGroup",
        ),
        (
            "  rules:\n  - name: a\n    action: Shrink",
            7,
            "spec.rules[0].action: Shrink needs spec.elastic, which says how far",
            "add spec.elastic, or use RecreateGroup",
        ),
        (
            "  elastic: {minNodes: 5, maxNodes: 4}",
            5,
            "spec.elastic.minNodes: Invalid value: must not be larger than maxNodes",
            LOOK_UP,
        ),
        ("  backoff: {initial: 10m}", 5, "spec.backoff.max: Invalid value: must not be shorter than initial", LOOK_UP),
        (
            "  selector:\n    matchLabels:\n      a.b/c: 5",
            7,
            "spec.selector.matchLabels.a.b/c: ",
            "write text in quotes",
        ),
        ("  - a", 4, "spec: Invalid value", "write an object"),
    ],
)
def test_what_the_api_server_refuses_is_an_error_at_its_line(spec: str, line: int, said: str, fix: str) -> None:
    ((at, message, fix),) = told("RecoveryPolicy", spec)
    assert (at, fix) == (line, fix)
    assert message.startswith(f"policy-refused: {said}")


def test_a_rule_of_the_whole_object_is_told_at_its_beginning() -> None:
    ((line, message, _),) = told("RecoveryConfig", "  {}", name="other")
    assert (line, message) == (
        1,
        "policy-refused: Invalid value: there is one RecoveryConfig in a cluster, and its name is default",
    )


def test_fields_below_one_that_is_unknown_are_not_told_of_as_well() -> None:
    assert [message for _, message, _ in told("ClusterRecoveryPolicy", "  elastics: {minNodez: 2}\n  rulez: []")] == [
        "unknown-field: there is no field spec.elastics",
        "unknown-field: there is no field spec.rulez",
    ]


def test_labels_are_no_fields() -> None:
    assert told("RecoveryPolicy", "  selector: {matchLabels: {team: a, example.com/team: b}}") == []


def policies(**specs: Mapping[str, Any]) -> str:
    return "\n---\n".join(
        f"apiVersion: recovery.trainjob.dev/v1alpha1\nkind: RecoveryPolicy\nmetadata: {{name: {name}}}\nspec: {spec}"
        for name, spec in specs.items()
    )


def test_policies_that_hide_each_other_are_a_warning() -> None:
    found = lint_all(documents(policies(a={"priority": 1}, b={"priority": 1}, c={"priority": 2})))
    assert [(each.code.name, each.code.severity, each.place.document) for each in found] == [
        ("policy-doubtful", Severity.WARNING, 0),
        ("policy-doubtful", Severity.WARNING, 1),
    ]
    assert {each.fix for each in found} == {"give each a priority or a selector of its own"}


def test_a_code_is_silenced_on_the_object() -> None:
    annotation = 'annotations: {recovery.trainjob.dev/lint-ignore: "policy-refused"}'
    text = policies(a={"mode": "Enforced", "x": 1}).replace("{name: a}", f"{{name: a, {annotation}}}")
    assert [each.code.name for each in lint_all(documents(text))] == ["unknown-field"]


def test_what_a_cluster_allows_is_left_to_the_cluster() -> None:
    asks = {"mode": "Enforce", "budget": {"onExhausted": "FailJob"}}
    assert lint_all(documents(policies(a=asks))) == ()


@pytest.mark.parametrize("field", ["metadata", "spec"])
@pytest.mark.parametrize("value", ["null", "[]", "text", "7", "{name: [], namespace: {}}"])
def test_no_value_is_too_odd(field: str, value: str) -> None:
    about = "apiVersion: recovery.trainjob.dev/v1alpha1\nkind: RecoveryPolicy\n"
    other = "spec: {}" if field == "metadata" else "metadata: {name: a}"
    assert lint_all(documents(f"{about}{field}: {value}\n{other}\n"))


def test_the_shipped_policies_are_clean_and_judged() -> None:
    said = recovery("lint", str(REPOSITORY / "policies"))
    assert said.stdout == ""
    assert "nothing that is judged" not in said.stderr


_WITH_DEADLINE = """
apiVersion: recovery.trainjob.dev/v1alpha1
kind: RecoveryPolicy
metadata: {{name: default, namespace: research}}
spec:
  selector: {{matchLabels: {{team: nlp}}}}
  backoff: {{minInterval: {interval}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: llm, namespace: {namespace}, labels: {{team: nlp}}}}
spec:
  runtimeRef: {{name: torch-distributed}}
  activeDeadlineSeconds: 3600
"""


@pytest.mark.parametrize(
    ("interval", "namespace", "said"), [("1h", "research", 1), ("59m", "research", 0), ("1h", "other", 0)]
)
def test_an_interval_between_restarts_that_is_as_long_as_the_deadline_of_a_job(
    interval: str, namespace: str, said: int
) -> None:
    given = documents(_WITH_DEADLINE.format(interval=interval, namespace=namespace))
    found = [each for each in lint_all(given) if each.code.name == "policy-doubtful"]
    assert [each.message for each in found] == [
        "spec.backoff.minInterval: 1h is not shorter than activeDeadlineSeconds 3600 of TrainJob llm, so that job ends "
        "before its second restart"
    ] * said
