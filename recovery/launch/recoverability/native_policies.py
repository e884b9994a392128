"""Checks the Job's podFailurePolicy and the JobSet's failurePolicy, which decide before the controller does.

Sources: KEP-3329 (podFailurePolicy: the first rule that matches decides), KEP-262 and jobset 0.12.0
`failure_policy.go`, `jobset_webhook.go`; docs/policy.md, "What holds for every policy".
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.recoverability.effective import (
    backoff_limit,
    backoff_limit_place,
    backoff_limit_written,
    is_group,
    job_spec,
    others_hang,
    pods_start_alone,
    restart_policy,
)
from recovery.launch.recoverability.ttl import for_good
from recovery.launch.recoverability.words import span
from recovery.launch.views import FailurePolicy, NativeRule, ReplicatedJob

FAILURE_POLICY_NOT_REACHED = Code(
    "failure-policy-not-reached", Severity.WARNING, "failurePolicy waits until a Job has failed"
)
NO_RESTARTS_ALLOWED = Code("no-restarts-allowed", Severity.WARNING, "the failurePolicy allows no restart")
RESTARTS_WITHOUT_LIMIT = Code(
    "restarts-without-limit", Severity.WARNING, "a job that fails after each start is restarted without end"
)
DEADLINE_RESTARTS_JOB = Code(
    "deadline-restarts-job", Severity.WARNING, "a deadline restarts the group instead of ending it"
)
PREEMPTION_FAILS_JOB = Code("preemption-fails-job", Severity.WARNING, "a drain or a preemption ends the job for good")
ALPHA_RESTART = Code("alpha-restart", Severity.WARNING, "an alpha way to restart, which JobSet refuses by default")
CODES = (
    FAILURE_POLICY_NOT_REACHED,
    NO_RESTARTS_ALLOWED,
    RESTARTS_WITHOUT_LIMIT,
    DEADLINE_RESTARTS_JOB,
    PREEMPTION_FAILS_JOB,
    ALPHA_RESTART,
)

_RESTART_ONE = frozenset({"RestartJob", "RestartJobAndIgnoreMaxRestarts"})
_FREE = frozenset({"RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts"})
_BY_POD_RULE = "PodFailurePolicy"
"""The reason of a Job that a rule of its podFailurePolicy has failed."""
_TERMINATED = {143: "SIGTERM", 137: "SIGKILL after its grace"}
"""Exit codes of a container whose pod is drained, preempted or evicted."""


def check(launch: Launch) -> Iterator[LintFinding]:
    policy = launch.job_set.failure_policy
    if policy is not None:
        yield from _alpha(policy)
        yield from _no_restarts(launch, policy)
        yield from _without_limit(policy, launch)
    for member in launch.members:
        if policy is not None:
            yield from _deadline(policy, member.job)
            if is_group(launch) and pods_start_alone(launch):
                yield from _not_reached(policy, launch, member)
        yield from _preemption(launch, member.job)


def _alpha(policy: FailurePolicy) -> Iterator[LintFinding]:
    """`jobset_webhook.go` refuses both while their feature gates are off, as they are by default in 0.12."""
    for rule in policy.rules:
        if rule.action in _RESTART_ONE:
            yield LintFinding(
                ALPHA_RESTART,
                rule.place / "action",
                f"action {rule.action} is alpha: JobSet 0.12 refuses the JobSet unless its feature gate RestartJob is "
                "on, and where it is, only the failed Job is restarted while the ranks of others hang",
                "set action: RestartJobSet",
            )
    if policy.restart_strategy == "InPlaceRestart":
        yield LintFinding(
            ALPHA_RESTART,
            policy.place / "restartStrategy",
            "restartStrategy InPlaceRestart is alpha: JobSet 0.12 refuses the JobSet unless its feature gate of that "
            "name is on",
            "set restartStrategy: BlockingRecreate, which lets no two incarnations meet at one rendezvous",
        )


def _no_restarts(launch: Launch, policy: FailurePolicy) -> Iterator[LintFinding]:
    if policy.max_restarts is not None or any(each.action in _FREE for each in policy.rules):
        return
    if any(each.action == "FailJobSet" and not each.job_reasons for each in policy.rules):
        return  # then it was not meant to restart
    yield LintFinding(
        NO_RESTARTS_ALLOWED,
        policy.place,
        "a failurePolicy without maxRestarts allows none (the default is 0): the first Job that fails ends the JobSet "
        f"{for_good(launch)}, and the controller takes that for your decision",
        "set maxRestarts: 10, or remove the failurePolicy",
    )


def _without_limit(policy: FailurePolicy, launch: Launch) -> Iterator[LintFinding]:
    """A rule may restart without a limit what the platform has disrupted. A program can fail after each start."""
    only_disrupted = not any(
        each.action == "FailJob" and each.exit_codes_operator
        for member in launch.members
        for each in member.job.pod_failure_rules
    )
    for rule in policy.rules:
        if rule.action != "RestartJobSetAndIgnoreMaxRestarts" or (
            rule.job_reasons == (_BY_POD_RULE,) and only_disrupted
        ):
            continue
        yield LintFinding(
            RESTARTS_WITHOUT_LIMIT,
            rule.place / "action",
            f"maxRestarts does not limit action {rule.action}: a program that fails after each start is restarted "
            "without end while it holds its GPUs, and the budget of a RecoveryPolicy does not stop that",
            "set action: RestartJobSet, which maxRestarts limits, or let only disruptions match: onJobFailureReasons: "
            f"[{_BY_POD_RULE}], and a podFailurePolicy whose FailJob rules have only onPodConditions",
        )


def _deadline(policy: FailurePolicy, job: ReplicatedJob) -> Iterator[LintFinding]:
    deadline = job.active_deadline_seconds
    if deadline is None or not policy.max_restarts or _action(policy, "DeadlineExceeded") == "FailJobSet":
        return
    yield LintFinding(
        DEADLINE_RESTARTS_JOB,
        job_spec(job) / "activeDeadlineSeconds",
        f"activeDeadlineSeconds {deadline} fails the Job after {span(deadline)}, its failurePolicy then restarts the "
        f"group, and the deadline begins again: up to {policy.max_restarts + 1} runs of {span(deadline)} each",
        "put activeDeadlineSeconds into the spec of the TrainJob, or add a rule with action: FailJobSet and "
        "onJobFailureReasons: [DeadlineExceeded]",
    )


def _not_reached(policy: FailurePolicy, launch: Launch, member: Member) -> Iterator[LintFinding]:
    job = member.job
    if backoff_limit(job) == 0 or policy.restart_strategy == "InPlaceRestart":
        return
    if not policy.max_restarts and not any(each.action in _FREE for each in policy.rules):
        return  # it restarts nothing anyway
    if any(each.action == "FailJob" for each in job.pod_failure_rules):
        return
    never = restart_policy(job) == "Never"
    reaction = "replaces a lost pod alone" if never else "restarts a failed rank in place"
    yield LintFinding(
        FAILURE_POLICY_NOT_REACHED,
        backoff_limit_place(job),
        f"the failurePolicy acts once a whole Job has failed, and with {backoff_limit_written(job)} that of "
        f"ReplicatedJob {job.name} first {reaction}, again and again, while {others_hang(launch)}",
        f"set backoffLimit: 0{'' if never else ' and restartPolicy: Never'}, so that the first lost pod restarts all",
    )


def _preemption(launch: Launch, job: ReplicatedJob) -> Iterator[LintFinding]:
    policy = launch.job_set.failure_policy
    if policy is not None and policy.max_restarts and _action(policy, _BY_POD_RULE) != "FailJobSet":
        return  # the failed Job restarts the group
    for code, signal in _TERMINATED.items():
        rule = next((each for each in job.pod_failure_rules if _matches(each, code)), None)
        if rule is None or rule.action != "FailJob":
            continue
        what = "DisruptionTarget" if "DisruptionTarget" in rule.pod_conditions else f"exit code {code} ({signal})"
        yield LintFinding(
            PREEMPTION_FAILS_JOB,
            rule.place,
            f"this rule (FailJob) also matches a pod that is drained, preempted or evicted ({what}), and then ends the "
            f"job {for_good(launch)}; the controller takes that for your decision and stands aside",
            "put a rule with action: Ignore and onPodConditions: [{type: DisruptionTarget}] before it; the controller "
            "then recreates the group without a charge",
        )
        return


def _matches(rule: NativeRule, exit_code: int) -> bool:
    """Whether the rule matches a pod that was drained and ended with that code."""
    if rule.exit_codes_operator:
        return (exit_code in rule.exit_codes) == (rule.exit_codes_operator == "In")
    return "DisruptionTarget" in rule.pod_conditions


def _action(policy: FailurePolicy, reason: str) -> str:
    """What the failurePolicy does about a Job that failed for that reason. Its default is RestartJobSet."""
    matching = (each.action for each in policy.rules if not each.job_reasons or reason in each.job_reasons)
    return next(matching, "RestartJobSet")
