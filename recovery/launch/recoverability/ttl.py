"""Finds `ttlSecondsAfterFinished` that begins again what has ended.

JobSet deletes a finished JobSet when its time is over (jobset 0.12 `ttl_after_finished.go`). Trainer 2.3 then removes
Failed from the TrainJob, and creates the JobSet again (`trainjob_controller.go`, removeFailedCondition). Kubernetes
deletes a finished Job likewise, and JobSet creates each Job that is missing while the JobSet has not ended.
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.recoverability.effective import job_spec
from recovery.launch.recoverability.gang import QUEUE_LABEL
from recovery.launch.recoverability.words import span
from recovery.launch.views import ReplicatedJob

FAILED_JOB_TRAINS_AGAIN = Code(
    "failed-job-trains-again", Severity.ERROR, "a failed job trains again once its JobSet has expired"
)
COMPLETE_JOB_RUNS_AGAIN = Code(
    "complete-job-runs-again", Severity.ERROR, "a Job that is done runs again once it has expired"
)
CODES = (FAILED_JOB_TRAINS_AGAIN, COMPLETE_JOB_RUNS_AGAIN)

_FIELD = "ttlSecondsAfterFinished"


def for_good(launch: Launch) -> str:
    """How long a failed JobSet stays failed, after "fails"."""
    ttl = _revives(launch)
    return "for good" if ttl is None else f"until its {_FIELD} ({ttl}) deletes it, and Trainer trains the job again"


def check(launch: Launch) -> Iterator[LintFinding]:
    ttl = _revives(launch)
    if ttl is not None:
        quota = ", outside the quota, which Kueue released when it failed" if QUEUE_LABEL in launch.labels else ""
        yield LintFinding(
            FAILED_JOB_TRAINS_AGAIN,
            launch.job_set.place / _FIELD,
            f"{_FIELD} {ttl} deletes a failed JobSet after {span(ttl)}, and Trainer 2.3 creates it again: the job "
            f"trains again, with all its restarts, each time that it has failed{quota}",
            f"remove {_FIELD}, and delete TrainJobs that have ended",
        )
    for job in launch.job_set.jobs:
        if job.ttl_seconds is not None:
            yield _of_job(launch, job, job.ttl_seconds)


def _revives(launch: Launch) -> int | None:
    """The TTL of a JobSet that Trainer creates again. None: it has none, or it is a JobSet of its user's own."""
    by_trainer = launch.train_job is not None or launch.runtime is not None
    return launch.job_set.ttl_seconds if by_trainer else None


def _of_job(launch: Launch, job: ReplicatedJob, ttl: int) -> LintFinding:
    others = len(launch.job_set.jobs) > 1 or (job.replicas or 1) > 1
    ends = "while another one runs" if others else "if JobSet has not seen it end by then"
    return LintFinding(
        COMPLETE_JOB_RUNS_AGAIN,
        job_spec(job) / _FIELD,
        f"{_FIELD} {ttl} deletes the Job of ReplicatedJob {job.name} {span(ttl)} after its end, and JobSet creates it "
        f"again {ends}: what it has done is done twice",
        f"remove {_FIELD} from the Job template",
    )
