"""Findings about quarantine, its caps and its release, and about pods deleted by force."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from recovery.core.model.annotations import NVSENTINEL_CORDON_ANNOTATION, RELEASE_ANNOTATION
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.ports import NODES, PODS, RECOVERY_CONFIGS
from recovery.sim.trials.checkers.last_nodes import LastNodesSpared
from recovery.sim.trials.checkers.node_writes import (
    ForceOnlyTheDead,
    ForeignKept,
    QuarantineOnNode,
    QuarantinePermitted,
    QuarantineReleased,
    QuarantineWithinCap,
)
from tests.simulation.trials.checker_case import CONTROLLER, KEY, Case, stamp

TAINT = {"key": QUARANTINE_TAINT, "value": "workload-1", "effect": "NoSchedule"}
FOREIGN = {"key": "nvidia.com/gpu-unhealthy", "value": "xid", "effect": "NoSchedule"}
ALLOWED = {"cordon": True, "assumeDead": True}
ASSUME_DEAD = {"mode": "Enforce", "teardown": {"fencing": {"mode": "AssumeDead"}}}


def case_of(
    *checkers: Any, allow: Mapping[str, bool] = ALLOWED, quarantine: Mapping[str, int] = MappingProxyType({})
) -> Case:
    """A trial with 40 Ready nodes. By default everything is allowed, and 5 % of the nodes may be quarantined."""
    case = Case(*checkers)
    config = {"allow": allow, "quarantine": quarantine}
    jobs = {key: msgspec.structs.replace(job, policy=ASSUME_DEAD) for key, job in case.evidence.jobs.items()}
    case.evidence.plan = msgspec.structs.replace(case.evidence.plan, config=config, jobs=tuple(jobs.values()))
    case.evidence.jobs = jobs
    case.put(RECOVERY_CONFIGS, "default", {"spec": {}})
    for number in range(40):
        case.put(NODES, f"node-{number}", ready("True"), by="kubelet")
    return case


def ready(status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


def enter(case: Case, *numbers: int, **more: Any) -> None:
    """A controller enters exactly these nodes in the fleet's ledger."""
    entries = [
        {"node": f"node-{number}", "nodeUID": f"node-{number}", "reason": "…", "since": stamp(case.now), **more}
        for number in numbers
    ]
    case.put(RECOVERY_CONFIGS, "default", {"status": {"quarantined": entries}}, by=CONTROLLER)


def taint(case: Case, number: int, *taints: dict[str, str], by: str = CONTROLLER, cordon: bool = True) -> None:
    case.put(NODES, f"node-{number}", {"spec": {"taints": list(taints), "unschedulable": cordon}}, by=by)


class TestQuarantineWithinCap:
    def test_as_many_as_are_allowed_may_be(self) -> None:
        case = case_of(QuarantineWithinCap)
        for number in (0, 1):
            enter(case, *range(number + 1))
            taint(case, number, TAINT)
        assert case.found == []

    def test_one_node_more_in_the_ledger_is_found(self) -> None:
        case = case_of(QuarantineWithinCap)
        enter(case, 0, 1, 2)
        assert "now 3 nodes are, of 2 allowed: node-0, node-1, node-2" in case.found[0]

    def test_one_node_more_that_is_tainted_is_found_whatever_the_ledger_says(self) -> None:
        case = case_of(QuarantineWithinCap)
        for number in (0, 1, 2):
            enter(case, number)
            taint(case, number, TAINT)
        assert "controller-0 quarantines node-2: now 3 nodes are, of 2 allowed" in case.found[0]

    @pytest.mark.parametrize(("quarantine", "most"), [({"maxPercent": 1}, 1), ({"maxPercent": 50, "maxNodes": 3}, 3)])
    def test_the_smaller_cap_holds_but_one_node_may_always_be(self, quarantine: dict[str, int], most: int) -> None:
        case = case_of(QuarantineWithinCap, quarantine=quarantine)
        enter(case, *range(most))
        assert case.found == []
        enter(case, *range(most + 1))
        assert len(case.found) == 1

    def test_none_at_all_may_be_forbidden(self) -> None:
        for quarantine in ({"maxPercent": 0}, {"maxNodes": 0}):
            case = case_of(QuarantineWithinCap, quarantine=quarantine)
            enter(case, 0)
            assert len(case.found) == 1

    def test_what_people_quarantine_is_not_held_against_the_controller(self) -> None:
        case = case_of(QuarantineWithinCap)
        for number in range(5):
            taint(case, number, TAINT, by="user")
        enter(case, *range(5), by="sre")
        assert case.found == []


class TestQuarantinePermitted:
    def test_the_ledger_comes_first(self) -> None:
        case = case_of(QuarantinePermitted)
        taint(case, 0, TAINT)
        assert "unknown to its ledger" in case.found[0]
        enter(case, 1)
        taint(case, 1, TAINT)
        assert len(case.found) == 1

    def test_without_permission_no_node_is_quarantined(self) -> None:
        case = case_of(QuarantinePermitted, allow={})
        enter(case, 0)
        taint(case, 0, TAINT)
        assert case.found == ["controller-0 quarantines node-0, which RecoveryConfig does not allow"]


class TestLastNodesSpared:
    """Forty nodes of one kind, some of them down; the group has two pods."""

    def case(self, well: int = 2, *, waits_since: float = 1000, unplaced: int = 1) -> Case:
        case = case_of(LastNodesSpared)
        for number in range(well, 40):
            case.put(NODES, f"node-{number}", ready("False"), by="kubelet")
        case.now = waits_since
        for index in range(unplaced):
            case.pod(index, "job-1", name=f"llm-node-0-{index}-again")
        case.now = 1500
        return case

    @pytest.mark.parametrize(("well", "found"), [(2, True), (1, True), (3, False)])
    def test_a_node_without_which_too_few_are_left_is_found(self, well: int, found: bool) -> None:
        case = self.case(well)
        enter(case, 0)
        assert bool(case.found) is found
        if well == 2:
            assert case.found == [
                "controller-0 enters node-0 as quarantined, though Job llm-node-0 waits: 1 of 2 nodes are left for it"
            ]

    def test_a_person_may(self) -> None:
        case = self.case()
        enter(case, 0, by="jane")
        assert case.found == []

    def test_a_group_that_has_its_places_does_not_wait(self) -> None:
        case = self.case(unplaced=0)
        enter(case, 0)
        assert case.found == []

    def test_one_that_is_suspended_does_not_either(self) -> None:
        case = self.case()
        case.annotate(suspend=True)
        enter(case, 0)
        assert case.found == []

    def test_one_that_needs_more_nodes_than_there_are_is_not_asked(self) -> None:
        case = self.case()
        case.job("job-1", parallelism=41, completions=41)
        enter(case, 0)
        assert case.found == []

    def test_that_it_waits_need_not_be_known_at_once(self) -> None:
        case = self.case(waits_since=1450)
        enter(case, 0)
        assert case.found == []

    def test_nor_that_another_node_was_lost_or_that_this_one_came_back(self) -> None:
        lost = self.case(3)
        lost.put(NODES, "node-2", ready("False"), by="kubelet")
        enter(lost, 0)
        back = self.case(2)
        back.put(NODES, "node-0", ready("False"), by="kubelet")
        back.put(NODES, "node-0", ready("True"), by="kubelet")
        enter(back, 0)
        assert (lost.found, back.found) == ([], [])

    def test_but_what_the_ledger_has_held_for_long_it_knows(self) -> None:
        case = self.case(4)
        enter(case, 1)
        case.now += 30
        enter(case, 1, 2)
        case.now += 30
        enter(case, 1, 2, 3)
        assert case.found == [], "those before are not old enough"
        case.now += 300
        enter(case, 0, 1, 2, 3)
        assert "enters node-0" in case.found[0]


class TestForeignKept:
    def test_a_foreign_taint_that_goes_is_found(self) -> None:
        case = case_of(ForeignKept)
        taint(case, 0, FOREIGN, TAINT, by="monitor")
        taint(case, 0)
        assert "takes the taint nvidia.com/gpu-unhealthy=xid off node-0" in case.found[0]

    def test_our_own_may_go(self) -> None:
        case = case_of(ForeignKept)
        taint(case, 0, TAINT)
        taint(case, 0, cordon=False)
        assert case.found == []

    def test_a_foreign_cordon_that_ends_is_found(self) -> None:
        case = case_of(ForeignKept)
        taint(case, 0, by="user")
        taint(case, 0, TAINT)
        taint(case, 0, cordon=False)
        assert case.found == ["controller-0 uncordons node-0, which user had cordoned"]

    def test_a_cordon_of_ours_that_an_agent_has_claimed_is_found(self) -> None:
        case = case_of(ForeignKept)
        taint(case, 0, TAINT)
        taint(case, 0, TAINT, FOREIGN, by="monitor")
        taint(case, 0, FOREIGN, cordon=False)
        assert case.found == ["controller-0 uncordons node-0, which taint nvidia.com/gpu-unhealthy claims"]

    def test_so_is_one_that_nvsentinel_claims_though_its_taint_was_there_before(self) -> None:
        case = case_of(ForeignKept)
        taint(case, 0, FOREIGN, by="monitor", cordon=False)
        taint(case, 0, FOREIGN, TAINT)
        case.put(NODES, "node-0", {"metadata": {"annotations": {NVSENTINEL_CORDON_ANNOTATION: "True"}}}, by="monitor")
        taint(case, 0, FOREIGN, cordon=False)
        claim = f"annotation {NVSENTINEL_CORDON_ANNOTATION}"
        assert case.found == [f"controller-0 uncordons node-0, which {claim} claims"]

    def test_a_taint_that_was_there_before_our_cordon_claims_nothing(self) -> None:
        case = case_of(ForeignKept)
        taint(case, 0, FOREIGN, by="monitor", cordon=False)
        taint(case, 0, FOREIGN, TAINT)
        taint(case, 0, FOREIGN, cordon=False)
        assert case.found == []

    def test_a_cordon_that_came_with_a_person_s_quarantine_may_end_with_it(self) -> None:
        case = case_of(ForeignKept)
        taint(case, 0, TAINT, by="user")
        taint(case, 0, cordon=False)
        assert case.found == []


class TestQuarantineOnNode:
    def test_an_entry_whose_node_never_gets_the_taint_is_found(self) -> None:
        case = case_of(QuarantineOnNode)
        enter(case, 0)
        case.now += 900
        taint(case, 0, TAINT)
        assert "node node-0 had no taint from" in case.found[0]

    def test_so_is_one_that_outlives_the_taint(self) -> None:
        case = case_of(QuarantineOnNode)
        taint(case, 0, TAINT)
        enter(case, 0)
        taint(case, 0, by="user", cordon=False)
        assert "node node-0 had no taint from" in case.end()[0]

    def test_a_cordon_is_not_enough(self) -> None:
        case = case_of(QuarantineOnNode)
        enter(case, 0)
        taint(case, 0, FOREIGN, cordon=True)
        assert len(case.end()) == 1

    def test_in_time_is_in_time(self) -> None:
        case = case_of(QuarantineOnNode)
        enter(case, 0)
        case.now += 60
        taint(case, 0, TAINT)
        case.now += 900
        taint(case, 0, cordon=False)
        case.now += 60
        enter(case)
        assert case.end() == []

    def test_a_node_that_does_not_exist_or_is_another_one_needs_no_taint(self) -> None:
        case = case_of(QuarantineOnNode)
        enter(case, 0, nodeUID="that of a machine before it")
        case.drop(NODES, "node-1")
        enter(case, 0, 1, nodeUID="that of a machine before it")
        assert case.end() == []


class TestQuarantineReleased:
    def test_a_node_that_is_kept_beyond_its_time_is_found(self) -> None:
        case = case_of(QuarantineReleased)
        taint(case, 0, TAINT)
        enter(case, 0, releaseAt=stamp(case.now + 600))
        case.now += 900
        taint(case, 0, cordon=False)
        assert "though its time had come" in case.found[0]

    def test_so_is_one_that_a_person_wants_back(self) -> None:
        case = case_of(QuarantineReleased)
        taint(case, 0, TAINT)
        case.put(NODES, "node-0", {"metadata": {"annotations": {RELEASE_ANNOTATION: stamp(case.now)}}})
        assert "a person asked for it" in case.end()[0]

    def test_in_time_is_in_time(self) -> None:
        case = case_of(QuarantineReleased)
        taint(case, 0, TAINT)
        enter(case, 0, releaseAt=stamp(case.now + 600))
        case.now += 630
        taint(case, 0, cordon=False)
        assert case.end() == []


def forced(case: Case) -> list[str]:
    """The findings when a controller deletes the pod on node-0 by force."""
    case.put(PODS, "llm-node-0-0", {"spec": {"nodeName": "node-0"}}, by="scheduler")
    case.request("delete", PODS, "llm-node-0-0", applied=True, body={"gracePeriodSeconds": 0})
    return case.found


class TestForceOnlyTheDead:
    def test_a_pod_on_a_node_that_answers_may_not_be(self) -> None:
        assert "whose node node-0 is not known dead" in forced(case_of(ForceOnlyTheDead))[0]

    def test_one_whose_node_is_gone_may_be(self) -> None:
        case = case_of(ForceOnlyTheDead, allow={})
        case.drop(NODES, "node-0")
        assert forced(case) == []

    def test_out_of_service_is_proof_of_a_node_that_is_not_ready_only(self) -> None:
        out = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        for status, found in (("Unknown", 0), ("True", 1)):
            case = case_of(ForceOnlyTheDead, allow={})
            case.put(NODES, "node-0", ready(status), by="node-controller")
            taint(case, 0, out, by="user")
            assert len(forced(case)) == found

    def test_silence_is_none_without_both_permissions(self) -> None:
        for allow, policy, found in (
            (ALLOWED, ASSUME_DEAD, 0),
            ({}, ASSUME_DEAD, 1),
            (ALLOWED, {"mode": "Enforce"}, 1),
        ):
            case = case_of(ForceOnlyTheDead, allow=allow)
            case.evidence.jobs = {KEY: msgspec.structs.replace(case.evidence.jobs[KEY], policy=policy)}
            case.put(NODES, "node-0", ready("Unknown"), by="node-controller")
            assert len(forced(case)) == found

    def test_a_node_that_is_back_for_long_counts_as_dead_no_more(self) -> None:
        for seconds, found in ((30, 0), (300, 1)):
            case = case_of(ForceOnlyTheDead)
            case.put(NODES, "node-0", ready("Unknown"), by="node-controller")
            case.put(NODES, "node-0", ready("True"), by="kubelet")
            case.now += seconds
            assert len(forced(case)) == found

    def test_a_pod_that_is_given_its_grace_may_always_be_deleted(self) -> None:
        case = case_of(ForceOnlyTheDead)
        case.put(PODS, "llm-node-0-0", {"spec": {"nodeName": "node-0"}}, by="scheduler")
        case.request("delete", PODS, "llm-node-0-0", applied=True, body={"preconditions": {"uid": "x"}})
        assert case.found == []
