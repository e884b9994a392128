"""How the policies of Job and JobSet answer a failure, and where that is not what the user meant."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.recoverability import native_policies
from recovery.launch.views import FailurePolicy, MlPolicy, MpiPolicy, NativeRule
from tests.unit.launch.groups import JOB, SPEC, group, job, names, only, pods

POLICY = SPEC / "failurePolicy"
RESTARTS = FailurePolicy(POLICY, max_restarts=3)


def rule(action: str, number: int = 0, **what: tuple[str, ...]) -> NativeRule:
    return NativeRule(action, POLICY / "rules" / number, job_reasons=what.get("reasons", ()))


def exits(action: str, *codes: int, operator: str = "In") -> NativeRule:
    return NativeRule(action, JOB / "podFailurePolicy", exit_codes=codes, exit_codes_operator=operator)


def disrupted(action: str) -> NativeRule:
    return NativeRule(action, JOB / "podFailurePolicy", pod_conditions=("DisruptionTarget",))


def policy(*rules: NativeRule, restarts: int | None = 3, strategy: str = "") -> FailurePolicy:
    return FailurePolicy(POLICY, max_restarts=restarts, restart_strategy=strategy, rules=rules)


def test_without_policies_there_is_nothing_to_say() -> None:
    assert names(native_policies.check(group())) == []


def test_a_group_that_its_jobset_restarts_at_the_first_loss_is_as_it_should_be() -> None:
    """As in policies/runtime-failure-policy.yaml."""
    assert names(native_policies.check(group(job(backoff_limit=0), failure_policy=RESTARTS))) == []


def test_a_failure_policy_waits_until_the_job_has_failed() -> None:
    finding = only(native_policies.check(group(job(backoff_limit=None), failure_policy=RESTARTS)))
    assert finding.message == (
        "the failurePolicy acts once a whole Job has failed, and with backoffLimit 6 (the default) that of "
        "ReplicatedJob node first replaces a lost pod alone, again and again, while the other 15 pods hang"
    )
    assert finding.fix == "set backoffLimit: 0, so that the first lost pod restarts all"


def test_a_failure_policy_with_restarts_in_place_needs_both_lines() -> None:
    finding = only(native_policies.check(group(job(pods(restart_policy=""), backoff_limit=3), failure_policy=RESTARTS)))
    assert "first restarts a failed rank in place" in finding.message
    assert finding.fix.startswith("set backoffLimit: 0 and restartPolicy: Never")
    assert finding.place == JOB / "template" / "spec" / "backoffLimit"


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(group(nodes=1, failure_policy=RESTARTS), id="one pod: no one waits"),
        pytest.param(group(failure_policy=RESTARTS, ml_policy=MlPolicy(JOB, mpi=MpiPolicy(JOB))), id="mpirun"),
        pytest.param(
            group(job(pod_failure_rules=(exits("FailJob", 42),)), failure_policy=RESTARTS), id="fails by rule"
        ),
        pytest.param(group(failure_policy=policy(restarts=0)), id="restarts nothing anyway"),
    ],
)
def test_a_failure_policy_that_need_not_be_reached(launch: Launch) -> None:
    assert names(native_policies.check(launch)) == []


def test_restarts_that_do_not_count_are_restarts_to_be_reached() -> None:
    free = policy(rule("RestartJobSetAndIgnoreMaxRestarts"), restarts=0)
    found = names(native_policies.check(group(failure_policy=free)))
    assert found == ["restarts-without-limit", "failure-policy-not-reached"]


def test_a_failure_policy_without_max_restarts_restarts_nothing() -> None:
    finding = only(native_policies.check(group(job(backoff_limit=0), failure_policy=policy(restarts=None))))
    assert (finding.code.name, finding.place) == ("no-restarts-allowed", POLICY)


@pytest.mark.parametrize(
    ("rules", "found"),
    [((rule("RestartJobSetAndIgnoreMaxRestarts"),), ["restarts-without-limit"]), ((rule("FailJobSet"),), [])],
    ids=["without limit", "meant to fail"],
)
def test_no_max_restarts_is_no_matter_where_a_rule_says_otherwise(
    rules: tuple[NativeRule, ...], found: list[str]
) -> None:
    launch = group(job(backoff_limit=0), failure_policy=policy(*rules, restarts=None))
    assert names(native_policies.check(launch)) == found


def test_a_crash_after_each_start_is_restarted_without_end() -> None:
    """Lint case 84."""
    free = policy(rule("RestartJobSetAndIgnoreMaxRestarts", reasons=("PodFailurePolicy",)), restarts=2)
    crashes = job(backoff_limit=0, pod_failure_rules=(exits("FailJob", 143, operator="NotIn"),))
    finding = only(native_policies.check(group(crashes, failure_policy=free)))
    assert (finding.code.name, finding.place) == ("restarts-without-limit", POLICY / "rules" / 0 / "action")
    assert finding.message == (
        "maxRestarts does not limit action RestartJobSetAndIgnoreMaxRestarts: a program that fails after each start is "
        "restarted without end while it holds its GPUs, and the budget of a RecoveryPolicy does not stop that"
    )


def test_what_the_platform_disrupts_may_be_restarted_without_limit() -> None:
    free = policy(rule("RestartJobSetAndIgnoreMaxRestarts", reasons=("PodFailurePolicy",)))
    disruptions = job(backoff_limit=0, pod_failure_rules=(disrupted("FailJob"),))
    assert names(native_policies.check(group(disruptions, failure_policy=free))) == []


def test_other_failures_of_the_job_than_by_its_rules_need_a_limit_too() -> None:
    free = policy(rule("RestartJobSetAndIgnoreMaxRestarts", reasons=("PodFailurePolicy", "BackoffLimitExceeded")))
    disruptions = job(backoff_limit=0, pod_failure_rules=(disrupted("FailJob"),))
    assert names(native_policies.check(group(disruptions, failure_policy=free))) == ["restarts-without-limit"]


def test_a_rule_that_fails_for_one_reason_still_leaves_the_others() -> None:
    only_deadline = policy(rule("FailJobSet", reasons=("DeadlineExceeded",)), restarts=None)
    found = names(native_policies.check(group(job(backoff_limit=0), failure_policy=only_deadline)))
    assert found == ["no-restarts-allowed"]


def test_zero_that_was_written_is_a_decision() -> None:
    assert names(native_policies.check(group(job(backoff_limit=0), failure_policy=policy(restarts=0)))) == []


@pytest.mark.parametrize("action", ["RestartJob", "RestartJobAndIgnoreMaxRestarts"])
def test_restarting_one_job_is_alpha(action: str) -> None:
    finding = only(native_policies.check(group(job(backoff_limit=0), failure_policy=policy(rule(action)))))
    assert (finding.code.name, finding.place) == ("alpha-restart", POLICY / "rules" / 0 / "action")
    assert finding.fix == "set action: RestartJobSet"


def test_restarting_in_place_is_alpha() -> None:
    limit = 2**31 - 1  # JobSet requires it then
    launch = group(job(backoff_limit=limit), failure_policy=policy(strategy="InPlaceRestart"))
    finding = only(native_policies.check(launch))
    assert (finding.code.name, finding.place) == ("alpha-restart", POLICY / "restartStrategy")


def test_a_deadline_begins_again_with_each_restart() -> None:
    launch = group(job(backoff_limit=0, active_deadline_seconds=7200), failure_policy=RESTARTS)
    finding = only(native_policies.check(launch))
    assert finding.message == (
        "activeDeadlineSeconds 7200 fails the Job after 2 h, its failurePolicy then restarts the group, and the "
        "deadline begins again: up to 4 runs of 2 h each"
    )


@pytest.mark.parametrize(
    "failure_policy",
    [
        pytest.param(None, id="it ends the job"),
        pytest.param(policy(rule("FailJobSet", reasons=("DeadlineExceeded",))), id="a rule ends the job"),
        pytest.param(policy(rule("FailJobSet")), id="any failure ends the job"),
    ],
)
def test_a_deadline_that_ends_the_job_is_what_it_says(failure_policy: FailurePolicy | None) -> None:
    launch = group(job(backoff_limit=0, active_deadline_seconds=7200), failure_policy=failure_policy)
    assert names(native_policies.check(launch)) == []


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        pytest.param([exits("FailJob", 137)], True, id="SIGKILL"),
        pytest.param([exits("FailJob", 1, 143)], True, id="SIGTERM"),
        pytest.param([exits("FailJob", 1, operator="NotIn")], True, id="all but 1"),
        pytest.param([disrupted("FailJob")], True, id="the disruption itself"),
        pytest.param([exits("FailJob", 1, 42)], False, id="errors of its own"),
        pytest.param([exits("FailJob", 137, 143, operator="NotIn")], False, id="all but those"),
        pytest.param([disrupted("Ignore"), exits("FailJob", 137)], False, id="ignored before"),
        pytest.param([exits("FailJob", 137), disrupted("Ignore")], True, id="ignored too late"),
        pytest.param([exits("Count", 137, 143), exits("FailJob", 1, operator="NotIn")], False, id="counted before"),
    ],
)
def test_a_drain_ends_the_job_where_a_rule_takes_it_for_a_failure(rules: list[NativeRule], told: bool) -> None:
    found = names(native_policies.check(group(job(pod_failure_rules=tuple(rules)))))
    assert found == (["preemption-fails-job"] if told else [])


def test_what_a_drain_looks_like_is_told() -> None:
    finding = only(native_policies.check(group(job(pod_failure_rules=(exits("FailJob", 137),)))))
    assert "drained, preempted or evicted (exit code 137 (SIGKILL after its grace))" in finding.message
    assert finding.fix == (
        "put a rule with action: Ignore and onPodConditions: [{type: DisruptionTarget}] before it; the controller then "
        "recreates the group without a charge"
    )


def test_a_job_that_fails_by_a_drain_may_be_what_restarts_the_group() -> None:
    trains = job(backoff_limit=0, pod_failure_rules=(disrupted("FailJob"),))
    assert names(native_policies.check(group(trains, failure_policy=RESTARTS))) == []
    ends = policy(rule("FailJobSet", reasons=("PodFailurePolicy",)))
    assert names(native_policies.check(group(trains, failure_policy=ends))) == ["preemption-fails-job"]
