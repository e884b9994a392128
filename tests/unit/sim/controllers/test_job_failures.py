"""What counts as a failure of a Job's pod, what follows, and how many failures are too many."""

from datetime import UTC, datetime
from typing import Any

from recovery.sim.controllers.job_backoff import JobBackoff
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.job_world import JobWorld, job_world

DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


async def _running(world: JobWorld, **spec: Any) -> None:
    world.create(**spec)
    await world.pass_seconds(0.5)
    world.run()
    await world.pass_seconds(20)


@virtual_time
async def test_a_failed_pod_is_counted_let_go_and_replaced_after_ten_seconds() -> None:
    async with job_world() as world:
        await _running(world)
        lost = world.pod(1)
        world.end(lost, 1)
        await world.pass_seconds(1.1)
        assert world.status()["failed"] == 1
        assert world.status()["active"] == 1
        assert world.status()["uncountedTerminatedPods"] == {}
        assert "finalizers" not in next(pod for pod in world.pods() if pod["status"]["phase"] == "Failed")["metadata"]
        await world.pass_seconds(8)
        assert "active" in world.status()
        assert world.status()["active"] == 1
        await world.pass_seconds(1.5)
        assert world.status()["active"] == 2
        assert world.pod(1)["metadata"]["uid"] != lost["metadata"]["uid"]


@virtual_time
async def test_the_wait_doubles_with_each_failure_up_to_ten_minutes() -> None:
    waits = []
    async with job_world() as world:
        await _running(world, pods=1, backoffLimit=20)
        for _ in range(8):
            failed = world.pod(0)
            world.end(failed, 1)
            at = world.clock.monotonic_seconds()
            while world.pods()[-1]["metadata"]["uid"] == failed["metadata"]["uid"]:
                await world.pass_seconds(0.5)
            waits.append(10 * round((world.clock.monotonic_seconds() - at) / 10))
            world.run(world.pod(0))
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]


@virtual_time
async def test_a_success_makes_the_next_wait_short_again() -> None:
    async with job_world() as world:
        await _running(world, pods=3)
        for index in (0, 1):
            world.end(world.pod(index), 1)
            await world.pass_seconds(25)
            world.run(world.pod(index))
        world.end(world.pod(2), 0)
        await world.pass_seconds(5)
        world.end(world.pod(0), 1)
        await world.pass_seconds(11.5)
        assert world.status()["active"] == 2


def test_failures_from_before_the_last_success_are_forgotten() -> None:
    first, success, last = (_ended_at(second) for second in (5, 10, 15))
    backoff = JobBackoff(failures=3).after([success], [last, first])
    assert backoff == JobBackoff(1, datetime(2026, 11, 2, 8, 0, 15, tzinfo=UTC))
    assert backoff.remaining_seconds(datetime(2026, 11, 2, 8, 0, 21, tzinfo=UTC)) == 4
    assert JobBackoff(failures=3).after([last], [first]) == JobBackoff()


def _ended_at(second: int) -> dict[str, Any]:
    ended = {"exitCode": 0, "finishedAt": f"2026-11-02T08:00:{second:02}Z"}
    return {
        "metadata": {},
        "spec": {},
        "status": {"containerStatuses": [{"name": "node", "state": {"terminated": ended}}]},
    }


@virtual_time
async def test_with_replacement_of_failed_pods_only_a_deleted_pod_is_waited_for() -> None:
    async with job_world() as world:
        await _running(world, podReplacementPolicy="Failed")
        lost = world.pod(0)
        world.delete(lost)
        await world.pass_seconds(25)
        assert world.status()["active"] == 1
        assert "failed" not in world.status()
        assert world.status()["terminating"] == 1
        world.end(lost, 143)
        await world.pass_seconds(1.1)
        world.let_die()
        await world.pass_seconds(12)
        assert world.status()["failed"] == 1
        assert world.status()["active"] == 2


@virtual_time
async def test_without_indexes_it_is_waited_for_as_well() -> None:
    async with job_world() as world:
        await _running(world, indexed=False, podReplacementPolicy="Failed")
        world.delete(world.pods()[0])
        await world.pass_seconds(60)
        assert len(world.pods()) == 2


@virtual_time
async def test_a_pod_that_an_earlier_controller_noted_but_had_not_let_go_is_counted_once() -> None:
    async with job_world() as world:
        await _running(world, indexed=False, pods=3)
        failed, succeeded, _ = world.pods()
        world.controller.stall(True)
        world.end(failed, 1)
        world.end(succeeded, 0)
        uids = {"failed": [failed["metadata"]["uid"]], "succeeded": [succeeded["metadata"]["uid"]]}
        world.set_job_status(uncountedTerminatedPods=uids)
        world.controller.stall(False)
        await world.pass_seconds(1.5)
        assert (world.status()["failed"], world.status()["succeeded"]) == (1, 1)
        assert world.status()["uncountedTerminatedPods"] == {}


@virtual_time
async def test_a_pod_that_an_earlier_controller_let_go_but_had_not_counted_is_counted() -> None:
    async with job_world() as world:
        await _running(world, backoffLimit=6)
        world.set_job_status(uncountedTerminatedPods={"failed": ["the UID of a pod that is gone"]})
        await world.pass_seconds(1.5)
        assert world.status()["failed"] == 1
        assert world.status()["uncountedTerminatedPods"] == {}


@virtual_time
async def test_restarts_in_place_do_not_count_where_pods_are_never_restarted() -> None:
    async with job_world() as world:
        await _running(world, pods=2)
        world.run(world.pod(0), restarts=20)
        await world.pass_seconds(2)
        assert world.conditions() == {}


@virtual_time
async def test_a_raised_limit_keeps_deleted_pods_from_ending_it() -> None:
    async with job_world() as world:
        await _running(world, pods=16, restart_policy="OnFailure")
        world.patch(backoffLimit=2**31 - 1)
        world.delete(*(world.pod(index) for index in range(16)))
        await world.pass_seconds(5)
        assert world.conditions() == {}
        assert world.status()["failed"] == 16


@virtual_time
async def test_a_failed_job_makes_no_more_pods() -> None:
    async with job_world() as world:
        await _running(world, pods=1, backoffLimit=0)
        world.end(world.pod(0), 1)
        await world.pass_seconds(3)
        assert "Failed" in world.conditions()
        assert world.events("BackoffLimitExceeded") == ["Job has reached the specified backoff limit"]
        revision = world.server.revision
        await world.pass_seconds(3600)
        assert world.server.revision == revision


@virtual_time
async def test_a_job_that_takes_too_long_fails() -> None:
    async with job_world() as world:
        await _running(world, activeDeadlineSeconds=60)
        await world.pass_seconds(39)
        assert world.conditions() == {}
        await world.pass_seconds(1)
        assert world.conditions() == {"FailureTarget": "DeadlineExceeded"}
        world.let_die()
        await world.pass_seconds(1.1)
        assert world.message("Failed") == "Job was active longer than specified deadline"


def _policy(*rules: object) -> dict[str, object]:
    return {"podFailurePolicy": {"rules": list(rules)}}


def _on_codes(action: str, *values: int, operator: str = "In", **more: str) -> dict[str, object]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


@virtual_time
async def test_the_first_rule_that_matches_decides() -> None:
    async with job_world() as world:
        rules = (_on_codes("Ignore", 42), _on_codes("FailJob", 42, containerName="node"))
        await _running(world, backoffLimit=0, **_policy(*rules))
        world.end(world.pod(1), 42)
        await world.pass_seconds(15)
        assert world.conditions() == {}
        assert "failed" not in world.status()
        assert world.status()["active"] == 2


@virtual_time
async def test_a_rule_for_another_container_or_for_other_codes_does_not_match() -> None:
    async with job_world() as world:
        rules = (_on_codes("FailJob", 42, containerName="prepare"), _on_codes("FailJob", 1, 42, operator="NotIn"))
        await _running(world, **_policy(*rules))
        world.end(world.pod(1), 42)
        await world.pass_seconds(1.1)
        assert world.conditions() == {}
        assert world.status()["failed"] == 1


@virtual_time
async def test_a_condition_that_a_rule_names_fails_the_job_once_the_pod_has_failed() -> None:
    async with job_world() as world:
        rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
        await _running(world, **_policy(rule))
        pod = world.pod(0)
        name = pod["metadata"]["name"]
        world.set_status(pod, {"conditions": [DISRUPTED]})
        world.delete(pod)
        await world.pass_seconds(5)
        assert world.conditions() == {}
        world.end(pod, 143, DISRUPTED)
        await world.pass_seconds(1.1)
        assert world.message("FailureTarget") == (
            f"Pod team/{name} has condition DisruptionTarget matching FailJob rule at index 0"
        )


@virtual_time
async def test_an_index_fails_on_its_own_after_its_own_limit_and_the_others_go_on() -> None:
    async with job_world() as world:
        await _running(world, pods=2, backoffLimitPerIndex=1)
        world.end(world.pod(1), 1)
        await world.pass_seconds(12)
        again = world.pod(1)
        assert again["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
        world.run(again)
        world.end(world.pod(1), 1)
        await world.pass_seconds(60)
        assert world.status()["failedIndexes"] == "1"
        assert world.status()["active"] == 1
        assert world.conditions() == {}
        world.end(world.pod(0), 0)
        await world.pass_seconds(3)
        assert world.conditions() == {"FailureTarget": "FailedIndexes", "Failed": "FailedIndexes"}
        assert world.status()["completedIndexes"] == "0"


@virtual_time
async def test_a_rule_fails_an_index_at_once_and_too_many_of_them_the_job() -> None:
    async with job_world() as world:
        policy = _policy(_on_codes("FailIndex", 42))
        await _running(world, pods=4, backoffLimitPerIndex=5, maxFailedIndexes=1, **policy)
        world.end(world.pod(1), 42)
        await world.pass_seconds(60)
        assert world.status()["failedIndexes"] == "1"
        assert world.status()["active"] == 3
        world.end(world.pod(2), 42)
        await world.pass_seconds(1.1)
        assert world.conditions() == {"FailureTarget": "MaxFailedIndexesExceeded"}


@virtual_time
async def test_failures_that_a_rule_ignores_do_not_count_towards_the_limit_of_an_index() -> None:
    async with job_world() as world:
        await _running(world, backoffLimitPerIndex=0, **_policy(_on_codes("Ignore", 42)))
        world.end(world.pod(1), 42)
        await world.pass_seconds(12)
        again = world.pod(1)["metadata"]["annotations"]
        assert again["batch.kubernetes.io/job-index-failure-count"] == "0"
        assert again["batch.kubernetes.io/job-index-ignored-failure-count"] == "1"
        assert world.status()["failedIndexes"] == ""
