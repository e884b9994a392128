"""What Trainer creates for a TrainJob with its shipped runtime: the workload that the controller looks after."""

from recovery import api_verbs
from recovery.ports import JOB_SETS, JOBS, PODS, TRAIN_JOBS, Propagation, RefusedError
from tests.contract.bodies import TRAINING_RUNTIMES, job_spec, runtime, train_job
from tests.contract.expectations import expectation, slow_expectation
from tests.contract.scene import Object, Scene, Story, condition, ready, refused, uid, uids
from tests.contract.workload import leaves


class Group:
    """A TrainJob `llm`, and the stories of all objects made for it."""

    def __init__(self, trainings: Story, sets: Story, jobs: Story, pods: Story) -> None:
        self.trainings = trainings
        self.sets = sets
        self.jobs = jobs
        self.pods = pods

    def job(self) -> Object:
        found = self.jobs.named("llm-node-0")
        assert found is not None
        return found

    def failed(self) -> bool:
        return condition(self.sets.named("llm") or {}, "Failed") is not None


async def followed(scene: Scene) -> Group:
    return Group(*[await scene.follow(kind) for kind in (TRAIN_JOBS, JOB_SETS, JOBS, PODS)])


async def started(scene: Scene, pods: int, *, image: str = "") -> tuple[Group, list[Object]]:
    """A TrainJob under the runtime that Trainer ships. `image`: empty for the runtime's image."""
    group = await followed(scene)
    await scene.create(TRAIN_JOBS, train_job("llm", pods, image=image))
    return group, await scene.running(group.pods, pods)


@expectation
async def test_a_train_job_becomes_a_set_a_job_and_pods_of_its_name(scene: Scene) -> None:
    group, pods = await started(scene, 3)
    training, made, job = group.trainings.named("llm"), group.sets.named("llm"), group.job()
    assert training is not None
    assert made is not None
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainJob", uid(training), True)
    spec = job["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (3, 3, "Indexed")
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (6, "TerminatingOrFailed")
    assert "failurePolicy" not in made["spec"]
    assert job["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    for pod in pods:
        assert pod["spec"]["restartPolicy"] == "OnFailure"
        [container] = pod["spec"]["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert {key: env[key] for key in ("PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT")} == {
            "PET_NNODES": "3",
            "PET_MASTER_ADDR": "llm-node-0-0.llm",
            "PET_MASTER_PORT": "29500",
        }
        assert "PET_NODE_RANK" in env
        assert "PET_NPROC_PER_NODE" in env
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        seconds = [each.get("tolerationSeconds") for each in pod["spec"]["tolerations"]]
        assert seconds == [300, 300]


@expectation
async def test_a_suspended_train_job_keeps_its_job_and_loses_its_pods(scene: Scene) -> None:
    group, before = await started(scene, 3)
    old = group.job()
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": True}})
    suspended = await scene.has_condition(group.trainings, "llm", "Suspended")
    assert suspended["reason"] == "Suspended"
    await scene.until("no pod is left", lambda: not group.pods.present)
    assert uid(group.job()) == uid(old)
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": False}})
    await scene.others_run(group.pods, 3, *before)
    assert uid(group.job()) == uid(old)
    await scene.until(
        "it is not suspended any more", lambda: condition(group.trainings.named("llm") or {}, "Suspended") is None
    )
    assert not group.failed()


@expectation
async def test_a_job_deleted_while_its_training_is_being_suspended_comes_back_suspended(scene: Scene) -> None:
    """A restart with a backoff: trigger and suspension together, so that the new pods wait."""
    group, before = await started(scene, 3)
    old = group.job()
    await api_verbs.delete(
        scene.api, JOBS, "llm-node-0", namespace=scene.namespace, uid=uid(old), propagation=Propagation.FOREGROUND
    )
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": True}})
    await scene.until("a new Job is there", lambda: uid(group.jobs.named("llm-node-0") or old) not in {uid(old)})
    assert group.job()["spec"]["suspend"] is True
    await scene.until("no pod is left", lambda: not group.pods.present)
    await scene.patch(TRAIN_JOBS, "llm", {"spec": {"suspend": False}})
    await scene.others_run(group.pods, 3, *before)


@expectation
async def test_a_set_that_others_suspend_is_resumed_by_trainer(scene: Scene) -> None:
    group, _ = await started(scene, 2)
    await scene.patch(JOB_SETS, "llm", {"spec": {"suspend": True}})
    await scene.until(
        "it was suspended and is no more",
        lambda: (
            [state["spec"].get("suspend", False) for state in group.sets.states(next(iter(group.sets.present)))][-1]
            is False
            and any(event.object["spec"].get("suspend") for event in group.sets.events)
        ),
    )
    await scene.running(group.pods, 2)


@expectation
async def test_a_train_job_whose_pods_succeed_is_complete(scene: Scene) -> None:
    group, pods = await started(scene, 2)
    for pod in pods:
        scene.exit(pod, 0)
    complete = await scene.has_condition(group.trainings, "llm", "Complete")
    assert complete["reason"] == "AllJobsCompleted"


@expectation
async def test_how_a_train_job_trains_stays_as_it_was_written(scene: Scene) -> None:
    await started(scene, 1)
    for change in ({"trainer": {"numNodes": 2}}, {"runtimeRef": {"name": "other"}}):
        with refused(RefusedError) as refusal:
            await scene.patch(TRAIN_JOBS, "llm", {"spec": change})
        assert refusal.value.status in {403, 422}


@expectation
async def test_eight_restarts_in_place_of_sixteen_pods_end_the_training_for_good(scene: Scene) -> None:
    group, pods = await started(scene, 16)
    for pod in pods[:8]:
        scene.exit(pod, 1)
    failed = await scene.has_condition(group.trainings, "llm", "Failed")
    assert failed["reason"] == "FailedJobs"
    assert (condition(group.sets.named("llm") or {}, "Failed") or {})["reason"] == "FailedJobs"
    assert [type_ for type_, _ in group.jobs.conditions_in_order(uid(group.job()))] == ["FailureTarget", "Failed"]
    assert (condition(group.job(), "Failed") or {})["reason"] == "BackoffLimitExceeded"
    await scene.until("no pod is left running", lambda: not ready(group.pods))


@expectation
async def test_seven_deleted_pods_of_sixteen_end_the_training_for_good(scene: Scene) -> None:
    group, pods = await started(scene, 16)
    for pod in pods[:7]:
        await api_verbs.delete(scene.api, PODS, pod["metadata"]["name"], namespace=scene.namespace)
    await scene.has_condition(group.trainings, "llm", "Failed")
    assert (condition(group.job(), "Failed") or {})["reason"] == "BackoffLimitExceeded"


@expectation
async def test_six_deleted_pods_of_sixteen_do_not_end_the_training_but_are_missed_for_long(scene: Scene) -> None:
    group, pods = await started(scene, 16)
    old = group.job()
    for pod in pods[:6]:
        await api_verbs.delete(scene.api, PODS, pod["metadata"]["name"], namespace=scene.namespace)
    await scene.until("they are counted", lambda: group.job()["status"].get("failed") == 6)
    await scene.pass_seconds(6)
    assert uids(ready(group.pods)) == uids(group.pods.present.values()) == uids(pods[6:])
    assert uid(group.job()) == uid(old)
    assert condition(group.job(), "FailureTarget") is None


@expectation
async def test_a_training_is_saved_when_its_job_is_deleted_before_it_has_failed(scene: Scene) -> None:
    """The Job has failed once its pods have ended: here they take so long that the delete comes before."""
    group, pods = await started(scene, 16, image=leaves(10))
    old = group.job()
    for pod in pods[:8]:
        scene.exit(pod, 1)
    await scene.has_condition(group.jobs, "llm-node-0", "FailureTarget")
    await api_verbs.delete(
        scene.api, JOBS, "llm-node-0", namespace=scene.namespace, uid=uid(old), propagation=Propagation.FOREGROUND
    )
    await scene.others_run(group.pods, 16, *pods)
    assert uid(group.job()) != uid(old)
    assert not group.failed()
    assert condition(group.trainings.named("llm") or {}, "Failed") is None


@slow_expectation
async def test_a_training_that_has_failed_is_run_again_when_its_set_is_deleted(scene: Scene) -> None:
    """Failed is not terminal, up to this version of Trainer; `onTerminalFailure: RecreateJobSet` lives on it."""
    name = f"fails-{scene.namespace[-6:]}"
    await scene.create(TRAINING_RUNTIMES, runtime(name, job_spec(1, backoffLimit=0)))
    group = await followed(scene)
    await scene.create(TRAIN_JOBS, train_job("llm", 1, runtime=name))
    [one] = await scene.running(group.pods, 1)
    scene.exit(one, 1)
    await scene.has_condition(group.trainings, "llm", "Failed")
    old = group.sets.named("llm")
    assert old is not None
    await api_verbs.delete(
        scene.api, JOB_SETS, "llm", namespace=scene.namespace, uid=uid(old), propagation=Propagation.FOREGROUND
    )
    await scene.until("another set is there", lambda: uid(group.sets.named("llm") or old) != uid(old), seconds=120)
    await scene.others_run(group.pods, 1, one)
    await scene.until(
        "it has not failed any more", lambda: condition(group.trainings.named("llm") or {}, "Failed") is None
    )


@slow_expectation
async def test_a_deleted_set_is_recreated_with_new_jobs(scene: Scene) -> None:
    """Slow in reality: the garbage collector learns of a new kind of owner after half a minute."""
    group, before = await started(scene, 2)
    old = group.sets.named("llm")
    assert old is not None
    await api_verbs.delete(
        scene.api, JOB_SETS, "llm", namespace=scene.namespace, uid=uid(old), propagation=Propagation.FOREGROUND
    )
    await scene.until("another set is there", lambda: uid(group.sets.named("llm") or old) != uid(old), seconds=120)
    after = await scene.others_run(group.pods, 2, *before)
    assert (group.sets.named("llm") or {})["status"]["restarts"] == 0
    gone = [event.position for event in group.pods.events if event.type == "DELETED"]
    assert len(gone) == 2
    assert max(gone) < min(group.pods.reports_of(uid(pod), lambda _: True) for pod in after)
