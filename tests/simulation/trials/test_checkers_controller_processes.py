"""Invariants of controller and training processes, each with cases that break it and nearly break it."""

from dataclasses import replace

import pytest

from recovery.core.incident.lifecycle import into_history
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.ports import JOB_SETS, JOBS, LEASES, PODS
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers import ALL, PENDING, describe
from recovery.sim.trials.checkers.checker_set import MOST
from recovery.sim.trials.checkers.controller_processes import BoundedRequests, NoLivelock, NoUnhandledException
from recovery.sim.trials.checkers.controller_writes import HealthyUntouched
from recovery.sim.trials.checkers.one_incarnation import OneIncarnation, OverlapCause
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.trial_evidence import FailedReconcile, ProcessLife
from tests.simulation.trials.checker_case import CONTROLLER, KEY, SELECTOR, Case, at, closed, opened, restarted


class TestNoUnhandledException:
    @pytest.mark.parametrize(
        ("error", "violations"),
        [
            ("ConflictError", 0),
            ("UnknownOutcomeError", 0),
            ("NotLeadingError", 0),
            ("RestlessGroupError", 0),
            ("LedgerUnreadableError", 0),
            ("InvariantError", 1),
            ("KeyError", 1),
        ],
    )
    def test_a_reconcile_may_only_end_in_an_error_of_the_api(self, error: str, violations: int) -> None:
        case = Case(NoUnhandledException)
        case.evidence.failed_reconciles.append(FailedReconcile(at(1000), CONTROLLER, KEY, error))
        assert len(case.end()) == violations

    @pytest.mark.parametrize(("how", "violations"), [("killed", 0), ("stopped", 0), ("ValueError: no", 1)])
    def test_a_process_may_not_end_by_an_exception(self, how: str, violations: int) -> None:
        case = Case(NoUnhandledException)
        case.evidence.processes.append(ProcessLife(CONTROLLER, 0, at(0), at(1000), how))
        assert len(case.end()) == violations


class TestNoLivelock:
    def ask(self, case: Case, times: int, *, every_seconds: float = 0.01) -> None:
        for _ in range(times):
            case.now += every_seconds
            case.request("list", PODS, query=SELECTOR)

    @pytest.mark.parametrize(("times", "violations"), [(400, 0), (1000, 1)])
    def test_asking_without_end_is_found_once(self, times: int, violations: int) -> None:
        case = Case(NoLivelock)
        self.ask(case, times)
        assert len(case.found) == violations

    def test_asking_now_and_then_is_not(self) -> None:
        case = Case(NoLivelock)
        self.ask(case, 1000, every_seconds=1)
        assert case.found == []

    def test_nor_is_following_what_changes(self) -> None:
        case = Case(NoLivelock)
        for _ in range(5):
            self.ask(case, 300)
            case.put(JOBS, "llm-node-0", {"status": {"active": 1}}, by="job-controller")
        assert case.found == []

    def test_leases_belong_to_no_group(self) -> None:
        case = Case(NoLivelock)
        for _ in range(1000):
            case.request("get", LEASES, "recovery")
        assert case.found == []

    @pytest.mark.parametrize(("every_seconds", "violations"), [(30, 0), (1, 1)])
    def test_reconciles_that_fail_again_and_again_have_to_back_off(self, every_seconds: float, violations: int) -> None:
        case = Case(NoLivelock)
        for number in range(100):
            failed = FailedReconcile(at(1000 + number * every_seconds), CONTROLLER, KEY, "TryLaterError")
            case.evidence.failed_reconciles.append(failed)
        assert len(case.end()) == violations


class TestBoundedRequests:
    def requests_in_an_incident(self, count: int, *, faults: int = 0) -> list[str]:
        case = Case(BoundedRequests)
        case.lose_a_pod()
        case.ledger(restarted(opened(1000), 1000))
        for _ in range(faults):
            case.hits(FaultKind.SERVER_ERROR, actor=CONTROLLER)
        for _ in range(count):
            case.request("get", JOB_SETS, "llm")
        return case.found

    def test_some_hundreds_are_what_an_incident_costs(self) -> None:
        assert self.requests_in_an_incident(430) == []

    def test_more_are_found_once(self) -> None:
        [sentence] = self.requests_in_an_incident(1500)
        assert sentence == "incident workload-1 has cost 500 requests, 440 are allowed"

    def test_faults_make_them_more(self) -> None:
        assert self.requests_in_an_incident(1500, faults=40) == []


class TestOneIncarnation:
    def taken_down(self, *, by: str = CONTROLLER) -> Case:
        """job-1 was deleted and job-2 created, while rank 0 of job-1 still runs."""
        case = Case(OneIncarnation)
        case.trace(EventKind.PROCESS_STARTED, "job-1", 0, "pod-1")
        case.now += 10
        case.delete(JOBS, "llm-node-0", by=by)
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        return case

    def test_two_processes_on_one_rank_are_found(self) -> None:
        case = self.taken_down()
        case.trace(EventKind.PROCESS_STARTED, "job-2", 0, "pod-3")
        [sentence] = case.end()
        assert (
            "pod pod-3 of Job job-2 started on rank 0 of team-a/llm while pod pod-1 of Job job-1 still ran" in sentence
        )

    def test_one_after_the_other_is_right(self) -> None:
        case = self.taken_down()
        case.trace(EventKind.PROCESS_EXITED, "job-1", 0, "pod-1")
        case.trace(EventKind.PROCESS_STARTED, "job-2", 0, "pod-3")
        assert case.end() == []

    def test_another_rank_is_another_process(self) -> None:
        case = self.taken_down()
        case.trace(EventKind.PROCESS_STARTED, "job-2", 1, "pod-4")
        assert case.end() == []

    def replaced(self, case: Case) -> Case:
        """Rank 0 of pod-1 ends 7 seconds after rank 0 of pod-3, which is of the same Job, has started."""
        case.trace(EventKind.PROCESS_STARTED, "job-1", 0, "pod-3")
        case.now += 7
        case.trace(EventKind.PROCESS_EXITED, "job-1", 0, "pod-1")
        return case

    def one_job(self) -> Case:
        case = Case(OneIncarnation)
        case.trace(EventKind.PROCESS_STARTED, "job-1", 0, "pod-1")
        return case

    def test_a_pod_that_its_job_replaces_too_early_is_counted(self) -> None:
        case = self.one_job()
        case.delete(PODS, "llm-node-0-0", by="user")
        assert self.replaced(case).end() == []
        assert case.evidence.lost_seconds == {OverlapCause.REPLACED: 7.0}

    def test_a_suspension_by_others_that_ends_too_early_is_counted(self) -> None:
        case = self.one_job()
        case.put(JOBS, "llm-node-0", {"spec": {"suspend": True}}, by="jobset-controller")
        case.delete(PODS, "llm-node-0-0", by="job-controller")
        case.put(JOBS, "llm-node-0", {"spec": {"suspend": False}}, by="jobset-controller")
        assert self.replaced(case).end() == []
        assert case.evidence.lost_seconds == {OverlapCause.SUSPENDED: 7.0}

    def test_a_suspension_by_a_controller_that_ends_too_early_is_found(self) -> None:
        case = self.one_job()
        case.annotate(CONTROLLER, suspend=True, suspended_by="workload-1")
        case.put(JOBS, "llm-node-0", {"spec": {"suspend": True}}, by="jobset-controller")
        case.delete(PODS, "llm-node-0-0", by="job-controller")
        case.annotate(CONTROLLER, suspend=False)
        case.put(JOBS, "llm-node-0", {"spec": {"suspend": False}}, by="jobset-controller")
        [sentence] = self.replaced(case).end()
        assert "pod pod-3 of Job job-1 started on rank 0 of team-a/llm while pod pod-1" in sentence

    def test_a_pod_that_a_controller_deletes_and_its_job_replaces_is_found(self) -> None:
        case = self.one_job()
        case.delete(PODS, "llm-node-0-0", by=CONTROLLER)
        [sentence] = self.replaced(case).end()
        assert "pod pod-3 of Job job-1 started on rank 0 of team-a/llm while pod pod-1" in sentence

    def test_who_deletes_a_job_carelessly_is_to_blame_himself(self) -> None:
        case = self.taken_down(by="user")
        case.trace(EventKind.PROCESS_STARTED, "job-2", 0, "pod-3")
        assert case.end() == []

    @pytest.mark.parametrize("kind", [FaultKind.POD_FORCE_DELETE, FaultKind.NODE_PARTITION])
    def test_a_pod_out_of_reach_is_excused(self, kind: FaultKind) -> None:
        case = self.taken_down()
        case.hits(kind, pod_uids=("pod-1",))
        case.trace(EventKind.PROCESS_STARTED, "job-2", 0, "pod-3")
        assert case.end() == []

    def test_a_pod_without_any_grace_goes_before_its_processes(self) -> None:
        case = self.taken_down()
        case.evidence.jobs = {KEY: JobPlan("team-a", "llm", grace_seconds=0)}
        case.trace(EventKind.PROCESS_STARTED, "job-2", 0, "pod-3")
        assert case.end() == []

    @pytest.mark.parametrize("kind", [EventKind.ROUND_FORMED, EventKind.CHECKPOINT])
    def test_the_earlier_incarnation_works_no_more_once_the_later_one_does(self, kind: EventKind) -> None:
        case = self.taken_down()
        case.trace(EventKind.ROUND_FORMED, "job-2")
        case.trace(kind, "job-1")
        assert len(case.end()) == 1

    def test_the_later_one_may(self) -> None:
        case = self.taken_down()
        case.trace(EventKind.CHECKPOINT, "job-1")
        case.trace(EventKind.ROUND_FORMED, "job-2")
        case.trace(EventKind.CHECKPOINT, "job-2")
        assert case.end() == []


def a_recovery(case: Case) -> Case:
    """A pod is deleted, and the whole group is recreated."""
    case.lose_a_pod()
    case.trace(EventKind.RANK_LOST, "job-1", 1, "pod-2")
    case.now += 0.1
    case.reads_live()
    first = restarted(opened(1000), 1000.1)
    case.ledger(first)
    case.event("RecreatingGroup")
    case.request("delete", JOBS, "llm-node-0", body={"preconditions": {"uid": "job-1", "resourceVersion": "107"}})
    case.delete(JOBS, "llm-node-0", by=CONTROLLER)
    case.delete(PODS, "llm-node-0-0", by=CONTROLLER)
    case.now += 5
    for name in ("llm-node-0-0", "llm-node-0-1"):
        case.drop(PODS, name, by="kubelet")
    case.drop(JOBS, "llm-node-0", by="garbage-collector")
    case.job("job-2")
    for index in (0, 1):
        case.pod(index, "job-2")
        case.runs(index)
    case.trace(EventKind.ROUND_FORMED, "job-2")
    ended = closed(first, case.now)
    case.ledger(ended)
    case.record()
    case.ledger(into_history(ended, Snapshot(KEY, None, None, (), ())))
    return case


class TestTheCheckerSet:
    def test_every_invariant_says_what_it_is(self) -> None:
        assert len(describe()) == len(ALL)
        assert all(len(sentence) > 60 for sentence in describe().values())
        assert not set(PENDING) & set(describe())

    def test_a_quiet_trial_breaks_none(self) -> None:
        assert Case(*ALL).end() == []

    def test_nor_does_a_recovery_as_it_should_be(self) -> None:
        assert a_recovery(Case(*ALL)).end() == []

    def test_one_object_serves_checkers_that_are_told_one_by_one(self) -> None:
        told = a_recovery(Case())
        evidence = replace(told.evidence, indexes={})
        checkers = [make(evidence) for make in ALL]
        for change, moment in zip(evidence.changes, evidence.change_times, strict=True):
            for checker in checkers:
                assert list(checker.changed(change, moment)) == []
        assert [found for checker in checkers for found in checker.ended()] == []

    def test_it_keeps_the_first_violations(self) -> None:
        case = Case(HealthyUntouched)
        for _ in range(2 * MOST):
            case.event("Bored")
        assert len(case.checker_set.violations) == MOST
        assert case.checker_set.violations[0].invariant == "HealthyUntouched"
        assert case.checker_set.violations[0].group == GroupKey("team-a", "llm")
