"""A JobSet without a controller owner is a workload."""

import asyncio
import json

import pytest

from recovery.ports import (
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
)
from tests.unit.kube.store_world import (
    ALL,
    JOB_UID,
    LLM,
    World,
    bare,
    job,
    listed,
    load,
    names,
    pod,
    replicated,
)
from tests.unit.kube.testing import fixture


@pytest.fixture
async def world(world: World) -> World:
    await world.tell(TRAIN_JOBS, load("trainjob"), type_="DELETED")
    await world.tell(JOB_SETS, load("jobset"), type_="DELETED")
    await world.tell(JOB_SETS, bare())
    return world


async def test_it_is_a_group_like_a_train_jobs(world: World) -> None:
    await world.tell(PODS, pod(0), pod(1))
    snapshot = world.llm
    assert list(world.store.keys()) == [LLM]
    assert snapshot.workload is not None
    assert (snapshot.workload.kind, snapshot.workload.uid) == ("JobSet", "bare")
    assert snapshot.workload.labels == {"team": "b"}
    assert snapshot.jobset is not None
    assert [each.name for each in snapshot.jobs] == ["llm-node-0"]
    assert names(snapshot) == ["llm-node-0-0", "llm-node-0-1"]
    assert list(snapshot.trained_at) == [JOB_UID]
    assert await world.tell(RECOVERY_POLICIES, load("recoverypolicy")) == {"default/llm": 1}
    await world.tell(JOB_SETS, bare(), type_="DELETED")
    assert world.llm.workload is None
    assert list(world.store.keys()) == []


async def test_but_a_train_job_of_that_name_goes_before_it(world: World) -> None:
    await world.tell(TRAIN_JOBS, load("trainjob"))
    snapshot = world.llm
    assert list(world.store.keys()) == [LLM]
    assert snapshot.workload is not None
    assert snapshot.workload.kind == "TrainJob"
    assert (snapshot.jobset, snapshot.jobs, snapshot.pods) == (None, (), ())


async def test_what_another_controller_owns_is_no_ones(world: World) -> None:
    owned = load("jobset")
    owned["metadata"]["ownerReferences"][0] |= {"kind": "Experiment", "uid": "somebody else"}
    await world.tell(JOB_SETS, owned)
    assert world.llm.workload is None
    assert list(world.store.keys()) == []


async def test_its_preparation_is_no_member_and_everything_else_is(world: World) -> None:
    body = bare()
    body["spec"]["replicatedJobs"] = replicated("load", "node", replicas=2, after="load")
    await world.tell(JOB_SETS, body)
    complete = job(name="llm-node-1", uid="second")
    complete["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    await world.tell(JOBS, complete, job(name="llm-load-0", uid="load", replicated_job="load"))
    await world.tell(PODS, pod(0, name="loading", job_uid="load", replicatedjob_name="load"), pod(0))
    assert [each.name for each in world.llm.jobs] == ["llm-node-0", "llm-node-1"], "complete, and so finishing"
    assert names(world.llm) == ["llm-node-0-0"]
    assert world.llm.expected_jobs == 2


async def test_without_trainer_train_jobs_are_not_asked_for() -> None:
    world = World(train_jobs=False)
    running = asyncio.create_task(world.store.run())
    await world.tell(JOB_SETS, bare())
    await world.end_lists(*(resource for resource in ALL if resource is not TRAIN_JOBS))
    assert world.store.synced()
    assert list(world.store.keys()) == [LLM]
    assert TRAIN_JOBS.plural not in world.api.selectors
    world.api.objects |= {
        ("jobsets", "llm"): json.dumps(bare()).encode(),
        ("jobs", ""): listed("Job", job()),
        ("pods", ""): listed("Pod", pod(0)),
        ("nodes", "gpu-0001"): fixture("node"),
    }
    live = await world.store.read_live(LLM)
    assert live.workload is not None
    assert (live.workload.kind, names(live)) == ("JobSet", ["llm-node-0-0"])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
