"""How JobSet reacts when its Jobs complete or fail, and when the controller acts on them."""

from typing import Any

from recovery import api_verbs
from recovery.ports import JOB_SETS, JOBS, PODS, ConflictError, Propagation, RefusedError, Resource
from tests.contract.bodies import job_set, job_spec
from tests.contract.expectations import expectation, slow_expectation
from tests.contract.scene import (
    Event,
    Object,
    Scene,
    Story,
    answer,
    condition,
    deleting,
    ended,
    ready,
    refused,
    uid,
    uids,
)
from tests.contract.workload import DEAF, exits

PREFIX = "jobset.sigs.k8s.io"
ATTEMPT = f"{PREFIX}/restart-attempt"
SERVICES = Resource("", "v1", "services", "Service")
FAIL_ON_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}


class Group:
    """A JobSet `llm`, and the stories of all objects made for it."""

    def __init__(self, scene: Scene, sets: Story, jobs: Story, pods: Story) -> None:
        self.scene = scene
        self.sets = sets
        self.jobs = jobs
        self.pods = pods

    @property
    def status(self) -> Object:
        found: Object = (self.sets.named("llm") or {}).get("status", {})
        return found

    def job(self, name: str = "llm-node-0") -> Object:
        found = self.jobs.named(name)
        assert found is not None, f"there is no Job {name}"
        return found

    async def recreated(self, old: Object) -> Object:
        """Wait until the old Job's name belongs to another Job."""
        name = old["metadata"]["name"]
        await self.scene.until(
            f"Job {name} is made anew",
            lambda: uid(self.jobs.named(name) or old) != uid(old),
        )
        return self.job(name)

    def attempts(self) -> list[str]:
        """The restart attempts on the members' Job, one for each time that it was created."""
        made = [event for event in self.jobs.events if event.type == "ADDED"]
        return [event.object["metadata"]["labels"][ATTEMPT] for event in made if event.name == "llm-node-0"]


async def followed(scene: Scene) -> Group:
    return Group(scene, await scene.follow(JOB_SETS), await scene.follow(JOBS), await scene.follow(PODS))


async def started(scene: Scene, pods: int, *, job: Object | None = None, **fields: Any) -> tuple[Group, list[Object]]:
    """One ReplicatedJob `node`. `job`: more arguments of `job_spec`. `fields`: more of the JobSet's spec."""
    group = await followed(scene)
    await scene.create(JOB_SETS, job_set("llm", {"node": job_spec(pods, **(job or {}))}, **fields))
    return group, await scene.running(group.pods, pods)


def told(events: list[Event], type_: str) -> list[int]:
    return [event.position for event in events if event.type == type_]


@expectation
async def test_jobs_and_pods_of_a_job_set_say_whose_they_are(scene: Scene) -> None:
    group, pods = await started(scene, 2)
    made = group.sets.named("llm")
    assert made is not None
    job = group.job()
    for body, labels in (
        (job, job["metadata"]["labels"]),
        (job, job["spec"]["template"]["metadata"]["labels"]),
        *((pod, pod["metadata"]["labels"]) for pod in pods),
    ):
        ours = {key.removeprefix(f"{PREFIX}/"): value for key, value in labels.items() if key.startswith(PREFIX)}
        ours.pop("priority", None)  # set only on pods, for exclusive placement, which nothing here reads
        assert ours == {
            "global-replicas": "1",
            "group-name": "default",
            "group-replicas": "1",
            "job-global-index": "0",
            "job-group-index": "0",
            "job-index": "0",
            "job-key": labels[f"{PREFIX}/job-key"],
            "jobset-name": "llm",
            "jobset-uid": uid(made),
            "replicatedjob-name": "node",
            "replicatedjob-replicas": "1",
            "restart-attempt": "0",
        }, body["kind"]
    [owner] = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "JobSet",
        uid(made),
        True,
        True,
    )
    assert {pod["spec"]["subdomain"] for pod in pods} == {"llm"}
    [service] = await scene.items(SERVICES)
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == ("llm", "None")
    assert service["spec"]["publishNotReadyAddresses"] is True
    await scene.until("the ranks are counted", lambda: bool(group.status.get("replicatedJobsStatus")))
    assert group.status.get("restarts") == 0


@expectation
async def test_a_job_deleted_in_the_foreground_is_recreated_without_a_new_attempt(scene: Scene) -> None:
    """The way in which the controller restarts a group."""
    group, before = await started(scene, 3, job={"pod": {"image": DEAF, "grace_seconds": 2}})
    old = group.job()
    await api_verbs.delete(
        scene.api,
        JOBS,
        "llm-node-0",
        namespace=scene.namespace,
        uid=uid(old),
        propagation=Propagation.FOREGROUND,
    )
    new = await group.recreated(old)
    after = await scene.others_run(group.pods, 3, *before)
    assert group.attempts() == ["0", "0"]
    assert [index for index in range(3) if uid(before[index]) == uid(after[index])] == []
    old_gone = group.jobs.first(lambda event: event.type == "DELETED" and event.uid == uid(old))
    pods_gone = [event.position for event in group.pods.events if event.type == "DELETED"]
    assert len(pods_gone) == 3
    assert max(pods_gone) < old_gone < group.jobs.reports_of(uid(new), lambda _: True)
    assert max(pods_gone) < min(group.pods.reports_of(uid(pod), lambda _: True) for pod in after)
    assert (group.status["restarts"], group.status.get("restartsCountTowardsMax", 0)) == (0, 0)
    assert condition(group.sets.named("llm") or {}, "Failed") is None


@expectation
async def test_such_a_deletion_is_refused_when_the_job_has_changed_meanwhile(scene: Scene) -> None:
    group, _ = await started(scene, 2)
    old = group.job()
    await scene.patch(JOBS, "llm-node-0", {"metadata": {"annotations": {"touched": "yes"}}})
    with refused(ConflictError) as refusal:
        await api_verbs.delete(
            scene.api,
            JOBS,
            "llm-node-0",
            namespace=scene.namespace,
            uid=uid(old),
            resource_version=old["metadata"]["resourceVersion"],
            propagation=Propagation.FOREGROUND,
        )
    assert answer(refusal) == (409, "Conflict")
    assert not deleting(await scene.read(JOBS, "llm-node-0"))


@expectation
async def test_a_finished_initializer_stays_finished_when_the_nodes_begin_again(scene: Scene) -> None:
    group = await followed(scene)
    jobs = {"init": job_spec(1, pod={"image": exits(0)}), "node": job_spec(2)}
    waits = {"node": {"dependsOn": [{"name": "init", "status": "Complete"}]}}
    await scene.create(JOB_SETS, job_set("llm", jobs, parts=waits))
    before = await scene.running(group.pods, 2)
    init = group.job("llm-init-0")
    assert condition(init, "Complete")
    assert group.jobs.last(lambda event: event.uid == uid(init)) < group.jobs.first(
        lambda event: event.name == "llm-node-0"
    ), "the nodes wait for it"
    old = group.job()
    await api_verbs.delete(
        scene.api, JOBS, "llm-node-0", namespace=scene.namespace, uid=uid(old), propagation=Propagation.FOREGROUND
    )
    await group.recreated(old)
    await scene.others_run(group.pods, 2, *before)
    assert uid(group.job("llm-init-0")) == uid(init)


@expectation
async def test_a_failed_job_is_the_end_where_no_policy_says_otherwise(scene: Scene) -> None:
    group = await followed(scene)
    jobs = {"node": job_spec(2, backoffLimit=0), "other": job_spec(1)}
    made = await scene.create(JOB_SETS, job_set("llm", jobs))
    await scene.running(group.pods, 3)
    [lost, _] = [pod for pod in ready(group.pods) if pod["metadata"]["labels"]["job-name"] == "llm-node-0"]
    scene.exit(lost, 1)
    failed = await scene.has_condition(group.sets, "llm", "Failed")
    assert failed["reason"] == "FailedJobs"
    assert failed["message"] == "jobset failed due to one or more job failures (first failed job: llm-node-0)"
    assert group.status["terminalState"] == "Failed"
    assert [type_ for type_, _ in group.sets.conditions_in_order(uid(made))] == ["Failed"]
    await scene.until("what still ran is gone", lambda: [*names(group.jobs)] == ["llm-node-0"])
    await scene.until("its pod too", lambda: not ready(group.pods))


def names(story: Story) -> list[str]:
    return sorted(body["metadata"]["name"] for body in story.present.values())


@expectation
async def test_a_failure_policy_restarts_the_jobs_until_it_allows_no_more(scene: Scene) -> None:
    group, first = await started(scene, 2, job={"backoffLimit": 0}, failurePolicy={"maxRestarts": 1})
    made = group.sets.named("llm")
    assert made is not None
    scene.exit(first[0], 1)
    second = await scene.others_run(group.pods, 2, *first)
    assert group.attempts() == ["0", "1"]
    assert (group.status["restarts"], group.status["restartsCountTowardsMax"]) == (1, 1)
    assert {pod["metadata"]["labels"][ATTEMPT] for pod in second} == {"1"}
    scene.exit(second[1], 1)
    failed = await scene.has_condition(group.sets, "llm", "Failed")
    assert (failed["reason"], group.status["terminalState"]) == ("ReachedMaxRestarts", "Failed")
    assert (group.status["restarts"], group.attempts()) == (1, ["0", "1"])


@expectation
async def test_a_failed_jobs_pods_are_gone_before_those_of_the_next_attempt(scene: Scene) -> None:
    deaf = {"image": DEAF, "grace_seconds": 2}
    group, first = await started(scene, 3, job={"backoffLimit": 0, "pod": deaf}, failurePolicy={"maxRestarts": 3})
    scene.exit(first[0], 1)
    second = await scene.others_run(group.pods, 3, *first)
    gone = told([event for event in group.pods.events if event.uid in uids(first)], "DELETED")
    assert len(gone) == 3
    assert max(gone) < min(group.pods.reports_of(uid(pod), lambda _: True) for pod in second)


@expectation
async def test_a_rule_may_fail_the_set_or_restart_it_for_free(scene: Scene) -> None:
    free = {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]}
    end = {"name": "end", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}
    group, first = await started(
        scene,
        2,
        job={"backoffLimit": 0, "podFailurePolicy": FAIL_ON_42},
        failurePolicy={"maxRestarts": 0, "rules": [free, end]},
    )
    scene.exit(first[0], 42)
    second = await scene.others_run(group.pods, 2, *first)
    assert (group.status["restarts"], group.status.get("restartsCountTowardsMax", 0)) == (1, 0)
    scene.exit(second[0], 1)
    failed = await scene.has_condition(group.sets, "llm", "Failed")
    assert failed["reason"] == "FailJobSetFailurePolicyAction"
    assert group.status["restarts"] == 1


@expectation
async def test_restarts_counted_up_from_outside_restart_all_jobs(scene: Scene) -> None:
    group, before = await started(scene, 2, failurePolicy={"maxRestarts": 0})
    old = group.job()
    made = group.sets.named("llm")
    assert made is not None
    operations = (
        ("test", "/metadata/uid", uid(made)),
        ("test", "/status/restarts", 0),
        ("replace", "/status/restarts", 1),
    )
    await scene.json_patch(JOB_SETS, "llm", *operations, subresource="status")
    await group.recreated(old)
    await scene.others_run(group.pods, 2, *before)
    assert group.attempts() == ["0", "1"]
    assert (group.status["restarts"], group.status.get("restartsCountTowardsMax", 0)) == (1, 0)


@expectation
async def test_a_blocking_restart_makes_no_job_before_all_old_ones_are_gone(scene: Scene) -> None:
    group = await followed(scene)
    deaf = {"image": DEAF, "grace_seconds": 4}
    jobs = {"quick": job_spec(1, backoffLimit=0), "node": job_spec(1, pod=deaf)}
    policy = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    await scene.create(JOB_SETS, job_set("llm", jobs, failurePolicy=policy))
    before = await scene.running(group.pods, 2)
    [quick] = [pod for pod in before if pod["metadata"]["labels"]["job-name"] == "llm-quick-0"]
    scene.exit(quick, 1)
    await scene.others_run(group.pods, 2, *before)
    gone = told(group.jobs.events, "DELETED")
    made = told(group.jobs.events, "ADDED")
    assert (len(gone), len(made)) == (2, 4)
    assert max(gone) < min(made[2:])


@expectation
async def test_a_restart_goes_job_by_job_where_nothing_else_is_said(scene: Scene) -> None:
    group = await followed(scene)
    deaf = {"image": DEAF, "grace_seconds": 6}
    jobs = {"quick": job_spec(1, backoffLimit=0), "node": job_spec(1, pod=deaf)}
    await scene.create(JOB_SETS, job_set("llm", jobs, failurePolicy={"maxRestarts": 1}))
    before = await scene.running(group.pods, 2)
    old = group.job()
    [quick] = [pod for pod in before if pod["metadata"]["labels"]["job-name"] == "llm-quick-0"]
    scene.exit(quick, 1)
    await scene.others_run(group.pods, 2, *before)
    quick_again = [
        event.position for event in group.jobs.events if event.type == "ADDED" and event.name == "llm-quick-0"
    ][1]
    assert quick_again < group.jobs.first(lambda event: event.type == "DELETED" and event.uid == uid(old))


@expectation
async def test_a_set_whose_jobs_complete_is_complete(scene: Scene) -> None:
    group = await followed(scene)
    done = job_spec(2, pod={"image": exits(0)})
    await scene.create(JOB_SETS, job_set("llm", {"node": done, "other": done}))
    completed = await scene.has_condition(group.sets, "llm", "Completed")
    assert (completed["reason"], group.status["terminalState"]) == ("AllJobsCompleted", "Completed")
    assert names(group.jobs) == ["llm-node-0", "llm-other-0"]


@expectation
async def test_the_success_of_one_job_ends_the_others_where_that_is_enough(scene: Scene) -> None:
    group = await followed(scene)
    jobs = {"node": job_spec(2), "leader": job_spec(1)}
    success = {"operator": "Any", "targetReplicatedJobs": ["leader"]}
    await scene.create(JOB_SETS, job_set("llm", jobs, successPolicy=success))
    await scene.running(group.pods, 3)
    [leader] = [pod for pod in ready(group.pods) if pod["metadata"]["labels"]["job-name"] == "llm-leader-0"]
    scene.exit(leader, 0)
    await scene.has_condition(group.sets, "llm", "Completed")
    await scene.until("the others are gone", lambda: names(group.jobs) == ["llm-leader-0"])
    await scene.until("their pods too", lambda: not ready(group.pods))
    assert condition(group.sets.named("llm") or {}, "Failed") is None


@expectation
async def test_the_second_job_is_started_when_the_first_is_ready_where_order_matters(scene: Scene) -> None:
    group = await followed(scene)
    jobs = {"leader": job_spec(1), "node": job_spec(2)}
    await scene.create(JOB_SETS, job_set("llm", jobs, startupPolicy={"startupPolicyOrder": "InOrder"}))
    pods = await scene.running(group.pods, 3)
    [leader] = [pod for pod in pods if pod["metadata"]["labels"]["job-name"] == "llm-leader-0"]
    was_ready = group.pods.reports_of(uid(leader), lambda body: condition(body, "Ready") is not None)
    others = uids(pods) - {uid(leader)}
    assert all(was_ready < group.pods.reports_of(other, lambda _: True) for other in others)


@expectation
async def test_a_suspended_set_keeps_its_jobs_and_loses_its_pods(scene: Scene) -> None:
    group, before = await started(scene, 2)
    old = group.job()
    await scene.patch(JOB_SETS, "llm", {"spec": {"suspend": True}})
    await scene.has_condition(group.sets, "llm", "Suspended")
    await scene.until("no pod is left", lambda: not group.pods.present)
    assert group.job()["spec"]["suspend"] is True
    await scene.patch(JOB_SETS, "llm", {"spec": {"suspend": False}})
    await scene.others_run(group.pods, 2, *before)
    assert uid(group.job()) == uid(old)
    assert group.attempts() == ["0"]


@expectation
async def test_what_a_set_is_made_of_stays(scene: Scene) -> None:
    await started(scene, 1, failurePolicy={"maxRestarts": 1})
    made = await scene.read(JOB_SETS, "llm")
    replicated = made["spec"]["replicatedJobs"]
    replicated[0]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    for change in (
        {"spec": {"failurePolicy": {"maxRestarts": 2}}},
        {"spec": {"successPolicy": {"operator": "Any"}}},
        {"spec": {"replicatedJobs": replicated}},
    ):
        with refused(RefusedError) as refusal:
            await scene.patch(JOB_SETS, "llm", change)
        assert refusal.value.status in {403, 422}


@expectation
async def test_a_status_that_says_failed_ends_the_set(scene: Scene) -> None:
    """The way in which the controller fails a JobSet that has no policy to fail it by."""
    group, _ = await started(scene, 2)
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "RecoveryBudgetExhausted",
        "message": "no restart is left",
        "lastTransitionTime": "2026-11-21T12:00:00Z",
    }
    operations = (("add", "/status/conditions", [failed]), ("add", "/status/terminalState", "Failed"))
    await scene.json_patch(JOB_SETS, "llm", *operations, subresource="status")
    await scene.until("its Job is gone", lambda: not group.jobs.present)
    await scene.until("its pods are gone", lambda: not group.pods.present)
    assert [each["reason"] for each in group.status["conditions"] if each["type"] == "Failed"] == [
        "RecoveryBudgetExhausted"
    ]


@slow_expectation
async def test_a_deleted_set_takes_its_jobs_and_pods_with_it(scene: Scene) -> None:
    """Slow in reality: the garbage collector learns of a new kind of owner after half a minute."""
    group, _ = await started(scene, 2)
    await api_verbs.delete(scene.api, JOB_SETS, "llm", namespace=scene.namespace, propagation=Propagation.FOREGROUND)
    await scene.until("the set is gone", lambda: not group.sets.present, seconds=120)
    assert (group.jobs.present, group.pods.present) == ({}, {})
    set_gone, job_gone = (max(told(story.events, "DELETED")) for story in (group.sets, group.jobs))
    assert max(told(group.pods.events, "DELETED")) < job_gone < set_gone
    assert len([event for event in group.pods.events if ended(event.object) and event.type == "DELETED"]) == 2
