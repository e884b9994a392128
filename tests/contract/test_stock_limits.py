"""What shows only when a sync takes seconds: 64 pods, and a controller-manager that sends 20 requests a second.

The Job controller first creates or deletes all pods and then writes the Job's conditions, in the same sync. So the
dates of a Job's conditions and those of its pods differ, and other code relies on which of them come first.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

from recovery.ports import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from tests.contract.bodies import job, train_job
from tests.contract.expectations import stock_expectation
from tests.contract.scene import Event, Object, Scene, Story, condition, deleting, ended, index_of, uid, uids

PODS_WANTED = 64
BATCHES = (range(1), range(1, 3), range(3, 7), range(7, 15), range(15, 31), range(31, 63), range(63, 64))
"""Indexes in the order in which they are requested: each batch is twice as large as the one before."""


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def created(pod: Object) -> datetime:
    return moment(pod["metadata"]["creationTimestamp"])


def asked_to_go(pod: Object) -> datetime:
    """When its deletion was requested: the API dates the end of the grace period."""
    metadata = pod["metadata"]
    return moment(metadata["deletionTimestamp"]) - timedelta(seconds=metadata["deletionGracePeriodSeconds"])


def first_state(states: Sequence[Object], holds: Callable[[Object], bool]) -> Object:
    """The first state for which that holds. A pod's end dates its deletion again, while a finalizer keeps the pod."""
    return next(state for state in states if holds(state))


def dated(body: Object, kind: str) -> datetime:
    """The date of the condition of that type, whatever its status."""
    return next(moment(each["lastTransitionTime"]) for each in body["status"]["conditions"] if each["type"] == kind)


def resumed(body: Object) -> bool:
    conditions = body.get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Suspended", "False") for each in conditions)


def found(story: Story, name: str) -> Object:
    body = story.named(name)
    assert body is not None
    return body


async def follow_jobs_and_pods(scene: Scene) -> tuple[Story, Story]:
    return await scene.follow(JOBS), await scene.follow(PODS)


async def started(scene: Scene) -> tuple[Story, Story, list[Object]]:
    jobs, pods = await follow_jobs_and_pods(scene)
    await scene.create(JOBS, job("llm", PODS_WANTED))
    return jobs, pods, await scene.running(pods, PODS_WANTED)


def born(pods: Story) -> list[Event]:
    return [event for event in pods.events if event.type == "ADDED"]


def is_resumed(story: Story, name: str) -> bool:
    return resumed(story.named(name) or {})


def all_were(pods: Story, what: Callable[[Object], bool], of: Sequence[Object]) -> bool:
    """Whether `what` was true of each of these pods at some time, as far as the watch has reported."""
    return all(any(map(what, pods.states(uid(pod)))) for pod in of)


async def is_resumed_after_its_pods(scene: Scene, jobs: Story, name: str, pods: Story) -> None:
    """Assert that the Job is dated as resumed after all its pods, which the sync that resumed it created."""
    await scene.until("the Job is resumed", lambda: is_resumed(jobs, name))
    await scene.until("the watch of the pods has caught up", lambda: len(born(pods)) >= PODS_WANTED)
    made = found(jobs, name)
    assert len(born(pods)) == PODS_WANTED
    oldest, youngest = (choose(created(each.object) for each in born(pods)) for choose in (min, max))
    assert oldest < youngest, "64 creations take longer than a second"
    assert dated(made, "Suspended") >= youngest
    assert moment(made["status"]["startTime"]) >= youngest, "a deadline counts from when all pods are there"
    told = jobs.reports_of(uid(made), resumed)
    assert all(event.position < told for event in born(pods))


@stock_expectation
async def test_a_job_is_dated_as_resumed_only_when_all_its_pods_are_made(scene: Scene) -> None:
    jobs, pods = await follow_jobs_and_pods(scene)
    await scene.create(JOBS, job("llm", PODS_WANTED, suspend=True))
    await scene.has_condition(jobs, "llm", "Suspended")
    await scene.patch(JOBS, "llm", {"spec": {"suspend": False}})
    await is_resumed_after_its_pods(scene, jobs, "llm", pods)


@stock_expectation
async def test_a_train_job_that_was_made_suspended_is_no_different(scene: Scene) -> None:
    """What Kueue does to every job. TrainJob and JobSet say that they are resumed before the Job does."""
    trainings, sets = await scene.follow(TRAIN_JOBS), await scene.follow(JOB_SETS)
    jobs, pods = await follow_jobs_and_pods(scene)
    body = train_job("llm", PODS_WANTED)
    body["spec"]["suspend"] = True
    await scene.create(TRAIN_JOBS, body)
    await scene.has_condition(jobs, "llm-node-0", "Suspended")
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": False}})
    await is_resumed_after_its_pods(scene, jobs, "llm-node-0", pods)
    told = jobs.reports_of(uid(found(jobs, "llm-node-0")), resumed)
    for story in (trainings, sets):
        await scene.until("its watch has caught up", partial(is_resumed, story, "llm"))
        assert story.reports_of(uid(found(story, "llm")), resumed) < told


@stock_expectation
async def test_pods_are_made_in_batches_each_twice_the_one_before(scene: Scene) -> None:
    _, pods, _ = await started(scene)
    positions = {index_of(event.object): event.position for event in born(pods)}
    for batch, following in pairwise(BATCHES):
        assert max(positions[index] for index in batch) < min(positions[index] for index in following)


@stock_expectation
async def test_a_job_is_dated_as_suspended_only_when_all_its_pods_were_asked_to_go(scene: Scene) -> None:
    jobs, pods, before = await started(scene)
    await scene.patch(JOBS, "llm", {"spec": {"suspend": True}})
    await scene.has_condition(jobs, "llm", "Suspended")
    await scene.until("the watch of the pods has caught up", lambda: all_were(pods, deleting, before))
    made = found(jobs, "llm")
    told = jobs.reports_of(uid(made), lambda body: condition(body, "Suspended") is not None)
    assert all(pods.reports_of(uid(pod), deleting) < told for pod in before)
    asked = [asked_to_go(first_state(pods.states(uid(pod)), deleting)) for pod in before]
    assert min(asked) < dated(made, "Suspended"), "64 deletions take longer than a second"
    assert max(asked) <= dated(made, "Suspended")


@stock_expectation
async def test_a_failing_job_is_dated_from_before_and_a_failed_one_from_after_its_pods_were_ended(scene: Scene) -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
    jobs, pods = await follow_jobs_and_pods(scene)
    await scene.create(JOBS, job("llm", PODS_WANTED, podFailurePolicy={"rules": rules}))
    first, *others = await scene.running(pods, PODS_WANTED)
    scene.exit(first, 42)
    await scene.has_condition(jobs, "llm", "Failed")
    await scene.until("the watch of the pods has caught up", lambda: all_were(pods, ended, others))
    made = found(jobs, "llm")
    told = jobs.reports_of(uid(made), lambda body: condition(body, "FailureTarget") is not None)
    failed = jobs.reports_of(uid(made), lambda body: condition(body, "Failed") is not None)
    assert all(pods.reports_of(uid(pod), deleting) < told for pod in others)
    assert all(pods.reports_of(uid(pod), ended) < failed for pod in others)
    asked = [asked_to_go(first_state(pods.states(uid(pod)), deleting)) for pod in others]
    assert dated(made, "FailureTarget") <= min(asked)
    assert dated(made, "FailureTarget") < max(asked) <= dated(made, "Failed")


@stock_expectation
async def test_a_job_is_dated_as_complete_only_when_no_pod_is_held_any_more(scene: Scene) -> None:
    """Its completionTime is earlier: taking the finalizers away comes between."""
    jobs, pods, running = await started(scene)
    names = [pod["metadata"]["name"] for pod in running]
    scene.kubelets.exit_all(names, 0, namespace=scene.namespace)
    await scene.has_condition(jobs, "llm", "Complete")
    await scene.until("the watch of the pods has caught up", lambda: all_were(pods, ended, running))
    made = found(jobs, "llm")
    told = jobs.reports_of(uid(made), lambda body: condition(body, "Complete") is not None)
    assert all(pods.reports_of(uid(pod), ended) < told for pod in running)
    assert uids(pods.present.values()) == uids(running)
    completed = moment(made["status"]["completionTime"])
    assert dated(made, "SuccessCriteriaMet") <= completed < dated(made, "Complete")
