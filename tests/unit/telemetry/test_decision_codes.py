"""How a decision is counted, which Events it makes, and why it makes a JobSet fail: code by code.

Each row is a real decision on a real loss; the codes are read from the ledgers that `decide` writes.
"""

import msgspec
import pytest

from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Quarantined
from recovery.core.model.reason import Reason, because
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.plan.actions import EmitEvent, FailJobSet
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, OnExhausted, Restart
from recovery.telemetry.decision_labels import DecisionLabels, decisions
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

MAY = FleetLimits(may_cordon=True, max_nodes=1)
FULL = FleetLedger(quarantined=(Quarantined("gpu-9", "node-gpu-9", "bad", at(-60)),))
BREAKER = because(Reason.BREAKER_OPEN, why=because(Reason.RECOVERIES_IN_VAIN, recoveries=3, minutes="60", limit=3))


def on_exit_42(action: RuleAction) -> Rule:
    return Rule("mine", action, When(on_exit_codes=ExitCodes(operator=Operator.IN, values=(42,))))


def exited(code: int = 42) -> World:
    return training().pod_failed(2, code, 0)


def observing_by_breaker() -> Policy:
    return msgspec.structs.replace(policy(), mode=Mode.OBSERVE, breaker=BREAKER)


class Codes(msgspec.Struct, frozen=True):
    """What a row of the table expects."""

    counted: tuple[tuple[str, Reason, str], ...]
    """Action, reason and what suppressed it, of each decision that is counted."""
    events: tuple[str, ...]
    jobset: Reason | None = None
    """Why the controller makes the JobSet fail. None: it does not."""


ROWS: dict[str, tuple[Policy, World, Codes]] = {
    "the default": (
        policy(),
        exited(),
        Codes((("RecreateGroup", Reason.DEFAULT_RESTART, ""),), ("RecreatingGroup",)),
    ),
    "a rule says RecreateGroup": (
        policy(rules=(on_exit_42(RuleAction.RECREATE_GROUP),)),
        exited(),
        Codes((("RecreateGroup", Reason.RULE_RECREATE_GROUP, ""),), ("RecreatingGroup",)),
    ),
    "a rule says ReplaceNode": (
        policy(rules=(on_exit_42(RuleAction.REPLACE_NODE),), limits=MAY),
        exited(),
        Codes((("ReplaceNode", Reason.RULE_REPLACE_NODE, ""),), ("ReplacingNode",)),
    ),
    "a rule says ReplaceNode, and the cap is reached": (
        policy(rules=(on_exit_42(RuleAction.REPLACE_NODE),), limits=MAY, fleet=FULL),
        exited(),
        Codes((("RecreateGroup", Reason.RULE_REPLACE_NODE, ""),), ("RecreatingGroup", "QuarantineRefused")),
    ),
    "a rule says FailJob, which is allowed": (
        policy(rules=(on_exit_42(RuleAction.FAIL_JOB),), may_fail_jobs=True),
        exited(),
        Codes((("FailJob", Reason.RULE_FAIL_JOB, ""),), ("MemberLost", "FailingJob"), Reason.FAIL_JOB_RULE),
    ),
    "a rule says FailJob, which is not allowed": (
        policy(rules=(on_exit_42(RuleAction.FAIL_JOB),)),
        exited(),
        Codes((("Hold", Reason.RULE_FAIL_JOB_NOT_ALLOWED, "permission"),), ("MemberLost", "HeldUntilRetry")),
    ),
    "a rule says Ignore": (
        policy(rules=(on_exit_42(RuleAction.IGNORE),)),
        exited(),
        Codes((("None", Reason.RULE_IGNORE, ""),), ("MemberLost", "RuleIgnore")),
    ),
    "the budget is exhausted: Hold": (
        policy(limit=0),
        exited(),
        Codes((("Hold", Reason.BUDGET_EXHAUSTED, "budget"),), ("MemberLost", "Held")),
    ),
    "the budget is exhausted: Suspend": (
        policy(limit=0, on_exhausted=OnExhausted.SUSPEND),
        exited(),
        Codes((("Hold", Reason.BUDGET_EXHAUSTED, "budget"),), ("MemberLost", "Held")),
    ),
    "the budget is exhausted: FailJob, which is allowed": (
        policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True),
        exited(),
        Codes((("FailJob", Reason.BUDGET_EXHAUSTED, "budget"),), ("MemberLost", "FailingJob"), Reason.BUDGET_EXHAUSTED),
    ),
    "the budget is exhausted: FailJob, which is not allowed": (
        policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB),
        exited(),
        Codes((("Hold", Reason.BUDGET_EXHAUSTED, "budget"),), ("MemberLost", "Held")),
    ),
    "the breaker is open": (
        observing_by_breaker(),
        exited(),
        Codes((("RecreateGroup", Reason.DEFAULT_RESTART, "observe"),), ("MemberLost",)),
    ),
    "the policy observes": (
        policy(Mode.OBSERVE),
        exited(),
        Codes((("RecreateGroup", Reason.DEFAULT_RESTART, "observe"),), ("MemberLost",)),
    ),
    "the policy observes, and the budget is exhausted": (
        policy(Mode.OBSERVE, limit=0),
        exited(),
        Codes((("Hold", Reason.BUDGET_EXHAUSTED, "observe"),), ("MemberLost",)),
    ),
    "the policy says restart: None": (
        policy(restart=Restart.NONE),
        exited(),
        Codes((("None", Reason.RESTART_NONE, ""),), ("MemberLost",)),
    ),
    "the policy observes and says restart: None, so that nothing is called for": (
        policy(Mode.OBSERVE, restart=Restart.NONE),
        exited(),
        Codes((("None", Reason.RESTART_NONE, ""),), ("MemberLost",)),
    ),
    "a native policy decides": (
        policy(),
        training(backoff_limit=0).pod_failed(2, 42, 0),
        Codes((("None", Reason.BACKOFF_LIMIT_ZERO, ""),), ("MemberLost",)),
    ),
}


def codes(controller: Controller, world: World, seconds: float) -> Codes:
    """The codes of one reconcile."""
    before, done = controller.ledger, len(controller.done)
    controller.reconcile(world, seconds)
    actions = controller.done[done:]
    made = decisions(before, controller.ledger)
    return Codes(
        counted=tuple((each.action, each.reason, each.suppressed) for each in made),
        events=tuple(action.reason for action in actions if isinstance(action, EmitEvent)),
        jobset=next((action.reason for action in actions if isinstance(action, FailJobSet)), None),
    )


@pytest.mark.parametrize(("terms", "world", "expected"), ROWS.values(), ids=ROWS)
def test_a_decision_in_codes(terms: Policy, world: World, expected: Codes) -> None:
    """Decided at the first reconcile, or once evidence that may still change a rule has settled."""
    controller = Controller(terms)
    first, settled = codes(controller, world, 1), codes(controller, world, 4)
    assert first.counted + settled.counted == expected.counted
    assert first.events + settled.events == expected.events
    assert (first.jobset or settled.jobset) == expected.jobset
    assert codes(controller, world, 4.5).counted == (), "a decision is counted once"


def test_a_verdict_that_had_to_settle_is_counted_when_it_is_passed() -> None:
    controller = Controller(policy(rules=(on_exit_42(RuleAction.IGNORE),)))
    lost = training().pod_deleted(2, 0)
    assert codes(controller, lost, 1).counted == ()
    assert codes(controller, lost, 4).counted == (("RecreateGroup", Reason.DEFAULT_RESTART, ""),)


def test_a_paused_job_is_counted_as_that() -> None:
    controller = Controller(policy(rules=(on_exit_42(RuleAction.IGNORE),)))
    lost = training().pod_deleted(2, 0)
    controller.reconcile(lost, 1)
    paused = lost.with_workload(annotations={PAUSED_ANNOTATION: "true"})
    assert codes(controller, paused, 4).counted == (("None", Reason.JOB_PAUSED, ""),)


def test_a_decision_is_a_record() -> None:
    """Its fields become labels of a metric, so they are bounded words."""
    controller = Controller()
    controller.reconcile(exited(), 1)
    assert DecisionLabels("RecreateGroup", Reason.DEFAULT_RESTART, "enforce") in decisions(
        type(controller.ledger)(), controller.ledger
    )
