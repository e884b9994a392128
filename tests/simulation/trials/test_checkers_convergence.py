"""Invariants of how a trial ends and how soon a controller begins, with cases that break them and nearly break them."""

import msgspec
import pytest

from recovery.core.fleet.counted_marks import mark_of, minute_of
from recovery.core.incident.lifecycle import into_history
from recovery.core.model.facts import Snapshot
from recovery.core.model.fleet_ledger import FleetLedger, FleetTotals, Futile, Suspicion
from recovery.core.model.ledger import Outcome, Phase
from recovery.ports import JOB_SETS, JOBS, LEASES, NODES, PODS, RECOVERY_CONFIGS, RECOVERY_GROUPS, TRAIN_JOBS
from recovery.scenario.modelled_job import Marking, Sidecar
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.convergence import ConvergesAfterHealing, TimelyAction
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import CONTROLLER, KEY, LABELS, Case, at, closed, in_phase, opened, restarted

EMPTY = Snapshot(KEY, None, None, (), ())


class TestConvergesAfterHealing:
    def lost(self) -> Case:
        case = Case(ConvergesAfterHealing)
        case.lose_a_pod()
        case.trace(EventKind.RANK_LOST, "job-1", 1, "llm-node-0-1")
        return case

    def test_a_job_that_trains_is_well(self) -> None:
        assert Case(ConvergesAfterHealing).end() == []

    def test_one_that_lost_a_rank_and_never_met_again_is_found(self) -> None:
        [sentence] = self.lost().end()
        assert "Job llm-node-0 has trained no more since llm-node-0-1 was lost at 08:16:40" in sentence

    def test_one_whose_ranks_never_met_is_left_to_its_job(self) -> None:
        """Seed 1203: its Job waits 10 min before each new pod, and its ranks wait no longer for one another."""
        case = Case(ConvergesAfterHealing, trained=False)
        case.fails(1, 1)
        assert case.end() == []

    def test_one_that_met_again_is_well(self) -> None:
        case = self.lost()
        case.now += 60
        case.trace(EventKind.ROUND_FORMED, "job-1")
        assert case.end() == []

    def test_a_new_incarnation_has_to_meet_as_well(self) -> None:
        case = self.lost()
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.pod(0, "job-2", name="llm-node-0-0-x")
        [sentence] = case.end()
        assert "Job llm-node-0 has 1 of 2 pods, and they have not met" in sentence

    def test_so_is_one_whose_job_never_came_back(self) -> None:
        case = self.lost()
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        assert "it has no Job" in case.end()[0]

    @pytest.mark.parametrize(
        ("again", "in_incident", "violations"), [(True, False, 0), (True, True, 1), (False, False, 1)]
    )
    def test_one_that_never_had_a_pod_is_left_alone(self, again: bool, in_incident: bool, violations: int) -> None:
        case = self.lost()
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        owner = "jobset"
        if again:
            owner = "jobset-2"
            case.drop(JOB_SETS, "llm", by="garbage-collector")
            case.put(JOB_SETS, "llm", {"spec": {"replicatedJobs": []}}, uid=owner, owner="workload")
        body = {"metadata": {"labels": LABELS}, "spec": {"parallelism": 2, "completions": 2}}
        case.put(JOBS, "llm-node-0", body, uid="job-2", owner=owner)
        if in_incident:
            case.ledger(in_phase(opened(1000), Phase.SCHEDULING))
        assert len(case.end()) == violations

    @pytest.mark.parametrize(("outcome", "violations"), [(Outcome.SUPERSEDED, 0), (Outcome.RECOVERED, 1)])
    def test_so_is_what_a_user_has_taken_over(self, outcome: Outcome, violations: int) -> None:
        case = self.lost()
        case.ledger(opened(1000))
        case.ledger(into_history(closed(opened(1000), 1010, outcome), EMPTY))
        case.now = 1020
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        assert len(case.end()) == violations

    @pytest.mark.parametrize(
        ("runs", "in_incident", "violations"),
        [(False, False, 0), (True, False, 1), (False, True, 1)],
        ids=["not since it was resumed", "it has run whole since", "in an incident"],
    )
    def test_so_is_one_whose_ranks_have_not_met_since_others_resumed_it(
        self, runs: bool, in_incident: bool, violations: int
    ) -> None:
        """Seed 1454: a node was away for longer than the ranks wait for one another."""
        case = self.lost()
        case.ledger(opened(1000))
        case.ledger(into_history(closed(opened(1000), 1010), EMPTY))
        case.now = 1100
        case.job("job-1", suspend=True)
        for index in (0, 1):
            case.drop(PODS, f"llm-node-0-{index}", by="job-controller")
        case.now = 1200
        case.job("job-1", suspend=False)
        for index in (0, 1):
            case.pod(index, "job-1")
            if runs:
                case.runs(index)
        if in_incident:
            case.ledger(in_phase(opened(1200, number=2), Phase.SCHEDULING))
        assert len(case.end()) == violations

    @pytest.mark.parametrize(("resized", "violations"), [(3, 0), (2, 1)])
    def test_so_is_one_without_room_because_users_have_enlarged_jobs(self, resized: int, violations: int) -> None:
        """Seed 5435: no node is left for one of the ranks."""
        case = self.lost()
        for number in (0, 1):
            case.put(NODES, f"node-{number}", {"status": {}}, by="kubelet")
        case.job("job-1", parallelism=resized, completions=resized)
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        case.put(PODS, "llm-node-0-0", {"status": {"phase": "Pending", "conditions": [unplaced]}}, by="kube-scheduler")
        case.ledger(in_phase(opened(1000), Phase.SCHEDULING))
        assert len(case.end()) == violations

    @pytest.mark.parametrize(("resized", "violations"), [(3, 0), (2, 1)])
    def test_so_is_one_whose_ranks_take_turns_on_too_few_nodes(self, resized: int, violations: int) -> None:
        """Seed 7711: a rank that gives up its rendezvous frees its node for another, and all of that is recorded."""
        case = self.lost()
        for number in (0, 1):
            case.put(NODES, f"node-{number}", {"status": {}}, by="kubelet")
        case.job("job-1", parallelism=resized, completions=resized)
        case.now = 6900
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        case.put(PODS, "llm-node-0-0", {"status": {"phase": "Pending", "conditions": [unplaced]}}, by="kube-scheduler")
        case.now = 7000
        case.put(PODS, "llm-node-0-0", {"status": {"phase": "Running", "conditions": []}}, by="kubelet node-0")
        case.event("LeftToKubernetes")
        case.ledger(in_phase(opened(1000), Phase.SCHEDULING))
        assert len(case.end()) == 2 * violations

    @pytest.mark.parametrize(("overridden", "violations"), [(False, 0), (True, 1)])
    def test_so_is_what_the_jobset_lets_fail(self, overridden: bool, violations: int) -> None:
        """Seed 3031: its failurePolicy allows no more restarts, and its user has made the Job smaller."""
        case = Case(ConvergesAfterHealing)
        policy = {"mode": "Enforce", "overrideNative": overridden}
        case.evidence.jobs = {KEY: msgspec.structs.replace(case.evidence.jobs[KEY], policy=policy)}
        case.jobset(spec={"failurePolicy": {"maxRestarts": 0}})
        case.lose_a_pod()
        case.trace(EventKind.RANK_LOST, "job-1", 1, "llm-node-0-1")
        assert len(case.end()) == violations

    @pytest.mark.parametrize(
        ("mode", "lost_again", "violations"), [("Observe", False, 0), ("Observe", True, 1), ("Enforce", False, 1)]
    )
    def test_so_is_one_whose_last_loss_was_only_observed(self, mode: str, lost_again: bool, violations: int) -> None:
        """Seed 5454: the circuit breaker was open, and nothing shows that the remaining ranks hang."""
        case = self.lost()
        outcome, why = (Outcome.OBSERVED, "ObserveMode") if mode == "Observe" else (Outcome.RECOVERED, "AllRanksReady")
        case.ledger(opened(1000, mode=mode))
        case.now = 1010
        case.ledger(closed(opened(1000, mode=mode), 1010, outcome, why))
        case.ledger(into_history(closed(opened(1000, mode=mode), 1010, outcome, why), EMPTY))
        case.now = 1600
        if lost_again:
            case.fails(0, 134)
        assert len(case.end()) == violations

    @pytest.mark.parametrize(
        ("marking", "outcome", "lost_again", "violations"),
        [
            (Marking.NOTHING, Outcome.HELD, False, 0),
            (Marking.NOTHING, Outcome.HELD, True, 1),
            (Marking.NOTHING, Outcome.RECOVERED, False, 1),
            (Marking.ACCELERATORS, Outcome.HELD, False, 1),
        ],
    )
    def test_so_is_one_that_was_held_and_of_which_nothing_shows_that_it_hangs(
        self, marking: Marking, outcome: Outcome, lost_again: bool, violations: int
    ) -> None:
        """Seed 8906: the lost pod was replaced, and another container keeps the pods of the hung ranks Running."""
        case = Case(ConvergesAfterHealing)
        planned = msgspec.structs.replace(case.evidence.jobs[KEY], marking=marking, sidecars=(Sidecar.SHIPPER,))
        case.evidence.jobs = {KEY: planned}
        case.drop(JOBS, "llm-node-0", by="user")
        case.job("job-2")
        for index in (0, 1):
            case.pod(index, "job-2", name=f"llm-node-0-{index}-x")
            case.put(PODS, f"llm-node-0-{index}-x", {"status": {"phase": "Running"}}, by="kubelet")
        case.now = 1000
        case.drop(PODS, "llm-node-0-1-x", by="chaos")
        case.trace(EventKind.RANK_LOST, "job-2", 1, "llm-node-0-1-x")
        case.pod(1, "job-2", name="llm-node-0-1-y")
        case.put(PODS, "llm-node-0-1-y", {"status": {"phase": "Running"}}, by="kubelet")
        case.now = 1010
        case.ledger(closed(opened(1000), 1010, outcome))
        case.ledger(into_history(closed(opened(1000), 1010, outcome), EMPTY))
        case.now = 2000
        if lost_again:
            case.drop(PODS, "llm-node-0-0-x", by="chaos")
            case.pod(0, "job-2", name="llm-node-0-0-y")
            case.put(PODS, "llm-node-0-0-y", {"status": {"phase": "Running"}}, by="kubelet")
        assert len(case.end()) == violations

    @pytest.mark.parametrize(
        ("marking", "phase", "violations"),
        [(Marking.NOTHING, "Running", 0), (Marking.NOTHING, "Failed", 1), (Marking.ACCELERATORS, "Running", 1)],
    )
    def test_so_are_ranks_that_end_unseen_before_they_have_met(
        self, marking: Marking, phase: str, violations: int
    ) -> None:
        """Seed 2378: another container keeps their pods Running, and nothing shows which one trains."""
        case = self.lost()
        job = msgspec.structs.replace(case.evidence.jobs[KEY], marking=marking, sidecars=(Sidecar.SHIPPER,))
        case.evidence.jobs = {KEY: job}
        case.ledger(opened(1000))
        case.ledger(into_history(closed(opened(1000), 1010), EMPTY))
        case.now = 1020
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.pod(0, "job-2", name="llm-node-0-0-x")
        case.put(PODS, "llm-node-0-0-x", {"status": {"phase": phase}}, by="kubelet")
        case.trace(EventKind.PROCESS_EXITED, "job-2", 0, "pod-3")
        assert len(case.end()) == violations

    def test_so_is_one_that_was_empty_before_its_policy_came(self) -> None:
        case = Case(ConvergesAfterHealing, policy=False)
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.now += 10
        case.policy("Enforce")
        assert case.end() == []

    def test_a_job_that_is_held_says_why(self) -> None:
        case = self.lost()
        case.ledger(in_phase(opened(1000), Phase.HELD))
        assert case.end() == []

    @pytest.mark.parametrize("phase", [Phase.SCHEDULING, Phase.DECIDED])
    def test_one_that_is_only_on_its_way_does_not(self, phase: Phase) -> None:
        case = self.lost()
        case.ledger(in_phase(opened(1000), phase))
        assert f"its ledger says {phase}" in case.end()[0]

    @pytest.mark.parametrize("why", ["suspended", "failed", "complete", "deleted", "paused", "observed", "left"])
    def test_there_may_be_a_reason(self, why: str) -> None:
        case = self.lost()
        match why:
            case "suspended":
                case.annotate(suspend=True)
            case "failed":
                case.put(JOB_SETS, "llm", {"status": {"terminalState": "Failed"}})
            case "complete":
                case.put(TRAIN_JOBS, "llm", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}})
            case "deleted":
                case.drop(TRAIN_JOBS, "llm")
            case "paused":
                case.annotate(paused="maintenance")
            case "observed":
                case.ledger(opened(1000, mode="Observe"))
            case "left":
                case.ledger(opened(1000, restart="None"))
        assert case.end() == []

    def test_our_own_suspension_is_none(self) -> None:
        case = self.lost()
        case.annotate(by=CONTROLLER, suspend=True, suspended_by="workload-1")
        assert "it is suspended by incident workload-1" in case.end()[0]

    def test_without_enforce_no_one_has_to_bring_it_back(self) -> None:
        case = Case(ConvergesAfterHealing, mode="Observe")
        case.trace(EventKind.RANK_LOST, "job-1", 1)
        assert case.end() == []

    @pytest.mark.parametrize(("seconds", "violations"), [(6700, 0), (6800, 1)])
    def test_the_last_stretch_is_quiet(self, seconds: float, violations: int) -> None:
        case = Case(ConvergesAfterHealing)
        case.now = seconds
        case.event("Restless")
        assert len(case.end()) == violations

    @pytest.mark.parametrize(
        ("has_ended", "suspicions", "violations"),
        [(True, (), 0), (False, (), 1), (True, (Suspicion("gpu-1", "workload-1", at(1000), "an exit", "ml"),), 1)],
        ids=["of a group that has ended", "of a group that trains", "with another change"],
    )
    def test_counting_an_incident_is_a_write_about_its_group(
        self, has_ended: bool, suspicions: tuple[Suspicion, ...], violations: int
    ) -> None:
        case = Case(ConvergesAfterHealing)
        case.put(RECOVERY_CONFIGS, "default", {"spec": {}}, uid="config")
        case.ledger(into_history(closed(opened(1000), 1010), EMPTY))
        case.now = 7000
        if has_ended:
            case.put(JOB_SETS, "llm", {"status": {"terminalState": "Failed"}})
        counted = FleetTotals(counted={minute_of(at(7000)): mark_of(("workload", 1, at(1000)))})
        fleet = FleetLedger(totals=counted, suspicions=suspicions)
        case.put(RECOVERY_CONFIGS, "default", {"status": msgspec.to_builtins(fleet)}, by=CONTROLLER)
        assert len(case.end()) == violations

    @pytest.mark.parametrize(("has_ended", "violations"), [(True, 0), (False, 1)])
    def test_so_is_the_note_of_a_recovery_in_vain(self, has_ended: bool, violations: int) -> None:
        case = Case(ConvergesAfterHealing)
        case.put(RECOVERY_CONFIGS, "default", {"spec": {}}, uid="config")
        case.now = 7000
        if has_ended:
            case.put(JOB_SETS, "llm", {"status": {"terminalState": "Failed"}})
        vain = FleetLedger(futile=(Futile("incident-1", at(7000), KEY.namespace, KEY.name),))
        case.put(RECOVERY_CONFIGS, "default", {"status": msgspec.to_builtins(vain)}, by=CONTROLLER)
        assert len(case.end()) == violations

    def test_but_for_the_lease(self) -> None:
        case = Case(ConvergesAfterHealing)
        case.now = 7000
        case.put(LEASES, "recovery", {"spec": {"holderIdentity": CONTROLLER}}, by=CONTROLLER)
        assert case.end() == []

    @pytest.mark.parametrize(
        ("mode", "lost_at", "violations"), [("Observe", 5500, 0), ("Observe", 5300, 1), ("Enforce", 5500, 1)]
    )
    def test_and_for_what_no_one_restarts_and_goes_on_failing(self, mode: str, lost_at: float, violations: int) -> None:
        case = Case(ConvergesAfterHealing, mode=mode)
        case.now = lost_at
        case.fails(1, 1)
        case.now = 7000
        case.event("Observed")
        assert len(case.end()) == violations

    @pytest.mark.parametrize(
        ("marking", "met", "violations"),
        [(Marking.NOTHING, True, 0), (Marking.NOTHING, False, 1), (Marking.ACCELERATORS, True, 1)],
    )
    def test_and_for_what_trains_and_seems_not_to_start(self, marking: Marking, met: bool, violations: int) -> None:
        """Seed 1953: one of its containers cannot start, so it is restarted after each `timeouts.start`."""
        case = Case(ConvergesAfterHealing)
        job = msgspec.structs.replace(case.evidence.jobs[KEY], marking=marking, sidecars=(Sidecar.SHIPPER,))
        case.evidence.jobs = {KEY: job}
        case.drop(JOBS, "llm-node-0", by=CONTROLLER)
        case.job("job-2")
        case.pod(0, "job-2", name="llm-node-0-0-x")
        if met:
            case.trace(EventKind.ROUND_FORMED, "job-2")
        case.now = 7000
        case.event("Restarted")
        assert len([sentence for sentence in case.end() if "writes since" in sentence]) == violations

    def test_a_held_job_may_go_on_when_its_window_does(self) -> None:
        case = Case(ConvergesAfterHealing)
        case.now = 7000
        case.ledger(in_phase(opened(1000), Phase.HELD))
        assert case.end() == []

    @pytest.mark.parametrize(("before", "violations"), [("True", 0), ("False", 1)])
    def test_the_end_of_a_budget_s_window_is_written_down_once(self, before: str, violations: int) -> None:
        """Seed 20510: thirty minutes after a restart its charge leaves the window, and the condition ends."""
        case = Case(ConvergesAfterHealing)
        written = {"spec": {"workloadRef": {"kind": "TrainJob", "name": "llm", "uid": "workload"}, "group": "llm"}}
        for case.now, exhausted in ((1000, before), (7000, "False")):
            condition = {"type": "BudgetExhausted", "status": exhausted, "observedGeneration": case.now}
            status = {"phase": "Healthy", "conditions": [condition]}
            case.put(RECOVERY_GROUPS, "llm-workload", {**written, "status": status}, by=CONTROLLER)
        assert len([sentence for sentence in case.end() if "writes since" in sentence]) == violations


class TestTimelyAction:
    @pytest.mark.parametrize(("before", "violations"), [(True, 0), (False, 1)])
    def test_a_pod_that_was_on_its_way_out_when_its_job_was_resumed_is_no_loss(
        self, before: bool, violations: int
    ) -> None:
        """Seed 1816: its processes could not be killed, so it ended minutes after the resume."""
        case = Case(TimelyAction)
        case.now = 900
        case.annotate(suspend=True)
        if before:
            case.delete(PODS, "llm-node-0-1")
        case.job("job-1", suspend=True)
        case.annotate(suspend=False)
        case.job("job-1", suspend=False)
        case.pod(1, "job-1", name="llm-node-0-1-x")
        case.now = 920
        case.trace(EventKind.ROUND_FORMED, "job-1")
        case.now = 1000
        case.fails(1, 137)
        assert len(case.end()) == violations

    @pytest.mark.parametrize(("seconds", "violations"), [(0.3, 0), (5, 1)])
    def test_an_incident_is_open_soon(self, seconds: float, violations: int) -> None:
        case = Case(TimelyAction)
        case.lose_a_pod()
        case.now += seconds
        case.ledger(restarted(opened(1000), case.now))
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert len(case.end()) == violations

    def test_pods_that_end_after_their_job_is_gone_are_no_losses(self) -> None:
        """Seed 1836: the garbage collector first deletes a Job of a deleted workload, then the Job's pods."""
        case = Case(TimelyAction)
        case.drop(JOBS, "llm-node-0", by=CONTROLLER)
        case.now += 20
        case.fails(1, 137)
        assert case.end() == []

    def test_one_that_is_never_opened_is_found(self) -> None:
        case = Case(TimelyAction)
        case.fails(1, 1)
        assert case.end() == ["pod llm-node-0-1 failed, and no incident was opened"]

    @pytest.mark.parametrize(("seconds", "violations"), [(0.1, 0), (10, 1), (None, 1)])
    def test_and_its_trigger_follows(self, seconds: float | None, violations: int) -> None:
        case = Case(TimelyAction)
        case.lose_a_pod()
        case.ledger(restarted(opened(1000), 1000))
        if seconds is not None:
            case.now += seconds
            case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert len(case.end()) == violations

    def test_what_is_not_taken_down_needs_no_trigger(self) -> None:
        case = Case(TimelyAction)
        case.lose_a_pod()
        case.ledger(opened(1000, mode="Observe"))
        assert case.end() == []

    def test_a_fault_of_a_controller_excuses_it(self) -> None:
        case = Case(TimelyAction)
        case.hits(FaultKind.TIMEOUT, actor=CONTROLLER)
        case.lose_a_pod()
        case.now += 5
        case.ledger(opened(1000))
        assert case.end() == []

    @pytest.mark.parametrize(("changed_at", "violations"), [(940, 0), (800, 1)])
    def test_what_ended_on_a_dead_node_before_the_policy_was_there_is_a_baseline(
        self, changed_at: float, violations: int
    ) -> None:
        case = Case(TimelyAction, mode="Observe")
        case.now = 900
        case.hits(FaultKind.NODE_POWER_LOSS, seconds=95, node="node-1")
        case.now = changed_at
        case.policy("Enforce")
        case.now = 1000
        case.fails(1, 137)
        assert len(case.end()) == violations

    def test_faults_of_the_world_do_not(self) -> None:
        case = Case(TimelyAction)
        case.hits(FaultKind.MANAGER_STALL, seconds=60)
        case.lose_a_pod()
        case.now += 5
        case.ledger(opened(1000))
        assert len(case.end()) == 1

    def test_the_second_loss_is_part_of_the_first_ones_incident(self) -> None:
        case = Case(TimelyAction)
        case.lose_a_pod()
        case.ledger(opened(1000))
        case.now += 100
        case.delete(PODS, "llm-node-0-0")
        assert case.end() == []
