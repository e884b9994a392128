"""When a Job is complete."""

from typing import Any

from recovery.sim.controllers.job_indexes import format_indexes, parse_indexes
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.job_world import JobWorld, job_world


async def _running(world: JobWorld, **spec: Any) -> None:
    world.create(**spec)
    await world.pass_seconds(0.5)
    world.run()
    await world.pass_seconds(5)


@virtual_time
async def test_an_indexed_job_is_complete_when_each_index_has_succeeded() -> None:
    async with job_world() as world:
        await _running(world, pods=4)
        for index in (0, 1, 3):
            world.end(world.pod(index), 0)
        await world.pass_seconds(1.1)
        assert world.status()["completedIndexes"] == "0,1,3"
        assert world.status()["succeeded"] == 3
        assert world.conditions() == {}
        world.end(world.pod(2), 0)
        await world.pass_seconds(1.1)
        reason = "CompletionsReached"
        assert world.conditions() == {"SuccessCriteriaMet": reason, "Complete": reason}
        assert world.message("Complete") == "Reached expected number of succeeded pods"
        assert world.status()["completedIndexes"] == "0-3"
        assert world.status()["completionTime"] == "2026-11-02T08:00:07Z"
        assert world.status()["uncountedTerminatedPods"] == {}
        assert world.events("Completed") == ["Job completed"]


@virtual_time
async def test_a_pod_that_succeeded_is_let_go_and_stays_counted_when_it_is_deleted() -> None:
    async with job_world() as world:
        await _running(world, pods=2)
        world.end(world.pod(0), 0)
        await world.pass_seconds(1.1)
        world.delete(world.pods()[0])
        await world.pass_seconds(60)
        assert world.indexes() == [1]
        assert world.status()["completedIndexes"] == "0"


@virtual_time
async def test_a_job_without_indexes_counts_pods() -> None:
    async with job_world() as world:
        await _running(world, indexed=False, pods=2)
        for pod in world.pods():
            world.end(pod, 0)
        await world.pass_seconds(1.1)
        assert world.status()["succeeded"] == 2
        assert "completedIndexes" not in world.status()
        assert "Complete" in world.conditions()


@virtual_time
async def test_without_a_number_of_completions_one_success_is_enough_and_the_rest_is_waited_for() -> None:
    async with job_world() as world:
        await _running(world, indexed=False, pods=3, completions=None)
        first, second, third = world.pods()
        world.end(first, 0)
        world.end(second, 1)
        await world.pass_seconds(60)
        assert world.conditions() == {}
        assert world.status()["active"] == 1
        world.end(third, 0)
        await world.pass_seconds(1.1)
        assert "Complete" in world.conditions()


@virtual_time
async def test_a_success_policy_may_ask_for_a_number_only() -> None:
    async with job_world() as world:
        rules = [{"succeededIndexes": "0-2", "succeededCount": 2}]
        await _running(world, pods=4, successPolicy={"rules": rules})
        for index in (0, 3):
            world.end(world.pod(index), 0)
        await world.pass_seconds(1.1)
        assert world.conditions() == {}
        world.end(world.pod(2), 0)
        await world.pass_seconds(1.1)
        assert world.conditions() == {"SuccessCriteriaMet": "SuccessPolicy"}


def test_indexes_are_written_as_intervals_of_three_and_more() -> None:
    assert format_indexes([]) == ""
    assert format_indexes({5, 4, 9}) == "4,5,9"
    assert format_indexes({7, 3, 1, 5, 4}) == "1,3-5,7"


def test_what_lies_beyond_the_completions_is_not_read() -> None:
    assert parse_indexes("", 4) == set()
    assert parse_indexes("1,3-5,7", 100) == {1, 3, 4, 5, 7}
    assert parse_indexes("1,3-5,7", 5) == {1, 3, 4}
