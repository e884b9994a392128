"""Invariants of what the ledgers and the metrics say, each with cases that break it and nearly break it."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.incident.lifecycle import into_history
from recovery.core.model.facts import Snapshot
from recovery.core.model.group_totals import BudgetState, Totals
from recovery.core.model.ledger import AttemptAction, Ledger, Outcome
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.model.standing import Broken, Standing
from recovery.ports import PODS, RECOVERY_GROUPS, RECOVERY_INCIDENTS, TRAIN_JOBS
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.ledger_bookkeeping import (
    LedgerSuccession,
    MetricsFold,
    MonotoneCounters,
    OneCharge,
    RecordedOnce,
    sample,
)
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import CONTROLLER, KEY, Case, at, closed, opened, restarted, with_incident

EMPTY = Snapshot(KEY, None, None, (), ())


def recorded(ledger: Ledger) -> Ledger:
    """The ledger after its closed incident has moved to the history."""
    return into_history(ledger, EMPTY)


class TestLedgerSuccession:
    def test_ledgers_that_follow_one_another_are_accepted(self) -> None:
        case = Case(LedgerSuccession)
        case.ledger(opened(1000))
        case.ledger(restarted(opened(1000), 1000))
        assert case.found == []

    def test_one_that_forgets_a_restart_is_found(self) -> None:
        case = Case(LedgerSuccession)
        case.ledger(restarted(opened(1000), 1000))
        case.ledger(opened(1000))
        assert any("Epoch" in sentence for sentence in case.found)

    def test_a_write_against_no_version_is_found(self) -> None:
        case = Case(LedgerSuccession)
        case.ledger(opened(1000), body=[{"op": "add", "path": "/status", "value": {}}])
        assert "against no resourceVersion" in case.found[0]

    def test_a_merge_patch_may_swap_as_well(self) -> None:
        for right in (True, False):
            case = Case(LedgerSuccession)
            version = str(case.revision + 1) if right else None  # the RecoveryGroup is created just before
            case.ledger(opened(1000), body={"metadata": {"resourceVersion": version}, "status": {}})
            assert len(case.found) == (0 if right else 1)

    def test_a_write_that_replaced_another_version_than_it_had_read_is_found(self) -> None:
        case = Case(LedgerSuccession)
        stale = [{"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}]
        case.ledger(opened(1000), body=stale)
        assert "swapped patch recoverygroups team-a/llm-workload against 7" in case.found[0]


class TestOneCharge:
    def test_one_charge_for_several_attempts_is_right(self) -> None:
        case = Case(OneCharge)
        first = restarted(opened(1000), 1000)
        case.ledger(first)
        case.ledger(restarted(first, 1100, job_uid="job-2"))
        assert case.found == []

    def test_a_second_charge_of_an_incident_is_found(self) -> None:
        case = Case(OneCharge)
        first = restarted(opened(1000), 1000)
        case.ledger(first)
        case.ledger(restarted(with_incident(first, charged=False), 1100, job_uid="job-2"))
        assert case.found == ["incident workload-1 has been charged 2 times"]

    def test_a_restart_that_others_make_and_that_is_not_charged_is_right(self) -> None:
        case = Case(OneCharge)
        adopted = restarted(opened(1000), 1000, action=AttemptAction.ADOPTED, charged=False)
        case.ledger(adopted)
        case.ledger(restarted(adopted, 1100, job_uid="job-2"))
        assert case.found == []

    def test_a_charge_for_what_others_did_before_the_controller_is_found(self) -> None:
        case = Case(OneCharge)
        case.ledger(restarted(opened(1000), 1000, action=AttemptAction.ADOPTED))
        assert case.found == ["incident workload-1 is charged, though the controller restarts nothing"]

    def test_a_restart_of_ours_that_turns_out_to_be_the_jobsets_stays_charged(self) -> None:
        case = Case(OneCharge)
        ours = restarted(opened(1000), 1000)
        case.ledger(ours)
        [attempt] = ours.current_incident.attempts
        theirs = msgspec.structs.replace(attempt, action=AttemptAction.ADOPTED)
        case.ledger(with_incident(ours, attempts=(theirs,)))
        assert case.found == []

    def test_a_refund_is_found(self) -> None:
        case = Case(OneCharge)
        first = restarted(opened(1000), 1000)
        case.ledger(first)
        case.ledger(with_incident(first, charged=False))
        assert case.found == ["the charge of incident workload-1 is refunded"]

    def test_an_epoch_that_counts_no_restart_is_found(self) -> None:
        case = Case(OneCharge)
        case.ledger(msgspec.structs.replace(restarted(opened(1000), 1000), epoch=2))
        assert case.found == ["the epoch is 2, but 1 restarts are counted"]

    @pytest.mark.parametrize(("limit", "violations"), [(2, 0), (1, 1)])
    def test_more_attempts_than_the_budget_allows_are_found(self, limit: int, violations: int) -> None:
        case = Case(OneCharge)
        first = restarted(opened(1000, limit=limit), 1000)
        case.ledger(first)
        case.ledger(restarted(first, 1100, job_uid="job-2"))
        assert len(case.found) == violations

    def test_what_a_person_has_asked_for_leaves_the_one_attempt_that_is_charged(self) -> None:
        case = Case(OneCharge)
        first = restarted(opened(1000, limit=1), 1000, charged=False)
        second = restarted(first, 1100, job_uid="job-2")
        case.ledger(first)
        case.ledger(second)
        assert case.found == []
        case.ledger(restarted(second, 1200, job_uid="job-3"))
        assert case.found == ["incident workload-1 gets attempt 3 where 1 are allowed"]

    def test_a_person_may_have_one_more(self) -> None:
        case = Case(OneCharge)
        first = restarted(opened(1000, limit=1), 1000)
        case.ledger(first)
        asked = RequestAnswer(verb="restart", at=at(1100), accepted=True, reason=Reason.RESTARTED_BY_HAND)
        case.ledger(msgspec.structs.replace(restarted(first, 1100, job_uid="job-2"), requests=(asked,)))
        assert case.found == []

    def test_an_overdrawn_budget_is_found(self) -> None:
        case = Case(OneCharge)
        ledger = restarted(opened(1000, limit=1), 1000)
        charges = (at(900), at(1000))
        case.ledger(msgspec.structs.replace(ledger, budget=BudgetState(charges, limit=1, remaining=0)))
        assert case.found == ["2 charges count, against a limit of 1"]

    def test_charges_that_have_left_the_window_do_not_count(self) -> None:
        case = Case(OneCharge)
        ledger = restarted(opened(1000, limit=1), 1000)
        charges = (at(1000) - timedelta(hours=24), at(1000))
        case.ledger(msgspec.structs.replace(ledger, budget=BudgetState(charges, limit=1, remaining=0)))
        assert case.found == []

    def test_a_negative_rest_is_found(self) -> None:
        case = Case(OneCharge)
        case.ledger(msgspec.structs.replace(opened(1000), budget=BudgetState(limit=1, remaining=-1)))
        assert case.found == ["-1 recoveries remain"]


class TestMonotoneCounters:
    def test_a_counter_that_falls_is_found(self) -> None:
        case = Case(MonotoneCounters)
        ledger = restarted(opened(1000), 1000)
        case.ledger(ledger)
        case.ledger(msgspec.structs.replace(ledger, totals=Totals(incidents=1, restarts=1, charged=1)))
        assert case.found == ["failures of class PodDeleted falls from 1 to 0"]

    def test_one_that_stands_still_or_rises_is_not(self) -> None:
        case = Case(MonotoneCounters)
        case.ledger(opened(1000))
        case.ledger(opened(1000))
        case.ledger(closed(restarted(opened(1000), 1000), 1100))
        assert case.found == []


class TestRecordedOnce:
    def test_an_incident_that_becomes_history_with_its_record_is_right(self) -> None:
        case = Case(RecordedOnce)
        ledger = closed(restarted(opened(1000), 1000), 1100)
        case.ledger(ledger)
        case.record()
        case.ledger(recorded(ledger))
        assert case.end() == []

    def test_one_that_becomes_history_without_it_is_found(self) -> None:
        case = Case(RecordedOnce)
        ledger = closed(restarted(opened(1000), 1000), 1100)
        case.ledger(ledger)
        case.ledger(recorded(ledger))
        assert case.found == ["incident 1 went into the history without a record"]
        assert "incident 1 of 1 has no record" in case.end()

    def test_two_records_of_one_number_are_found(self) -> None:
        case = Case(RecordedOnce)
        case.record(name="llm-1-early")
        case.record(name="llm-1-late")
        assert case.found == ["incident 1 is recorded as llm-1-early and as llm-1-late"]

    def test_incidents_that_share_a_record_are_recorded_in_it(self) -> None:
        case = Case(RecordedOnce)
        case.ledger(opened(1000, number=3))
        case.record()
        case.put(RECOVERY_INCIDENTS, "llm-1", {"status": {"numbers": [{"first": 1, "last": 2}]}}, by=CONTROLLER)
        assert case.end() == []

    def test_one_that_shares_a_record_and_has_its_own_is_found(self) -> None:
        case = Case(RecordedOnce)
        case.record()
        case.record(2, name="llm-2")
        case.put(RECOVERY_INCIDENTS, "llm-1", {"status": {"numbers": [{"first": 1, "last": 2}]}}, by=CONTROLLER)
        assert case.found == ["incident 2 is recorded as llm-2 and as llm-1"]

    def test_a_gap_in_the_numbers_is_found(self) -> None:
        case = Case(RecordedOnce)
        case.ledger(opened(1000, number=3))
        case.record(2)
        assert case.end() == ["incident 1 of 2 has no record"]

    def test_one_that_was_open_when_its_job_was_deleted_is_owed(self) -> None:
        case = Case(RecordedOnce)
        case.ledger(opened(1000))
        case.drop(RECOVERY_GROUPS, "llm-workload")
        assert case.end() == ["incident 1 of 1 has no record"]

    def test_with_its_record_it_is_not(self) -> None:
        case = Case(RecordedOnce)
        case.ledger(opened(1000))
        case.drop(RECOVERY_GROUPS, "llm-workload")
        case.record()
        assert case.end() == []

    def test_nor_is_one_whose_ledger_went_while_the_controller_was_held_up(self) -> None:
        case = Case(RecordedOnce)
        case.ledger(opened(1000))
        case.hits(FaultKind.PROCESS_FREEZE, actor=CONTROLLER, seconds=30)
        case.drop(RECOVERY_GROUPS, "llm-workload")
        assert case.end() == []

    def test_a_clear_loss_without_an_incident_is_found(self) -> None:
        case = Case(RecordedOnce)
        case.lose_a_pod()
        assert case.end() == ["pod llm-node-0-1 was deleted by user belongs to no incident"]

    def test_with_one_it_is_not(self) -> None:
        case = Case(RecordedOnce)
        case.lose_a_pod()
        case.now += 0.2
        case.ledger(restarted(opened(1000), 1000))
        assert case.end() == []

    def test_an_incident_that_was_over_before_does_not_count(self) -> None:
        case = Case(RecordedOnce)
        case.ledger(opened(500))
        case.ledger(closed(opened(500), 600))
        case.now = 1200
        case.lose_a_pod()
        assert len(case.end()) == 1

    def test_a_loss_before_the_group_trained_is_its_jobs_business(self) -> None:
        case = Case(RecordedOnce, trained=False)
        case.lose_a_pod()
        assert case.end() == []

    @pytest.mark.parametrize(("mode", "violations"), [("Observe", 1), (None, 0)])
    def test_it_is_a_matter_of_having_a_policy(self, mode: str | None, violations: int) -> None:
        case = Case(RecordedOnce, mode=mode or "Enforce", policy=mode is not None)
        case.lose_a_pod()
        assert len(case.end()) == violations

    @pytest.mark.parametrize("actor", ["controller-0", "world"])
    def test_no_one_can_tell_while_all_controllers_are_down(self, actor: str) -> None:
        case = Case(RecordedOnce)
        case.hits(FaultKind.PROCESS_KILL, actor=actor, seconds=60)
        case.lose_a_pod()
        assert case.end() == []

    def test_a_user_who_suspends_it_meanwhile_hides_the_loss(self) -> None:
        case = Case(RecordedOnce)
        case.lose_a_pod()
        case.now += 5
        case.annotate(suspend=True)
        assert case.end() == []

    def test_a_job_that_takes_its_pods_away_loses_none(self) -> None:
        case = Case(RecordedOnce)
        case.job("job-1", suspend=True)
        case.delete(PODS, "llm-node-0-1", by="job-controller")
        assert case.end() == []

    def test_nor_when_it_has_been_resumed_and_their_end_is_told_late(self) -> None:
        case = Case(RecordedOnce)
        case.job("job-1", suspend=True)
        case.delete(PODS, "llm-node-0-1", by="job-controller")
        case.job("job-1", suspend=False)
        case.now += 100
        case.fails(1, 137)
        assert case.end() == []

    @pytest.mark.parametrize(("met_again", "violations"), [(True, 1), (False, 0)])
    def test_a_rank_lost_after_a_resume_is_a_loss_like_any_other(self, met_again: bool, violations: int) -> None:
        """Also if a member was lost before the suspension, but not before its ranks have met again."""
        case = Case(RecordedOnce)
        case.lose_a_pod()
        case.ledger(opened(1000))
        case.ledger(closed(opened(1000), 1001, Outcome.SUPERSEDED, "JobSuspended"))
        case.record()
        case.annotate(suspend=True)
        case.job("job-1", suspend=True)
        for name in ("llm-node-0-0", "llm-node-0-1"):
            case.drop(PODS, name, by="job-controller")
        case.now += 100
        case.annotate(suspend=False)
        case.job("job-1", suspend=False)
        for index in (0, 1):
            case.pod(index, "job-1")
            case.runs(index)
        if met_again:
            case.trace(EventKind.ROUND_FORMED, "job-1")
        case.now += 60
        case.lose_a_pod()
        assert len(case.end()) == violations

    def test_a_container_that_does_not_train_is_no_loss(self) -> None:
        case = Case(RecordedOnce)
        case.runs(1, {"name": "shipper", "restartCount": 3, "state": {"terminated": {"exitCode": 137}}})
        assert case.end() == []

    def test_a_pod_that_fails_after_its_training_succeeded_is_no_loss(self) -> None:
        case = Case(RecordedOnce)
        ended = [
            {"name": name, "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
            for name, code in (("node", 0), ("shipper", 137))
        ]
        case.put(PODS, "llm-node-0-1", {"status": {"phase": "Failed", "containerStatuses": ended}}, by="kubelet")
        assert case.end() == []

    def test_what_a_deleted_job_of_the_same_name_has_left_behind_loses_no_one(self) -> None:
        case = Case(RecordedOnce)
        case.drop(TRAIN_JOBS, "llm")
        case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": False}}, uid="its successor")
        case.now += 60
        case.lose_a_pod()
        assert case.end() == []

    def test_a_restart_that_is_put_off_is_a_loss_however_late_it_is_told(self) -> None:
        case = Case(RecordedOnce)
        ended = {"terminated": {"exitCode": 1}}
        waits = {"name": "node", "restartCount": 0, "state": {"waiting": {}}, "lastState": ended}
        case.put(PODS, "llm-node-0-1", {"status": {"containerStatuses": [waits]}}, by="kubelet")
        assert case.end() == ["pod llm-node-0-1 lost a container belongs to no incident"]


JOB = {"namespace": "team-a", "job_name": "llm"}


def told(restarts: float = 1, idle: float = 1600.0, leads: float = 1) -> dict[str, float]:
    return {
        "recovery_leader": leads,
        sample("recovery_group_restarts_total", **JOB, scope="group"): restarts,
        sample("recovery_failures_total", **JOB, failure_class="PodDeleted"): 1,
        sample("recovery_gpu_idle_seconds_total", **JOB, reason="hung", badput="other"): idle,
        sample(
            "recovery_gpu_idle_seconds_total", **JOB, reason="detect", badput="infrastructure_recovery_from_disruption"
        ): 0,
    }


class TestMetricsFold:
    def metrics_of(self, **metrics: dict[str, float]) -> list[str]:
        case = Case(MetricsFold)
        case.ledger(closed(restarted(opened(1000), 1000), 1100))
        case.evidence.metrics = {name.replace("_", "-"): samples for name, samples in metrics.items()}
        return case.end()

    def test_what_equals_the_ledger_is_right(self) -> None:
        assert self.metrics_of(controller_0=told(), controller_1={"recovery_leader": 0}) == []

    def test_a_restart_too_many_is_found(self) -> None:
        [sentence] = self.metrics_of(controller_0=told(restarts=2))
        assert sentence.endswith("is 2, the ledger says 1")

    def test_lost_and_invented_seconds_are_found(self) -> None:
        for idle in (1599.0, 3200.0):
            [sentence] = self.metrics_of(controller_0=told(idle=idle))
            assert "the ledger has booked 1600.000" in sentence

    def test_what_was_reported_a_running_phase_may_be_a_moment_ahead(self) -> None:
        assert self.metrics_of(controller_0=told(idle=1616.0)) == []

    @pytest.mark.parametrize(("idle", "held"), [(3200.0, True), (1599.0, False)])
    def test_a_group_that_hangs_costs_more_than_is_booked(self, idle: float, held: bool) -> None:
        case = Case(MetricsFold)
        ended = closed(restarted(opened(1000), 1000), 1100)
        hangs = Broken(at(1000), at(1100), "workload-1", "PodDeleted", 16)
        case.ledger(msgspec.structs.replace(ended, standing=Standing.BROKEN, broken=hangs))
        case.evidence.metrics = {"controller-0": told(idle=idle)}
        assert (case.end() == []) is held

    def test_one_leader_tells(self) -> None:
        [sentence] = self.metrics_of(controller_0=told(), controller_1=told())
        assert "2 of 2 replicas say that they lead" in sentence

    def test_no_leader_at_all_is_found(self) -> None:
        [sentence] = self.metrics_of(controller_0=told(leads=0))
        assert "0 of 1 replicas" in sentence
