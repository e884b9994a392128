"""What a walk's history says: roles instead of names, facts in the order of their arrival, and the final state."""

from tests.unit.walks.objects import AT, LATER, NAMESPACE, condition, job, pod, stories
from tests.walks.history import Stories, appeared, states

JOB = "Job llm-node-0#1"


def all_of(told: Stories) -> dict[str, list[str]]:
    return appeared(told, [0, 0, 0, 0], told.lengths(), NAMESPACE)


def test_objects_are_named_by_what_they_are_and_how_many_came_before() -> None:
    first, second = job("job-1"), job("job-2")
    told = stories(
        ("ADDED", first),
        ("ADDED", pod(first, 1, "pod-1")),
        ("ADDED", pod(first, 1, "pod-2")),
        ("DELETED", first),
        ("ADDED", second),
        ("ADDED", pod(second, 1, "pod-3")),
    )
    assert list(told.roles().values()) == [
        JOB,
        "Job llm-node-0#2",
        f"{JOB}/1 pod 1",
        f"{JOB}/1 pod 2",
        "Job llm-node-0#2/1 pod 1",
    ]


def test_facts_come_in_the_order_in_which_they_were_so_and_once() -> None:
    one, target, failed = job(), condition("FailureTarget", reason="R"), condition("Failed", reason="R")
    told = stories(
        ("ADDED", one),
        ("MODIFIED", job("job-1", "llm-node-0", target)),
        ("MODIFIED", job("job-1", "llm-node-0", target, failed)),
        ("DELETED", job("job-1", "llm-node-0", target, failed)),
    )
    assert all_of(told) == {JOB: ["born", "FailureTarget=True R", "Failed=True R", "gone"]}


def test_what_was_so_before_the_step_does_not_appear_in_it() -> None:
    one = job()
    told = stories(("ADDED", one), ("ADDED", pod(one, 0, "pod-1", "Pending")), ("MODIFIED", pod(one, 0, "pod-1")))
    assert appeared(told, [0, 0, 1, 1], told.lengths(), NAMESPACE) == {f"{JOB}/0 pod 1": ["Running"]}


def test_messages_lose_the_names_that_a_cluster_makes_up() -> None:
    message = f"Container node for pod {NAMESPACE}/llm-node-0-1-x7k2p failed with exit code 42"
    told = stories(("ADDED", job("job-1", "llm-node-0", condition("FailureTarget", message=message))))
    assert all_of(told)[JOB][1].endswith(": Container node for pod llm-node-0-1-* failed with exit code 42")


def test_of_jobs_that_failed_in_one_second_none_is_the_first() -> None:
    failed = condition("Failed", at=AT)
    restarting = condition("RestartingJobSet", message="restart (first failed job: llm-a-0)")
    job_set = {"kind": "JobSet", "metadata": {"name": "llm", "uid": "set"}, "status": {"conditions": [restarting]}}
    alone = stories(("ADDED", job("1", "llm-a-0", failed)), ("ADDED", job_set))
    assert all_of(alone)["JobSet llm#1"][1].endswith("(first failed job: llm-a-0)")
    both = stories(("ADDED", job("1", "llm-a-0", failed)), ("ADDED", job("2", "llm-b-0", failed)), ("ADDED", job_set))
    assert all_of(both)["JobSet llm#1"][1].endswith("(first failed job: one of several)")


def test_a_resume_that_is_dated_from_before_its_pods_is_told_as_such() -> None:
    one = job()
    made = [("ADDED", pod(one, 0, "pod-1", made_at=AT)), ("ADDED", pod(one, 1, "pod-2", made_at=LATER))]

    def resumed(at: str) -> list[str]:
        body = job("job-1", "llm-node-0", condition("Suspended", "False", "JobResumed", at=at))
        return all_of(stories(("ADDED", one), *made, ("MODIFIED", body)))[JOB]

    assert resumed(LATER) == ["born", "Suspended=False JobResumed"]
    assert resumed(AT) == ["born", "Suspended=False JobResumed, dated before its pods"]


def test_nothing_is_reported_a_job_that_is_being_deleted_but_that_and_its_end() -> None:
    one = job()
    going = job("job-1", "llm-node-0", condition("FailureTarget"))
    going["metadata"]["deletionTimestamp"] = AT
    assert all_of(stories(("ADDED", one), ("MODIFIED", going), ("DELETED", going))) == {
        JOB: ["born", "deleting", "gone"]
    }


def test_states_are_of_the_objects_that_are_left() -> None:
    one = job("job-1", "llm-node-0", active=2, ready=1, startTime=AT)
    told = stories(
        ("ADDED", one),
        ("ADDED", pod(one, 0, "pod-1")),
        ("ADDED", pod(one, 1, "pod-2")),
        ("DELETED", pod(one, 1, "pod-2")),
    )
    assert states(told) == {
        JOB: "begun of 2/2 active=2 ready=1",
        f"{JOB}/0 pod 1": "Running ready node runs",
    }
