"""Reports of the agents of the group `train`, in words: what ended, what runs, and when."""

from collections.abc import Sequence

import msgspec

from recovery.core.model.agent_facts import AgentFacts, AgentState, EndedEpoch, RestartedBy
from recovery.core.model.facts import ContainerFacts
from tests.unit.core.world import World, at

IMAGE = "registry.example/trainjob-recovery-agent@sha256:" + "0" * 64
BARRIER = "00000000000000b1"


def ended(
    epoch: int,
    seconds: float,
    *,
    slot: int = 3,
    code: int | None = None,
    signal: int | None = 9,
    message: str = "",
    step: int | None = None,
    by: RestartedBy | None = None,
    ran: bool = True,
) -> EndedEpoch:
    """The process of that slot has ended the epoch: killed, unless it has an exit code."""
    return EndedEpoch(
        epoch=epoch,
        slot=slot,
        rank=slot,
        exit_code=code,
        signal=None if code is not None else signal,
        ended_at=at(seconds),
        message=message,
        step=step,
        pod=f"train-node-0-{slot}",
        node=f"gpu-{slot}",
        by=by,
        ran=ran,
    )


def reported(
    world: World,
    state: AgentState,
    seconds: float,
    *ends: EndedEpoch,
    epoch: int = 1,
    epoch_since: float = -3590,
    since: float | None = None,
    **changes: object,
) -> World:
    """The world with that report, which came in at `seconds`. `since`: of the state. None: now."""
    known = world.agent.sequence if world.agent is not None else 0
    facts = AgentFacts(
        job_uid=world.job.uid,
        pod_uid=world.pod(0).uid,
        barrier=BARRIER,
        epoch=epoch,
        state=state,
        state_since=at(seconds if since is None else since),
        epoch_since=at(epoch_since),
        slots=world.job.parallelism,
        received_at=at(seconds),
        sequence=known + 1,
        ended=ends,
    )
    return msgspec.structs.replace(world, agent=msgspec.structs.replace(facts, **changes))


def asking(world: World, seconds: float, *earlier: EndedEpoch, epoch: int = 1, **end: object) -> World:
    """A process ended at `seconds`, and the agents ask what to do."""
    last: EndedEpoch = ended(epoch, seconds, **end)  # type: ignore[arg-type]
    return reported(world, AgentState.ASKING, seconds + 0.1, *earlier, last, epoch=epoch)


def running(world: World, seconds: float, ends: Sequence[EndedEpoch], *, epoch: int) -> World:
    """All processes of that epoch run since `seconds`."""
    return reported(world, AgentState.RUNNING, seconds + 0.1, *ends, epoch=epoch, epoch_since=seconds)


def injected(world: World) -> World:
    """The Job was created with the agent, and so are the next ones."""
    template = msgspec.structs.replace(world.job_template, agent_image=IMAGE)
    return msgspec.structs.replace(world.with_job(agent_image=IMAGE), job_template=template)


def left_out(world: World) -> World:
    """The next Jobs are created without the agent."""
    return msgspec.structs.replace(world, job_template=msgspec.structs.replace(world.job_template, agent_image=""))


def waits(world: World, index: int, reason: str, message: str) -> World:
    """The container of that rank waits to be created."""
    container = ContainerFacts(name="node", waiting_reason=reason, waiting_message=message)
    return world.with_pod(index, containers=(container,))


def with_agent(world: World, **changes: object) -> World:
    """The world whose report says something else."""
    assert world.agent is not None, "there is a report"
    return msgspec.structs.replace(world, agent=msgspec.structs.replace(world.agent, **changes))


def again(world: World, state: AgentState, seconds: float, **changes: object) -> World:
    """The next report, about the same epochs."""
    assert world.agent is not None, "there is a report"
    since = {"epoch": world.agent.epoch, "epoch_since": (world.agent.epoch_since - at(0)).total_seconds()}
    return reported(world, state, seconds, *world.agent.ended, **{**since, **changes})  # type: ignore[arg-type]
