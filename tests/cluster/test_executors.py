"""Each action on the objects of a real cluster: its effect, what it leaves alone, and that it is idempotent.

No controller runs here. The test requests the actions, as a plan would.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest
import pytest_asyncio
import yaml

from recovery import api_verbs
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, DeleteJobSet, FailJobSet, JobRef, ResumeWorkload, SuspendWorkload
from recovery.executors import group_recreate, job_failure, suspension
from recovery.ports import (
    JOB_SETS,
    JOBS,
    TRAIN_JOBS,
    ConflictError,
    NotFoundError,
    ReadAgainError,
    Resource,
    TestFailedError,
)
from recovery.workloads import resource_of
from tests.cluster.acts import edit, until_condition, until_rounds
from tests.cluster.conftest import StartsTraining
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Fleet, Job, Object, apply

pytestmark = pytest.mark.central

RANKS = 2
BY, AT = "recovery.trainjob.dev/suspended-by", "recovery.trainjob.dev/resume-at"
UNTIL = datetime(2026, 11, 21, 12, 0, 20, tzinfo=UTC)
RESTARTS = {"maxRestarts": 3}


def bare_jobset(name: str, failure_policy: Object | None) -> Object:
    """A JobSet as a user without Trainer writes it."""
    rank = {
        "name": "node",
        "image": "pytorch",
        "env": [{"name": "PET_NNODES", "value": str(RANKS)}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [rank]}
    job = {"parallelism": RANKS, "completions": RANKS, "completionMode": "Indexed", "backoffLimit": 0}
    spec: Object = {"replicatedJobs": [{"name": "node", "template": {"spec": {**job, "template": {"spec": pod}}}}]}
    if failure_policy is not None:
        spec["failurePolicy"] = failure_policy
    return {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


class Cluster:
    """Starts trainings of either kind, with a failurePolicy or without."""

    def __init__(self, control_plane: ControlPlane, fleet: Fleet, namespace: str, training: StartsTraining) -> None:
        self._control_plane = control_plane
        self._fleet = fleet
        self._namespace = namespace
        self._training = training
        self._runtime = f"deeds-{namespace.rpartition('-')[2]}"
        self.bare: list[Job] = []
        self.runtimes: list[str] = []

    async def trains(self, resource: Resource, failure_policy: Object | None = None) -> Job:
        if resource == JOB_SETS:
            job = Job(self._control_plane, self._fleet, self._namespace, "bare", RANKS)
            self.bare.append(job)
            await apply(self._control_plane, self._namespace, bare_jobset(job.name, failure_policy))
            await job.trains()
            return job
        body = yaml.safe_load((REPOSITORY / "policies" / "runtime-prepared.yaml").read_text())
        body["metadata"]["name"] = self._runtime
        jobset = body["spec"]["template"]["spec"]
        jobset["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
        if failure_policy is not None:
            jobset["failurePolicy"] = failure_policy
        await apply(self._control_plane, None, body)
        self.runtimes.append(self._runtime)
        return await self._training(runtime=self._runtime, ranks=RANKS, gpus=1, with_policy=False)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(
    installed: ControlPlane, fleet: Fleet, namespace: str, training: StartsTraining
) -> AsyncIterator[Cluster]:
    started = Cluster(installed, fleet, namespace, training)
    yield started
    for job in started.bare:
        await job.remove()
    for name in started.runtimes:
        await installed.kubectl("delete", "clustertrainingruntime", name, "--wait=false")


async def read(job: Job, resource: Resource, name: str | None = None) -> Object:
    found: Object = json.loads(await api_verbs.get(job.fleet.api, resource, name or job.name, namespace=job.namespace))
    return found


async def workload_of(job: Job, resource: Resource) -> WorkloadFacts:
    found = (await read(job, resource))["metadata"]
    at = datetime.fromisoformat(found["creationTimestamp"])
    return WorkloadFacts(resource.kind, found["name"], found["uid"], found["resourceVersion"], found["generation"], at)


async def patiently(operation: Callable[[], Awaitable[None]]) -> None:
    """Retries on a conflict, as a reconcile does: an object that changed between read and write is read again."""
    for _ in range(10):
        with suppress(ConflictError):
            return await operation()
    raise AssertionError("the object changed under every try")


async def suspend(job: Job, workload: WorkloadFacts, action: SuspendWorkload) -> None:
    await patiently(lambda: suspension.suspend(job.fleet.api, job.namespace, workload, action))


async def resume(job: Job, workload: WorkloadFacts, action: ResumeWorkload) -> None:
    await suspension.resume(job.fleet.api, job.namespace, workload, action)


async def fail(job: Job, action: FailJobSet) -> None:
    await patiently(lambda: job_failure.fail_jobset(job.fleet.api, job.namespace, action, datetime.now(UTC)))


async def delete(job: Job, jobset: Object) -> None:
    """Delete the JobSet in the version that was read."""
    meta = jobset["metadata"]
    action = DeleteJobSet(1, meta["name"], meta["uid"], meta["resourceVersion"])
    await group_recreate.delete_jobset(job.fleet.api, job.namespace, action)


async def until_pods(job: Job, count: int) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while len(await job.pods()) != count:
            await asyncio.sleep(0.05)


async def standing(job: Job, resource: Resource) -> tuple[bool, Object]:
    """Whether the workload is suspended, and which of our annotations it has."""
    found = await read(job, resource)
    annotations = found["metadata"].get("annotations", {})
    return bool(found["spec"].get("suspend")), {name: annotations[name] for name in (BY, AT) if name in annotations}


@pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS], ids=lambda resource: resource.kind)
async def test_a_suspension_of_ours_frees_the_group_and_ends_by_its_name_alone(
    cluster: Cluster, resource: Resource
) -> None:
    job = await cluster.trains(resource)
    workload = await workload_of(job, resource)
    assert resource_of(workload) == resource
    first = SuspendWorkload(1, "inc-1", workload.uid, UNTIL)
    await suspend(job, workload, first)
    await until_pods(job, 0)
    assert await standing(job, resource) == (True, {BY: "inc-1", AT: "2026-11-21T12:00:20Z"})
    generation = (await read(job, resource))["metadata"]["generation"]

    await suspend(job, workload, first)
    with pytest.raises(TestFailedError):
        await resume(job, workload, ResumeWorkload(workload.uid, "inc-0", suspended=True))
    assert (await read(job, resource))["metadata"]["generation"] == generation

    ours = ResumeWorkload(workload.uid, "inc-1", suspended=True)
    await resume(job, workload, ours)
    assert await standing(job, resource) == (False, {})
    await until_rounds(job, 2)
    with pytest.raises(TestFailedError):
        await resume(job, workload, ours)

    # Again, on an object with annotations, without a resume time, and with one of our annotations removed.
    second = SuspendWorkload(2, "inc-2", workload.uid, None)
    await suspend(job, workload, second)
    await until_pods(job, 0)
    assert await standing(job, resource) == (True, {BY: "inc-2", AT: "never"})
    await edit(job, {"metadata": {"annotations": {AT: None}}}, resource=resource)
    await resume(job, workload, ResumeWorkload(workload.uid, "inc-2", suspended=True))
    assert await standing(job, resource) == (False, {})
    await until_rounds(job, 3)


@pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS], ids=lambda resource: resource.kind)
async def test_after_trigger_and_suspension_the_new_job_begins_suspended(cluster: Cluster, resource: Resource) -> None:
    job = await cluster.trains(resource)
    workload, old = await workload_of(job, resource), await read(job, JOBS, job.child)

    async def trigger() -> None:
        meta = (await read(job, JOBS, job.child))["metadata"]
        action = DeleteJob(1, meta["name"], old["metadata"]["uid"], meta["resourceVersion"])
        await group_recreate.delete_job(job.fleet.api, job.namespace, action)

    await patiently(trigger)
    await suspend(job, workload, SuspendWorkload(1, "inc-1", workload.uid, UNTIL))
    new = old
    async with asyncio.timeout(GUARD_SECONDS):
        while new["metadata"]["uid"] == old["metadata"]["uid"]:
            await asyncio.sleep(0.05)
            with suppress(NotFoundError):
                new = await read(job, JOBS, job.child)
    assert (new["spec"]["suspend"], new["metadata"]["generation"]) == (True, 1), "it has never been otherwise"
    assert await job.pods() == []
    await resume(job, workload, ResumeWorkload(workload.uid, "inc-1", suspended=True))
    await until_rounds(job, 2)


@pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS], ids=lambda resource: resource.kind)
async def test_a_user_who_suspends_or_resumes_in_between_wins(cluster: Cluster, resource: Resource) -> None:
    job = await cluster.trains(resource)
    workload = await workload_of(job, resource)
    ours = SuspendWorkload(1, "inc-1", workload.uid, UNTIL)

    await edit(job, {"spec": {"suspend": True}}, resource=resource)
    with pytest.raises(ReadAgainError, match="suspended by others"):
        await suspend(job, workload, ours)
    with pytest.raises(TestFailedError):
        await resume(job, workload, ResumeWorkload(workload.uid, "inc-1", suspended=True))
    assert await standing(job, resource) == (True, {})
    await edit(job, {"spec": {"suspend": False}}, resource=resource)

    await suspend(job, workload, ours)
    await edit(job, {"spec": {"suspend": False}}, resource=resource)
    with pytest.raises(ReadAgainError, match="resumed in between"):
        await suspend(job, workload, ours)
    await resume(job, workload, ResumeWorkload(workload.uid, "inc-1", suspended=False))
    assert await standing(job, resource) == (False, {})

    await suspend(job, workload, ours)
    await edit(job, {"metadata": {"annotations": {BY: None}}}, resource=resource)
    with pytest.raises(TestFailedError):
        await resume(job, workload, ResumeWorkload(workload.uid, "inc-1", suspended=True))
    assert (await standing(job, resource))[0], "whoever takes the annotation takes the suspension over"
    await edit(job, {"spec": {"suspend": False}}, resource=resource)
    await until_rounds(job, 2)

    another = msgspec.structs.replace(ours, workload_uid="0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11")
    with pytest.raises(ReadAgainError, match="is another one by now"):
        await suspend(job, workload, another)
    assert await standing(job, resource) == (False, {AT: "2026-11-21T12:00:20Z"})


@pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS], ids=lambda resource: resource.kind)
async def test_a_jobset_without_a_failure_policy_fails_by_the_deadline_of_its_job(
    cluster: Cluster, resource: Resource
) -> None:
    job = await cluster.trains(resource)
    jobset, victim = await read(job, JOB_SETS), await read(job, JOBS, job.child)
    child = JobRef(job.child, victim["metadata"]["uid"])
    action = FailJobSet(1, job.name, jobset["metadata"]["uid"], Reason.BUDGET_EXHAUSTED, "enough", child)
    stale = msgspec.structs.replace(action, job=JobRef(job.child, "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"))
    with pytest.raises(TestFailedError):
        await fail(job, stale)
    for _ in range(2):
        await fail(job, action)
    await until_condition(job, resource, "Failed")
    assert (await read(job, JOB_SETS))["status"]["terminalState"] == "Failed"
    failed = next(
        each for each in (await read(job, JOBS, job.child))["status"]["conditions"] if each["type"] == "Failed"
    )
    assert failed["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize("failure_policy", [None, RESTARTS], ids=["without failurePolicy", "with failurePolicy"])
@pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS], ids=lambda resource: resource.kind)
async def test_a_jobset_fails_by_its_own_status_whatever_its_failure_policy_says(
    cluster: Cluster, resource: Resource, failure_policy: Object | None
) -> None:
    job = await cluster.trains(resource, failure_policy)
    jobset = await read(job, JOB_SETS)
    action = FailJobSet(
        1, job.name, jobset["metadata"]["uid"], Reason.BUDGET_EXHAUSTED, "10 recoveries within 24h were not enough"
    )
    stale = msgspec.structs.replace(action, uid="0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11")
    with pytest.raises(ReadAgainError):
        await fail(job, stale)
    for _ in range(2):
        await fail(job, action)
    await until_condition(job, resource, "Failed")
    await until_pods(job, 0)
    status = (await read(job, JOB_SETS))["status"]
    assert (status["terminalState"], status["restarts"]) == ("Failed", 0)
    for each in (await read(job, resource), await read(job, JOB_SETS)):
        failed = next(found for found in each["status"]["conditions"] if found["type"] == "Failed")
        assert (failed["reason"], failed["message"]) == ("RecoveryBudgetExhausted", action.message)


async def test_a_failed_jobset_that_is_deleted_is_recreated_by_trainer_and_trains(cluster: Cluster) -> None:
    job = await cluster.trains(TRAIN_JOBS)
    before = await read(job, JOB_SETS)
    await fail(job, FailJobSet(1, job.name, before["metadata"]["uid"], Reason.BUDGET_EXHAUSTED, "lost"))
    await until_condition(job, TRAIN_JOBS, "Failed")
    with pytest.raises(ConflictError):
        await delete(job, before)
    await until_pods(job, 0)
    failed = await read(job, JOB_SETS)

    async def delete_as_it_is() -> None:
        await delete(job, await read(job, JOB_SETS))

    await patiently(delete_as_it_is)
    await until_rounds(job, 2)
    after = await read(job, JOB_SETS)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    conditions = (await read(job, TRAIN_JOBS))["status"].get("conditions", [])
    assert [each for each in conditions if each["type"] == "Failed" and each["status"] == "True"] == []
    with pytest.raises(ConflictError):
        await delete(job, failed)
    assert (await read(job, JOB_SETS))["metadata"]["uid"] == after["metadata"]["uid"], "twice is once"
