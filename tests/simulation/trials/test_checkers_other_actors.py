"""The invariants of groups that several actors look after, with cases that break them and nearly break them."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.standing import Standing
from recovery.ports import JOB_SETS, JOBS, TRAIN_JOBS
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.other_actors import OneActorEndsARun, SomeoneActs
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import CONTROLLER, Case, closed, opened


class TestSomeoneActs:
    def lost(self) -> Case:
        case = Case(SomeoneActs)
        case.lose_a_pod()
        case.trace(EventKind.RANK_LOST, "job-1", 1, "llm-node-0-1")
        return case

    def later(self, case: Case, *, minutes: int) -> list[str]:
        """Every minute something changes that has nothing to do with the loss."""
        for _ in range(minutes):
            case.now += 60
            case.put(TRAIN_JOBS, "llm", {"status": {"looked": case.now}}, by="trainer-controller")
        return case.found

    def test_a_loss_that_no_one_acts_on_is_found_once(self) -> None:
        case = self.lost()
        [sentence] = self.later(case, minutes=20)
        assert sentence.endswith("and no one has acted since 08:17:40")
        assert "Job llm-node-0 has trained no more since llm-node-0-1 was lost" in sentence

    def test_one_that_is_acted_on_within_five_minutes_is_not(self) -> None:
        case = self.lost()
        assert self.later(case, minutes=4) == []
        case.ledger(opened(1000))
        assert self.later(case, minutes=20) == []

    def test_one_that_trains_again_is_not(self) -> None:
        case = self.lost()
        self.later(case, minutes=4)
        case.trace(EventKind.ROUND_FORMED, "job-1")
        assert self.later(case, minutes=20) == []

    def test_a_loss_after_a_quiet_training_counts_from_its_own_beginning(self) -> None:
        case = self.lost()
        self.later(case, minutes=2)
        case.trace(EventKind.ROUND_FORMED, "job-1")
        case.now += 900
        case.trace(EventKind.RANK_LOST, "job-1", 1, "llm-node-0-1")
        assert self.later(case, minutes=4) == []

    def test_an_incident_that_ends_without_a_training_is_found(self) -> None:
        case = self.lost()
        case.ledger(opened(1000))
        case.ledger(closed(opened(1000), 1030))
        assert len(self.later(case, minutes=20)) == 1

    def test_one_whose_ledger_says_that_it_hangs_is_not(self) -> None:
        case = self.lost()
        case.ledger(opened(1000))
        case.ledger(msgspec.structs.replace(closed(opened(1000), 1030), standing=Standing.BROKEN))
        assert self.later(case, minutes=20) == []

    def test_one_that_another_client_suspends_is_not(self) -> None:
        case = self.lost()
        case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": True}}, by="kueue")
        assert self.later(case, minutes=20) == []

    def test_time_in_which_no_controller_could_act_does_not_count(self) -> None:
        case = self.lost()
        case.hits(FaultKind.PROCESS_KILL, seconds=600.0)
        assert self.later(case, minutes=14) == []

    def test_one_under_observe_is_left_alone(self) -> None:
        case = Case(SomeoneActs, mode="Observe")
        case.lose_a_pod()
        case.trace(EventKind.RANK_LOST, "job-1", 1, "llm-node-0-1")
        assert self.later(case, minutes=20) == []


class TestOneActorEndsARun:
    def suspended(self, by: str = "kueue") -> Case:
        case = Case(OneActorEndsARun)
        case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": True}}, by=by)
        return case

    @pytest.mark.parametrize(("seconds", "violations"), [(2, 0), (30, 1)])
    def test_a_job_that_kueue_has_stopped_is_not_deleted_once_that_is_known(
        self, seconds: float, violations: int
    ) -> None:
        case = self.suspended()
        case.now += seconds
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert len(case.found) == violations

    def test_its_sentence_names_the_suspension(self) -> None:
        case = self.suspended()
        case.now += 30
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        [sentence] = case.found
        assert sentence.endswith("though another client has suspended team-a/llm at 08:16:40")

    def test_the_controller_may_delete_the_job_that_it_has_suspended_itself(self) -> None:
        case = Case(OneActorEndsARun)
        case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1")
        case.now += 30
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []

    def test_it_may_after_the_job_is_resumed(self) -> None:
        case = self.suspended()
        case.now += 30
        case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": False}}, by="kueue")
        case.put(JOB_SETS, "llm", {"spec": {"suspend": False}}, by="trainer-controller")
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []

    def test_another_client_may(self) -> None:
        case = self.suspended()
        case.now += timedelta(minutes=1).total_seconds()
        case.delete(JOBS, "llm-node-0", by="garbage-collector")
        assert case.found == []
