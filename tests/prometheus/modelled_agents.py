"""What the agents of a modelled training would report: the model's trace has when its ranks start and meet.

Only telemetry hears of it. The decisions in a recording are those of a controller without agents.
"""

from datetime import datetime
from hashlib import sha256

from recovery.core.model.agent_facts import AgentFacts, AgentRendezvous, AgentState, AgentSteps
from recovery.core.model.facts import GroupKey
from recovery.sim.training.trace import EventKind, Trace, TraceRecord
from recovery.sim.trials.plan import JobPlan


class ModelledAgents:
    """The agents of one job. Each process of slot 0 has a barrier of its own."""

    def __init__(self, trace: Trace, job: JobPlan) -> None:
        self.key = GroupKey(job.namespace, job.name)
        self._trace = trace
        self._training = str(job)
        self._slots = job.pods
        self._sequence = 0

    def report(self, now: datetime) -> AgentFacts | None:
        """The report at this time. None: slot 0 has no process that sends one."""
        records = [record for record in self._trace.of(self._training) if record.at <= now]
        living = _living(records)
        first = living.get(0)
        if first is None:
            return None
        mine = [record for record in records if record.job_uid == first.job_uid and record.at >= first.at]
        began = [each.at for each in living.values() if each.job_uid == first.job_uid]
        joined_at = next((each.at for each in mine if each.kind is EventKind.ROUND_FORMED), None)
        lost_at = next((each.at for each in mine if each.kind is EventKind.RANK_LOST), None)
        self._sequence += 1
        return AgentFacts(
            job_uid=first.job_uid,
            pod_uid=first.pod_uid,
            barrier=sha256(f"{first.pod_uid}/{first.restart_count}".encode()).hexdigest()[:16],
            epoch=1,
            state=AgentState.RUNNING,
            state_since=max(began),
            epoch_since=max(began),
            slots=self._slots,
            received_at=now,
            sequence=self._sequence,
            meets=True,
            rendezvous=(AgentRendezvous(1, min(began), joined_at),),
            arrived=len(began),
            joined=0 if joined_at is None else self._slots,
            steps=None if joined_at is None else AgentSteps(mine[-1].step, mine[-1].step, lost_at or now),
        )


def _living(records: list[TraceRecord]) -> dict[int, TraceRecord]:
    """The start of the process that runs, by slot."""
    living: dict[int, TraceRecord] = {}
    for record in records:
        if record.index is None:
            continue
        if record.kind is EventKind.PROCESS_STARTED:
            living[record.index] = record
        elif record.kind is EventKind.PROCESS_EXITED:
            started = living.get(record.index)
            if started is not None and started.pod_uid == record.pod_uid:
                del living[record.index]
    return living
