"""The invariant of causes, with cases that break it and nearly break it."""

from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.ports import JOBS, NODES, PODS
from recovery.sim.trials.checkers.causes import IncidentCaused
from tests.simulation.trials.checker_case import Case, by_hand, closed, in_phase, opened, replaces


def suspends_and_resumes(case: Case, resumed: float) -> None:
    """The Job is suspended at 1000 and resumed. Its pods are still ending by then."""
    case.put(JOBS, "llm-node-0", {"spec": {"suspend": True}}, by="jobset-controller")
    for index in (0, 1):
        case.delete(PODS, f"llm-node-0-{index}", by="job-controller")
    case.now = resumed
    case.put(JOBS, "llm-node-0", {"spec": {"suspend": False}}, by="jobset-controller")


def test_an_incident_without_a_cause_is_found() -> None:
    case = Case(IncidentCaused)
    case.ledger(opened(1000))
    assert "nothing has happened to the present run" in case.found[0]


def test_a_lost_member_is_a_cause() -> None:
    case = Case(IncidentCaused)
    case.lose_a_pod()
    case.ledger(opened(1000))
    assert case.found == []


def test_a_request_is_a_cause() -> None:
    case = Case(IncidentCaused)
    case.ledger(by_hand(opened(1000), 1000))
    assert case.found == []


def test_a_deleted_job_is_a_cause() -> None:
    case = Case(IncidentCaused)
    case.delete(JOBS, "llm-node-0", by="user")
    case.ledger(opened(1000))
    assert case.found == []


def test_a_fault_of_a_node_of_the_group_is_a_cause() -> None:
    case = Case(IncidentCaused)
    case.put(NODES, "node-1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    case.put(PODS, "llm-node-0-1", {"spec": {"nodeName": "node-1"}}, by="kube-scheduler")
    case.put(NODES, "node-1", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    case.ledger(opened(1000))
    assert case.found == []


def test_a_loss_that_an_earlier_incident_has_handled_is_no_cause() -> None:
    case = Case(IncidentCaused)
    case.lose_a_pod()
    replaces(case)
    case.now = 1001
    case.ledger(opened(1000))
    case.now = 1020
    case.ledger(closed(opened(1000), 1020))
    case.now = 1100
    case.ledger(opened(1100, number=2))
    assert "opens incident workload-2" in case.found[0]


def test_an_old_loss_is_a_cause_if_the_training_does_not_end() -> None:
    overdue = in_phase(opened(3000).with_incident(step=Step(StepType.HELD, reason=Reason.FINISH_OVERDUE)), Phase.HELD)
    case = Case(IncidentCaused)
    case.lose_a_pod()
    case.now = 3000
    case.ledger(overdue)
    assert case.found == []


def test_what_happened_to_the_job_before_is_none() -> None:
    overdue = in_phase(opened(3000).with_incident(step=Step(StepType.HELD, reason=Reason.FINISH_OVERDUE)), Phase.HELD)
    case = Case(IncidentCaused)
    case.lose_a_pod()
    case.drop(JOBS, "llm-node-0", by="garbage-collector")
    case.now = 3000
    case.ledger(overdue)
    assert "opens incident" in case.found[0]


def test_a_late_end_of_a_run_that_is_over_is_no_cause() -> None:
    case = Case(IncidentCaused)
    suspends_and_resumes(case, 1002)
    case.now = 1008
    case.drop(PODS, "llm-node-0-1", by="kubelet")
    case.ledger(opened(1008))
    assert "nothing has happened to the present run" in case.found[0]


def test_a_loss_of_the_run_before_the_resume_is_no_cause_for_long() -> None:
    case = Case(IncidentCaused)
    case.lose_a_pod()
    suspends_and_resumes(case, 1002)
    case.now = 1010
    case.ledger(opened(1000))
    assert "nothing has happened to the present run" in case.found[0]


def test_a_write_about_the_run_before_the_resume_may_be_on_its_way() -> None:
    case = Case(IncidentCaused)
    case.lose_a_pod()
    suspends_and_resumes(case, 1002)
    case.ledger(opened(1000))
    assert case.found == []


def test_a_loss_after_the_resume_is_a_cause() -> None:
    case = Case(IncidentCaused)
    suspends_and_resumes(case, 1002)
    for index in (0, 1):
        case.drop(PODS, f"llm-node-0-{index}", by="kubelet")
        case.pod(index, "job-1")
        case.runs(index)
    case.now = 1100
    case.lose_a_pod()
    case.ledger(opened(1100))
    assert case.found == []


def test_nothing_is_asked_of_an_incident_that_is_open_already() -> None:
    case = Case(IncidentCaused)
    case.lose_a_pod()
    case.ledger(opened(1000))
    case.now = 4000
    case.ledger(Ledger.with_incident(opened(1000), message="it waits"))
    assert case.found == []
