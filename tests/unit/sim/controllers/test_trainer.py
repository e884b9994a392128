"""Trainer: the JobSet that it makes of a TrainJob and its runtime, and the TrainJob's status."""

from typing import Any

import pytest

from recovery.ports import JOB_SETS, TRAIN_JOBS, Propagation
from recovery.sim.api.kinds.core import CONFIG_MAPS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from recovery.sim.api.status_error import StatusError
from recovery.sim.runtimes import (
    initialized_runtime,
    joined_runtime,
    launcher_runtime,
    native_runtime,
    prepared_runtime,
    shipped_runtime,
)
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.workload_scene import NAMESPACE, Scene, conditions, met, trainjob

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
MANAGER = "example.com/queue"


def container(job: Body) -> Body:
    (found,) = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def variables(job: Body) -> dict[str, Any]:
    """The values of the variables by name. A variable that is taken from a field has the field's path."""
    return {
        each["name"]: each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in container(job).get("env", ())
    }


async def started(scene: Scene, runtime: Body | None = None, **spec: Any) -> None:
    runtime = runtime or shipped_runtime()
    await scene.create(runtime)
    await scene.create(trainjob(runtime["metadata"]["name"], **spec))


@virtual_time
async def test_the_jobset_has_the_trainjobs_name_and_belongs_to_it() -> None:
    async with Scene.running() as scene:
        await started(scene)
        jobset = scene.jobset()
        (owner,) = jobset["metadata"]["ownerReferences"]
        assert owner["uid"] == scene.trainjob()["metadata"]["uid"]
        assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == ("TrainJob", True, True)
        assert jobset["spec"]["suspend"] is False
        assert scene.jobs() == ["llm-node-0"]
        job = scene.job("llm-node-0")
        assert job["metadata"]["labels"][ANCESTOR] == "trainer"
        assert ANCESTOR not in job["spec"]["template"]["metadata"]["labels"]


@virtual_time
async def test_torchrun_is_told_its_place_and_the_job_its_size() -> None:
    async with Scene.running() as scene:
        await started(scene, nodes=8)
        job = scene.job("llm-node-0")
        assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (8, 8)
        assert variables(job) == {
            "PET_NNODES": "8",
            "PET_NPROC_PER_NODE": "auto",
            "PET_NODE_RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
            "PET_MASTER_ADDR": "llm-node-0-0.llm",
            "PET_MASTER_PORT": "29500",
        }
        assert container(job)["resources"]["requests"] == {"nvidia.com/gpu": "8"}
        assert [port["containerPort"] for port in container(job)["ports"]] == [29500]


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({"numProcPerNode": 4}, "4"),
        ({}, "1"),
        ({"resourcesPerNode": {"requests": {"cpu": "2500m"}}}, "3"),
        ({"resourcesPerNode": {"limits": {"cpu": 2}}}, "2"),
        ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}}}, "auto"),
    ],
)
def test_processes_per_node_follow_what_a_node_has(trainer: Body, processes: str) -> None:
    @virtual_time
    async def check() -> None:
        async with Scene.running() as scene:
            await started(scene, trainer=trainer)
            assert variables(scene.job("llm-node-0"))["PET_NPROC_PER_NODE"] == processes

    check()


@virtual_time
async def test_without_a_trainer_section_nothing_is_told() -> None:
    async with Scene.running() as scene:
        await scene.create(shipped_runtime())
        body = trainjob()
        del body["spec"]["trainer"]
        await scene.create(body)
        assert variables(scene.job("llm-node-0")) == {}
        assert scene.job("llm-node-0")["spec"]["completions"] == 1


@virtual_time
async def test_the_shipped_runtime_restarts_in_place_six_times_and_has_no_failure_policy() -> None:
    async with Scene.running() as scene:
        await started(scene)
        spec = scene.job("llm-node-0")["spec"]
        assert (spec["template"]["spec"]["restartPolicy"], spec["backoffLimit"]) == ("OnFailure", 6)
        assert "failurePolicy" not in scene.jobset()["spec"]


@virtual_time
async def test_our_own_runtimes_keep_their_words() -> None:
    async with Scene.running() as scene:
        await started(scene, joined_runtime())
        job = scene.job("llm-node-0")
        assert job["spec"]["backoffLimit"] == 1000
        pods = job["spec"]["template"]
        assert (pods["spec"]["restartPolicy"], pods["spec"]["terminationGracePeriodSeconds"]) == ("Never", 15)
        assert pods["metadata"]["annotations"]["recovery.trainjob.dev/joined-probe"] == "readiness"
        assert "readinessProbe" in container(job)


@virtual_time
async def test_a_native_runtime_decides_for_itself() -> None:
    async with Scene.running() as scene:
        await started(scene, native_runtime())
        (first,) = scene.job("llm-node-0")["spec"]["podFailurePolicy"]["rules"]
        assert (first["action"], first["onExitCodes"]["values"]) == ("FailJob", [42])
        assert scene.jobset()["spec"]["failurePolicy"] == {"maxRestarts": 1, "restartStrategy": "Recreate"}


@virtual_time
async def test_a_launcher_counts_as_one_of_the_nodes_and_waits_for_the_others() -> None:
    async with Scene.running() as scene:
        await started(scene, launcher_runtime(), nodes=4)
        assert scene.job("llm-node-0")["spec"]["completions"] == 3
        assert scene.jobs() == ["llm-node-0"]
        await scene.play("llm-node-0", active=3, ready=3)
        assert scene.jobs() == ["llm-node-0", "llm-launcher-0"]
        launcher = scene.job("llm-launcher-0")
        assert launcher["spec"]["completions"] == 1
        assert variables(launcher)["OMPI_MCA_orte_set_default_slots"] == "8"
        for job in ("llm-node-0", "llm-launcher-0"):
            assert container(scene.job(job))["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        await scene.complete("llm-launcher-0")
        assert met(scene.trainjob()) == ["Complete"]
        assert scene.jobs() == ["llm-launcher-0"]


@virtual_time
async def test_initializers_run_before_the_nodes() -> None:
    async with Scene.running() as scene:
        initializer = {"dataset": {"storageUri": "hf://data", "env": [{"name": "SPLIT", "value": "all"}]}}
        await started(scene, initialized_runtime(), initializer=initializer)
        assert scene.jobs() == ["llm-dataset-initializer-0", "llm-model-initializer-0"]
        dataset = scene.job("llm-dataset-initializer-0")
        assert variables(dataset) == {"STORAGE_URI": "hf://data", "SPLIT": "all"}
        assert dataset["spec"]["completions"] == 1
        await scene.complete("llm-dataset-initializer-0")
        assert len(scene.jobs()) == 2
        await scene.complete("llm-model-initializer-0")
        assert scene.job("llm-node-0")["spec"]["completions"] == 4


@virtual_time
async def test_runtime_patches_are_merged_by_name() -> None:
    async with Scene.running() as scene:
        pods = {"metadata": {"labels": {"queue": "a"}}, "spec": {"terminationGracePeriodSeconds": 7, "tolerations": []}}
        jobs = [{"name": "node", "template": {"spec": {"template": pods}}}]
        template = {"metadata": {"labels": {"team": "b"}}, "spec": {"replicatedJobs": jobs}}
        patches = [{"manager": MANAGER, "trainingRuntimeSpec": {"template": template}}]
        await started(scene, prepared_runtime(), runtimePatches=patches)
        patched = scene.job("llm-node-0")["spec"]["template"]
        assert scene.jobset()["metadata"]["labels"] == {"team": "b"}
        assert patched["metadata"]["labels"]["queue"] == "a"
        assert patched["spec"]["terminationGracePeriodSeconds"] == 7
        assert patched["spec"]["restartPolicy"] == "Never"
        assert not patched["spec"].get("tolerations")


@virtual_time
async def test_the_runtime_is_kept_as_it_was_and_goes_with_the_trainjob() -> None:
    async with Scene.running() as scene:
        await started(scene)
        later = shipped_runtime()
        later["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 1
        scene.server.delete(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
        await scene.create(later)
        await scene.delete_jobset()
        assert scene.job("llm-node-0")["spec"]["backoffLimit"] == 6
        scene.server.delete(TRAIN_JOBS, "llm", namespace=NAMESPACE)
        await scene.quiet()
        assert list(scene.server.objects(CONFIG_MAPS)) == []


@virtual_time
async def test_a_trainjob_without_its_runtime_waits_for_it() -> None:
    async with Scene.running() as scene:
        await scene.create(trainjob())
        assert list(scene.server.objects(JOB_SETS)) == []
        await scene.create(shipped_runtime())
        await scene.quiet(30)
        assert scene.jobs() == ["llm-node-0"]


@virtual_time
async def test_a_runtime_of_the_namespace_is_found_by_its_kind() -> None:
    async with Scene.running() as scene:
        runtime = {**shipped_runtime(), "kind": TRAINING_RUNTIMES.kind}
        await scene.create(runtime)
        await scene.create(trainjob(runtimeRef={"name": "torch-distributed", "kind": TRAINING_RUNTIMES.kind}))
        assert scene.jobs() == ["llm-node-0"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"trainer": {"numNodes": 5}}, "spec.trainer"),
        ({"runtimeRef": {"name": "other"}}, "spec.runtimeRef"),
        ({"runtimePatches": [{"manager": MANAGER}]}, "spec.runtimePatches"),
    ],
)
def test_what_made_the_jobset_never_changes_while_it_runs(change: Body, field: str) -> None:
    @virtual_time
    async def check() -> None:
        async with Scene.running() as scene:
            await started(scene)
            with pytest.raises(StatusError) as refused:
                await scene.patch_trainjob(change)
            assert (refused.value.code, [cause.field for cause in refused.value.causes]) == (422, [field])

    check()


@virtual_time
async def test_patches_change_a_suspended_trainjob_once_no_pod_is_active() -> None:
    async with Scene.running() as scene:
        await started(scene)
        pods = {"spec": {"nodeSelector": {"zone": "one"}}}
        jobs = [{"name": "node", "template": {"spec": {"template": pods}}}]
        patches = [{"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
        await scene.play("llm-node-0", active=4)
        await scene.patch_trainjob({"suspend": True})
        with pytest.raises(StatusError):
            await scene.patch_trainjob({"runtimePatches": patches})
        await scene.play("llm-node-0", active=0)
        await scene.patch_trainjob({"runtimePatches": patches})
        await scene.patch_trainjob({"suspend": False})
        assert scene.job("llm-node-0")["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "one"}
        assert scene.job("llm-node-0")["spec"]["suspend"] is False


@virtual_time
async def test_other_changes_of_a_running_jobset_are_left_alone() -> None:
    async with Scene.running() as scene:
        await started(scene)
        await scene.patch_jobset({"metadata": {"labels": {"mine": "yes"}}})
        assert scene.jobset()["metadata"]["labels"] == {"mine": "yes"}


@virtual_time
async def test_the_status_counts_jobs() -> None:
    async with Scene.running() as scene:
        await started(scene)
        await scene.play("llm-node-0", active=4, ready=4)
        expected = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        assert scene.trainjob()["status"] == {"jobsStatus": [expected]}


@virtual_time
async def test_complete_is_for_good_even_without_the_jobset() -> None:
    async with Scene.running() as scene:
        await started(scene)
        await scene.complete("llm-node-0")
        assert conditions(scene.trainjob()) == {"Complete": ("True", "AllJobsCompleted")}
        await scene.delete_jobset()
        assert list(scene.server.objects(JOB_SETS)) == []
        assert met(scene.trainjob()) == ["Complete"]


@virtual_time
async def test_a_failed_trainjob_is_not_written_again_and_again() -> None:
    async with Scene.running() as scene:
        await started(scene)
        await scene.fail("llm-node-0")
        written = len(scene.changes)
        scene.trainer.enqueue((NAMESPACE, "llm"))
        await scene.quiet()
        assert len(scene.changes) == written


@virtual_time
async def test_a_trainjob_that_is_being_deleted_gets_its_jobset_again_until_it_is_gone() -> None:
    async with Scene.running() as scene:
        await started(scene)
        first = scene.jobset()["metadata"]["uid"]
        scene.garbage.stall(True)
        scene.server.delete(TRAIN_JOBS, "llm", namespace=NAMESPACE, propagation=Propagation.FOREGROUND)
        scene.server.delete(JOB_SETS, "llm", namespace=NAMESPACE, propagation=Propagation.BACKGROUND)
        await scene.quiet()
        assert scene.jobset()["metadata"]["uid"] != first
        scene.garbage.stall(False)
        await scene.quiet(60)
        assert [*scene.server.objects(TRAIN_JOBS), *scene.server.objects(JOB_SETS)] == []


@virtual_time
async def test_a_trainjob_recreated_can_be_complete_by_what_the_old_one_left() -> None:
    async with Scene.running() as scene:
        await started(scene)
        await scene.complete("llm-node-0")
        scene.garbage.stall(True)
        scene.server.delete(TRAIN_JOBS, "llm", namespace=NAMESPACE)
        await scene.create(trainjob())
        assert met(scene.trainjob()) == ["Complete"]
        scene.garbage.stall(False)
        await scene.quiet(5)
        assert [*scene.server.objects(JOB_SETS)] == [], "and it never trains"


@virtual_time
async def test_a_trainjob_recreated_waits_until_what_the_old_one_left_is_gone() -> None:
    async with Scene.running() as scene:
        await started(scene)
        old = scene.jobset()["metadata"]["uid"]
        scene.garbage.stall(True)
        scene.server.delete(TRAIN_JOBS, "llm", namespace=NAMESPACE)
        await scene.create(trainjob())
        assert scene.jobset()["metadata"]["uid"] == old
        scene.garbage.stall(False)
        await scene.quiet(5)
        (owner,) = scene.jobset()["metadata"]["ownerReferences"]
        assert owner["uid"] == scene.trainjob()["metadata"]["uid"]


@virtual_time
async def test_a_deadline_fails_the_trainjob_for_good_and_takes_the_jobset() -> None:
    async with Scene.running() as scene:
        await started(scene, activeDeadlineSeconds=60)
        await scene.quiet(50)
        assert met(scene.trainjob()) == []
        await scene.quiet(15)
        assert conditions(scene.trainjob()) == {"Failed": ("True", "DeadlineExceeded")}
        assert list(scene.server.objects(JOB_SETS)) == []
        made = [change for change in scene.changes if change.resource == JOB_SETS and change.type == "ADDED"]
        assert len(made) == 1


@virtual_time
async def test_a_deadline_counts_again_from_a_resume() -> None:
    async with Scene.running() as scene:
        await started(scene, activeDeadlineSeconds=60)
        await scene.quiet(40)
        await scene.patch_trainjob({"suspend": True})
        await scene.quiet(100)
        await scene.patch_trainjob({"suspend": False})
        await scene.quiet(50)
        assert "Failed" not in conditions(scene.trainjob())
        await scene.quiet(15)
        assert conditions(scene.trainjob())["Failed"] == ("True", "DeadlineExceeded")


@virtual_time
async def test_a_name_that_dns_does_not_know_is_refused() -> None:
    async with Scene.running() as scene:
        await scene.create(shipped_runtime())
        for name in ("1st", "a" * 64):
            with pytest.raises(StatusError) as refused:
                await scene.create(trainjob(name=name))
            assert refused.value.code == 422
