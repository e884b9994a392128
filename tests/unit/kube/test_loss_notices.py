"""Which changes the store reports as a possible loss: those are reconciled before all others."""

import pytest

from recovery.ports import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS
from tests.unit.kube.store_world import Body, World, job, load, pod

LLM = "default/llm"


def with_status(body: Body, **status: object) -> Body:
    body["status"] = {**body["status"], **status}
    return body


def unready(index: int) -> Body:
    body = pod(index)
    for condition in body["status"]["conditions"]:
        if condition["type"] in ("Ready", "ContainersReady"):
            condition["status"] = "False"
    return body


@pytest.mark.parametrize(
    "lost",
    [
        pod(0, state="pod_restarted", name="llm-node-0-0"),
        pod(0, state="pod_deleting", name="llm-node-0-0"),
        pod(0, state="pod_failed_disrupted", name="llm-node-0-0"),
        with_status(pod(0), phase="Failed"),
    ],
    ids=["a container restarted", "it is being deleted", "it was evicted", "it failed"],
)
async def test_a_pod_that_ends_is_a_possible_loss(world: World, lost: Body) -> None:
    await world.tell(PODS, pod(0))
    assert await world.tell(PODS, lost) == {LLM: 1}
    assert world.losses == {LLM: 1}


async def test_so_is_one_that_is_gone(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(PODS, pod(0), type_="DELETED")
    assert world.losses == {LLM: 1}


async def test_a_pod_that_starts_or_is_not_ready_is_none(world: World) -> None:
    for body in (pod(0, state="pod_pending", name="llm-node-0-0"), pod(0), unready(0), pod(0)):
        assert await world.tell(PODS, body) == {LLM: 1}
        assert world.losses == {LLM: 0}


async def test_a_loss_that_is_known_already_is_none_again(world: World) -> None:
    restarted = pod(0, state="pod_restarted", name="llm-node-0-0")
    await world.tell(PODS, restarted)
    ready = [each for each in restarted["status"]["conditions"] if each["type"] == "Ready"]
    ready[0]["status"] = "False" if ready[0]["status"] == "True" else "True"
    assert await world.tell(PODS, restarted) == {LLM: 1}
    assert world.losses == {LLM: 0}


async def test_a_job_that_fails_or_is_gone_is_a_possible_loss_and_a_larger_one_is_not(world: World) -> None:
    await world.tell(JOBS, job(members=3))
    assert world.losses == {LLM: 0}
    await world.tell(JOBS, with_status(job(members=3), failed=1))
    assert world.losses == {LLM: 1}
    await world.tell(JOBS, job(members=3), type_="DELETED")
    assert world.losses == {LLM: 1}


async def test_a_jobset_that_restarts_ends_or_is_gone_is_a_possible_loss(world: World) -> None:
    await world.tell(JOB_SETS, with_status(load("jobset"), restarts=1))
    assert world.losses == {LLM: 1}
    await world.tell(JOB_SETS, with_status(load("jobset"), restarts=1, terminalState="Failed"))
    assert world.losses == {LLM: 1}
    await world.tell(JOB_SETS, load("jobset"), type_="DELETED")
    assert world.losses == {LLM: 1}


async def test_a_node_that_changes_may_take_its_pods_with_it(world: World) -> None:
    node = load("node")
    await world.tell(NODES, node)
    await world.tell(PODS, pod(0))
    await world.tell(NODES, with_status(node, conditions=[{"type": "Ready", "status": "Unknown"}]))
    assert world.losses == {LLM: 1}


async def test_what_a_user_changes_is_none(world: World) -> None:
    suspended = load("trainjob")
    suspended["spec"]["suspend"] = True
    assert await world.tell(TRAIN_JOBS, suspended) == {LLM: 1}
    assert world.losses == {LLM: 0}
