"""The step of an open incident: what the controller does, beside the phase, which says where the pods are."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.core.incident.step import PHASES, Step, StepType, contradictions, step_of
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.model.waits import Withheld
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

LOST = training(4).pod_deleted(3, 0)
LEAVE_ALL = (Rule("leave", RuleAction.IGNORE, When()),)


def after(controller: Controller, *seen: tuple[World, float]) -> Ledger:
    for world, seconds in seen:
        controller.reconcile(world, seconds)
    return controller.ledger


def test_a_restart_that_is_on_its_way() -> None:
    assert step_of(after(Controller(), (LOST, 1))) == Step(StepType.RESTARTING, attempt=1)


def test_a_new_group_that_is_not_ready_yet() -> None:
    again = LOST.job_gone().job_created(2).pods_created(2)
    assert step_of(after(Controller(), (LOST, 1), (again, 3))) == Step(StepType.RETURNING, attempt=1)


def test_an_incident_that_only_observes_says_what_enforce_would_do() -> None:
    assert step_of(after(observing(), (LOST, 1))) == Step(StepType.OBSERVING, would="RecreateGroup")


def test_a_verdict_that_waits_for_more_evidence_and_a_loss_that_a_rule_leaves_to_kubernetes() -> None:
    controller = Controller(policy(rules=LEAVE_ALL))
    assert step_of(after(controller, (LOST, 1))) == Step(StepType.WAITING)
    assert step_of(after(controller, (LOST, 7))) == Step(StepType.ASIDE)


def test_a_group_without_budget() -> None:
    step = step_of(after(Controller(policy(limit=0)), (LOST, 1)))
    assert step == Step(StepType.HELD, reason=Reason.BUDGET_EXHAUSTED)


def test_the_table_in_the_docs_has_the_same_pairs() -> None:
    text = (Path(__file__).parents[4] / "docs/architecture.md").read_text()
    rows = re.findall(rf"^\| ({'|'.join(StepType)}) \| ([^|]*) \| [^|]* \|$", text, re.MULTILINE)
    assert {StepType(name): {Phase(each) for each in found.split(", ")} for name, found in rows} == dict(PHASES)


def test_each_phase_of_an_open_incident_has_a_step() -> None:
    assert frozenset[Phase]().union(*PHASES.values()) == set(Phase) - {Phase.HEALTHY, Phase.DETECTED}


CONTRADICTIONS: dict[str, tuple[Callable[[Ledger], Ledger], str]] = {
    "two reasons to hold": (
        lambda ledger: ledger.with_incident(held_reason=Reason.FAIL_JOB_RULE, exhausted=Reason.BUDGET_EXHAUSTED),
        "is held by a verdict and by its budget",
    ),
    "held in another phase": (
        lambda ledger: ledger.with_incident(exhausted=Reason.BUDGET_EXHAUSTED),
        "is Held in phase Decided",
    ),
    "a JobSet that is failed without a hold": (
        lambda ledger: ledger.with_incident(fail_job=True),
        "fails the JobSet and is Restarting",
    ),
    "a restart that is withheld in another phase": (
        lambda ledger: ledger.with_incident(withheld=Withheld(until=at(60), lost_at=at(0))),
        "is Withheld in phase Decided",
    ),
    "an incident that acts and observes": (
        lambda ledger: ledger.with_incident(would="RecreateGroup"),
        "acts, and records what Enforce would do",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_fields_that_contradict_each_other_are_found(name: str) -> None:
    change, says = CONTRADICTIONS[name]
    restarting = after(Controller(), (LOST, 1))
    assert list(contradictions(restarting)) == []
    assert any(each.endswith(says) for each in contradictions(change(restarting)))
