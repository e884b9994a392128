"""Pods and Jobs that change their group: the old group keeps nothing of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from recovery.core.model.facts import GroupKey
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS
from tests.unit.kube.store_world import JOB_UID, LLM, Body, World, job, load, names, pod
from tests.unit.kube.test_fleet_facts import node

RELABELS = 500
OTHER = GroupKey("default", "other")
_INFORMED = frozenset({"_informers", "_pods_informer", "_nodes_informer", "_client", "_live", "_clock", "_observer"})
"""Parts that feed the store, not its own state: an informer keeps one entry for each object that exists."""


def entries(kept: Any) -> Iterator[tuple[str, int]]:
    """Every container in the store, however deep, with its number of entries."""
    for name, value in vars(kept).items():
        if name in _INFORMED:
            continue
        if isinstance(value, dict | set | list):
            yield name, len(value)
            inner = value.values() if isinstance(value, dict) else ()
            yield f"{name}[]", sum(len(each) for each in inner if isinstance(each, dict | set | list))
        elif type(value).__module__.startswith("recovery.kube."):
            yield from ((f"{name}.{inner}", size) for inner, size in entries(value))


def sizes(world: World) -> dict[str, int]:
    return dict(entries(world.store))


def relabelled(body: Body, group: str) -> Body:
    body["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = group
    return body


def unplaced(index: int, **labels: str) -> Body:
    body = pod(index, state="pod_pending", **labels)
    body["spec"].pop("nodeName", None)
    return body


async def tell_llm(world: World) -> None:
    await world.tell(NODES, node("n0"))
    await world.tell(TRAIN_JOBS, load("trainjob"))
    await world.tell(JOB_SETS, load("jobset"))
    await world.tell(JOBS, job(members=2))


@pytest.mark.parametrize("made", [pod, unplaced])
async def test_relabelled_pods_leave_nothing(world: World, made: Any) -> None:
    await tell_llm(world)
    without = sizes(world)
    await world.tell(PODS, made(0, jobset_name="first"))
    once = sizes(world)
    assert once != without, "the test sees the pod"
    for start in range(0, RELABELS, 100):
        await world.tell(PODS, *(made(0, jobset_name=f"g-{number}") for number in range(start, start + 100)))
    assert sizes(world) == once
    await world.tell(PODS, made(0, jobset_name=f"g-{RELABELS - 1}"), type_="DELETED")
    assert sizes(world) == without


async def test_relabelled_jobs_leave_nothing(world: World) -> None:
    await tell_llm(world)
    once = sizes(world)
    for start in range(0, RELABELS, 100):
        await world.tell(JOBS, *(relabelled(job(), f"g-{number}") for number in range(start, start + 100)))
    assert sizes(world) == once
    await world.tell(JOBS, relabelled(job(), f"g-{RELABELS - 1}"), type_="DELETED")
    assert sizes(world)["_objects._jobs"] == 0


async def test_pods_that_change_their_job_leave_nothing(world: World) -> None:
    await tell_llm(world)
    await world.tell(PODS, pod(0))
    once = sizes(world)
    for start in range(0, RELABELS, 100):
        await world.tell(PODS, *(pod(0, job_uid=f"job-{number}") for number in range(start, start + 100)))
    await world.tell(PODS, pod(0))
    assert sizes(world) == once


async def test_a_pod_that_leaves_is_no_loss_of_its_group(world: World) -> None:
    """The pod still runs, and a label that a user writes must not restart the job."""
    await tell_llm(world)
    await world.tell(PODS, pod(0), pod(1))
    notified = await world.tell(PODS, pod(1, jobset_name="other"))
    assert {str(LLM), str(OTHER)} <= set(notified), "both groups have changed"
    assert names(world.llm) == ["llm-node-0-0"]
    assert all(each.gone_at is None for each in world.llm.pods)
    await world.tell(PODS, pod(1))
    assert names(world.llm) == ["llm-node-0-0", "llm-node-0-1"], "and it may come back"


async def test_a_job_that_leaves_takes_its_membership_with_it(world: World) -> None:
    await tell_llm(world)
    assert [each.uid for each in world.llm.jobs] == [JOB_UID]
    notified = await world.tell(JOBS, relabelled(job(), "other"))
    assert {str(LLM), str(OTHER)} <= set(notified)
    assert world.llm.jobs == ()


async def test_an_object_whose_last_state_names_another_group_is_dropped_from_its_own(world: World) -> None:
    """A deletion carries the last state, which may not have been reported before."""
    await tell_llm(world)
    await world.tell(PODS, pod(0))
    await world.tell(PODS, pod(0, jobset_name="other"), type_="DELETED")
    await world.tell(JOBS, relabelled(job(), "other"), type_="DELETED")
    assert (world.llm.pods, world.llm.jobs) == ((), ())
