"""Which pods a Job gets, and when."""

import re

from recovery.ports import JOBS, PODS, PatchKind, Propagation
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.job_pods import make_pod
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.job_world import NAMESPACE, index_of, job_world

TRACKING = "batch.kubernetes.io/job-tracking"


@virtual_time
async def test_an_indexed_jobs_pod_says_whose_it_is_and_which() -> None:
    async with job_world() as world:
        job = world.create(pods=2)
        await world.pass_seconds(0.5)
        assert world.indexes() == [0, 1]
        pod = world.pod(1)
        metadata, uid = pod["metadata"], job["metadata"]["uid"]
        assert re.fullmatch(r"train-1-[a-z0-9]{5}", metadata["name"])
        assert metadata["finalizers"] == [TRACKING]
        assert metadata["labels"] == {
            "team": "blue",
            "job-name": "train",
            "controller-uid": uid,
            "batch.kubernetes.io/job-name": "train",
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-completion-index": "1",
        }
        assert metadata["annotations"] == {"batch.kubernetes.io/job-completion-index": "1"}
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "uid": uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert pod["spec"]["hostname"] == "train-1"
        for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
            assert [variable["name"] for variable in container["env"]][-1] == "JOB_COMPLETION_INDEX"
        assert "env" not in job["spec"]["template"]["spec"]["initContainers"][0]


@virtual_time
async def test_a_job_without_indexes_has_pods_without_them() -> None:
    async with job_world() as world:
        world.create(indexed=False, pods=3)
        await world.pass_seconds(0.5)
        assert [index_of(pod) for pod in world.pods()] == [-1, -1, -1]
        assert all(re.fullmatch(r"train-[a-z0-9]{5}", pod["metadata"]["name"]) for pod in world.pods())
        assert "hostname" not in world.pods()[0]["spec"]


@virtual_time
async def test_the_status_counts_active_and_ready_pods() -> None:
    async with job_world() as world:
        world.create(pods=3)
        await world.pass_seconds(0.5)
        assert world.status()["active"] == 3
        assert world.status()["ready"] == 0
        world.run(world.pod(0), world.pod(2))
        await world.pass_seconds(1.5)
        assert world.status()["ready"] == 2
        assert world.status()["startTime"] == "2026-11-02T08:00:00Z"


@virtual_time
async def test_changes_of_pods_are_synced_together_after_a_second() -> None:
    async with job_world() as world:
        world.create(pods=4)
        await world.pass_seconds(3)
        revision = world.server.revision
        for index in range(4):
            world.run(world.pod(index))
        await world.pass_seconds(0.9)
        assert world.status()["ready"] == 0
        await world.pass_seconds(0.2)
        assert world.status()["ready"] == 4
        assert world.server.revision == revision + 4 * 2 + 1  # each pod is bound and runs; the Job is written once


@virtual_time
async def test_a_stock_controller_manager_takes_six_seconds_for_128_pods() -> None:
    """One request for each pod and for each of a Job's at most 25 Events: 30 at once, then 20 a second."""
    async with job_world(per_second=20) as world:
        world.create(pods=128)
        await world.pass_seconds(5)
        assert len(world.pods()) < 128
        await world.pass_seconds(1.5)
        assert len(world.pods()) == 128
        assert len(world.events("SuccessfulCreate")) == 25


@virtual_time
async def test_refused_pods_are_asked_for_few_at_a_time_ever_more_rarely_and_told_of() -> None:
    async with job_world() as world:
        world.admission.refusal = "exceeded quota: gpus"
        world.create(pods=8)
        await world.pass_seconds(0.5)
        assert world.events("FailedCreate") == ["Error creating: exceeded quota: gpus"]
        await world.pass_seconds(60)
        assert len(world.events("FailedCreate")) == 6  # the first, and after 1, 2, 4, 8, 16 s; not yet 32 s
        world.admission.refusal = None
        await world.pass_seconds(60)
        assert world.indexes() == list(range(8))


@virtual_time
async def test_pods_are_asked_for_in_batches_of_1_2_4_and_those_end_with_one_that_is_refused() -> None:
    async with job_world() as world:

        def close_the_door(change: ObjectChange) -> None:
            if len(world.pods()) == 3:
                world.admission.refusal = "no"

        world.server.subscribe(close_the_door, PODS)
        world.create(pods=32)
        await world.pass_seconds(0.5)
        assert world.indexes() == [0, 1, 2]
        assert len(world.events("FailedCreate")) == 4
        assert world.status()["active"] == 3


@virtual_time
async def test_of_two_pods_of_one_index_the_one_goes_that_does_not_run() -> None:
    async with job_world() as world:
        world.create(pods=2)
        await world.pass_seconds(0.5)
        world.run()
        twin = make_pod(world.job(), 1, None)
        twin = world.server.create(PODS, twin, namespace=NAMESPACE)
        await world.pass_seconds(1.5)
        assert world.indexes() == [0, 1]
        assert world.pod(1)["metadata"]["uid"] != twin["metadata"]["uid"]


@virtual_time
async def test_of_too_many_pods_those_go_first_that_do_not_run() -> None:
    async with job_world() as world:
        world.create(indexed=False, pods=3)
        await world.pass_seconds(0.5)
        waiting, *running = world.pods()
        world.run(*running)
        world.patch(parallelism=2)
        await world.pass_seconds(0.5)
        assert waiting["metadata"]["name"] not in [pod["metadata"]["name"] for pod in world.pods()]
        assert len(world.pods()) == 2


@virtual_time
async def test_an_overlooked_job_gets_no_pods_until_something_on_it_changes() -> None:
    async with job_world() as world:
        world.controller.overlook_new_jobs(10)
        world.create()
        await world.pass_seconds(600)
        assert world.pods() == []
        touch = {"metadata": {"annotations": {"touched": "1"}}}
        world.server.patch(JOBS, "train", touch, kind=PatchKind.MERGE, namespace=NAMESPACE)
        await world.pass_seconds(1.5)
        assert world.indexes() == [0, 1]


@virtual_time
async def test_an_overlooked_job_is_not_found_by_way_of_one_of_the_same_name() -> None:
    async with job_world() as world:
        world.create()
        await world.pass_seconds(5)
        world.run()
        world.server.delete(JOBS, "train", namespace=NAMESPACE, propagation=Propagation.BACKGROUND)
        world.controller.overlook_new_jobs(10)
        new = world.create()
        await world.pass_seconds(60)
        assert list(world.server.dependants(new["metadata"]["uid"])) == []


@virtual_time
async def test_a_job_made_after_that_time_is_not_overlooked() -> None:
    async with job_world() as world:
        world.controller.overlook_new_jobs(10)
        await world.pass_seconds(10)
        world.create()
        await world.pass_seconds(0.5)
        assert world.indexes() == [0, 1]


@virtual_time
async def test_a_stalled_controller_begins_nothing_and_then_catches_up() -> None:
    async with job_world() as world:
        world.controller.stall(True)
        world.create()
        await world.pass_seconds(60)
        assert world.pods() == []
        world.controller.stall(False)
        await world.pass_seconds(0.5)
        assert world.indexes() == [0, 1]
