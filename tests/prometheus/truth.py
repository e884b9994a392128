"""What really happened in the recording, from the training model's trace and the plan. No metric is read."""

from dataclasses import dataclass
from datetime import datetime

from recovery.core.decision.resuming import SETTLES_IN
from recovery.ports import PODS
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.manifests import JOBSET_LABEL
from recovery.sim.trials.plan import JobPlan
from recovery.telemetry.idle_cells import BOOKED_WITHIN
from tests.prometheus.recorder import Recording
from tests.prometheus.scenario import GPUS_PER_POD, JOBS

_BEHIND_SECONDS = (SETTLES_IN + BOOKED_WITHIN).total_seconds()
_SIGN_SECONDS = 5
"""A deleted pod shows its deletion at most this long before its process ends."""


@dataclass(frozen=True)
class IdleSpan:
    """GPUs that did nothing. `begin` is when the API first showed the cause: no object has an earlier date."""

    job: str
    begin: datetime
    end: datetime
    open: bool
    gpus: int

    @property
    def gpu_seconds(self) -> float:
        return (self.end - self.begin).total_seconds() * self.gpus

    @property
    def counted_gpu_seconds(self) -> float:
        """The GPU-seconds that the counters show. While the span lasts they are a little behind, by design."""
        return self.gpu_seconds - (_BEHIND_SECONDS * self.gpus if self.open else 0.0)


def gpus_of(job: JobPlan) -> int:
    return job.pods * GPUS_PER_POD


class Truth:
    """The truth about some of the jobs."""

    def __init__(self, recording: Recording, jobs: tuple[JobPlan, ...] = JOBS) -> None:
        self.recording = recording
        self.jobs = jobs
        self.selected = tuple(job for job in jobs if job.policy is not None)
        self.spans = tuple(span for job in self.selected for span in self._spans(job))
        self.open = tuple(span for span in self.spans if span.open)
        self.idle_gpus = sum(span.gpus for span in self.open)
        self.idle_gpu_hours = sum(span.gpu_seconds for span in self.spans) / 3600
        self.seconds = (recording.ends_at - recording.evidence.began_at).total_seconds()
        self.counted_gpu_hours = sum(span.counted_gpu_seconds for span in self.spans) / 3600
        self.held_gpu_hours = sum(gpus_of(job) for job in self.selected) * self.seconds / 3600

    def of(self, name: str) -> "Truth":
        """The truth about one job."""
        return Truth(self.recording, tuple(job for job in self.jobs if str(job) == name))

    def _spans(self, job: JobPlan) -> list[IdleSpan]:
        ends_at = self.recording.ends_at
        return [
            IdleSpan(str(job), self._first_sign(job, lost, met), self._resumed(job, met), met == ends_at, gpus_of(job))
            for lost, met in self.recording.idle_spans(str(job))
        ]

    def _resumed(self, job: JobPlan, met: datetime) -> datetime:
        """When the training reported progress again. For a training that never reports it: when all ranks met."""
        if job.reports_every_seconds is None:
            return met
        ends_at = self.recording.ends_at
        return next((min(at, ends_at) for at, _ in self.reports(job) if at > met), met)

    def reports(self, job: JobPlan) -> list[tuple[datetime, float]]:
        """When the training reported progress, and how much, in whole percent as the training writes it."""
        assert job.total_steps is not None
        reported = self.recording.evidence.trace.of(str(job), EventKind.REPORTED)
        return [(record.at, 100 * record.step // job.total_steps / 100) for record in reported]

    def jobs_that_met(self, job: JobPlan) -> int:
        """How many Jobs of that training have met: the first one, and one for each time when it was recreated."""
        formed = self.recording.evidence.trace.of(str(job), EventKind.ROUND_FORMED)
        return len({record.job_uid for record in formed if record.at <= self.recording.ends_at})

    def _first_sign(self, job: JobPlan, lost: datetime, until: datetime) -> datetime:
        """When the API first shows a pod of the job as deleted or failed because of this loss."""
        evidence = self.recording.evidence
        for change, at in zip(evidence.changes, evidence.change_times, strict=True):
            if change.resource != PODS or at > until or (lost - at).total_seconds() > _SIGN_SECONDS:
                continue
            metadata, status = change.body["metadata"], change.body.get("status", {})
            if metadata.get("labels", {}).get(JOBSET_LABEL) != job.name or metadata["namespace"] != job.namespace:
                continue
            if "deletionTimestamp" in metadata or status.get("phase") == "Failed":
                return max(at, lost) if at >= lost else at
        return lost
