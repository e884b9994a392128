"""What `ttlSecondsAfterFinished` removes, and what others make again because of that."""

from datetime import datetime

from recovery.core.model.reason import Reason
from recovery.core.plan.actions import FailJobSet, JobRef
from recovery.executors import job_failure
from recovery.ports import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from tests.contract.bodies import TRAINING_RUNTIMES, job, job_set, job_spec, runtime, train_job
from tests.contract.expectations import expectation, slow_expectation
from tests.contract.scene import Scene, Story, condition, ready, uid
from tests.contract.test_executors import patiently
from tests.contract.workload import exits

GARBAGE_SECONDS = 120
"""The garbage collector of a real control plane learns of JobSets up to half a minute late."""
TTL = "ttlSecondsAfterFinished"


async def trains(scene: Scene, **fields: object) -> tuple[Story, Story, Story]:
    """A running TrainJob `llm` of one pod, with backoffLimit 0: its sets, trainings and pods."""
    name = f"expires-{scene.namespace[-6:]}"
    await scene.create(TRAINING_RUNTIMES, runtime(name, job_spec(1, backoffLimit=0), **fields))
    sets, trainings, pods = [await scene.follow(kind) for kind in (JOB_SETS, TRAIN_JOBS, PODS)]
    await scene.create(TRAIN_JOBS, train_job("llm", 1, runtime=name))
    await scene.running(pods, 1)
    return sets, trainings, pods


def made(sets: Story) -> int:
    """How many JobSets there have been."""
    return len({event.uid for event in sets.events})


@expectation
async def test_a_finished_job_is_deleted_when_its_ttl_is_over(scene: Scene) -> None:
    jobs, pods = await scene.follow(JOBS), await scene.follow(PODS)
    await scene.create(JOBS, job("llm", 1, pod={"image": exits(0)}, ttlSecondsAfterFinished=3))
    complete = await scene.has_condition(jobs, "llm", "Complete")
    await scene.until("the Job and its pod are gone", lambda: not jobs.present and not pods.present)
    [left] = {event.object["metadata"]["deletionTimestamp"] for event in jobs.events if event.type == "DELETED"}
    lived = datetime.fromisoformat(left) - datetime.fromisoformat(complete["lastTransitionTime"])
    assert 3 <= lived.total_seconds() <= 6


@expectation
async def test_a_complete_job_that_expires_is_made_again_while_its_set_runs(scene: Scene) -> None:
    jobs = await scene.follow(JOBS)
    done = job_spec(1, pod={"image": exits(0)}, ttlSecondsAfterFinished=1)
    await scene.create(JOB_SETS, job_set("llm", {"init": done, "node": job_spec(1)}))
    first = await scene.has_condition(jobs, "llm-init-0", "Complete")
    await scene.until(
        "the initializer runs again and completes",
        lambda: (
            len({event.uid for event in jobs.events if event.name == "llm-init-0"}) > 1
            and (condition(jobs.named("llm-init-0") or {}, "Complete") or first)["lastTransitionTime"]
            != first["lastTransitionTime"]
        ),
    )
    assert len({event.uid for event in jobs.events if event.name == "llm-node-0"}) == 1


@slow_expectation
async def test_a_failed_training_whose_set_expires_is_trained_again(scene: Scene) -> None:
    sets, trainings, pods = await trains(scene, ttlSecondsAfterFinished=2)
    [one] = ready(pods)
    scene.exit(one, 1)
    await scene.has_condition(trainings, "llm", "Failed")
    await scene.until("another set is there", lambda: made(sets) == 2, seconds=GARBAGE_SECONDS)
    await scene.others_run(pods, 1, one)
    await scene.until("it has not failed any more", lambda: condition(trainings.named("llm") or {}, "Failed") is None)


@slow_expectation
async def test_a_complete_training_whose_set_expires_stays_complete(scene: Scene) -> None:
    sets, trainings, pods = await trains(scene, ttlSecondsAfterFinished=2)
    [one] = ready(pods)
    scene.exit(one, 0)
    await scene.has_condition(trainings, "llm", "Complete")
    await scene.until("the set is gone", lambda: not sets.present, seconds=GARBAGE_SECONDS)
    await scene.pass_seconds(3)
    assert made(sets) == 1
    assert condition(trainings.named("llm") or {}, "Complete")


@expectation
async def test_the_ttl_of_a_set_may_be_removed_and_comes_back_only_with_a_suspension(scene: Scene) -> None:
    sets, _, _ = await trains(scene, ttlSecondsAfterFinished=3000)
    await scene.json_patch(JOB_SETS, "llm", ("remove", f"/spec/{TTL}", None))
    await scene.patch(TRAIN_JOBS, "llm", {"metadata": {"labels": {"touched": "1"}}})
    await scene.pass_seconds(2)
    assert TTL not in (sets.named("llm") or {})["spec"]
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": True}})
    await scene.until("it is back", lambda: (sets.named("llm") or {})["spec"].get(TTL) == 3000)


async def stays_failed(scene: Scene, sets: Story, trainings: Story, *, job: str = "") -> None:
    """FailJob, twice. `job`: the one that fails the JobSet, empty: its status does."""
    victim = JobRef(job, uid(await scene.read(JOBS, job))) if job else None
    old = await scene.read(JOB_SETS, "llm")
    action = FailJobSet(1, "llm", uid(old), Reason.BUDGET_EXHAUSTED, "enough", victim)
    for _ in range(2):
        await patiently(lambda: job_failure.fail_jobset(scene.api, scene.namespace, action, scene.clock.now()))
    await scene.has_condition(trainings, "llm", "Failed")
    await scene.pass_seconds(6)
    assert made(sets) == 1
    left = sets.named("llm")
    assert left is not None
    assert left["status"]["terminalState"] == "Failed"
    assert "deletionTimestamp" not in left["metadata"]
    assert condition(trainings.named("llm") or {}, "Failed")


@expectation
async def test_a_training_that_we_fail_by_its_job_stays_failed_whatever_its_ttl(scene: Scene) -> None:
    sets, trainings, _ = await trains(scene, ttlSecondsAfterFinished=2)
    await stays_failed(scene, sets, trainings, job="llm-node-0")


@expectation
async def test_a_training_that_we_fail_by_its_status_stays_failed_whatever_its_ttl(scene: Scene) -> None:
    sets, trainings, _ = await trains(scene, ttlSecondsAfterFinished=2, failurePolicy={"maxRestarts": 3})
    await stays_failed(scene, sets, trainings)


@expectation
async def test_a_job_that_fails_its_set_for_us_is_not_removed_by_its_own_ttl(scene: Scene) -> None:
    """JobSet fails by the failed Job. If it is gone before JobSet has seen it, JobSet makes it again."""
    jobs, pods, sets = await scene.follow(JOBS), await scene.follow(PODS), await scene.follow(JOB_SETS)
    await scene.create(JOB_SETS, job_set("llm", {"node": job_spec(1, ttlSecondsAfterFinished=0)}))
    await scene.running(pods, 1)
    old = await scene.read(JOBS, "llm-node-0")
    action = FailJobSet(
        1, "llm", uid(sets.named("llm") or {}), Reason.BUDGET_EXHAUSTED, "", JobRef("llm-node-0", uid(old))
    )
    await patiently(lambda: job_failure.fail_jobset(scene.api, scene.namespace, action, scene.clock.now()))
    await scene.has_condition(sets, "llm", "Failed")
    await scene.pass_seconds(3)
    assert [uid(each) for each in jobs.present.values()] == [uid(old)]
