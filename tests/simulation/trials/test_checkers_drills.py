"""Findings about drills: named too late, charged, suspected, and left on nodes."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from recovery.core.drill.node_marks import CORDON_MANAGER
from recovery.core.model.drill import NODE_MARK_ANNOTATION, DrillRef, MarkedTaint, NodeMark
from recovery.core.model.ledger import Ledger
from recovery.ports import NODES, PODS, RECOVERY_CONFIGS, RECOVERY_DRILLS
from recovery.sim.trials.checkers.drills import DrillNamed, DrillTakenBack
from recovery.sim.trials.checkers.node_writes import ForeignKept
from tests.simulation.trials.checker_case import CONTROLLER, Case, at, by_hand, opened, restarted, stamp, with_incident

REF = DrillRef("lose-a-rank", "drill-1")
TAINT = {"key": "recovery.trainjob.dev/drill", "effect": "NoSchedule"}


def case_of(*checkers: Any) -> Case:
    case = Case(*checkers)
    case.evidence.plan = replace(case.evidence.plan, drills=True)
    return case


def names(case: Case, *uids: str, acknowledged: int = 1, **spec: Any) -> None:
    pods = [
        {"number": number, "repeat": 1, "action": "pod-kill", "pod": uid, "podUID": uid}
        for number, uid in enumerate(uids, 1)
    ]
    body = {
        "workloadRef": {"kind": "TrainJob", "name": "llm", "uid": "workload"},
        "experiment": "lose-a-rank",
        "expiresAt": stamp(3000),
        "pods": pods,
        **spec,
    }
    case.put(RECOVERY_DRILLS, "lose-a-rank", {"spec": body, "status": {"named": acknowledged}}, uid="drill-1")


def drilled(seconds: float) -> Ledger:
    return with_incident(opened(seconds), drill=REF)


def test_a_drill_whose_pod_was_named_before_it_was_lost_is_right() -> None:
    case = case_of(DrillNamed)
    names(case, "pod-2")
    case.lose_a_pod()
    case.ledger(drilled(1000))
    case.ledger(restarted(drilled(1000), 1001, charged=False))
    assert case.found == []


@pytest.mark.parametrize("late", ["the pod was lost before", "another pod", "not acknowledged"])
def test_a_drill_whose_pod_was_not_named_before_is_found(late: str) -> None:
    case = case_of(DrillNamed)
    if late == "the pod was lost before":
        case.lose_a_pod()
    names(case, "pod-1" if late == "another pod" else "pod-2", acknowledged=int(late != "not acknowledged"))
    if late != "the pod was lost before":
        case.lose_a_pod()
    case.ledger(drilled(1000))
    assert "none of its pods was named" in case.found[0]


def test_a_charge_for_a_drill_is_found() -> None:
    case = case_of(DrillNamed)
    names(case, "pod-2")
    case.lose_a_pod()
    case.ledger(drilled(1000))
    case.ledger(restarted(drilled(1000), 1001))
    assert "is charged for what drill drill-1 has caused" in case.found[0]


def test_a_charge_for_a_pod_that_the_drill_has_not_named_is_right() -> None:
    case = case_of(DrillNamed)
    names(case, "pod-2")
    case.lose_a_pod()
    case.fails(0, 1)
    case.ledger(drilled(1000))
    case.ledger(restarted(drilled(1000), 1001))
    assert case.found == []


def test_a_free_restart_that_no_drill_has_caused_is_found() -> None:
    case = case_of(DrillNamed)
    case.lose_a_pod()
    case.ledger(opened(1000))
    case.ledger(restarted(opened(1000), 1001, charged=False))
    assert "is not charged, and no drill caused it" in case.found[0]


def test_a_free_restart_that_a_person_has_asked_for_is_right() -> None:
    case = case_of(DrillNamed)
    case.ledger(by_hand(opened(1000), 1000))
    case.ledger(by_hand(restarted(opened(1000), 1001, charged=False), 1001, "retry"))
    assert case.found == []


def test_a_suspicion_because_of_a_drill_is_found() -> None:
    case = case_of(DrillNamed)
    case.put(RECOVERY_CONFIGS, "default", {"spec": {}})
    names(case, "pod-2")
    case.lose_a_pod()
    case.ledger(drilled(1000))
    suspicion = {"node": "n", "incident": "workload-1", "at": stamp(1000), "reason": "…", "namespace": "team-a"}
    case.put(RECOVERY_CONFIGS, "default", {"status": {"suspicions": [suspicion]}}, by=CONTROLLER)
    assert "suspect of drill workload-1" in case.found[0]


# Nodes.


def marked(*, condition: bool = False) -> dict[str, Any]:
    mark = NodeMark("team-a", "lose-a-rank", "drill-1", at(3000), condition=condition)
    return {"annotations": {NODE_MARK_ANNOTATION: msgspec.json.encode(mark).decode()}}


ENDED: dict[str, Any] = {"end": {"at": stamp(1500), "reason": "DrillDone"}}
LEFT = {
    "mark": {"metadata": marked()},
    "cordon": {"spec": {"unschedulable": True}},
    "taint": {"spec": {"taints": [TAINT]}},
    "condition": {"status": {"conditions": [{"type": "RecoveryDrill", "status": "True"}]}},
}


@pytest.mark.parametrize("what", LEFT)
def test_what_an_ended_drill_has_left_on_a_node_is_found(what: str) -> None:
    case = case_of(DrillTakenBack)
    names(case, "pod-2", **ENDED)
    case.put(NODES, "node-1", {"spec": {}})
    case.put(NODES, "node-1", LEFT[what], by=CORDON_MANAGER)
    assert "a drill has left on node node-1" in case.end()[0]


def test_what_is_taken_back_or_set_by_others_is_no_finding() -> None:
    case = case_of(DrillTakenBack)
    names(case, "pod-2", **ENDED)
    case.put(NODES, "node-1", {"spec": {}})
    case.put(NODES, "node-1", {"spec": {"unschedulable": True, "taints": [TAINT]}}, by=CORDON_MANAGER)
    case.put(NODES, "node-1", {"spec": {"unschedulable": False, "taints": []}}, by="user")
    case.put(NODES, "node-2", {"spec": {"unschedulable": True}}, by="user")
    assert case.end() == []


@pytest.mark.parametrize(("expires", "condition", "found"), [(3000, False, 1), (3000, True, 0), (9000, False, 0)])
def test_the_mark_of_a_client_that_died_is_found_once_its_time_is_over(
    expires: float, condition: bool, found: int
) -> None:
    case = case_of(DrillTakenBack)
    names(case, "pod-2")
    metadata = marked(condition=condition)
    metadata["annotations"] = {
        key: value.replace(stamp(3000), stamp(expires)) for key, value in metadata["annotations"].items()
    }
    case.put(NODES, "node-1", {"metadata": metadata}, by=CORDON_MANAGER)
    assert len(case.end()) == found


@pytest.mark.parametrize(("taken_at", "by_drill", "found"), [(3001, True, 0), (2999, True, 2), (3001, False, 1)])
def test_a_controller_takes_back_only_what_a_drill_has_done_and_after_its_time(
    taken_at: float, by_drill: bool, found: int
) -> None:
    case = Case(ForeignKept)
    mark = NodeMark("team-a", "lose-a-rank", "drill-1", at(3000), cordon=True, taint=MarkedTaint(**TAINT))
    annotations = {NODE_MARK_ANNOTATION: msgspec.json.encode(mark).decode()}
    case.put(NODES, "node-1", {"spec": {}})
    case.put(NODES, "node-1", {"spec": {"unschedulable": True}}, by=CORDON_MANAGER if by_drill else "user")
    case.put(
        NODES, "node-1", {"spec": {"taints": [TAINT]}, "metadata": {"annotations": annotations}}, by=CORDON_MANAGER
    )
    case.now = taken_at
    freed = {"spec": {"taints": [], "unschedulable": False}, "metadata": {"annotations": {}}}
    case.put(NODES, "node-1", freed, by=CONTROLLER)
    assert len(case.found) == found


def test_pods_of_trials_without_drills_are_not_judged() -> None:
    case = Case(DrillNamed)
    case.delete(PODS, "llm-node-0-1")
    case.ledger(restarted(opened(1000), 1001, charged=False))
    assert case.found == []
