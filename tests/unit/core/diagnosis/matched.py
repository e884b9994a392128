"""The pods, findings and rules that the tests of matching share."""

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from recovery.core.diagnosis.classify import Disruption, DisruptionClass, Finding
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.matching import Answer, ask
from recovery.core.model.facts import (
    Condition,
    ContainerFacts,
    ExitFacts,
    GroupKey,
    JobFacts,
    JobSetFacts,
    NodeFacts,
    PodFacts,
    Snapshot,
    Taint,
)
from recovery.core.model.rules import Rule
from tests.unit.core.world import START, at

EXIT_42 = ExitFacts(42, finished_at=at(0))


Json: TypeAlias = dict[str, Any]


def rule(action: str = "RecreateGroup", name: str = "a", **when: object) -> Rule:
    return msgspec.convert({"name": name, "action": action, "when": when}, Rule)


def pod(index: int = 3, *containers: ContainerFacts, **changes: object) -> PodFacts:
    made = PodFacts(
        name=f"train-{index}",
        uid=f"uid-{index}",
        job_uid="job",
        job_name="train-node-0",
        index=index,
        created_at=at(-100),
        node=f"gpu-{index}",
        phase="Failed",
        containers=containers or (ContainerFacts("node", exit=EXIT_42),),
    )
    return msgspec.structs.replace(made, **changes)


def finding(
    lost: PodFacts | None,
    kind: LossKind = LossKind.POD_FAILED,
    means: DisruptionClass = DisruptionClass.UNKNOWN,
    *,
    cascade: bool = False,
    exit: ExitFacts | None = None,  # noqa: A002 - the name of the field
) -> Finding:
    uid = lost.uid if lost is not None else "job"
    item = Evidence(f"{uid}/lost", kind, "it was lost", "job", at=at(0), pod=lost, exit=exit)
    return Finding(item, means, cascade=cascade)


def snapshot(*nodes: NodeFacts, pods: tuple[PodFacts, ...] = (), replicated_job: str = "node") -> Snapshot:
    job = JobFacts("train-node-0", "job", "1", "jobset", replicated_job, at(-200))
    return Snapshot(
        key=GroupKey("ml", "train"),
        workload=None,
        jobset=JobSetFacts("train", "jobset", "1", 1, at(-300)),
        jobs=(job,),
        pods=pods,
        nodes={node.name: node for node in nodes},
    )


def answer(rules: tuple[Rule, ...], *findings: Finding, facts: Snapshot | None = None, now: datetime = START) -> Answer:
    return ask(rules, Disruption(findings), facts if facts is not None else snapshot(), now)


def gpu(*conditions: Condition, taints: tuple[Taint, ...] = (), **changes: object) -> NodeFacts:
    made = NodeFacts("gpu-3", ready=True, ready_since=at(-1000), ready_reason="KubeletReady")
    return msgspec.structs.replace(made, conditions=conditions, taints=taints, **changes)


BAD_GPU = Condition("GpuUnhealthy", "True", "Xid79", since=at(-60))


IN_42: Json = {"onExitCodes": {"operator": "In", "values": [42, 43]}}


NOT_IN_42: Json = {"onExitCodes": {"operator": "NotIn", "values": [42, 43]}}


OF_NODE: Json = {"onExitCodes": {"operator": "In", "values": [42], "containerName": "node"}}


RESTARTED = pod(3, ContainerFacts("node", restarts=2, running_since=at(1), last_exit=ExitFacts(42)), phase="Running")


PREEMPTED = pod(conditions=(Condition("DisruptionTarget", "True", "PreemptionByScheduler"),))


def ended(message: str) -> PodFacts:
    return pod(3, ContainerFacts("node", exit=ExitFacts(1, message=message)))
