"""How a Job's own limits react to a lost pod, and what can still be read of that pod."""

import pytest
from msgspec.structs import replace

from recovery.launch.recoverability import pods
from recovery.launch.recoverability.effective import losses_to_fail
from recovery.launch.recoverability.outlook import outlook
from recovery.launch.views import FailurePolicy, MlPolicy, MpiPolicy, NativeRule, ReplicatedJob
from tests.unit.launch.groups import JOB, MAIN, PODS, container, group, job, names, only
from tests.unit.launch.groups import pods as template

RULES = (NativeRule("Ignore", JOB, pod_conditions=("DisruptionTarget",)),)


def shipped() -> ReplicatedJob:
    """A ReplicatedJob as in Trainer's own runtimes, without these fields."""
    return job(
        template(container(termination_message_policy=""), restart_policy="", grace_seconds=None), backoff_limit=None
    )


def test_a_prepared_group_has_nothing_to_fix() -> None:
    assert names(pods.check(group())) == []


def test_the_shipped_runtime_is_told_each_consequence_once() -> None:
    assert names(pods.check(group(shipped()))) == [
        "restarted-in-place",
        "cascade-ends-job",
        "no-termination-message",
    ]


def test_one_pod_alone_keeps_no_one_waiting() -> None:
    assert names(pods.check(group(shipped(), nodes=1))) == []


def test_a_runtime_by_itself_is_judged_as_the_group_that_its_jobs_make_of_it() -> None:
    found = {each.code.name: each for each in pods.check(group(shipped(), nodes=1, runtime_alone=True))}
    assert set(found) == {"restarted-in-place", "cascade-ends-job", "no-termination-message"}
    assert "for a TrainJob of 6 nodes or more" in found["cascade-ends-job"].message
    assert "and the others hang until" in found["restarted-in-place"].message


def test_a_runtime_by_itself_whose_limit_was_chosen_is_right_for_some_jobs() -> None:
    assert names(pods.check(group(job(backoff_limit=20), nodes=1, runtime_alone=True))) == []


def test_restarted_in_place_names_who_hangs_and_the_line() -> None:
    finding = next(each for each in pods.check(group(shipped())) if each.code.name == "restarted-in-place")
    assert finding.message == (
        "restartPolicy OnFailure (JobSet's default) restarts a failed rank of ReplicatedJob node alone, on the same "
        "node, and the other 15 pods hang until the collective in which they wait for it times out; each restart "
        "overwrites the exit code of the one before"
    )
    assert finding.fix == "set restartPolicy: Never in its pod template"
    assert finding.place == PODS


def test_restarted_in_place_that_was_asked_for_points_at_the_field() -> None:
    finding = only(pods.check(group(job(template(restart_policy="OnFailure")), nodes=2)))
    assert finding.place == PODS / "restartPolicy"
    assert "restartPolicy OnFailure restarts" in finding.message
    assert "the other pod hangs" in finding.message


@pytest.mark.parametrize(
    ("command", "gpus", "judged"),
    [(("./render",), 0, False), (("./render",), 8, True), (("torchrun", "a.py"), 0, True)],
)
def test_a_jobset_of_somebodys_own_is_judged_where_it_trains(command: tuple[str, ...], gpus: int, judged: bool) -> None:
    trains = job(template(container(command=command), restart_policy="OnFailure"))
    launch = replace(group(trains, gpus_per_pod=gpus), train_job=None, runtime=None)
    assert names(pods.check(launch)) == (["restarted-in-place"] if judged else [])


@pytest.mark.parametrize("policy", [MlPolicy(JOB, mpi=MpiPolicy(JOB)), MlPolicy(JOB, others=("flux",))])
def test_what_starts_all_ranks_again_restarts_none_alone(policy: MlPolicy) -> None:
    assert names(pods.check(group(shipped(), ml_policy=policy))) == ["no-termination-message"]


@pytest.mark.parametrize(
    ("restart_policy", "limit", "losses"),
    [
        ("", None, 6),  # a restart in place that reaches the limit fails the Job
        ("OnFailure", 3, 3),
        ("OnFailure", 0, 1),
        ("Never", 6, 7),  # failed pods fail it when they exceed the limit
        ("Never", 0, 1),
    ],
)
def test_losses_until_a_job_fails(restart_policy: str, limit: int | None, losses: int) -> None:
    assert losses_to_fail(job(template(restart_policy=restart_policy), backoff_limit=limit)) == losses


@pytest.mark.parametrize(
    ("restart_policy", "limit", "nodes", "told"),
    [
        ("Never", 15, 16, True),
        ("Never", 16, 16, False),
        ("OnFailure", 16, 16, True),
        ("OnFailure", 17, 16, False),
        ("Never", 1000, 1000, False),
        ("Never", 1000, 1001, True),
    ],
)
def test_a_cascade_ends_the_job_where_the_group_outnumbers_the_limit(
    restart_policy: str, limit: int, nodes: int, told: bool
) -> None:
    found = names(pods.check(group(job(template(restart_policy=restart_policy), backoff_limit=limit), nodes=nodes)))
    assert ("cascade-ends-job" in found) is told


def test_with_a_limit_for_each_index_the_limit_of_the_job_is_endless() -> None:
    """Kubernetes then defaults it to the maximum of 32 bits (pkg/apis/batch/v1/defaults.go)."""
    by_index = group(job(backoff_limit=None, backoff_limit_per_index=3), nodes=128)

    assert names(pods.check(by_index)) == []
    assert "backoffLimitPerIndex 3 and no backoffLimit stands 3 times of that" in outlook(by_index)[1]
    assert names(pods.check(group(job(backoff_limit=None), nodes=128))) == ["cascade-ends-job"]


def test_a_cascade_is_told_with_its_numbers() -> None:
    finding = only(pods.check(group(job(backoff_limit=6), nodes=128)))
    assert finding.message == (
        "backoffLimit 6 for 128 pods: when one failure makes all ranks of ReplicatedJob node exit, its Job fails at "
        "7 failed pods, and the JobSet, which has no failurePolicy, fails with it for good"
    )
    assert finding.fix == "set backoffLimit: 1000, or add a failurePolicy with maxRestarts and set backoffLimit: 0"
    assert finding.place == JOB / "template" / "spec" / "backoffLimit"


@pytest.mark.parametrize(("nodes", "limit"), [(999, 1000), (1000, 10000), (1250, 12500)])
def test_from_a_thousand_pods_on_the_limit_to_set_grows_with_the_group(nodes: int, limit: int) -> None:
    finding = only(pods.check(group(job(backoff_limit=6), nodes=nodes)))
    assert finding.fix.startswith(f"set backoffLimit: {limit}, ")


def test_the_limit_holds_for_each_job_of_a_replicated_job() -> None:
    """With 16 replicas of one pod, each Job counts its own failures."""
    assert names(pods.check(group(job(backoff_limit=6, replicas=16), nodes=16))) == []


def test_where_the_jobset_restarts_a_failed_job_ends_nothing() -> None:
    policy = FailurePolicy(JOB, max_restarts=3)
    assert names(pods.check(group(job(backoff_limit=6), failure_policy=policy))) == []
    assert names(pods.check(group(job(backoff_limit=0), failure_policy=policy))) == []


def test_no_retry_is_a_note_because_it_is_a_decision() -> None:
    finding = only(pods.check(group(job(backoff_limit=0))))
    assert (finding.code.name, finding.code.severity) == ("no-retry", "note")
    assert "stands aside" in finding.message


@pytest.mark.parametrize(("grace", "told"), [(None, False), (120, False), (121, True)])
def test_a_long_grace_is_told_from_two_minutes_on(grace: int | None, told: bool) -> None:
    found = names(pods.check(group(job(template(grace_seconds=grace)))))
    assert found == (["long-grace"] if told else [])


def test_a_long_grace_is_told_with_what_it_costs() -> None:
    finding = only(pods.check(group(job(template(grace_seconds=600)))))
    assert finding.message.endswith("each restart can cost 128 GPUs another 10 min")
    assert finding.place == PODS / "terminationGracePeriodSeconds"


@pytest.mark.parametrize("flag", ["--exit-signal-handler", "--save-on-sigterm", "--emergency-checkpoint"])
def test_a_long_grace_is_meant_where_the_script_writes_a_last_checkpoint(flag: str) -> None:
    main = container(command=("torchrun", "train.py", flag))
    assert names(pods.check(group(job(template(main, grace_seconds=600))))) == []


def test_without_a_termination_message_the_cause_is_gone() -> None:
    finding = only(pods.check(group(job(template(container(termination_message_policy="File"))))))
    assert finding.place == MAIN / "terminationMessagePolicy"
    assert finding.fix == "set terminationMessagePolicy: FallbackToLogsOnError in container node"


def test_a_pod_failure_policy_asks_for_restart_policy_never() -> None:
    finding = only(pods.check(group(job(template(restart_policy=""), pod_failure_rules=RULES))))
    assert (finding.code.name, finding.code.severity) == ("pod-failure-policy-refused", "error")
    assert "has OnFailure (JobSet's default): the API server refuses the Job" in finding.message
    assert finding.fix == "set restartPolicy: Never in its pod template"


@pytest.mark.parametrize(("policy", "refused"), [("", False), ("Failed", False), ("TerminatingOrFailed", True)])
def test_a_pod_failure_policy_asks_for_replacement_of_failed_pods(policy: str, refused: bool) -> None:
    found = names(pods.check(group(job(pod_failure_rules=RULES, pod_replacement_policy=policy))))
    assert found == (["pod-failure-policy-refused"] if refused else [])


def test_a_refused_job_is_reported_initializers_and_single_pods_as_well() -> None:
    initializer = job(template(restart_policy=""), pod_failure_rules=RULES, ancestor="dataset-initializer")
    assert names(pods.check(group(nodes=1, before=[initializer]))) == ["pod-failure-policy-refused"]
