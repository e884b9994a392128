"""Findings about jobs that affect others in their namespace: by messages, by their share of the cap, by the breaker."""

from typing import Any

import msgspec
import pytest

from recovery.core.model.ledger import Ledger
from recovery.ports import NODES, PODS, RECOVERY_CONFIGS
from recovery.sim.trials.checkers.tenants import BreakerShared, MessagesConfirmed, NamespaceWithinShare
from recovery.sim.trials.failure_signs import GPU_CONDITION, MONITOR_TAINT
from tests.simulation.trials.checker_case import CONTROLLER, Case, opened, stamp

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
OTHER = "0d2f5c9e-1"
"""An incident of a job whose ledger is not in the case."""


def case_of(checker: Any, *, breaker: int | None = None, **quarantine: Any) -> Case:
    """40 nodes, of which `quarantine` says how many may be quarantined, and an incident of team-a/llm."""
    case = Case(checker)
    config: dict[str, Any] = {"allow": {"cordon": True}, "quarantine": {"maxPercent": 60, **quarantine}}
    if breaker is not None:
        config["circuitBreaker"] = {"recoveries": breaker}
    case.evidence.plan = msgspec.structs.replace(case.evidence.plan, config=config)
    case.put(RECOVERY_CONFIGS, "default", {"spec": {}})
    for number in range(40):
        case.put(NODES, f"node-{number}", {"status": {"conditions": []}}, by="kubelet")
    case.ledger(opened(case.now))
    return case


def incident_of(case: Case) -> str:
    ledger = case.objects["recoverygroups", "llm-workload"]["status"]
    incident = msgspec.convert(ledger, Ledger).incident
    assert incident is not None
    return incident.id


def fails(case: Case, message: str = XID, *, node: int = 2, ran: float = 900, code: int = 1) -> None:
    """A pod of the job fails on that node."""
    ended = {"exitCode": code, "message": message, "startedAt": stamp(case.now - ran), "finishedAt": stamp(case.now)}
    status = {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": ended}}]}
    case.put(PODS, "llm-node-0-1", {"spec": {"nodeName": f"node-{node}"}, "status": status}, by="kubelet")


def entry(case: Case, number: int, **more: Any) -> dict[str, Any]:
    made = {"node": f"node-{number}", "nodeUID": "…", "reason": "…", "since": stamp(case.now)}
    return {**made, "incident": incident_of(case), "namespace": "team-a", **more}


def write(case: Case, **status: Any) -> None:
    case.put(RECOVERY_CONFIGS, "default", {"status": status}, by=CONTROLLER)


class TestMessagesConfirmed:
    def test_a_message_alone_is_found(self) -> None:
        case = case_of(MessagesConfirmed)
        fails(case)
        write(case, quarantined=[entry(case, 2)])
        assert len(case.found) == 1
        assert "though only messages of namespace team-a blame it" in case.found[0]

    def test_however_often_the_namespace_says_it(self) -> None:
        case = case_of(MessagesConfirmed)
        fails(case)
        said = {"reason": "Xid 79", "namespace": "team-a"}
        again = [said | {"node": "node-2", "incident": incident_of(case), "at": stamp(case.now)}]
        write(case, quarantined=[entry(case, 2)], suspicions=again)
        assert len(case.found) == 1

    @pytest.mark.parametrize(("message", "ran"), [("", 900.0), ("KeyError: 'labels'", 900.0), (XID, 5.0)])
    def test_what_is_no_message_about_the_node_is_not(self, message: str, ran: float) -> None:
        case = case_of(MessagesConfirmed)
        fails(case, message, ran=ran)
        write(case, quarantined=[entry(case, 2)])
        assert case.found == []

    @pytest.mark.parametrize(
        ("sign", "gone_for", "found"),
        [
            ({"status": {"conditions": [{"type": GPU_CONDITION, "status": "True"}]}}, None, 0),
            ({"status": {"conditions": [{"type": GPU_CONDITION, "status": "False"}]}}, None, 1),
            ({"spec": {"taints": [{"key": MONITOR_TAINT, "effect": "NoSchedule"}]}}, None, 0),
            ({"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}, None, 1),
            ({"status": {"conditions": [{"type": GPU_CONDITION, "status": "True"}]}}, 60, 0),
            ({"status": {"conditions": [{"type": GPU_CONDITION, "status": "True"}]}}, 120, 1),
        ],
    )
    def test_a_sign_of_the_node_confirms_it(self, sign: dict[str, Any], gone_for: float | None, found: int) -> None:
        """Also at the latest time at which a reconcile may still rely on it."""
        case = case_of(MessagesConfirmed)
        fails(case)
        case.put(NODES, "node-2", sign, by="monitor")
        if gone_for is not None:
            case.put(NODES, "node-2", {"status": {"conditions": []}}, by="monitor")
            case.now += gone_for
        write(case, quarantined=[entry(case, 2)])
        assert len(case.found) == found

    def test_a_second_namespace_confirms_it(self) -> None:
        case = case_of(MessagesConfirmed)
        fails(case)
        said = {"reason": "Xid 79", "namespace": "team-b"}
        other = said | {"node": "node-2", "incident": OTHER, "at": stamp(case.now)}
        write(case, quarantined=[], suspicions=[other])
        write(case, quarantined=[entry(case, 2)])
        assert case.found == []

    def test_a_trusted_namespace_needs_nothing_more(self) -> None:
        case = case_of(MessagesConfirmed, trustedNamespaces=["team-a"])
        fails(case)
        write(case, quarantined=[entry(case, 2)])
        assert case.found == []


class TestNamespaceWithinShare:
    """24 of 40 nodes may be quarantined, so 2 for one namespace."""

    def test_a_tenth_of_the_cap_is_its_share(self) -> None:
        case = case_of(NamespaceWithinShare)
        write(case, quarantined=[entry(case, number) for number in range(2)])
        assert case.found == []
        write(case, quarantined=[entry(case, number) for number in range(3)])
        assert "3 nodes of 2 that namespace team-a may have without a sign: node-0, node-1, node-2" in case.found[0]

    def test_another_namespace_has_a_share_of_its_own(self) -> None:
        case = case_of(NamespaceWithinShare)
        mine = [entry(case, number) for number in range(2)]
        write(case, quarantined=[*mine, *(entry(case, n, incident=OTHER, namespace="team-b") for n in (2, 3))])
        assert case.found == []

    def test_what_the_node_shows_does_not_count_and_what_only_the_ledger_says_does(self) -> None:
        for shown, found in ((True, 0), (False, 1)):
            case = case_of(NamespaceWithinShare)
            if shown:
                sign = {"status": {"conditions": [{"type": GPU_CONDITION, "status": "True"}]}}
                case.put(NODES, "node-2", sign, by="monitor")
            write(case, quarantined=[entry(case, number, nodeSign="GpuFaultOnNode") for number in range(3)])
            assert len(case.found) == found

    def test_neither_people_nor_trusted_namespaces_have_a_share(self) -> None:
        case = case_of(NamespaceWithinShare)
        write(case, quarantined=[entry(case, number, incident="", by="jane") for number in range(3)])
        assert case.found == []
        case = case_of(NamespaceWithinShare, trustedNamespaces=["team-a"])
        write(case, quarantined=[entry(case, number) for number in range(3)])
        assert case.found == []


class TestBreakerShared:
    def status(self, case: Case, *incidents: str) -> dict[str, Any]:
        opened_at = {"openedAt": stamp(case.now), "reason": "RecoveriesInVain"}
        vain = {"at": stamp(case.now), "namespace": "team-a", "workload": "llm"}
        return {"breaker": opened_at, "futile": [vain | {"incident": each} for each in incidents]}

    def test_two_recoveries_of_one_job_are_found(self) -> None:
        case = case_of(BreakerShared, breaker=2)
        first = incident_of(case)
        case.ledger(opened(case.now + 1, number=2))
        write(case, **self.status(case, first, incident_of(case)))
        assert "opens the circuit breaker, where 1 of 2 count: 2 of team-a/llm" in case.found[0]

    def test_one_of_each_of_two_jobs_opens_it(self) -> None:
        case = case_of(BreakerShared, breaker=2)
        write(case, **self.status(case, incident_of(case), OTHER))
        assert case.found == []

    def test_where_one_recovery_is_enough_one_job_is(self) -> None:
        case = case_of(BreakerShared, breaker=1)
        write(case, **self.status(case, incident_of(case)))
        assert case.found == []

    def test_an_open_one_is_judged_once(self) -> None:
        case = case_of(BreakerShared, breaker=3)
        write(case, **self.status(case, incident_of(case)))
        write(case, **self.status(case, incident_of(case)), quarantined=[])
        assert len(case.found) == 1
