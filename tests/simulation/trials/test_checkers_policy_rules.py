"""Findings about rules: which restarts they make free of charge, and what they may end."""

from dataclasses import replace
from typing import Any

import msgspec

from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.model.step import Step, StepType
from recovery.ports import JOBS, RECOVERY_CONFIGS
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.controller_writes import BreakerObeyed
from recovery.sim.trials.checkers.policy_rules import ChargedByRule, FailJobForItsCause
from tests.simulation.trials.checker_case import CONTROLLER, Case, at, in_phase, opened, restarted, stamp, with_incident

ABORT = Rule("abort", RuleAction.FAIL_JOB, When(on_exit_codes=ExitCodes(Operator.IN, (134,))))
SEGFAULT = Rule("segfault", RuleAction.FAIL_JOB, When(on_exit_codes=ExitCodes(Operator.IN, (139,))))
IGNORED = Rule("ignored", RuleAction.IGNORE)
FREE = Rule("free", RuleAction.RECREATE_GROUP, charge=False)


def under(rule: Rule, *, charged: bool = True, restart: bool = True) -> Ledger:
    """An incident decided by this rule."""
    ledger = opened(1000, rules=(rule,))
    return with_incident(restarted(ledger, 1000, charged=charged) if restart else ledger, rule=rule.name)


def exits(case: Case, code: int, *, lost: bool = False) -> None:
    """A process exits; `lost`: as the first of its round."""
    case.now += 1
    record = TraceRecord(
        at=at(case.now), kind=EventKind.PROCESS_EXITED, training="team-a/llm", job_uid="job-1", step=0, exit_code=code
    )
    case.evidence.trace.add(record)
    if lost:
        case.evidence.trace.add(replace(record, kind=EventKind.RANK_LOST))


def failed_by(case: Case, rule: Rule, **changes: Any) -> list[str]:
    failing = Step(StepType.HELD, reason=Reason.FAIL_JOB_RULE, fails_job=True)
    case.ledger(in_phase(with_incident(under(rule, restart=False), step=failing, **changes), Phase.HELD))
    return case.found


class TestChargedByRule:
    def test_a_charge_for_what_is_free_is_found(self) -> None:
        for rule, said in ((FREE, "rule free says charge: false"), (IGNORED, "rule ignored ignores it")):
            case = Case(ChargedByRule)
            case.ledger(under(rule))
            assert said in case.found[0]

    def test_free_of_charge_it_may_be_restarted(self) -> None:
        case = Case(ChargedByRule)
        case.ledger(under(FREE, charged=False))
        assert case.found == []

    def test_what_is_ignored_is_not_restarted(self) -> None:
        case = Case(ChargedByRule)
        case.ledger(under(IGNORED, charged=False))
        assert "restarts what rule ignored ignores" in case.found[0]


class TestFailJobForItsCause:
    def test_the_exit_code_of_the_lost_rank_is_a_cause(self) -> None:
        case = Case(FailJobForItsCause)
        exits(case, 139, lost=True)
        assert failed_by(case, SEGFAULT) == []

    def test_that_of_a_survivor_is_none(self) -> None:
        case = Case(FailJobForItsCause)
        exits(case, 1, lost=True)
        exits(case, 134)
        assert "were survivors of another loss" in failed_by(case, ABORT)[0]

    def test_nor_is_a_code_that_no_one_ended_with(self) -> None:
        case = Case(FailJobForItsCause)
        exits(case, 1, lost=True)
        assert "no process ended with a code of rule segfault" in failed_by(case, SEGFAULT)[0]

    def test_where_only_survivors_are_known_it_is_not_held_against_anybody(self) -> None:
        case = Case(FailJobForItsCause)
        exits(case, 134, lost=True)
        assert failed_by(case, ABORT) == []

    def test_another_rule_ends_nothing(self) -> None:
        assert "though rule free says RecreateGroup" in failed_by(Case(FailJobForItsCause), FREE)[0]

    def test_without_permission_nothing_is_ended(self) -> None:
        case = Case(FailJobForItsCause)
        case.evidence.plan = msgspec.structs.replace(case.evidence.plan, config={})
        exits(case, 139, lost=True)
        assert "which RecoveryConfig does not allow" in failed_by(case, SEGFAULT)[0]


class TestBreakerObeyed:
    def test_what_is_taken_down_while_it_is_open_is_found(self) -> None:
        case = Case(BreakerObeyed)
        breaker = {"openedAt": stamp(case.now), "reason": "in vain"}
        case.put(RECOVERY_CONFIGS, "default", {"spec": {}, "status": {"breaker": breaker}}, by=CONTROLLER)
        case.now += 60
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert "though the circuit breaker has been open for 60.0 s" in case.found[0]

    def test_once_it_is_closed_work_goes_on(self) -> None:
        case = Case(BreakerObeyed)
        breaker = {"openedAt": stamp(case.now), "reason": "in vain"}
        case.put(RECOVERY_CONFIGS, "default", {"spec": {}, "status": {"breaker": breaker}}, by=CONTROLLER)
        case.put(RECOVERY_CONFIGS, "default", {"status": {"breaker": None}}, by=CONTROLLER)
        case.now += 60
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []
