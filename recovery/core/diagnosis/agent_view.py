"""A report of the agents as facts about the processes in the pods. Everything else reads only those facts.

A container says nothing about the processes that an agent starts in it. With the report, a rank whose process ended
does not run although its container does, and a rank that was started again has a second process. Where the ranks show
when they join, a pod is Ready once they have, as with a joined probe.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.membership import member_count, member_jobs
from recovery.core.model.agent_facts import (
    AgentFacts,
    AgentState,
    EndedEpoch,
    ProcessEnd,
    ProcessesReported,
)
from recovery.core.model.facts import PodFacts, Snapshot

SILENT_AFTER = timedelta(minutes=10)
"""An older report says nothing about now. The permission that its answer gave is over by then, too."""
_APART = frozenset({AgentState.BROKEN, AgentState.LEAVING, AgentState.EXITING})
_SIGNALLED = 128
_NO_EPOCH_RUNS = frozenset({AgentState.STOPPING, AgentState.STARTING, AgentState.GATHERING})


def with_processes(
    snapshot: Snapshot,
    handled: Collection[str],
    since: datetime,
    now: datetime,
    *,
    restarts_in_place: bool = False,
    joins_proven: bool = False,
) -> Snapshot:
    """The snapshot whose pods show the processes that the agents report.

    `handled`: the keys of evidence that incidents have dealt with. `since`: no incident opens for what is older.
    `restarts_in_place`: the open incident follows a restart in place. If several epochs have ended since, the report
    shows only the first of them as if it had been sent then: each one that had run is an incident of its own, as it
    would have been with a controller that was there.
    `joins_proven`: all ranks had joined before the open incident. Only then does anyone wait for them: in some programs
    not every rank calls `init_process_group`.
    """
    agent = snapshot.agent
    if agent is None:
        return snapshot
    if not _is_about(agent, snapshot):
        return msgspec.structs.replace(snapshot, agent=None)
    agent = msgspec.structs.replace(agent, meets=_shows_joins(agent, snapshot, now, proven=joins_proven))
    if not agent.ended:
        return _with_joins(snapshot, agent)
    places = {each.epoch: _pod_of(each, agent, snapshot) for each in agent.ended}
    known = frozenset(map(epoch_in, handled))
    dealt_with = {
        each.epoch
        for each in agent.ended
        if places[each.epoch] is None or each.ended_at < since or agent.key_of(each.epoch) in known
    }
    agent = _as_of_first(agent, dealt_with, restarts_in_place=restarts_in_place)
    if not agent.ended:
        return _with_joins(snapshot, agent)
    pods = tuple(
        _reported(pod, agent, tuple(each for each in agent.ended if places[each.epoch] is pod))
        if pod.job_uid == agent.job_uid
        else pod
        for pod in snapshot.pods
    )
    return _with_joins(msgspec.structs.replace(snapshot, pods=pods), agent)


def _shows_joins(agent: AgentFacts, snapshot: Snapshot, now: datetime, *, proven: bool) -> bool:
    """The report says for the whole group whether the ranks have joined.

    It does not if it is old, if a slot has no link to the barrier, or if the agents do not belong together any more: a
    process of which they know nothing may run then, or none.
    """
    if not agent.meets or agent.missing_count or agent.state in _APART or now - agent.received_at >= SILENT_AFTER:
        return False
    return one_job(snapshot, agent) and (proven or any(each.joined_at is not None for each in agent.rendezvous))


def one_job(snapshot: Snapshot, agent: AgentFacts) -> bool:
    """The agents that report are those of the whole group."""
    jobs = member_jobs(snapshot)
    return len(jobs) == 1 and jobs[0].uid == agent.job_uid and member_count(jobs[0]) == agent.slots


def _with_joins(snapshot: Snapshot, agent: AgentFacts) -> Snapshot:
    """A pod of these agents is Ready when its ranks have joined. A rendezvous ends in all ranks at once, so no pod is
    Ready before it has."""
    if not agent.meets:
        return msgspec.structs.replace(snapshot, agent=agent)
    joined_at = joined(agent)
    pods = tuple(
        msgspec.structs.replace(pod, joined_probe=True, ready=_has_joined(pod, agent, joined_at), ready_since=joined_at)
        if pod.job_uid == agent.job_uid and pod.gone_at is None
        else pod
        for pod in snapshot.pods
    )
    return msgspec.structs.replace(snapshot, pods=pods, agent=agent)


def _has_joined(pod: PodFacts, agent: AgentFacts, joined_at: datetime | None) -> bool:
    """The ranks of this pod have joined. The kubelet, or the node lifecycle controller, may know better. A container
    that started after the report has ranks that the report does not know."""
    if joined_at is None or not pod.running or not pod.ready:
        return False
    starts = (each.running_since for each in pod.containers)
    return all(start is not None and start <= agent.received_at for start in starts)


def joined(agent: AgentFacts) -> datetime | None:
    """When all ranks had joined in the present epoch. None: they have not, or do not show it."""
    found = agent.present_rendezvous
    if found is None and agent.followed and agent.meets:
        # Only the latest are listed. An epoch is followed by another one once it has run.
        return agent.epoch_since
    return None if found is None else found.joined_at


def not_arrived(agent: AgentFacts | None) -> bool:
    """All processes run, and none has called `init_process_group`: the program prepares itself, however long."""
    if agent is None or not agent.meets or agent.state is not AgentState.RUNNING:
        return False
    return agent.present_rendezvous is None


_EPOCH = "/epoch/"


def key_of(pod: PodFacts, epoch: str) -> str:
    """The key of the evidence that a process in that pod ended that epoch."""
    return f"{pod.uid}{_EPOCH}{epoch}"


def epoch_in(key: str) -> str:
    """The epoch in the key of the end of a process. Empty: the evidence is something else."""
    return key.partition(_EPOCH)[2]


def may_return(key: str, snapshot: Snapshot) -> bool:
    """The evidence is the end of a process, and only a report would show it: there is none, and the pod is there."""
    if snapshot.agent is not None or not epoch_in(key):
        return False
    uid = key.partition(_EPOCH)[0]
    return any(pod.uid == uid for pod in snapshot.pods)


def _is_about(agent: AgentFacts, snapshot: Snapshot) -> bool:
    """The Job and the pod of slot 0 that the report is from still exist."""
    jobs = {job.uid for job in member_jobs(snapshot)}
    return agent.job_uid in jobs and any(
        pod.uid == agent.pod_uid and pod.gone_at is None and pod.phase not in {"Failed", "Succeeded"}
        for pod in snapshot.pods
    )


def _pod_of(ended: EndedEpoch, agent: AgentFacts, snapshot: Snapshot) -> PodFacts | None:
    """The pod of that slot at that time. None: it is not known any more.

    The dates come from two clocks, so the pod that the agent names goes first.
    """
    pods = [pod for pod in snapshot.pods if pod.job_uid == agent.job_uid and pod.index == ended.slot]
    named = next((pod for pod in pods if pod.name == ended.pod), None)
    then = (pod for pod in pods if pod.created_at <= ended.ended_at)
    return named or max(then, key=lambda pod: (pod.created_at, pod.uid), default=None)


def _as_of_first(agent: AgentFacts, dealt_with: Collection[int], *, restarts_in_place: bool) -> AgentFacts:
    """The report as it was when the first epoch had ended that is not dealt with. The same report: there is no such
    epoch, or it is the latest one.

    `restarts_in_place`: the open incident is over once the next epoch runs, and its ranks have joined where they show
    it. The end of such an epoch is for the next incident, and is not shown yet.
    """
    first = next((number for number, each in enumerate(agent.ended) if each.epoch not in dealt_with), None)
    if first is None:
        return agent
    if not (restarts_in_place and first and _has_run(agent, agent.ended[first])):
        first += 1
    if first == len(agent.ended):
        return agent
    # When the next epoch began is not reported. It had begun when it ended, and a restart takes about a second.
    began = agent.ended[first - 1].ended_at
    return msgspec.structs.replace(
        agent,
        epoch=agent.ended[first].epoch,
        state=AgentState.RUNNING,
        state_since=began,
        epoch_since=began,
        ended=agent.ended[:first],
        steps=None,
        followed=True,
    )


def _has_run(agent: AgentFacts, ended: EndedEpoch) -> bool:
    """All slots had run the epoch, and its ranks had joined unless they do not show that."""
    found = agent.rendezvous_of(ended.epoch)
    if not agent.meets or (found is None and agent.rendezvous and ended.epoch < agent.rendezvous[0].epoch):
        return ended.ran
    return ended.ran and found is not None and found.joined_at is not None


def _reported(pod: PodFacts, agent: AgentFacts, mine: tuple[EndedEpoch, ...]) -> PodFacts:
    processes = ProcessesReported(
        ends=tuple(_end(each, agent, pod) for each in mine), spans=_spans(pod, agent, {each.epoch for each in mine})
    )
    ready_since = pod.ready_since
    if processes.running and agent.epoch > 1 and ready_since is not None:
        ready_since = max(ready_since, agent.epoch_since)
    return msgspec.structs.replace(
        pod, processes=processes, ready=pod.ready and processes.running, ready_since=ready_since
    )


def _end(ended: EndedEpoch, agent: AgentFacts, pod: PodFacts) -> ProcessEnd:
    code = ended.exit_code if ended.exit_code is not None else _SIGNALLED + (ended.signal or 0)
    began = agent.epoch_since if ended.epoch == agent.epoch > 1 else None
    if ended.epoch == 1:
        began = max((each.running_since for each in pod.containers if each.running_since is not None), default=None)
    return ProcessEnd(
        epoch=agent.key_of(ended.epoch),
        rank=ended.rank,
        code=code,
        ended_at=ended.ended_at,
        message=ended.message,
        step=ended.step,
        began_at=began,
        by=ended.by,
    )


def _spans(pod: PodFacts, agent: AgentFacts, mine: Collection[int]) -> tuple[tuple[datetime, datetime | None], ...]:
    """The processes of the present epoch and of the one before. `mine`: the epochs that a process of this pod ended."""
    starts = [each.running_since for each in pod.containers if each.running_since is not None]
    if not starts or len(starts) < len(pod.containers):
        return ()  # no container, no process
    began, last = max(starts), agent.ended[-1]
    spans: list[tuple[datetime, datetime | None]] = []
    if agent.epoch > 1:
        before = next((each for each in reversed(agent.ended) if each.epoch < agent.epoch), None)
        stopped = agent.epoch_since if agent.state is not AgentState.GATHERING else agent.state_since
        ended_at = before.ended_at if before is not None and before.epoch in mine else stopped
        spans.append((began, max(began, ended_at)))
        began = max(began, agent.epoch_since)
    if last.epoch == agent.epoch:
        over = last.ended_at if last.epoch in mine else agent.state_since if agent.state in _NO_EPOCH_RUNS else None
        spans.append((began, None if over is None else max(began, over)))
    elif agent.state not in _NO_EPOCH_RUNS:
        spans.append((began, None))
    return tuple(spans)
