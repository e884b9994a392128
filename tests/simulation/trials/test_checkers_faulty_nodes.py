"""The signs that nodes show, and whether they justify a restart of the pods there."""

import pytest

from recovery.ports import JOBS, NODES, PODS
from recovery.sim.trials.checkers.restarts import JustifiedRestart
from tests.simulation.trials.checker_case import Case, opened, restarted

LASTS = {"type": "GpuUnhealthy", "status": "True", "for": "10s"}


@pytest.mark.parametrize(("seconds", "violations"), [(4, 0), (12, 1)])
def test_a_node_that_a_rule_lets_be_faulty_for_a_while_justifies_a_restart(seconds: float, violations: int) -> None:
    """Seed 2031: the pod was created during that time. A pod created later ran on a faulty node from its start."""
    case = Case(JustifiedRestart)
    case.policy("Enforce", rules=[{"name": "gpu", "when": {"onNodeConditions": [LASTS]}, "action": "ReplaceNode"}])
    case.put(NODES, "node-0", {"status": {"conditions": []}}, by="kubelet")
    faulty = {"type": "GpuUnhealthy", "status": "True"}
    case.put(NODES, "node-0", {"status": {"conditions": [faulty]}}, by="node-problem-detector")
    case.drop(JOBS, "llm-node-0", by="garbage-collector")
    case.now += seconds
    case.job("job-2")
    case.pod(0, "job-2", name="llm-node-0-0-x")
    case.put(PODS, "llm-node-0-0-x", {"spec": {"nodeName": "node-0"}}, by="kube-scheduler")
    case.ledger(restarted(opened(1000), case.now, job_uid="job-2"))
    assert len(case.found) == violations
