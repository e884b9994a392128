"""Invariants of what a controller may write to a group, each with cases that break it and nearly break it."""

import pytest

from recovery.core.model.ledger import AttemptAction, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.core.model.waits import Suspension
from recovery.ports import EVENTS, JOB_SETS, JOBS, PODS, RECOVERY_CONFIGS, TRAIN_JOBS
from recovery.sim.trials.checkers.controller_writes import (
    HealthyUntouched,
    LedgerBeforeAction,
    ObserveWritesNothing,
    OnlyTargets,
    PausedUntouched,
)
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import CONTROLLER, Case, at, in_phase, opened, restarted, with_incident


class TestLedgerBeforeAction:
    def test_a_job_deleted_before_its_ledger_is_found(self) -> None:
        case = Case(LedgerBeforeAction)
        case.lose_a_pod()
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        case.ledger(restarted(opened(1000), 1000))
        assert len(case.found) == 1
        assert "controller-0 deletes Job team-a/llm-node-0 (job-1)" in case.found[0]

    def test_one_deleted_after_it_is_not(self) -> None:
        case = Case(LedgerBeforeAction)
        case.lose_a_pod()
        case.ledger(restarted(opened(1000), 1000))
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        case.delete(PODS, "llm-node-0-0", by=CONTROLLER)
        assert case.found == []

    def test_an_incident_that_only_names_the_job_is_no_leave_to_delete_it(self) -> None:
        case = Case(LedgerBeforeAction)
        case.ledger(opened(1000))
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert len(case.found) == 1

    def test_what_others_delete_needs_no_ledger(self) -> None:
        case = Case(LedgerBeforeAction)
        case.delete(JOBS, "llm-node-0", by="jobset-controller")
        case.delete(JOB_SETS, "llm")
        assert case.found == []

    def test_a_suspension_that_no_ledger_wanted_is_found(self) -> None:
        case = Case(LedgerBeforeAction)
        case.ledger(restarted(opened(1000), 1000))
        case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1")
        assert "suspends TrainJob" in case.found[0]

    def test_a_suspension_that_stands_in_the_ledger_is_not(self) -> None:
        case = Case(LedgerBeforeAction)
        case.ledger(with_incident(restarted(opened(1000), 1000), suspension=Suspension(at(1010))))
        case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1")
        assert case.found == []

    def test_a_jobset_may_be_ended_only_once_the_ledger_says_so(self) -> None:
        for fail_job in (False, True):
            case = Case(LedgerBeforeAction)
            held = Step(StepType.HELD, reason=Reason.FAIL_JOB_RULE, fails_job=fail_job)
            case.ledger(in_phase(with_incident(opened(1000), step=held), Phase.HELD))
            case.put(JOB_SETS, "llm", {"status": {"terminalState": "Failed"}}, by=CONTROLLER)
            assert len(case.found) == (0 if fail_job else 1)

    def test_a_backoff_limit_is_raised_only_on_a_target(self) -> None:
        for aimed in (False, True):
            case = Case(LedgerBeforeAction)
            case.ledger(restarted(opened(1000), 1000) if aimed else opened(1000))
            case.put(JOBS, "llm-node-0", {"spec": {"backoffLimit": 2**31 - 1}}, by=CONTROLLER)
            assert len(case.found) == (0 if aimed else 1)

    def test_a_jobset_is_deleted_only_as_the_ledger_names_it(self) -> None:
        for uid in ("another", "jobset"):
            case = Case(LedgerBeforeAction)
            ledger = restarted(opened(1000), 1000, action=AttemptAction.RECREATE_JOB_SET)
            assert ledger.incident is not None
            attempt = ledger.incident.attempts[0]
            named = type(attempt)(1, 1, attempt.action, attempt.started_at, attempt.reason, attempt.message, "", uid)
            case.ledger(with_incident(ledger, attempts=(named,)))
            case.delete(JOB_SETS, "llm", by=CONTROLLER)
            assert len(case.found) == (0 if uid == "jobset" else 1)


class TestOnlyTargets:
    def test_the_next_incarnation_deleted_by_name_is_found(self) -> None:
        case = Case(OnlyTargets)
        case.ledger(restarted(opened(1000), 1000))
        case.drop(PODS, "llm-node-0-0", by="kubelet")
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.pod(0, "job-2")
        case.delete(PODS, "llm-node-0-0", by=CONTROLLER)
        assert "of Job job-2; the targets are job-1" in case.found[0]

    def test_the_targets_own_pods_are_fair(self) -> None:
        case = Case(OnlyTargets)
        case.ledger(restarted(opened(1000), 1000))
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        case.delete(PODS, "llm-node-0-0", by=CONTROLLER)
        assert case.found == []

    @pytest.mark.parametrize(("uid", "violations"), [(None, 1), ("job-1", 0)])
    def test_a_delete_names_the_uid(self, uid: str | None, violations: int) -> None:
        case = Case(OnlyTargets)
        case.request("delete", JOBS, "llm-node-0", body={"preconditions": {"uid": uid, "resourceVersion": "7"}})
        assert len(case.found) == violations

    def test_a_delete_without_any_options_is_found(self) -> None:
        case = Case(OnlyTargets)
        case.request("delete", PODS, "llm-node-0-0")
        assert "whatever its UID is" in case.found[0]


class TestHealthyUntouched:
    @pytest.mark.parametrize("what", ["an event", "a ledger", "an annotation"])
    def test_any_write_to_a_group_that_nothing_befell_is_found(self, what: str) -> None:
        case = Case(HealthyUntouched)
        match what:
            case "an event":
                case.event("Bored")
            case "a ledger":
                case.ledger(opened(1000))
            case "an annotation":
                case.put(JOBS, "llm-node-0", {"metadata": {"annotations": {"a": "b"}}}, by=CONTROLLER)
        assert case.found

    def test_after_a_loss_writes_are_to_be_expected(self) -> None:
        case = Case(HealthyUntouched)
        case.lose_a_pod()
        case.ledger(opened(1000))
        case.event("MemberLost")
        assert case.found == []

    @pytest.mark.parametrize("what", ["a sidecar crashes", "it is suspended and resumed", "it is scaled down"])
    def test_a_group_is_healthy_still_when(self, what: str) -> None:
        case = Case(HealthyUntouched)
        match what:
            case "a sidecar crashes":
                case.runs(1, {"name": "shipper", "restartCount": 1, "state": {"terminated": {"exitCode": 137}}})
            case "it is suspended and resumed":
                case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": True}})
                case.job("job-1", suspend=True)
                case.lose_a_pod()
                case.now += 60
                case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": False}})
                case.job("job-1", suspend=False)
            case "it is scaled down":
                case.job("job-1", parallelism=1, completions=1)
                case.lose_a_pod()
        case.ledger(opened(1000))
        assert case.found

    def test_the_platforms_own_writes_are_none_of_its_business(self) -> None:
        case = Case(HealthyUntouched)
        case.put(JOBS, "llm-node-0", {"status": {"active": 2}}, by="job-controller")
        assert case.found == []

    def test_an_event_about_the_whole_cluster_is_no_write_to_a_group(self) -> None:
        case = Case(HealthyUntouched)
        case.put(EVENTS, "breaker", {"involvedObject": {"kind": "RecoveryConfig", "name": "llm"}}, by=CONTROLLER)
        assert case.found == []

    def test_an_answer_to_a_person_is_no_idle_write(self) -> None:
        case = Case(HealthyUntouched)
        case.annotate(retry=at(1000).isoformat())
        case.ledger(opened(1000))
        assert case.found == []


class TestObserveWritesNothing:
    def test_a_job_written_to_in_observe_is_found(self) -> None:
        case = Case(ObserveWritesNothing, mode="Observe")
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert "mode Observe" in case.found[0]

    def test_so_is_one_without_a_policy(self) -> None:
        case = Case(ObserveWritesNothing, policy=False)
        case.delete(PODS, "llm-node-0-0", by=CONTROLLER)
        assert "no policy" in case.found[0]

    def test_ledgers_and_events_may_be_written(self) -> None:
        case = Case(ObserveWritesNothing, mode="Observe")
        case.ledger(opened(1000, mode="Observe"))
        case.event("MemberLost")
        case.record()
        assert case.found == []

    def test_a_action_on_its_way_while_the_mode_is_switched_is_excused(self) -> None:
        case = Case(ObserveWritesNothing)
        case.policy("Observe")
        case.now += 1
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []

    def test_a_suspension_is_released_in_any_mode(self) -> None:
        case = Case(ObserveWritesNothing)
        case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1")
        case.policy("Observe")
        case.now += 100
        case.annotate(by=CONTROLLER, suspend=False)
        assert case.found == []

    def test_a_frozen_process_may_not_know_of_the_switch(self) -> None:
        for frozen in (False, True):
            case = Case(ObserveWritesNothing)
            case.policy("Observe")
            if frozen:
                case.hits(FaultKind.PROCESS_FREEZE, actor=CONTROLLER, seconds=30)
            case.now += 31
            case.delete(JOBS, "llm-node-0", by=CONTROLLER)
            assert len(case.found) == (0 if frozen else 1)

    def test_a_person_who_insists_may_restart(self) -> None:
        case = Case(ObserveWritesNothing, mode="Observe")
        forced = Step(StepType.RESTARTING, forced=True)
        case.ledger(with_incident(restarted(opened(1000), 1000), step=forced))
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []


class TestPausedUntouched:
    def test_a_paused_job_that_is_taken_down_is_found(self) -> None:
        case = Case(PausedUntouched)
        case.annotate(paused="maintenance")
        case.now += 60
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert "it has been paused for 60.0 s" in case.found[0]

    def test_a_global_pause_is_a_pause(self) -> None:
        case = Case(PausedUntouched)
        case.put(RECOVERY_CONFIGS, "default", {"spec": {"paused": True}})
        case.now += 60
        case.delete(PODS, "llm-node-0-0", by=CONTROLLER)
        assert len(case.found) == 1

    def test_after_the_pause_it_may_be(self) -> None:
        case = Case(PausedUntouched)
        case.annotate(paused="maintenance")
        case.now += 60
        case.annotate(paused="false")
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []

    def test_a_paused_job_may_be_reported(self) -> None:
        case = Case(PausedUntouched)
        case.annotate(paused="maintenance")
        case.now += 60
        case.event("MemberLost")
        assert case.found == []
