"""Groups of several Jobs, groups beside a finished initializer, and JobSets without a TrainJob.

The training model treats each Job as a separate training, so ranks of different Jobs do not wait for each other in it.
So these tests check the Jobs and pods on the API server, and the proxy's record of what the controller did.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from aiohttp import web

from recovery import api_verbs
from recovery.ports import JOB_SETS, JOBS, PODS, TRAIN_JOBS, PatchKind
from tests.cluster.acts import INDEX, incidents_of, second_is_over, until_condition
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import MakesRuntime, StartsController, StartsTraining
from tests.cluster.controller_record import ask, has_reconciled, recovery, workload_writes
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, apply, policy
from tests.cluster.stations import PASSING, has_triggered, takes_down

pytestmark = pytest.mark.usefixtures("no_complaints")

OF_JOB = "batch.kubernetes.io/job-name"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
SUSPENDED_BY, RESUME_AT = "recovery.trainjob.dev/suspended-by", "recovery.trainjob.dev/resume-at"
Uids = Mapping[str, str]
"""UIDs of Jobs by their names."""


# --- what is run -----------------------------------------------------------------------------------------------------


def replicated_job(name: str, *, step: str = "", after: Object | None = None) -> Object:
    """A ReplicatedJob of a training runtime, in the shape of Trainer's own. `after`: what it depends on."""
    container: Object = {"name": name if step.endswith("initializer") else "node", "image": "example.com/training"}
    return {
        "name": name,
        **({"dependsOn": [after]} if after else {}),
        "template": {
            "metadata": {"labels": {STEP: step} if step else {}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }


WITH_INITIALIZER: Object = {
    "mlPolicy": {"numNodes": 1, "torch": {}},
    "template": {
        "spec": {
            "replicatedJobs": [
                replicated_job("dataset-initializer", step="dataset-initializer"),
                replicated_job("node", step="trainer", after={"name": "dataset-initializer", "status": "Complete"}),
            ]
        }
    },
}
"""Like torchtune-llama3.2-1b: the training starts when its data are there."""

MPI: Object = {
    "mlPolicy": {"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI", "runLauncherAsNode": True}},
    "template": {
        "spec": {
            "network": {"publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
            "replicatedJobs": [
                replicated_job("node"),
                replicated_job("launcher", step="trainer", after={"name": "node", "status": "Ready"}),
            ],
        }
    },
}
"""Like deepspeed-distributed, but without the probe of sshd, which would delay the launcher by 10 s each time."""


class StartsJobSet(Protocol):
    """The type of the fixture `jobset`: `job = await jobset(replicas=2)`, under a policy in mode Enforce.

    Each of its Jobs has two ranks of one GPU. `gated`: none of its pods gets a node before `let_start`. `spec`: fields
    of the RecoveryPolicy.
    """

    async def __call__(self, *, replicas: int = 2, gated: bool = False, **spec: Any) -> Job: ...


@pytest_asyncio.fixture(loop_scope="session")
async def jobset(installed: ControlPlane, fleet: Fleet, namespace: str) -> AsyncIterator[StartsJobSet]:
    """Applies a JobSet as a user without Trainer writes it."""
    jobs: list[Job] = []

    async def start(*, replicas: int = 2, gated: bool = False, **spec: Any) -> Job:
        job = Job(installed, fleet, namespace, "llm", 2 * replicas)
        jobs.append(job)
        rules = policy(**{"teardown": {"graceSeconds": 1}, **spec})
        await apply(installed, namespace, rules, job_set(job.name, replicas=replicas, gated=gated))
        return job

    yield start
    for job in jobs:
        await job.remove()


def job_set(name: str, *, replicas: int, gated: bool) -> Object:
    container = {
        "name": "train",
        "image": "example.com/training",
        "env": [{"name": "PET_NNODES", "value": "2"}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pods: Object = {"restartPolicy": "OnFailure", "containers": [container]}
    if gated:
        pods["schedulingGates"] = [{"name": "tests.recovery.trainjob.dev/gate"}]
    jobs = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": pods}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": replicas, "template": jobs}]},
    }


# --- what is asked of it ---------------------------------------------------------------------------------------------


async def jobs_of(job: Job) -> dict[str, Object]:
    """All Jobs, by name."""
    return {item["metadata"]["name"]: item for item in await job.items(JOBS)}


async def until_whole(job: Job, *, besides: Collection[str] = ()) -> Uids:
    """Wait until each rank has a Ready pod, in Jobs that are not in `besides`; returns these Jobs."""
    owners: list[str] = []
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            jobs = {item["metadata"]["uid"]: name for name, item in (await jobs_of(job)).items()}
            owners = [pod["metadata"]["labels"]["controller-uid"] for pod in await job.pods() if is_ready(pod)]
            if len(owners) == job.ranks and set(owners) <= jobs.keys() and set(owners).isdisjoint(besides):
                # No date shows that ranks had met that lose one in the second in which they started.
                await second_is_over()
                return {jobs[uid]: uid for uid in owners}
            await asyncio.sleep(0.05)


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


async def pods_of(job: Job, child: str) -> list[str]:
    """Names of the pods of that Job that are not being deleted, in the order of their index."""
    pods = [pod["metadata"] for pod in await job.pods() if pod["metadata"]["labels"][OF_JOB] == child]
    pods = [pod for pod in pods if "deletionTimestamp" not in pod]
    return [pod["name"] for pod in sorted(pods, key=lambda pod: int(pod["annotations"][INDEX]))]


async def lose_pod(job: Job, child: str, index: int) -> str:
    """Delete the pod of that Job, as `kubectl delete pod` does; returns its name."""
    pod = (await pods_of(job, child))[index]
    await api_verbs.delete(job.fleet.api, PODS, pod, namespace=job.namespace)
    return pod


def triggers(proxy: ApiProxy) -> list[tuple[str, str]]:
    """Names and UIDs of the Jobs that the server deleted for a controller, in that order."""
    taken = proxy.writes(has_triggered)
    return [(seen.path.rpartition("/")[2], json.loads(seen.body)["preconditions"]["uid"]) for seen in taken]


def taken_down(proxy: ApiProxy) -> list[str]:
    """Names of the Jobs that a controller has claimed or deleted, in the order of these writes."""
    return [seen.path.rpartition("/")[2] for seen in proxy.writes(takes_down) if seen.status == 200]


async def assert_one_recovery(job: Job) -> Object:
    """There is one incident, Recovered, with one epoch and one charge; returns its RecoveryIncident's spec."""
    [closed] = await job.closed_incidents(1)
    assert (closed["outcome"], closed["outcomeReason"]) == ("Recovered", "AllRanksReady"), closed
    ledger = await job.ledger()
    totals = ledger["totals"]
    counted = (ledger["epoch"], totals["incidents"], totals["restarts"], totals["charged"])
    assert counted == (1, 1, 1, 1)
    assert len(ledger["budget"]["charges"]) == 1
    [incident] = await incidents_of(job)
    return incident


# --- groups of several Jobs ------------------------------------------------------------------------------------------


@pytest.mark.central
async def test_an_initializer_that_is_finished_is_not_run_again(
    runtime: MakesRuntime, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=await runtime(WITH_INITIALIZER), ranks=2, gpus=1)
    initializer = "llm-dataset-initializer-0"
    before = await jobs_of(job)
    [prepared] = [pod for pod in await job.pods() if pod["metadata"]["labels"][OF_JOB] == initializer]
    async with controller():
        await lose_pod(job, job.child, 1)
        await assert_one_recovery(job)
        await job.trains(past=job.fleet.world.step_of(job.training))
    after = await jobs_of(job)
    assert after[job.child]["metadata"]["uid"] != before[job.child]["metadata"]["uid"]
    assert after[initializer]["metadata"]["uid"] == before[initializer]["metadata"]["uid"]
    assert after[initializer]["status"] == before[initializer]["status"]
    [still] = [pod for pod in await job.pods() if pod["metadata"]["labels"][OF_JOB] == initializer]
    assert still == prepared, "the pod that prepared the data is as it was"
    assert triggers(proxy) == [(job.child, before[job.child]["metadata"]["uid"])]


@pytest.mark.central
@pytest.mark.parametrize("struck", ["node", "launcher"])
async def test_nodes_and_their_launcher_restart_together_whichever_lost_a_member(
    struck: str, runtime: MakesRuntime, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=await runtime(MPI), ranks=3, gpus=1)
    before = await until_whole(job)
    assert before.keys() == {"llm-node-0", "llm-launcher-0"}
    async with controller():
        await lose_pod(job, f"llm-{struck}-0", 0)
        incident = await assert_one_recovery(job)
        after = await until_whole(job, besides=before.values())
    first, second = (f"llm-{struck}-0", f"llm-{'launcher' if struck == 'node' else 'node'}-0")
    assert triggers(proxy) == [(first, before[first]), (second, before[second])]
    assert after.keys() == before.keys()
    assert incident["gpus"] == 3
    assert "so that all 3 ranks restart together" in incident["message"]


@pytest.mark.central
async def test_a_launcher_that_succeeds_takes_its_nodes_with_it_and_nothing_has_failed(
    runtime: MakesRuntime, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """JobSet deletes the nodes' Job, whose pods would otherwise run forever. For the nodes it looks like any loss."""
    job = await training(runtime=await runtime(MPI), ranks=3, gpus=1)
    await until_whole(job)
    async with controller() as process:
        [launcher] = await pods_of(job, "llm-launcher-0")
        job.fleet.kubelets.exit_container(launcher, 0, namespace=job.namespace)
        await until_condition(job, TRAIN_JOBS, "Complete")
        async with asyncio.timeout(GUARD_SECONDS):
            while "llm-node-0" in await jobs_of(job):
                await asyncio.sleep(0.1)
        await has_reconciled(process, job)
        assert await job.groups() == []
    assert workload_writes(proxy) == []


@pytest.mark.central
async def test_a_job_that_completes_while_its_trigger_is_under_way_is_not_deleted(
    jobset: StartsJobSet, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await jobset()
    before = await until_whole(job)
    async with controller():
        hold = proxy.hold(lambda seen: takes_down(seen) and seen.path.endswith("/llm-node-1"))
        await lose_pod(job, "llm-node-0", 1)
        await hold.wait()
        for pod in await pods_of(job, "llm-node-1"):
            job.fleet.kubelets.exit_container(pod, 0, namespace=job.namespace)
        await until_complete(job, "llm-node-1")
        hold.release()
        [closed] = await job.closed_incidents(1)
    assert (closed["outcome"], closed["outcomeReason"]) == ("Superseded", "JobFinishing"), closed
    assert taken_down(proxy) == ["llm-node-0"]
    assert proxy.writes(takes_down)[-1].status == 409, "that of the other Job, which has changed"
    assert {seen.status for seen in proxy.writes(takes_down)} == {200, 409}
    assert triggers(proxy) == []
    finished = (await jobs_of(job))["llm-node-1"]["metadata"]
    assert finished["uid"] == before["llm-node-1"]
    assert "deletionTimestamp" not in finished


async def until_complete(job: Job, child: str) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while not any(
            (each["type"], each["status"]) == ("Complete", "True")
            for each in (await jobs_of(job))[child]["status"].get("conditions", [])
        ):
            await asyncio.sleep(0.05)


@pytest.mark.central
async def test_a_crash_before_all_jobs_have_run_is_no_failure(
    jobset: StartsJobSet, controller: StartsController, proxy: ApiProxy
) -> None:
    """One of two Jobs runs completely, and the other does not run yet. A crash then leaves no rank that hangs."""
    job = await jobset(gated=True)
    async with controller() as process:
        await let_start(job, "llm-node-0")
        crashed = (await until_ready(job, 2))[0]
        job.fleet.kubelets.exit_container(crashed, 1, namespace=job.namespace)
        await until_restarted(job, crashed)
        await has_reconciled(process, job, kind=JOB_SETS)
        assert await job.groups() == []
        uids = {name: item["metadata"]["uid"] for name, item in (await jobs_of(job)).items()}
        await let_start(job, "llm-node-1")
        assert await until_whole(job) == uids
        await has_reconciled(process, job, kind=JOB_SETS)
        assert await job.groups() == []
    assert workload_writes(proxy) == []


async def let_start(job: Job, child: str) -> None:
    """Remove the scheduling gates from the pods of that Job."""
    async with asyncio.timeout(GUARD_SECONDS):
        while len(gated := await pods_of(job, child)) < 2:
            await asyncio.sleep(0.05)
    for pod in gated:
        open_ = {"spec": {"schedulingGates": None}}
        await api_verbs.patch(job.fleet.api, PODS, pod, open_, kind=PatchKind.MERGE, namespace=job.namespace)


async def until_ready(job: Job, count: int) -> list[str]:
    """Wait until `count` pods are Ready; returns their names."""
    async with asyncio.timeout(GUARD_SECONDS):
        while len(ready := [pod for pod in await job.pods() if is_ready(pod)]) != count:
            await asyncio.sleep(0.05)
    return [pod["metadata"]["name"] for pod in ready]


async def until_restarted(job: Job, name: str) -> None:
    """Wait until the container of that pod has been restarted in place and is Ready again."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            pod = next((pod for pod in await job.pods() if pod["metadata"]["name"] == name), None)
            assert pod is not None, "the group was restarted"
            if pod["status"]["containerStatuses"][0]["restartCount"] == 1 and is_ready(pod):
                return
            await asyncio.sleep(0.05)


@pytest.mark.central
async def test_a_controller_killed_between_two_jobs_leaves_the_other_to_the_next_one(
    jobset: StartsJobSet, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await jobset()
    before = await until_whole(job)
    async with controller() as first:
        hold = proxy.hold(lambda seen: takes_down(seen) and seen.path.endswith("/llm-node-1"))
        await lose_pod(job, "llm-node-0", 0)
        await hold.wait()
        await first.kill()
    assert taken_down(proxy) == ["llm-node-0"]
    assert triggers(proxy) == []
    assert set((await job.ledger())["incident"]["target"]["jobUIDs"]) == set(before.values())
    async with controller():
        await assert_one_recovery(job)
        after = await until_whole(job, besides=before.values())
    assert triggers(proxy) == [(name, before[name]) for name in ("llm-node-0", "llm-node-1")], "each Job once"
    assert after.keys() == before.keys()


# --- JobSets that no one owns ----------------------------------------------------------------------------------------


async def test_a_jobset_without_a_train_job_is_recovered_suspended_and_resumed_itself(
    installed: ControlPlane, jobset: StartsJobSet, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await jobset(replicas=1, **PASSING)
    before = await until_whole(job)
    async with controller():
        await lose_pod(job, job.child, 1)
        await assert_one_recovery(job)
        between = await until_whole(job, besides=before.values())
        assert writes_to_jobsets(proxy) == []

        await second_is_over()
        await lose_pod(job, job.child, 1)
        await job.reaches("Backoff")
        found, ledger = await job.get("jobset", job.name), await job.ledger()
        assert found["spec"]["suspend"] is True
        assert found["metadata"]["annotations"][SUSPENDED_BY] == ledger["incident"]["id"]
        assert await status_of(installed, job) == ["llm", "JobSet", "Backoff", ledger["incident"]["id"]]
        newest, _ = await job.closed_incidents(2)
        assert newest["outcome"] == "Recovered"
        after = await until_whole(job, besides=(*before.values(), *between.values()))
    found = await job.get("jobset", job.name)
    assert not found["spec"].get("suspend")
    assert {SUSPENDED_BY, RESUME_AT}.isdisjoint(found["metadata"].get("annotations", {}))
    assert writes_to_jobsets(proxy) == ["suspend: True", "suspend: False"]
    assert triggers(proxy) == [(job.child, before[job.child]), (job.child, between[job.child])]
    assert after.keys() == before.keys()

    [group] = await job.groups()
    uid = found["metadata"]["uid"]
    assert group["spec"]["workloadRef"] == {"kind": "JobSet", "name": job.name, "uid": uid}
    [owner] = group["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["uid"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet", uid)
    await job.remove()
    async with asyncio.timeout(GUARD_SECONDS):
        while await job.groups():
            await asyncio.sleep(0.1)


def writes_to_jobsets(proxy: ApiProxy) -> list[str]:
    """The values of `spec.suspend` that the controllers wrote to JobSets, to which they write nothing else.

    If the JobSet controller has just changed the JobSet, a patch is refused with 409, and sent again.
    """
    taken = proxy.writes(lambda seen: seen.resource.startswith("jobsets") and seen.status != 409)
    bodies = [json.loads(seen.body) for seen in taken]
    values = [step["value"] for body in bodies for step in body if step["path"] == "/spec/suspend"]
    assert len(values) == len(bodies)
    return [f"suspend: {value}" for value in values]


async def status_of(control_plane: ControlPlane, job: Job) -> list[str]:
    """Name, kind, phase and suspending incident of the one job that `recovery status` lists."""
    where = ("-n", job.namespace, "--kubeconfig", str(control_plane.kubeconfig))
    told = await recovery("status", "-o", "json", *where)
    assert (told.exit_code, told.err) == (0, ""), told
    [row] = json.loads(told.out)
    return [row["job"], row["kind"], row["phase"], row["suspendedBy"]]


class ClusterWithoutTrainer(ApiProxy):
    """A cluster without Kubeflow Trainer. Its answer for a path that it does not serve is plain text."""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/apis/trainer.kubeflow.org"):
            return web.Response(status=404, text="404 page not found\n")
        return await super()._handle(request)


@pytest.mark.central
async def test_jobsets_are_recovered_without_trainer(
    installed: ControlPlane, proxy: ApiProxy, jobset: StartsJobSet, tmp_path: Path
) -> None:
    job = await jobset(replicas=1)
    before = await until_whole(job)
    async with ClusterWithoutTrainer.running(installed) as without:
        kubeconfig = without.write_kubeconfig(tmp_path / "kubeconfig")
        async with ControllerProcess.running(kubeconfig, tmp_path / "controller-1.log") as process:
            assert await ask(process, "/readyz") == (200, "ok\n")
            said = [line["msg"] for line in process.lines() if "Trainer" in line["msg"]]
            await lose_pod(job, job.child, 0)
            await assert_one_recovery(job)
            assert await until_whole(job, besides=before.values())
    assert said == [
        "Trainer is not installed: JobSets are watched, TrainJobs are not; restart the controller after installing it"
    ]
