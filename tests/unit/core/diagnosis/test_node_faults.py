"""Rules about nodes make evidence about members that still run."""

import msgspec
import pytest

from recovery.core.diagnosis.evidence import LossKind
from recovery.core.diagnosis.matching import next_node_fault_at, node_faults, node_signs
from recovery.core.model.facts import (
    Condition,
    ContainerFacts,
    PodFacts,
    Taint,
)
from recovery.core.model.rules import Rule
from tests.unit.core.diagnosis.matched import BAD_GPU, IN_42, Json, gpu, pod, rule, snapshot
from tests.unit.core.world import START, at

RUNNING = pod(3, ContainerFacts("node", running_since=at(-90)), phase="Running")


NODE_RULE = rule("ReplaceNode", "bad-gpu", onNodeConditions=[{"type": "GpuUnhealthy"}])


def test_a_rule_about_nodes_makes_evidence_of_a_member_that_still_runs() -> None:
    [item] = node_faults((NODE_RULE,), snapshot(gpu(BAD_GPU), pods=(RUNNING,)), START)
    assert (item.key, item.kind, item.at, item.pod) == ("uid-3/rule/bad-gpu", LossKind.NODE_FAULT, at(-60), RUNNING)
    assert item.text == (
        "pod train-3 (rank 3, node gpu-3) runs on a faulty node: "
        "node gpu-3 has condition GpuUnhealthy=True (Xid79) (rule bad-gpu)"
    )


NO_FAULT: dict[str, tuple[Rule, PodFacts]] = {
    "FailJob is not for members that run": (rule("FailJob", onNodeConditions=[{"type": "GpuUnhealthy"}]), RUNNING),
    "nor is Ignore": (rule("Ignore", onNodeConditions=[{"type": "GpuUnhealthy"}]), RUNNING),
    "asks for more than nodes": (rule(onNodeConditions=[{"type": "GpuUnhealthy"}], **IN_42), RUNNING),
    "asks for a class too": (rule(onNodeConditions=[{"type": "GpuUnhealthy"}], onClass=["HardwareFault"]), RUNNING),
    "asks for nothing of nodes": (rule(targetReplicatedJobs=["node"]), RUNNING),
    "of another ReplicatedJob": (
        rule(onNodeConditions=[{"type": "GpuUnhealthy"}], targetReplicatedJobs=["launcher"]),
        RUNNING,
    ),
    "not yet": (rule(onNodeConditions=[{"type": "GpuUnhealthy", "for": "61s"}]), RUNNING),
    "on another node": (NODE_RULE, msgspec.structs.replace(RUNNING, node="gpu-4")),
    "has failed": (NODE_RULE, msgspec.structs.replace(RUNNING, phase="Failed")),
    "is going": (NODE_RULE, msgspec.structs.replace(RUNNING, deleting_since=at(0))),
    "is gone": (NODE_RULE, msgspec.structs.replace(RUNNING, gone_at=at(0))),
    "counts as dead": (NODE_RULE, msgspec.structs.replace(RUNNING, dead_since=at(0))),
    "of a Job that is no member": (NODE_RULE, msgspec.structs.replace(RUNNING, job_uid="other")),
}


@pytest.mark.parametrize(("asked", "member"), NO_FAULT.values(), ids=NO_FAULT)
def test_no_fault(asked: Rule, member: PodFacts) -> None:
    assert node_faults((asked,), snapshot(gpu(BAD_GPU), pods=(member,)), START) == ()


def test_a_job_that_stands_still_has_no_faults() -> None:
    facts = snapshot(gpu(BAD_GPU), pods=(RUNNING,))
    suspended = msgspec.structs.replace(facts, jobs=(msgspec.structs.replace(facts.jobs[0], suspended=True),))
    assert node_faults((NODE_RULE,), suspended, START) == ()


def test_a_fault_is_dated_from_when_its_rule_began_to_hold() -> None:
    held = rule("ReplaceNode", onNodeConditions=[{"type": "GpuUnhealthy", "for": "45s"}])
    facts = snapshot(gpu(BAD_GPU, taints=(Taint("a", since=at(-10)), Taint("b"))), pods=(RUNNING,))
    assert [item.at for item in node_faults((held,), facts, START)] == [at(-15)]
    tainted = rule("ReplaceNode", onNodeConditions=[{"type": "GpuUnhealthy"}], onNodeTaints=[{"key": "a"}])
    assert [item.at for item in node_faults((tainted,), facts, START)] == [at(-10)]


def test_a_taint_without_a_time_calls_for_another_node_or_for_nothing() -> None:
    """A group that tolerates the taint may return to the node, and RecreateGroup would repeat for ever."""
    facts = snapshot(gpu(taints=(Taint("b"),)), pods=(RUNNING,))
    undated = rule("ReplaceNode", onNodeTaints=[{"key": "b"}])
    assert [item.at for item in node_faults((undated,), facts, START)] == [None]
    assert node_faults((rule("RecreateGroup", onNodeTaints=[{"key": "b"}]),), facts, START) == ()


@pytest.mark.parametrize(
    ("when", "sign"),
    [
        ({"onNodeConditions": [{"type": "Other"}, {"type": "GpuUnhealthy"}]}, "GpuUnhealthy"),
        ({"onNodeConditions": [{"type": "GpuHealthy", "status": "False"}]}, "GpuHealthy=False"),
        ({"onNodeConditions": [{"type": "Other"}], "onNodeTaints": [{"key": "c"}, {"key": "a"}]}, "a"),
        (
            {
                "onNodeConditions": [{"type": "GpuUnhealthy"}, {"type": "GpuHealthy", "status": "False"}],
                "onNodeTaints": [{"key": "a"}, {"key": "a", "effect": "NoSchedule"}],
            },
            "GpuUnhealthy, GpuHealthy=False, a",
        ),
        ({"onNodeTaints": [{"key": "c"}]}, ""),
        ({"onClass": ["HardwareFault"]}, ""),
    ],
    ids=["condition", "condition of another status", "taint", "all of them", "none of them", "asks for none"],
)
def test_the_signs_of_a_node_are_all_that_meets_the_rule(when: Json, sign: str) -> None:
    node = gpu(BAD_GPU, Condition("GpuHealthy", "False"), taints=(Taint("a"),))
    assert node_signs(rule(**when).when, node) == sign


def test_each_rule_and_each_pod_has_a_fault_of_its_own() -> None:
    other = msgspec.structs.replace(RUNNING, name="train-2", uid="uid-2", index=2)
    second = rule("RecreateGroup", "tainted", onNodeTaints=[{"key": "a"}])
    facts = snapshot(gpu(BAD_GPU, taints=(Taint("a", since=at(0)),)), pods=(RUNNING, other))
    assert [item.key for item in node_faults((NODE_RULE, second), facts, START)] == [
        "uid-3/rule/bad-gpu",
        "uid-3/rule/tainted",
        "uid-2/rule/bad-gpu",
        "uid-2/rule/tainted",
    ]


def test_it_says_when_time_will_make_the_next_fault() -> None:
    held = [
        rule("ReplaceNode", "90", onNodeConditions=[{"type": "GpuUnhealthy", "for": "90s"}]),
        rule("ReplaceNode", "70", onNodeConditions=[{"type": "GpuUnhealthy", "for": "70s"}]),
        NODE_RULE,
    ]
    facts = snapshot(gpu(BAD_GPU), pods=(RUNNING,))
    assert next_node_fault_at(held, facts, START) == at(10)
    assert next_node_fault_at(held, facts, at(10)) == at(30)
    assert next_node_fault_at(held, facts, at(30)) is None
    assert next_node_fault_at(held, snapshot(gpu(), pods=(RUNNING,)), START) is None
