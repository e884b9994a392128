"""Finds deadlines that do not bound what they seem to bound once a job recovers.

A pod's own deadline fails that pod (pkg/kubelet/active_deadline.go), and its Job replaces it. A Job's deadline counts
from the Job's start (job_controller.go, pastActiveDeadline), and a recovery creates a new Job. A TrainJob's deadline
continues through recoveries (trainjob_controller.go, reconcileDeadline: from its creation, or from its last resume).
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.recoverability.effective import backoff_limit, is_group, job_spec, others_hang
from recovery.launch.recoverability.words import span

POD_DEADLINE = Code("pod-deadline", Severity.WARNING, "a deadline of the pods does not end the job")
DEADLINE_BEGINS_AGAIN = Code(
    "deadline-begins-again", Severity.NOTE, "the deadline of a Job begins again with each recovery"
)
CODES = (POD_DEADLINE, DEADLINE_BEGINS_AGAIN)

_INSTEAD = "put activeDeadlineSeconds into the spec of the TrainJob, which recoveries do not begin again"


def check(launch: Launch) -> Iterator[LintFinding]:
    if not is_group(launch):
        return
    for member in launch.members:
        yield from _of_pods(launch, member)
        if launch.job_set.failure_policy is None:  # else `native_policies` reports what follows
            yield from _of_job(launch, member)


def _of_pods(launch: Launch, member: Member) -> Iterator[LintFinding]:
    deadline, limit = member.template.active_deadline_seconds, backoff_limit(member.job)
    if deadline is None or deadline <= 0 or limit == 0:
        return  # without a retry the Job fails with its first pod
    message = (
        f"activeDeadlineSeconds {deadline} of the pod template fails each pod after {span(deadline)}, and the Job "
        f"replaces it, up to backoffLimit {limit} times: {others_hang(launch)} meanwhile, and the job goes on"
    )
    fix = "put activeDeadlineSeconds into the spec of the Job template" if launch.runtime is None else _INSTEAD
    yield LintFinding(POD_DEADLINE, member.template.place / "activeDeadlineSeconds", message, fix)


def _of_job(launch: Launch, member: Member) -> Iterator[LintFinding]:
    deadline = member.job.active_deadline_seconds
    if deadline is None or backoff_limit(member.job) == 0:
        return
    message = (
        f"activeDeadlineSeconds {deadline} counts from the start of the Job, and the controller recovers a group by a "
        f"new Job: the job may run for {span(deadline)} after each of its recoveries"
    )
    fix = "bound the recoveries by spec.budget of the RecoveryPolicy" if launch.runtime is None else _INSTEAD
    yield LintFinding(DEADLINE_BEGINS_AGAIN, job_spec(member.job) / "activeDeadlineSeconds", message, fix)
