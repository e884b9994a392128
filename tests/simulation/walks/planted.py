"""Bugs to plant in the modelled cluster. A recorded walk finds each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pytest

from recovery.sim.api.metadata import timestamp
from recovery.sim.controllers.job import JobController
from recovery.sim.controllers.job_status import JobSync
from recovery.sim.controllers.jobset import JobSetController
from recovery.sim.controllers.trainer import TrainJobStatus
from recovery.sim.kubelets.pod_status import PodState, Terminated

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Canary:
    bug: str
    """What the model does wrong with this bug."""
    walk: str
    """The recorded walk that finds it."""
    plant: Plant


def _resumes_are_dated_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resume is dated before the pods that the same sync creates, as the model and the controller once had it."""
    say = JobController._say_whether_suspended

    def said_early(self: JobController, sync: JobSync) -> None:
        set_condition = sync.set_condition

        def dated_early(kind: str, status: str, reason: str, message: str, moment: datetime) -> bool:
            return set_condition(kind, status, reason, message, sync.now)

        monkeypatch.setattr(sync, "set_condition", dated_early)
        say(self, sync)

    monkeypatch.setattr(JobController, "_say_whether_suspended", said_early)


def _one_end_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod is over once its first container has ended and is not restarted, even if others still run."""
    phase = vars(PodState)["phase"].fget

    def hasty(state: PodState) -> str:
        first = state.containers[0]
        if isinstance(first.state, Terminated) and state.finished(first):
            return "Failed" if first.state.exit.code else "Succeeded"
        return str(phase(state))

    monkeypatch.setattr(PodState, "phase", property(hasty))


def _deadlines_count_from_the_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainJobStatus, "resumed_at", lambda _: None)


def _resumed_jobs_keep_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither JobSet nor the Job controller clears the first start time of a suspended Job."""
    say = JobController._say_whether_suspended

    def said(self: JobController, sync: JobSync) -> None:
        began = sync.start_time
        say(self, sync)
        sync.start_time = began or timestamp(sync.now)

    resume = JobSetController._resume_job

    async def resumed(self: JobSetController, job: dict[str, object], template: dict[str, object]) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self, "_replace", lambda body, subresource="": _unless_status(self, job, body, subresource))
            await resume(self, job, template)

    monkeypatch.setattr(JobController, "_say_whether_suspended", said)
    monkeypatch.setattr(JobSetController, "_resume_job", resumed)


async def _unless_status(
    controller: JobSetController, job: dict[str, object], body: dict[str, object], subresource: str
) -> dict[str, object]:
    return job if subresource else await JobSetController._replace(controller, body)


def _indexes_have_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """backoffLimitPerIndex is ignored: no index fails on its own."""
    monkeypatch.setattr(JobSync, "limit_per_index", None)


def _sidecars_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A native sidecar that still runs does not keep its pod Running."""
    monkeypatch.setattr(PodState, "sidecars", property(lambda _: []))


CANARIES = (
    Canary("a resume is dated from before the pods that it makes", "resumed", _resumes_are_dated_early),
    Canary("a pod ends with its first container", "seed-9", _one_end_is_the_end),
    Canary("a TrainJob's deadline counts from its creation", "seed-7", _deadlines_count_from_the_creation),
    Canary("a Job's deadline counts from its first start", "seed-15", _resumed_jobs_keep_their_start),
    Canary("backoffLimitPerIndex is not read", "seed-73", _indexes_have_no_limit),
    Canary("native sidecars are not there", "seed-73", _sidecars_are_not_waited_for),
)
