"""Losses as facts, for tests of what they mean: one pod each, and a snapshot around them."""

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.model.facts import Condition, ContainerFacts, ExitFacts, NodeFacts, PodFacts, Snapshot, Taint
from tests.unit.core.groups import training
from tests.unit.core.world import at

GROUP = training(32)


def pod(index: int = 3, **changes: object) -> PodFacts:
    """The pod of that rank, on its own node."""
    return msgspec.structs.replace(GROUP.pod(index), **changes)


def died(
    code: int = 1,
    message: str = "",
    *,
    index: int = 3,
    seconds: float | None = 0,
    reason: str = "Error",
    kind: LossKind = LossKind.POD_FAILED,
    **changes: object,
) -> Evidence:
    """The evidence of a process that ended by itself."""
    moment = at(seconds) if seconds is not None else None
    ended = ExitFacts(code=code, reason=reason, message=message, finished_at=moment)
    return lost(kind, index=index, seconds=seconds, exit=ended, **changes)  # type: ignore[arg-type]


def lost(
    kind: LossKind,
    *,
    index: int = 3,
    seconds: float | None = 0,
    exit: ExitFacts | None = None,  # noqa: A002
    disrupted_by: str = "",
    inferred: bool = False,
    **changes: object,
) -> Evidence:
    """The evidence of a pod that was lost in that way. `changes`: of the pod."""
    member = pod(index, **changes)
    return Evidence(
        key=f"{member.uid}/{kind}/{seconds}",
        kind=kind,
        text=f"{kind} of rank {index}",
        job_uid=member.job_uid,
        at=at(seconds) if seconds is not None else None,
        pod=member,
        exit=exit,
        inferred=inferred,
        disrupted_by=disrupted_by,
    )


def job_failing(seconds: float = 0) -> Evidence:
    return Evidence("job-1/failing", LossKind.JOB_FAILING, "Job train-node-0 is failing", "job-1", at=at(seconds))


def around(
    *,
    node: str = "gpu-3",
    gone: bool = False,
    conditions: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    **changes: object,
) -> Snapshot:
    """The group with this node changed. All other nodes are healthy."""
    snapshot = GROUP.snapshot()
    made = NodeFacts(
        name=node,
        ready=True,
        conditions=tuple(Condition(type_, status) for type_, status in (conditions or {}).items()),
        taints=tuple(Taint(key) for key in taints),
    )
    nodes = {**snapshot.nodes, node: msgspec.structs.replace(made, **changes)}
    if gone:
        del nodes[node]
    return msgspec.structs.replace(snapshot, nodes=nodes, gone_nodes=frozenset({node}) if gone else frozenset())


def container(**changes: object) -> tuple[ContainerFacts, ...]:
    return (msgspec.structs.replace(ContainerFacts(name="node"), **changes),)
