"""The step of an open incident: what the controller does, beside the phase, which says where the pods are."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.core.incident.steps import PHASES, contradictions
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.model.step import WAITING, Step, StepType
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

LOST = training(4).pod_deleted(3, 0)
LEAVE_ALL = (Rule("leave", RuleAction.IGNORE, When()),)


def after(controller: Controller, *seen: tuple[World, float]) -> Ledger:
    for world, seconds in seen:
        controller.reconcile(world, seconds)
    return controller.ledger


def step_after(controller: Controller, *seen: tuple[World, float]) -> Step:
    return after(controller, *seen).current_incident.step


def test_a_restart_that_is_on_its_way() -> None:
    assert step_after(Controller(), (LOST, 1)) == Step(StepType.RESTARTING)


def test_a_new_group_that_is_not_ready_yet() -> None:
    again = LOST.job_gone().job_created(2).pods_created(2)
    assert step_after(Controller(), (LOST, 1), (again, 3)) == Step(StepType.RETURNING)


def test_an_incident_that_only_observes() -> None:
    assert step_after(observing(), (LOST, 1)) == Step(StepType.OBSERVING)


def test_a_verdict_that_waits_for_more_evidence_and_a_loss_that_a_rule_leaves_to_kubernetes() -> None:
    controller = Controller(policy(rules=LEAVE_ALL))
    assert step_after(controller, (LOST, 1)) == Step(StepType.WAITING)
    assert step_after(controller, (LOST, 7)) == Step(StepType.ASIDE)


def test_a_group_without_budget() -> None:
    assert step_after(Controller(policy(limit=0)), (LOST, 1)) == Step(StepType.HELD, reason=Reason.BUDGET_EXHAUSTED)


def test_the_table_in_the_docs_has_the_same_pairs() -> None:
    text = (Path(__file__).parents[4] / "docs/architecture.md").read_text()
    rows = re.findall(rf"^\| ({'|'.join(StepType)}) \| ([^|]*) \| [^|]* \|$", text, re.MULTILINE)
    assert {StepType(name): {Phase(each) for each in found.split(", ")} for name, found in rows} == dict(PHASES)


def test_each_phase_of_an_open_incident_has_a_step() -> None:
    assert frozenset[Phase]().union(*PHASES.values()) == set(Phase) - {Phase.HEALTHY, Phase.DETECTED}


def in_step(step: Step) -> Callable[[Ledger], Ledger]:
    return lambda ledger: ledger.with_incident(step=step)


BY_BUDGET = Step(StepType.HELD, reason=Reason.BUDGET_EXHAUSTED)
CONTRADICTIONS: dict[str, tuple[Callable[[Ledger], Ledger], str]] = {
    "held in another phase": (in_step(BY_BUDGET), "is Held in phase Decided"),
    "a hold without a reason": (in_step(Step(StepType.HELD)), "is Held with []"),
    "a JobSet that is failed without a hold": (
        in_step(Step(StepType.RESTARTING, fails_job=True)),
        "is Restarting with ['fails_job']",
    ),
    "a restart that is withheld until no moment": (
        in_step(Step(StepType.WITHHELD, lost_at=at(0))),
        "is Withheld with ['lost_at']",
    ),
    "a verdict that waits although the group was restarted": (in_step(WAITING), "is Waiting after a restart"),
    "a restart that is on its way and that no one made": (
        lambda ledger: ledger.with_incident(attempts=()),
        "is Restarting without a restart",
    ),
    "a hold of an incident that only observes": (
        lambda ledger: ledger.with_incident(mode=Mode.OBSERVE, step=BY_BUDGET),
        "only observes and is Held",
    ),
    "an incident that acts and observes": (in_step(Step(StepType.OBSERVING)), "acts and is Observing"),
    "an incident that acts and records what Enforce would do": (
        lambda ledger: ledger.with_incident(would="RecreateGroup"),
        "acts, and records what Enforce would do",
    ),
}


def found(ledger: Ledger) -> list[str]:
    return list(contradictions(ledger))


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_step_that_contradicts_the_rest_of_the_ledger_is_found(name: str) -> None:
    change, says = CONTRADICTIONS[name]
    restarting = after(Controller(), (LOST, 1))
    assert found(restarting) == []
    assert any(each.endswith(says) for each in found(change(restarting)))
