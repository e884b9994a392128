"""How the Job controller reacts when its pods end, fail or disappear."""

from typing import Any

from recovery import api_verbs
from recovery.ports import JOBS, PODS, Propagation
from tests.contract.bodies import job
from tests.contract.expectations import expectation, slow_expectation
from tests.contract.scene import (
    INDEX,
    Object,
    Scene,
    Story,
    by_index,
    condition,
    deleting,
    ended,
    index_of,
    ready,
    uid,
    uids,
)
from tests.contract.workload import DEAF, exits

TRACKING = "batch.kubernetes.io/job-tracking"


async def started(scene: Scene, pods: int, **fields: Any) -> tuple[Story, Story, list[Object]]:
    """The stories of Jobs and of pods, once all pods of a Job `llm` run, and those pods."""
    jobs, followed = await scene.follow(JOBS), await scene.follow(PODS)
    await scene.create(JOBS, job("llm", pods, **fields))
    return jobs, followed, await scene.running(followed, pods)


def status(jobs: Story) -> Object:
    found: Object = (jobs.named("llm") or {}).get("status", {})
    return found


async def counted(scene: Scene, jobs: Story, **numbers: int) -> None:
    await scene.until(
        f"the Job counts {numbers}",
        lambda: all(status(jobs).get(key, 0) == number for key, number in numbers.items()),
    )


async def disrupt(scene: Scene, victim: Object) -> None:
    name = victim["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": scene.namespace}}
    await api_verbs.create(scene.api, PODS, eviction, namespace=scene.namespace, name=name, subresource="eviction")


async def delete_pod(scene: Scene, victim: Object) -> None:
    await api_verbs.delete(scene.api, PODS, victim["metadata"]["name"], namespace=scene.namespace, uid=uid(victim))


@expectation
async def test_the_pods_of_an_indexed_job_are_named_marked_and_held_by_it(scene: Scene) -> None:
    jobs, _, pods = await started(scene, 3)
    made = jobs.named("llm")
    assert made is not None
    assert [index_of(pod) for pod in pods] == [0, 1, 2]
    for number, pod in enumerate(pods):
        metadata = pod["metadata"]
        assert metadata["name"].startswith(f"llm-{number}-")
        assert len(metadata["name"]) == len(f"llm-{number}-") + 5
        assert metadata["finalizers"] == [TRACKING]
        labels = metadata["labels"]
        assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "llm"
        assert labels["batch.kubernetes.io/controller-uid"] == uid(made)
        assert labels[INDEX] == str(number)
        [owner] = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
            "Job",
            uid(made),
            True,
            True,
        )
        assert pod["spec"]["hostname"] == f"llm-{number}"
    await counted(scene, jobs, active=3, ready=3, terminating=0)
    assert status(jobs)["startTime"]
    assert made["spec"]["backoffLimit"] == 6
    assert made["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"


@expectation
async def test_a_job_whose_pods_succeed_is_complete_once_all_are_counted(scene: Scene) -> None:
    jobs = await scene.follow(JOBS)
    pods = await scene.follow(PODS)
    made = await scene.create(JOBS, job("llm", 3, pod={"image": exits(0)}))
    await scene.has_condition(jobs, "llm", "Complete")
    assert jobs.conditions_in_order(uid(made)) == [
        ("SuccessCriteriaMet", "CompletionsReached"),
        ("Complete", "CompletionsReached"),
    ]
    assert (status(jobs)["succeeded"], status(jobs)["completedIndexes"], status(jobs).get("active", 0)) == (3, "0-2", 0)
    assert status(jobs)["completionTime"]
    await scene.until(
        "no pod is held any more", lambda: all("finalizers" not in pod["metadata"] for pod in pods.present.values())
    )
    assert len(pods.present) == 3, "finished pods stay"


@expectation
async def test_a_deleted_pod_is_replaced_alone_and_counts_as_failed(scene: Scene) -> None:
    jobs, pods, [first, lost, last] = await started(scene, 3)
    await delete_pod(scene, lost)
    replaced = await scene.others_run(pods, 3, lost)
    assert [index_of(pod) for pod in replaced] == [0, 1, 2]
    assert (uid(replaced[0]), uid(replaced[2])) == (uid(first), uid(last))
    await counted(scene, jobs, active=3, failed=1, terminating=0)


@expectation
async def test_a_container_that_restarts_in_place_is_no_failed_pod_but_counts_to_the_limit(scene: Scene) -> None:
    """The limit is reached by as many restarts, where pods that fail have to be one more."""
    jobs, pods, [one, two] = await started(scene, 2, pod={"restart": "OnFailure"}, backoffLimit=2)
    scene.exit(one, 1)
    await scene.until("it has restarted", lambda: restarts(pods) == 1 and len(ready(pods)) == 2)
    await scene.pass_seconds(3)
    assert condition(jobs.named("llm") or {}, "FailureTarget") is None
    assert (status(jobs)["active"], status(jobs).get("failed", 0)) == (2, 0)
    scene.exit(two, 1)
    failed = await scene.has_condition(jobs, "llm", "Failed")
    assert (failed["reason"], failed["message"]) == (
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    )


def restarts(pods: Story) -> int:
    return sum(pod["status"]["containerStatuses"][0]["restartCount"] for pod in ready(pods))


@expectation
async def test_a_job_is_failed_only_when_its_last_pod_has_ended(scene: Scene) -> None:
    jobs, pods, [one, two, three] = await started(scene, 3, pod={"image": DEAF, "grace_seconds": 3}, backoffLimit=0)
    made = jobs.named("llm")
    assert made is not None
    scene.exit(two, 1)
    await scene.has_condition(jobs, "llm", "Failed")
    assert jobs.conditions_in_order(uid(made)) == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]
    target = jobs.first(lambda event: condition(event.object, "FailureTarget") is not None)
    failed = jobs.first(lambda event: condition(event.object, "Failed") is not None)
    for survivor in (one, three):
        asked, over = pods.reports_of(uid(survivor), deleting), pods.reports_of(uid(survivor), ended)
        assert max(target, asked) < over < failed
    assert (status(jobs)["failed"], status(jobs).get("active", 0)) == (3, 0)


@expectation
async def test_an_exit_code_that_a_rule_names_fails_the_job(scene: Scene) -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
    jobs, _, [_, two] = await started(scene, 2, podFailurePolicy={"rules": rules}, backoffLimit=1)
    made = jobs.named("llm")
    assert made is not None
    scene.exit(two, 42)
    failed = await scene.has_condition(jobs, "llm", "Failed")
    where = f"{scene.namespace}/{two['metadata']['name']}"
    assert (failed["reason"], failed["message"]) == (
        "PodFailurePolicy",
        f"Container node for pod {where} failed with exit code 42 matching FailJob rule at index 0",
    )
    assert [type_ for type_, _ in jobs.conditions_in_order(uid(made))] == ["FailureTarget", "Failed"]


@expectation
async def test_a_disruption_that_a_rule_ignores_is_not_counted(scene: Scene) -> None:
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    jobs, pods, [one, two] = await started(scene, 2, podFailurePolicy={"rules": rules}, backoffLimit=0)
    await disrupt(scene, one)
    await scene.others_run(pods, 2, one)
    await counted(scene, jobs, active=2, failed=0, terminating=0)
    assert uid(two) in uids(ready(pods))
    assert jobs.named("llm")["spec"]["podReplacementPolicy"] == "Failed"  # type: ignore[index]


@expectation
async def test_a_rule_that_counts_is_as_if_there_were_none(scene: Scene) -> None:
    rules = [
        {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [42]}},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}},
    ]
    jobs, pods, [one, _] = await started(scene, 2, podFailurePolicy={"rules": rules}, backoffLimit=1)
    scene.exit(one, 7)
    await scene.until("another is made", lambda: len([pod for pod in pods.present.values() if not deleting(pod)]) == 3)
    await counted(scene, jobs, failed=1)
    assert condition(jobs.named("llm") or {}, "FailureTarget") is None


@expectation
async def test_an_index_that_may_not_fail_fails_alone_until_all_others_are_done(scene: Scene) -> None:
    jobs, pods, [one, two] = await started(scene, 2, backoffLimitPerIndex=0)
    scene.exit(one, 1)
    await scene.until("the index has failed", lambda: status(jobs).get("failedIndexes") == "0")
    assert uid(two) in uids(ready(pods))
    assert condition(jobs.named("llm") or {}, "Failed") is None
    scene.exit(two, 0)
    failed = await scene.has_condition(jobs, "llm", "Failed")
    assert failed["reason"] == "FailedIndexes"
    assert status(jobs)["completedIndexes"] == "1"


@expectation
async def test_the_success_of_the_index_that_counts_ends_the_others(scene: Scene) -> None:
    policy = {"rules": [{"succeededIndexes": "1-2"}, {"succeededIndexes": "0"}]}
    jobs, pods, [leader, _, _] = await started(scene, 3, successPolicy=policy, pod={"image": DEAF, "grace_seconds": 2})
    made = jobs.named("llm")
    assert made is not None
    scene.exit(leader, 0)
    await scene.has_condition(jobs, "llm", "Complete")
    assert jobs.conditions_in_order(uid(made)) == [
        ("SuccessCriteriaMet", "SuccessPolicy"),
        ("Complete", "SuccessPolicy"),
    ]
    assert (condition(jobs.named("llm") or {}, "SuccessCriteriaMet") or {})["message"] == "Matched rules at index 1"
    assert (status(jobs)["succeeded"], status(jobs)["completedIndexes"]) == (1, "0")
    await scene.until("the others are gone", lambda: len(pods.present) == 1)
    assert status(jobs).get("failed", 0) == 0


@expectation
async def test_a_deadline_ends_a_job(scene: Scene) -> None:
    jobs, pods, _ = await started(scene, 2)
    made = jobs.named("llm")
    assert made is not None
    await scene.patch(JOBS, "llm", {"spec": {"activeDeadlineSeconds": 1}})
    await scene.has_condition(jobs, "llm", "Failed")
    assert jobs.conditions_in_order(uid(made)) == [
        ("FailureTarget", "DeadlineExceeded"),
        ("Failed", "DeadlineExceeded"),
    ]
    await scene.until("its pods are gone", lambda: not pods.present)
    assert status(jobs)["failed"] == 2


@expectation
async def test_a_suspended_job_has_no_pods_and_begins_again_when_resumed(scene: Scene) -> None:
    jobs, pods, before = await started(scene, 3)
    began = status(jobs)["startTime"]
    await scene.pass_seconds(1.1)
    await scene.patch(JOBS, "llm", {"spec": {"suspend": True}})
    suspended = await scene.has_condition(jobs, "llm", "Suspended")
    assert suspended["reason"] == "JobSuspended"
    await scene.until("no pod is left", lambda: not pods.present)
    await counted(scene, jobs, active=0, failed=0, terminating=0)
    assert "startTime" not in status(jobs)
    await scene.patch(JOBS, "llm", {"spec": {"suspend": False}})
    after = await scene.running(pods, 3)
    assert not uids(before) & uids(after)
    assert status(jobs)["startTime"] > began
    told = {each["type"]: (each["status"], each["reason"]) for each in status(jobs)["conditions"]}
    assert told == {"Suspended": ("False", "JobResumed")}


@expectation
async def test_a_job_that_fails_while_it_is_suspended_has_failed_only_once_it_is_resumed(scene: Scene) -> None:
    """A suspended Job has no startTime, and the server refuses a finished one without it."""
    pod = {"image": DEAF, "grace_seconds": 4}
    jobs, pods, [one, _] = await started(scene, 2, pod=pod, backoffLimit=0, podReplacementPolicy="Failed")
    await delete_pod(scene, one)
    await scene.patch(JOBS, "llm", {"spec": {"suspend": True}})
    await scene.has_condition(jobs, "llm", "Suspended")
    await scene.has_condition(jobs, "llm", "FailureTarget")
    await scene.until("no pod is left", lambda: not pods.present)
    await scene.pass_seconds(3)
    assert condition(jobs.named("llm") or {}, "Failed") is None
    assert "startTime" not in status(jobs)
    await scene.patch(JOBS, "llm", {"spec": {"suspend": False}})
    failed = await scene.has_condition(jobs, "llm", "Failed")
    assert failed["reason"] == "BackoffLimitExceeded"


@expectation
async def test_a_smaller_job_gives_up_its_highest_indexes_and_gets_them_back(scene: Scene) -> None:
    jobs, pods, before = await started(scene, 8)
    await scene.patch(JOBS, "llm", {"spec": {"parallelism": 6, "completions": 6}})
    await scene.until("six are left", lambda: len(pods.present) == 6)
    kept = by_index(ready(pods))
    assert [uid(pod) for pod in kept] == [uid(pod) for pod in before[:6]]
    await counted(scene, jobs, active=6, failed=0, terminating=0)
    await scene.patch(JOBS, "llm", {"spec": {"parallelism": 8, "completions": 8}})
    grown = await scene.running(pods, 8)
    assert [index_of(pod) for pod in grown] == list(range(8))
    assert [uid(pod) for pod in grown[:6]] == [uid(pod) for pod in kept]
    assert not uids(before[6:]) & uids(grown[6:])


def let_go_before_its_deletion(pods: Story, pod: Object) -> bool:
    """The Job stopped tracking the pod before the deletion of the pod was requested."""
    states = (state["metadata"] for state in pods.states(uid(pod)))
    return any(TRACKING not in each.get("finalizers", ()) and "deletionTimestamp" not in each for each in states)


@expectation
async def test_a_job_stops_tracking_a_pod_before_it_deletes_it_and_after_another_client_does(scene: Scene) -> None:
    _, pods, before = await started(scene, 3)
    await delete_pod(scene, before[0])
    await scene.until("it is gone", lambda: uid(before[0]) not in pods.present)
    replaced = by_index(await scene.running(pods, 3))
    await scene.patch(JOBS, "llm", {"spec": {"parallelism": 2, "completions": 2}})
    await scene.until("two are left", lambda: len(pods.present) == 2)
    await scene.patch(JOBS, "llm", {"spec": {"suspend": True}})
    await scene.until("no pod is left", lambda: not pods.present)
    assert [let_go_before_its_deletion(pods, pod) for pod in (before[0], *replaced)] == [False, True, True, True]


@expectation
async def test_a_lost_low_index_of_a_job_made_smaller_is_still_replaced(scene: Scene) -> None:
    _, pods, before = await started(scene, 4)
    await scene.patch(JOBS, "llm", {"spec": {"parallelism": 3, "completions": 3}})
    await delete_pod(scene, before[0])
    await scene.until(
        "three others run",
        lambda: [index_of(pod) for pod in by_index(ready(pods))] == [0, 1, 2] and len(pods.present) == 3,
    )
    assert uid(before[0]) not in uids(ready(pods))


@expectation
async def test_a_replacement_waits_for_the_old_pod_to_have_ended_where_the_job_says_so(scene: Scene) -> None:
    _, pods, [one] = await started(scene, 1, pod={"image": DEAF, "grace_seconds": 3}, podReplacementPolicy="Failed")
    await delete_pod(scene, one)
    [other] = await scene.others_run(pods, 1, one)
    assert pods.reports_of(uid(one), ended) < pods.reports_of(uid(other), lambda _: True)


@slow_expectation
async def test_so_it_does_where_the_job_says_so_only_since_it_runs(scene: Scene) -> None:
    """The API server lets this field change. Slow as the next one."""
    _, pods, [one] = await started(scene, 1, pod={"image": DEAF, "grace_seconds": 20})
    await scene.patch(JOBS, "llm", {"spec": {"podReplacementPolicy": "Failed"}})
    await delete_pod(scene, one)
    [other] = await scene.others_run(pods, 1, one)
    assert pods.reports_of(uid(one), ended) < pods.reports_of(uid(other), lambda _: True)


@slow_expectation
async def test_a_replacement_comes_while_the_old_pod_still_ends_where_the_job_says_nothing(scene: Scene) -> None:
    """Slow: the first replacement waits ten seconds, and the old pod has to outlast that."""
    _, pods, [one] = await started(scene, 1, pod={"image": DEAF, "grace_seconds": 20})
    await delete_pod(scene, one)
    [other] = await scene.others_run(pods, 1, one)
    await scene.until("the old one is gone", lambda: uid(one) not in pods.present)
    assert pods.reports_of(uid(other), lambda _: True) < pods.reports_of(uid(one), ended)


@slow_expectation
async def test_replacements_wait_longer_the_more_pods_were_lost(scene: Scene) -> None:
    """10 s after the first lost pod, 20 s after the second, and so on: three are as good as a minute of standing."""
    jobs, pods, before = await started(scene, 4)
    for lost in before[:2]:
        await delete_pod(scene, lost)
    await counted(scene, jobs, failed=2, active=2)
    began = scene.clock.monotonic_seconds()
    await scene.others_run(pods, 4, *before[:2])
    waited = scene.clock.monotonic_seconds() - began
    assert waited >= 12
    assert len(uids(ready(pods)) & uids(before)) == 2


@expectation
async def test_a_job_deleted_in_the_foreground_outlives_its_pods(scene: Scene) -> None:
    jobs, pods, before = await started(scene, 3, pod={"image": DEAF, "grace_seconds": 2})
    made = jobs.named("llm")
    assert made is not None
    await api_verbs.delete(
        scene.api, JOBS, "llm", namespace=scene.namespace, uid=uid(made), propagation=Propagation.FOREGROUND
    )
    assert (await scene.read(JOBS, "llm"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await scene.until("the Job is gone", lambda: not jobs.present)
    assert not pods.present
    assert uids(event.object for event in pods.events) == uids(before), (
        "no pod is replaced while its Job is being deleted"
    )
    gone = jobs.last(lambda event: event.type == "DELETED")
    assert all(event.position < gone for event in pods.events)


@expectation
async def test_a_job_deleted_in_the_background_is_gone_before_its_pods(scene: Scene) -> None:
    jobs, pods, before = await started(scene, 3, pod={"image": DEAF, "grace_seconds": 2})
    await api_verbs.delete(scene.api, JOBS, "llm", namespace=scene.namespace, propagation=Propagation.BACKGROUND)
    await scene.until("the pods are gone", lambda: not pods.present)
    gone = jobs.last(lambda event: event.type == "DELETED")
    ends = [event.position for event in pods.events if event.type == "DELETED"]
    assert (len(ends), gone < min(ends)) == (len(before), True)


@expectation
async def test_a_job_deleted_without_a_word_on_its_pods_leaves_them_behind(scene: Scene) -> None:
    """The default of batch/v1, unlike that of every other kind: who deletes a Job has to say what he means."""
    jobs, pods, before = await started(scene, 2)
    await api_verbs.delete(scene.api, JOBS, "llm", namespace=scene.namespace)
    await scene.until("the Job is gone", lambda: not jobs.present)
    await scene.until(
        "nobody owns or holds the pods",
        lambda: all({"ownerReferences", "finalizers"}.isdisjoint(pod["metadata"]) for pod in pods.present.values()),
    )
    assert uids(ready(pods)) == uids(before)
