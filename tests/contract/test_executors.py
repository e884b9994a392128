"""The controller's own actions, run by its own code, one after the other: what each does, and that doing it twice is
the same as once."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from recovery import api_verbs
from recovery.core.model.annotations import RESUME_AT_ANNOTATION, SUSPENDED_BY_ANNOTATION, TOUCHED_ANNOTATION
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import (
    ClaimJob,
    DeleteJob,
    DeleteJobSet,
    FailJobSet,
    JobRef,
    RaiseBackoffLimit,
    ResumeWorkload,
    SuspendWorkload,
    TouchJob,
)
from recovery.executors import group_recreate, job_failure, suspension
from recovery.kube.live_reader import LiveReader
from recovery.ports import (
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    ConflictError,
    Resource,
    TestFailedError,
)
from tests.contract.bodies import job_set, job_spec, train_job
from tests.contract.expectations import expectation, slow_expectation
from tests.contract.scene import (
    PATIENCE_SECONDS,
    Object,
    Scene,
    Story,
    by_index,
    condition,
    deleting,
    index_of,
    ready,
    refused,
    uid,
    uids,
)
from tests.contract.workload import DEAF

T = TypeVar("T")

UNTIL = datetime(2026, 11, 21, 12, 0, 20, tzinfo=UTC)
ANOTHER_UID = "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"


async def trains(scene: Scene, resource: Resource) -> tuple[Story, WorkloadFacts]:
    """Two running pods of a TrainJob, or of a bare JobSet."""
    pods = await scene.follow(PODS)
    body = train_job("llm", 2) if resource == TRAIN_JOBS else job_set("llm", {"node": job_spec(2)})
    made = (await scene.create(resource, body))["metadata"]
    await scene.running(pods, 2)
    at = datetime.fromisoformat(made["creationTimestamp"])
    facts = WorkloadFacts(resource.kind, made["name"], made["uid"], made["resourceVersion"], made["generation"], at)
    return pods, facts


async def patiently(operation: Callable[[], Awaitable[T]]) -> T:
    """Retry on a conflict as a reconcile does: an object that changed between the read and the write is read again."""
    for _ in range(20):
        with suppress(ConflictError):
            return await operation()
    raise AssertionError("the object changed under every try")


async def suspend(scene: Scene, workload: WorkloadFacts, action: SuspendWorkload) -> None:
    await patiently(lambda: suspension.suspend(scene.api, scene.namespace, workload, action))


async def trigger(scene: Scene) -> DeleteJob:
    """Delete the child Job in its present version."""

    async def once() -> DeleteJob:
        found = (await scene.read(JOBS, "llm-node-0"))["metadata"]
        action = DeleteJob(1, found["name"], found["uid"], found["resourceVersion"])
        await group_recreate.delete_job(scene.api, scene.namespace, action)
        return action

    return await patiently(once)


async def standing(scene: Scene, resource: Resource) -> tuple[bool, list[str]]:
    """Whether the workload is suspended, and our annotations on it."""
    found = await scene.read(resource, "llm")
    annotations = found["metadata"].get("annotations", {})
    ours = [annotations[name] for name in (SUSPENDED_BY_ANNOTATION, RESUME_AT_ANNOTATION) if name in annotations]
    return bool(found["spec"].get("suspend")), ours


async def is_suspended_by_us_and_resumed_by_name_alone(scene: Scene, resource: Resource) -> None:
    pods, workload = await trains(scene, resource)
    before = ready(pods)
    ours = SuspendWorkload(1, "inc-1", workload.uid, UNTIL)
    await suspend(scene, workload, ours)
    await scene.until("no pod is left", lambda: not pods.present)
    assert await standing(scene, resource) == (True, ["inc-1", "2026-11-21T12:00:20Z"])
    generation = (await scene.read(resource, "llm"))["metadata"]["generation"]
    await suspend(scene, workload, ours)
    with refused(TestFailedError):
        await suspension.resume(scene.api, scene.namespace, workload, ResumeWorkload(workload.uid, "inc-0", True))
    assert (await scene.read(resource, "llm"))["metadata"]["generation"] == generation, "twice is once"
    resumption = ResumeWorkload(workload.uid, "inc-1", suspended=True)
    await suspension.resume(scene.api, scene.namespace, workload, resumption)
    assert await standing(scene, resource) == (False, [])
    await scene.others_run(pods, 2, *before)
    with refused(TestFailedError):
        await suspension.resume(scene.api, scene.namespace, workload, resumption)


@expectation
async def test_a_train_job_is_suspended_and_resumed_by_name_alone(scene: Scene) -> None:
    await is_suspended_by_us_and_resumed_by_name_alone(scene, TRAIN_JOBS)


@expectation
async def test_a_job_set_is_suspended_and_resumed_by_name_alone(scene: Scene) -> None:
    await is_suspended_by_us_and_resumed_by_name_alone(scene, JOB_SETS)


@expectation
async def test_a_user_who_suspends_or_resumes_in_between_wins(scene: Scene) -> None:
    _, workload = await trains(scene, TRAIN_JOBS)
    ours = SuspendWorkload(1, "inc-1", workload.uid, UNTIL)
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": True}})
    with refused(TestFailedError):
        await suspend(scene, workload, ours)
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": False}})
    await suspend(scene, workload, ours)
    await scene.patch(TRAIN_JOBS, "llm", {"metadata": {"annotations": {SUSPENDED_BY_ANNOTATION: None}}})
    with refused(TestFailedError):
        await suspension.resume(scene.api, scene.namespace, workload, ResumeWorkload(workload.uid, "inc-1", True))
    assert (await standing(scene, TRAIN_JOBS))[0], "whoever takes the annotation takes the suspension over"


@expectation
async def test_after_trigger_and_suspension_the_new_job_begins_suspended(scene: Scene) -> None:
    pods, workload = await trains(scene, TRAIN_JOBS)
    before, jobs = ready(pods), await scene.follow(JOBS)
    old = await scene.read(JOBS, "llm-node-0")
    await trigger(scene)
    await suspend(scene, workload, SuspendWorkload(1, "inc-1", workload.uid, UNTIL))
    await scene.until("a new Job is there", lambda: uid(jobs.named("llm-node-0") or old) != uid(old))
    new = jobs.named("llm-node-0")
    assert new is not None
    assert all(state["spec"]["suspend"] for state in jobs.states(uid(new))), "it has never been otherwise"
    assert not pods.present
    resumption = ResumeWorkload(workload.uid, "inc-1", suspended=True)
    await suspension.resume(scene.api, scene.namespace, workload, resumption)
    await scene.others_run(pods, 2, *before)


@expectation
async def test_a_job_is_deleted_once_however_often_it_is_asked_for(scene: Scene) -> None:
    pods, _ = await trains(scene, JOB_SETS)
    jobs = await scene.follow(JOBS)
    old = await scene.read(JOBS, "llm-node-0")
    stale = DeleteJob(1, "llm-node-0", uid(old), "1")
    with refused(ConflictError):
        await group_recreate.delete_job(scene.api, scene.namespace, stale)
    before = ready(pods)
    action = await trigger(scene)
    await scene.others_run(pods, 2, *before)
    new = jobs.named("llm-node-0")
    assert new is not None
    with refused(ConflictError):
        await group_recreate.delete_job(scene.api, scene.namespace, action)
    assert not deleting(await scene.read(JOBS, "llm-node-0")), "an old leader's deletion meets a dead UID"


@expectation
async def test_pods_of_a_dying_job_deleted_by_us_do_not_fail_its_set(scene: Scene) -> None:
    """As the controller tears a group down: trigger, backoffLimit out of the way, pods with little grace."""
    sets, jobs, pods = await scene.follow(JOB_SETS), await scene.follow(JOBS), await scene.follow(PODS)
    deaf = job_spec(10, pod={"image": DEAF, "grace_seconds": 30}, backoffLimit=2)
    await scene.create(JOB_SETS, job_set("llm", {"node": deaf}))
    before = await scene.running(pods, 10)
    old = await scene.read(JOBS, "llm-node-0")
    await trigger(scene)
    for _ in range(2):
        await group_recreate.raise_backoff_limit(
            scene.api, scene.namespace, RaiseBackoffLimit(1, "llm-node-0", uid(old))
        )
    for pod in before:
        await api_verbs.delete(
            scene.api, PODS, pod["metadata"]["name"], namespace=scene.namespace, uid=uid(pod), grace_seconds=1
        )
    await scene.others_run(pods, 10, *before)
    assert jobs.states(uid(old))[-1]["spec"]["backoffLimit"] == 2**31 - 1
    assert condition(sets.named("llm") or {}, "Failed") is None
    gone = [event.position for event in pods.events if event.type == "DELETED"]
    assert (len(gone), uids(before) & uids(pods.present.values())) == (10, set())


@expectation
async def test_a_job_is_touched_if_it_is_still_the_same(scene: Scene) -> None:
    await trains(scene, JOB_SETS)
    job = await scene.read(JOBS, "llm-node-0")
    await group_recreate.touch_job(scene.api, scene.namespace, TouchJob(1, "llm-node-0", uid(job), "1"))
    assert (await scene.read(JOBS, "llm-node-0"))["metadata"]["annotations"][TOUCHED_ANNOTATION] == "1"
    with refused(TestFailedError):
        await group_recreate.touch_job(scene.api, scene.namespace, TouchJob(1, "llm-node-0", ANOTHER_UID, "2"))


@expectation
async def test_a_set_without_a_failure_policy_fails_by_the_deadline_of_its_job(scene: Scene) -> None:
    await trains(scene, TRAIN_JOBS)
    sets, trainings = await scene.follow(JOB_SETS), await scene.follow(TRAIN_JOBS)
    job = JobRef("llm-node-0", uid(await scene.read(JOBS, "llm-node-0")))
    action = FailJobSet(1, "llm", uid(await scene.read(JOB_SETS, "llm")), Reason.BUDGET_EXHAUSTED, "enough", job)
    for _ in range(2):
        await job_failure.fail_jobset(scene.api, scene.namespace, action, scene.clock.now())
    await scene.has_condition(trainings, "llm", "Failed")
    assert (sets.named("llm") or {})["status"]["terminalState"] == "Failed"
    failed = condition(await scene.read(JOBS, "llm-node-0"), "Failed")
    assert failed is not None
    assert failed["reason"] == "DeadlineExceeded"


async def fail_by_status(scene: Scene, action: FailJobSet) -> None:
    await patiently(lambda: job_failure.fail_jobset(scene.api, scene.namespace, action, scene.clock.now()))


@expectation
async def test_a_set_fails_by_its_own_status_whatever_its_policy_says(scene: Scene) -> None:
    sets, jobs, pods = await scene.follow(JOB_SETS), await scene.follow(JOBS), await scene.follow(PODS)
    made = await scene.create(JOB_SETS, job_set("llm", {"node": job_spec(2)}, failurePolicy={"maxRestarts": 3}))
    await scene.running(pods, 2)
    action = FailJobSet(1, "llm", uid(made), Reason.BUDGET_EXHAUSTED, "10 recoveries within 24h were not enough")
    for _ in range(2):
        await fail_by_status(scene, action)
    await scene.until("its Job and its pods are gone", lambda: not jobs.present and not pods.present)
    status = (sets.named("llm") or {})["status"]
    assert (status["terminalState"], status["restarts"]) == ("Failed", 0)
    [failed] = [each for each in status["conditions"] if each["type"] == "Failed"]
    assert (failed["reason"], failed["message"]) == ("RecoveryBudgetExhausted", action.message)


@slow_expectation
async def test_a_failed_set_that_is_deleted_is_recreated_and_runs(scene: Scene) -> None:
    """What `onTerminalFailure: RecreateJobSet` does; the garbage collector learns of JobSets late."""
    pods, _ = await trains(scene, TRAIN_JOBS)
    sets, trainings = await scene.follow(JOB_SETS), await scene.follow(TRAIN_JOBS)
    before, old = ready(pods), await scene.read(JOB_SETS, "llm")
    await fail_by_status(scene, FailJobSet(1, "llm", uid(old), Reason.BUDGET_EXHAUSTED, "lost"))
    await scene.has_condition(trainings, "llm", "Failed")
    await scene.until("its pods are gone", lambda: not pods.present)

    async def delete(found: Object) -> Object:
        action = DeleteJobSet(1, "llm", uid(found), found["metadata"]["resourceVersion"])
        await group_recreate.delete_jobset(scene.api, scene.namespace, action)
        return found

    async def delete_as_it_is() -> Object:
        return await delete(await scene.read(JOB_SETS, "llm"))

    with refused(ConflictError):
        await delete(old)
    failed = await patiently(delete_as_it_is)
    await scene.until("another set is there", lambda: uid(sets.named("llm") or old) != uid(old), seconds=120)
    await scene.others_run(pods, 2, *before)
    await scene.until(
        "the training has not failed any more", lambda: condition(trainings.named("llm") or {}, "Failed") is None
    )
    with refused(ConflictError):
        await delete(failed)


@expectation
async def test_a_job_whose_pods_are_refused_says_so_in_an_event_and_gets_them_later(scene: Scene) -> None:
    """By that Event the watchdog distinguishes a quota from a stuck Job controller."""
    pods = await scene.follow(PODS)
    await scene.world.refuse_pods(scene, True)
    await scene.create(TRAIN_JOBS, train_job("llm", 2))
    reader = LiveReader(scene.api)
    told: list[str] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not told:
            await scene.pass_seconds(0.2)
            parts = await reader.parts(GroupKey(scene.namespace, "llm"))
            told = [job.failed_create for job in parts.jobs if job.failed_create]
    assert not pods.present
    assert "forbidden" in told[0] or "denied" in told[0]
    await scene.world.refuse_pods(scene, False)
    await scene.running(pods, 2)


@slow_expectation
async def test_a_claimed_job_keeps_the_pods_whose_deletes_are_still_to_come(scene: Scene) -> None:
    """When many groups are lost at once, the deletes of a group's pods may come long after the claim of its Job."""
    pods, jobs, sets = await scene.follow(PODS), await scene.follow(JOBS), await scene.follow(JOB_SETS)
    await scene.create(JOB_SETS, job_set("llm", {"node": job_spec(5)}))
    lost, first, *others = by_index(await scene.running(pods, 5))
    await api_verbs.delete(scene.api, PODS, lost["metadata"]["name"], namespace=scene.namespace, grace_seconds=0)

    async def claim() -> None:
        found = await scene.read(JOBS, "llm-node-0")
        metadata, limit = found["metadata"], found["spec"]["backoffLimit"] + 4
        action = ClaimJob(1, metadata["name"], metadata["uid"], metadata["resourceVersion"], "attempt", limit)
        await group_recreate.claim_job(scene.api, scene.namespace, action)

    await patiently(claim)
    await api_verbs.delete(scene.api, PODS, first["metadata"]["name"], namespace=scene.namespace, grace_seconds=1)
    await scene.pass_seconds(25)
    assert not [pod for pod in others if deleting(pods.present[uid(pod)])], "no one deletes the pods that wait"
    new = [pod for pod in ready(pods) if uid(pod) not in uids(others)]
    assert {index_of(pod) for pod in new} == {0, 1}, "a rank that is gone is replaced, as it is without a claim"
    job = jobs.named("llm-node-0")
    assert job is not None
    assert not deleting(job)
    assert (job["status"]["failed"], condition(job, "Failed")) == (2, None)
    job_set_status = (sets.named("llm") or {}).get("status", {})
    assert job_set_status.get("restarts", 0) == 0
    await patiently(lambda: trigger(scene))
    await scene.others_run(pods, 5, *pods.present.values())
