"""Invariants of waits that a controller has to end, each with cases that break it and nearly break it."""

import pytest

from recovery.core.model.annotations import TOUCHED_ANNOTATION
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.waits import Suspension
from recovery.ports import EVENTS, JOBS, PODS, TRAIN_JOBS
from recovery.sim.trials.checkers.overdue_waits import SuspensionReleased, WatchdogTouches
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import (
    CONTROLLER,
    Case,
    at,
    closed,
    in_phase,
    opened,
    restarted,
    stamp,
    with_incident,
)


class TestWatchdogTouches:
    def waits_for_pods(self) -> Case:
        """The group was taken down, and the Job that JobSet recreated has no pods."""
        case = Case(WatchdogTouches)
        case.lose_a_pod()
        case.ledger(restarted(opened(1000), 1000))
        for name in ("llm-node-0-0", "llm-node-0-1"):
            case.drop(PODS, name, by="kubelet")
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.ledger(in_phase(restarted(opened(1000), 1000), Phase.SCHEDULING))
        return case

    def touch(self, case: Case) -> None:
        case.put(JOBS, "llm-node-0", {"metadata": {"annotations": {TOUCHED_ANNOTATION: "1"}}}, by=CONTROLLER)

    def pods_come(self, case: Case) -> None:
        case.pod(0, "job-2")
        case.pod(1, "job-2")

    @pytest.mark.parametrize(("seconds", "violations"), [(70, 0), (80, 1)])
    def test_it_is_touched_after_a_minute(self, seconds: float, violations: int) -> None:
        case = self.waits_for_pods()
        case.now += seconds
        self.pods_come(case)
        assert len(case.found) == violations

    def test_pods_that_come_too_late_do_not_excuse_it(self) -> None:
        case = self.waits_for_pods()
        case.now += 600
        self.pods_come(case)
        assert "Job llm-node-0 had no pods from 08:16:40 to 08:26:40 and was not touched" in case.found[0]

    def test_nor_does_the_end_of_the_trial(self) -> None:
        case = self.waits_for_pods()
        assert len(case.end()) == 1

    def test_touched_in_time_it_may_wait_for_another_minute(self) -> None:
        for seconds, violations in ((125, 0), (300, 1)):
            case = self.waits_for_pods()
            case.now += 61
            self.touch(case)
            case.now = 1000 + seconds
            self.pods_come(case)
            assert len(case.found) == violations

    def test_a_new_attempt_ends_the_wait(self) -> None:
        case = self.waits_for_pods()
        case.now += 61
        self.touch(case)
        case.now += 60
        first = in_phase(restarted(opened(1000), 1000), Phase.SCHEDULING)
        case.ledger(in_phase(restarted(first, 1121, job_uid="job-2"), Phase.DECIDED))
        assert case.end() == []

    def test_a_job_whose_pods_are_refused_is_only_spoken_of(self) -> None:
        case = self.waits_for_pods()
        case.put(EVENTS, "refused", {"involvedObject": {"uid": "job-2"}, "reason": "FailedCreate"}, by="job-controller")
        assert case.end() == []

    def test_a_suspended_one_waits_for_its_user(self) -> None:
        case = self.waits_for_pods()
        case.job("job-2", suspend=True)
        assert case.end() == []

    def test_while_no_controller_lives_no_one_can_touch_it(self) -> None:
        case = self.waits_for_pods()
        case.hits(FaultKind.PROCESS_KILL, actor=CONTROLLER, seconds=500)
        case.now += 600
        self.pods_come(case)
        assert case.found == []

    def test_a_paused_job_waits(self) -> None:
        case = self.waits_for_pods()
        case.annotate(paused="maintenance")
        assert case.end() == []

    def test_only_a_recovery_has_a_watchdog(self) -> None:
        case = Case(WatchdogTouches)
        for name in ("llm-node-0-0", "llm-node-0-1"):
            case.drop(PODS, name, by="user")
        assert case.end() == []


class TestSuspensionReleased:
    def in_backoff(self, until_seconds: float = 1010) -> Case:
        """Suspended by us at 1000. The old group is gone, and the next Job exists."""
        case = Case(SuspensionReleased)
        case.lose_a_pod()
        case.ledger(self.backoff())
        case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1", resume_at=stamp(until_seconds))
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2", suspend=True)
        return case

    def backoff(self) -> Ledger:
        return in_phase(with_incident(restarted(opened(1000), 1000), suspension=Suspension(at(1010))), Phase.BACKOFF)

    @pytest.mark.parametrize(("seconds", "violations"), [(11, 0), (600, 1)])
    def test_it_ends_when_its_time_has_come(self, seconds: float, violations: int) -> None:
        case = self.in_backoff()
        case.now += seconds
        case.annotate(by=CONTROLLER, suspend=False)
        assert len(case.found) == violations

    def test_one_that_never_ends_is_found_at_the_end(self) -> None:
        [sentence] = self.in_backoff().end()
        assert "its suspension by workload-1 lasted until 10:00:00, though its time had come at 08:16:50" in sentence

    def test_it_has_to_last_until_the_old_group_is_gone(self) -> None:
        case = Case(SuspensionReleased)
        case.ledger(self.backoff())
        case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1", resume_at=stamp(1010))
        case.now += 600
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.now += 1
        case.annotate(by=CONTROLLER, suspend=False)
        assert case.found == []

    def test_one_without_a_time_ends_with_its_incident(self) -> None:
        for ends, violations in ((False, 0), (True, 1)):
            case = Case(SuspensionReleased)
            case.ledger(self.backoff())
            case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1", resume_at="never")
            if ends:
                case.ledger(closed(self.backoff(), 1000))
            assert len(case.end()) == violations

    def test_without_a_controller_it_lasts(self) -> None:
        case = self.in_backoff()
        case.hits(FaultKind.PROCESS_KILL, actor=CONTROLLER, seconds=590)
        case.now += 600
        case.annotate(by=CONTROLLER, suspend=False)
        assert case.found == []

    def test_an_incident_superseded_by_our_own_suspension_is_found(self) -> None:
        case = self.in_backoff()
        case.now += 5
        case.ledger(closed(self.backoff(), 1005, Outcome.SUPERSEDED, "JobSuspended"))
        assert "but the suspension is our own, of incident workload-1" in case.found[0]

    def test_one_superseded_by_the_users_is_right(self) -> None:
        case = Case(SuspensionReleased)
        case.lose_a_pod()
        case.ledger(opened(1000))
        case.annotate(suspend=True)
        case.ledger(closed(opened(1000), 1000, Outcome.SUPERSEDED, "JobSuspended"))
        assert case.end() == []

    def test_a_users_suspension_is_not_ended_by_a_controller(self) -> None:
        case = Case(SuspensionReleased)
        case.annotate(suspend=True)
        case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": False}}, by=CONTROLLER)
        assert "which its user had suspended" in case.found[0]

    def test_nor_made_ours(self) -> None:
        case = Case(SuspensionReleased)
        case.annotate(suspend=True)
        case.annotate(by=CONTROLLER, suspended_by="workload-1")
        assert "as its own" in case.found[0]

    def test_the_user_may_end_his_own(self) -> None:
        case = Case(SuspensionReleased)
        case.annotate(suspend=True)
        case.annotate(suspend=False)
        assert case.end() == []
