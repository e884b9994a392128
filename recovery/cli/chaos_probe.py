"""Reads the job for a drill, with the functions of `recovery status`, so that both say the same about it."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from recovery import api_verbs
from recovery.chaos.abort import read_drills
from recovery.chaos.job_state import JobMember, JobState, ReportedCheckpoint
from recovery.chaos.observation import open_incident
from recovery.cli.controller_lease import LeaderProbe
from recovery.cli.job_lookup import NAMESPACES, absence
from recovery.cli.status_rows import JobRow, job_row
from recovery.core.diagnosis.membership import pods_of
from recovery.core.fleet.storm import storm_of
from recovery.core.incident.standing import meeting_of
from recovery.core.model.drill import DRILLS_ALLOWED, DRILLS_LABEL, DrilledWorkload
from recovery.core.model.facts import FleetFacts, GroupKey, PodFacts, Snapshot, WorkloadFacts
from recovery.core.model.ledger import Ledger
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.model.standing import Standing
from recovery.core.sentences import render
from recovery.core.sentences.protection import remedy, sentence
from recovery.decoding import decoded
from recovery.kube.cluster_reader import JobReading, read_job, with_fleet
from recovery.ports import TRAIN_JOBS, ApiClient, Clock, ForbiddenError, NotFoundError

_CHECKPOINT_TIME = "checkpoint_timestamp_seconds"
_CHECKPOINT_STEP = "checkpoint_step"
_STORM_SECONDS = 60.0
"""A storm has ended when no node was lost for longer."""


class _Labels(msgspec.Struct, frozen=True):
    drills: str = msgspec.field(name=DRILLS_LABEL, default="")


class _Labelled(msgspec.Struct, frozen=True):
    labels: _Labels = _Labels()


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Labelled


class _Metric(msgspec.Struct, frozen=True):
    name: str = ""
    value: str | float = ""


class _TrainerStatus(msgspec.Struct, frozen=True):
    metrics: tuple[_Metric, ...] = ()


class _TrainJobStatus(msgspec.Struct, frozen=True, rename="camel"):
    trainer_status: _TrainerStatus | None = None


class _TrainJob(msgspec.Struct, frozen=True):
    status: _TrainJobStatus = _TrainJobStatus()


_decode_namespace = msgspec.json.Decoder(_Namespace).decode
_decode_train_job = msgspec.json.Decoder(_TrainJob).decode
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=datetime(9999, 1, 1, tzinfo=UTC).timestamp())]


class StatusProbe:
    """`chaos.job_state.JobProbe`."""

    def __init__(self, client: ApiClient, clock: Clock, key: GroupKey) -> None:
        self._client = client
        self._clock = clock
        self._key = key
        self._leader = LeaderProbe(client, clock)

    async def state(self) -> JobState:
        reading = await read_job(self._client, self._key)
        leader = await self._leader.leader()
        workload, now = reading.snapshot.workload, self._clock.now()
        if workload is None:
            error = await absence(self._client, self._key, reading.snapshot.undecodable)
            return _absent(self._key, now, str(error))
        row = job_row(self._key, workload, reading.group, reading.policies, leader, now, reading.snapshot)
        fleet = (await with_fleet(self._client, reading.snapshot, now)).fleet
        ledger = _ledger(reading)
        open_ = open_incident(ledger)
        stop = reading.policies.config.stop if reading.policies.config is not None else None
        drills = await read_drills(self._client, self._key.namespace)
        return JobState(
            key=self._key,
            at=now,
            workload=DrilledWorkload(workload.kind, workload.name, workload.uid),
            absence="",
            drills_allowed=await self._drills_allowed(),
            members=_members(reading.snapshot),
            standing=_standing(row, reading.snapshot, ledger),
            protection=row.protection,
            protection_words=f"{sentence(row.protection)} {remedy(row.protection)}".strip(),
            budget_left=row.budget_left,
            leads=leader.leads,
            leader_words=leader.detail,
            incident=open_.id if open_ is not None else "",
            paused=row.paused,
            stop_words=render(stop) if stop is not None else "",
            storm=_storm(fleet, now) if fleet is not None else "",
            drills=tuple(each for each in drills if each.spec.workload_ref.uid == workload.uid),
            checkpoint=await self._checkpoint(workload),
            highest_step=ledger.training_step.highest if ledger.training_step is not None else None,
            unreadable=reading.unreadable,
        )

    async def members(self) -> tuple[JobMember, ...]:
        return _members((await read_job(self._client, self._key)).snapshot)

    async def _drills_allowed(self) -> bool | None:
        try:
            body = await api_verbs.get(self._client, NAMESPACES, self._key.namespace)
        except (ForbiddenError, NotFoundError):
            return None
        return decoded(NAMESPACES, _decode_namespace, body).metadata.labels.drills == DRILLS_ALLOWED

    async def _checkpoint(self, workload: WorkloadFacts) -> ReportedCheckpoint:
        if workload.kind != TRAIN_JOBS.kind:
            return ReportedCheckpoint()
        body = await api_verbs.get(self._client, TRAIN_JOBS, workload.name, namespace=self._key.namespace)
        return reported_checkpoint(body)


def reported_checkpoint(train_job: bytes) -> ReportedCheckpoint:
    """What the job reports of its last checkpoint. The training writes it, so anything may stand there."""
    try:
        status = _decode_train_job(train_job).status.trainer_status
    except (ValueError, OverflowError, RecursionError):
        return ReportedCheckpoint()
    metrics = {each.name: each.value for each in status.metrics} if status is not None else {}
    seconds, step = (_number(metrics.get(name)) for name in (_CHECKPOINT_TIME, _CHECKPOINT_STEP))
    return ReportedCheckpoint(
        at=datetime.fromtimestamp(seconds, UTC) if seconds is not None else None,
        step=int(step) if step is not None else None,
    )


def _number(value: str | float | None) -> float | None:
    try:
        return msgspec.convert(value, _Seconds, strict=False)
    except msgspec.ValidationError:
        return None


def _absent(key: GroupKey, now: datetime, why: str) -> JobState:
    return JobState(
        key=key,
        at=now,
        workload=None,
        absence=why,
        drills_allowed=None,
        members=(),
        standing=None,
        protection=Protection(ProtectionReason.NO_POLICY, "job", key.name),
        protection_words="",
        budget_left=None,
        leads=None,
        leader_words="",
    )


def _ledger(reading: JobReading) -> Ledger:
    return reading.group.ledger if reading.group is not None and reading.group.readable else Ledger()


def _standing(row: JobRow, snapshot: Snapshot, ledger: Ledger) -> Standing | None:
    """That of `status`. A job that has never had an incident has no ledger that says it, so the pods show it then."""
    if row.standing is not Standing.UNKNOWN or row.protection.reason is ProtectionReason.NODE_SILENT:
        return row.standing
    return meeting_of(snapshot, ledger).standing


def _members(snapshot: Snapshot) -> tuple[JobMember, ...]:
    """The pods of the Job with the most pods, by index. Indexes are unique only within a Job, and a launcher beside the
    workers has one pod."""
    jobs = (job for job in snapshot.jobs if snapshot.jobset is not None and job.jobset_uid == snapshot.jobset.uid)
    groups = [[pod for pod in pods_of(snapshot, job) if _is_there(pod)] for job in jobs]
    pods = max(groups, key=len, default=[])
    return tuple(
        JobMember(
            pod=pod.name,
            uid=pod.uid,
            node=pod.node,
            index=pod.index,
            gpus=pod.gpus,
            container=pod.containers[0].name if pod.training_known and pod.containers else "",
            going=pod.deleting_since is not None,
        )
        for pod in sorted(pods, key=lambda pod: (pod.index or 0, pod.name))
    )


def _is_there(pod: PodFacts) -> bool:
    """It is on a node and has not ended. It may still start, or be on its way down."""
    return bool(pod.node) and pod.phase not in {"Succeeded", "Failed"}


def _storm(fleet: FleetFacts, now: datetime) -> str:
    """The storm that goes on, in words. Empty: none does."""
    last = max(fleet.lost, key=lambda lost: lost.since, default=None)
    if last is None or (now - last.since).total_seconds() > _STORM_SECONDS:
        return ""
    found = storm_of(last.name, fleet, Ledger(), now)
    return found.what if found is not None else ""
