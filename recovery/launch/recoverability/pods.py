"""Checks what the Job does by itself about a lost pod, and what the pod leaves to read."""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.pod_templates import is_refused
from recovery.launch.recoverability.container import says
from recovery.launch.recoverability.effective import (
    backoff_limit,
    backoff_limit_place,
    backoff_limit_written,
    grace_seconds,
    is_group,
    job_spec,
    losses_to_fail,
    others_hang,
    pods_per_job,
    pods_start_alone,
    restart_policy,
    restart_policy_place,
    runs_script,
    runtime_alone,
    size,
)
from recovery.launch.recoverability.ttl import for_good
from recovery.launch.recoverability.words import counted, span
from recovery.launch.views import ReplicatedJob

RESTARTED_IN_PLACE = Code("restarted-in-place", Severity.WARNING, "a failed rank is restarted alone, where it failed")
CASCADE_ENDS_JOB = Code("cascade-ends-job", Severity.WARNING, "one failure of all ranks ends the job for good")
NO_RETRY = Code("no-retry", Severity.NOTE, "the first lost pod ends the job for good")
LONG_GRACE = Code("long-grace", Severity.WARNING, "ranks that hang hold the group for a long grace period")
NO_TERMINATION_MESSAGE = Code(
    "no-termination-message", Severity.NOTE, "a failed rank leaves no message about the cause"
)
POD_FAILURE_POLICY_REFUSED = Code("pod-failure-policy-refused", Severity.ERROR, "the Job cannot be created")
CODES = (
    RESTARTED_IN_PLACE,
    CASCADE_ENDS_JOB,
    NO_RETRY,
    LONG_GRACE,
    NO_TERMINATION_MESSAGE,
    POD_FAILURE_POLICY_REFUSED,
)

_GRACE_MAX_SECONDS = 120
_BACKOFF_LIMIT_WANTED = 1000
"""As in policies/runtime-prepared.yaml. It is more than one incident costs a group of up to 1,000 pods."""


def check(launch: Launch) -> Iterator[LintFinding]:
    for job in launch.job_set.jobs:
        yield from _pod_failure_policy(job)
    if not is_group(launch):
        return
    for member in launch.members:
        yield from _restarts(launch, member)
        yield from _grace(launch, member)
        yield from _termination_message(launch, member)


def _pod_failure_policy(job: ReplicatedJob) -> Iterator[LintFinding]:
    """Checks what the API server validates in a Job (`pkg/apis/batch/validation`). The JobSet itself is accepted."""
    if not job.pod_failure_rules or is_refused(job):
        return
    if restart_policy(job) != "Never":
        default = "" if job.pods.restart_policy else " (JobSet's default)"
        yield LintFinding(
            POD_FAILURE_POLICY_REFUSED,
            restart_policy_place(job),
            f"a Job with a podFailurePolicy must have restartPolicy Never, and that of ReplicatedJob {job.name} has "
            f"{restart_policy(job)}{default}: the API server refuses the Job, and no pod ever starts",
            "set restartPolicy: Never in its pod template",
        )
    elif job.pod_replacement_policy not in {"", "Failed"}:
        yield LintFinding(
            POD_FAILURE_POLICY_REFUSED,
            job_spec(job) / "podReplacementPolicy",
            f"a Job with a podFailurePolicy must have podReplacementPolicy Failed, and that of ReplicatedJob {job.name}"
            f" has {job.pod_replacement_policy}: the API server refuses the Job, and no pod ever starts",
            "set podReplacementPolicy: Failed, or remove it",
        )


def _restarts(launch: Launch, member: Member) -> Iterator[LintFinding]:
    job = member.job
    if launch.job_set.failure_policy is not None:
        return  # native_policies judges it together with the Job's own limits
    if backoff_limit(job) == 0:
        yield LintFinding(
            NO_RETRY,
            backoff_limit_place(job),
            f"backoffLimit 0 without a failurePolicy: the first pod of ReplicatedJob {job.name} that fails, or is "
            f"drained or preempted, ends the job {for_good(launch)}; the controller takes that for your decision and "
            "stands aside",
            f"if that is not meant, set backoffLimit: {_wanted_limit(member)}, or add a failurePolicy with maxRestarts",
        )
        return
    if not pods_start_alone(launch):
        return
    if restart_policy(job) == "OnFailure" and not job.pod_failure_rules:
        default = "" if job.pods.restart_policy else " (JobSet's default)"
        yield LintFinding(
            RESTARTED_IN_PLACE,
            restart_policy_place(job),
            f"restartPolicy OnFailure{default} restarts a failed rank of ReplicatedJob {job.name} alone, on the same "
            f"node, and {others_hang(launch)} until the collective in which they wait for it times out; each restart "
            "overwrites the exit code of the one before",
            "set restartPolicy: Never in its pod template",
        )
    yield from _cascade(launch, member)


def _cascade(launch: Launch, member: Member) -> Iterator[LintFinding]:
    job, needed = member.job, losses_to_fail(member.job)
    kind = "restart" if restart_policy(job) == "OnFailure" else "failed pod"
    if runtime_alone(launch):
        if job.backoff_limit is not None:
            return  # right for the TrainJobs that it is meant for, as far as is known here
        whom = f"a TrainJob of {counted(needed, 'node')} or more"
    elif pods_per_job(member) >= needed:
        whom = counted(pods_per_job(member), "pod")
    else:
        return
    yield LintFinding(
        CASCADE_ENDS_JOB,
        backoff_limit_place(job),
        f"{backoff_limit_written(job)} for {whom}: when one failure makes all ranks of ReplicatedJob {job.name} exit, "
        f"its Job fails at {counted(needed, kind)}, and the JobSet, which has no failurePolicy, fails with it "
        f"{for_good(launch)}",
        f"set backoffLimit: {_wanted_limit(member)}, or add a failurePolicy with maxRestarts and set backoffLimit: 0",
    )


def _grace(launch: Launch, member: Member) -> Iterator[LintFinding]:
    grace = grace_seconds(member.template)
    if grace <= _GRACE_MAX_SECONDS or (member.main is not None and says(member.main, "emergency checkpoint")):
        return
    yield LintFinding(
        LONG_GRACE,
        member.template.place / "terminationGracePeriodSeconds",
        f"terminationGracePeriodSeconds {grace}: ranks that hang in a collective ignore SIGTERM and sit out all of it, "
        f"so that each restart can cost {size(launch)} another {span(grace)}",
        "set terminationGracePeriodSeconds: 30, or what writing a last checkpoint on SIGTERM takes",
    )


def _termination_message(launch: Launch, member: Member) -> Iterator[LintFinding]:
    main = member.main
    if main is None or main.termination_message_policy == "FallbackToLogsOnError" or not runs_script(launch, member):
        return
    written = bool(main.termination_message_policy)
    default = "" if written else " (the default)"
    yield LintFinding(
        NO_TERMINATION_MESSAGE,
        main.place / "terminationMessagePolicy" if written else main.place,
        f"terminationMessagePolicy File{default}: when container {main.name} fails, its pod's status does not say why, "
        "and its last lines, the traceback or the XID, are gone with the log",
        f"set terminationMessagePolicy: FallbackToLogsOnError in container {main.name}",
    )


def _wanted_limit(member: Member) -> int:
    pods = pods_per_job(member)
    return _BACKOFF_LIMIT_WANTED if pods < _BACKOFF_LIMIT_WANTED else 10 * pods
