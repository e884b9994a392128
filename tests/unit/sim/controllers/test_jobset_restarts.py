"""JobSet: what follows from a failed Job, and how a restart replaces all Jobs."""

import pytest

from recovery.ports import JOB_SETS, JOBS, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.workload_scene import NAMESPACE, Scene, conditions, jobset, met, replicated, rule

ANY = {"maxRestarts": 3}


def message(body: Body, kind: str) -> str:
    (found,) = (each["message"] for each in body["status"]["conditions"] if each["type"] == kind)
    return str(found)


@virtual_time
async def test_a_failure_target_alone_is_no_failure() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        await scene.end("llm-node-0", "FailureTarget", reason="BackoffLimitExceeded")
        assert met(scene.jobset()) == []
        assert scene.counts("node") == {}


@virtual_time
async def test_a_restart_replaces_all_jobs_and_counts() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("node", replicas=2), failurePolicy=ANY))
        before = scene.uids()
        await scene.fail("llm-node-0")
        assert scene.attempts() == {"llm-node-0": "1", "llm-node-1": "1"}
        assert not set(before.values()) & set(scene.uids().values())
        status = scene.jobset()["status"]
        assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
        assert conditions(scene.jobset()) == {"RestartingJobSet": ("True", "DefaultFailurePolicy")}
        expected = "applying RestartJobSet failure policy action (first failed job: llm-node-0)"
        assert message(scene.jobset(), "RestartingJobSet") == expected


@virtual_time
async def test_a_restart_is_over_when_all_jobs_are_ready_or_done() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("node", replicas=2), failurePolicy=ANY))
        await scene.fail("llm-node-0")
        await scene.play("llm-node-0", active=2, ready=2)
        assert met(scene.jobset()) == ["RestartingJobSet"]
        await scene.play("llm-node-1", active=2, ready=2)
        assert conditions(scene.jobset()) == {"RestartingJobSet": ("False", "JobsReady")}


@virtual_time
async def test_the_restart_after_the_last_one_allowed_is_the_end() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(failurePolicy={"maxRestarts": 1}))
        await scene.fail("llm-node-0")
        await scene.fail("llm-node-0")
        assert conditions(scene.jobset()) == {
            "RestartingJobSet": ("False", "JobSetFailed"),
            "Failed": ("True", "ReachedMaxRestarts"),
        }
        assert scene.attempts() == {"llm-node-0": "1"}
        assert scene.jobset()["status"]["restarts"] == 1


@virtual_time
async def test_a_restart_that_ignores_the_limit_is_not_counted() -> None:
    async with Scene.running() as scene:
        policy = {"maxRestarts": 0, "rules": [rule("RestartJobSetAndIgnoreMaxRestarts", "DeadlineExceeded")]}
        await scene.create(jobset(failurePolicy=policy))
        await scene.fail("llm-node-0", "DeadlineExceeded")
        status = scene.jobset()["status"]
        assert status["restarts"] == 1
        assert "restartsCountTowardsMax" not in status
        assert conditions(scene.jobset()) == {"RestartingJobSet": ("True", "FailurePolicy_failurePolicyRule0")}
        await scene.fail("llm-node-0", "BackoffLimitExceeded")
        assert met(scene.jobset()) == ["Failed"], "no rule matches, and the default counts"


@pytest.mark.parametrize(
    ("rules", "reason", "ends"),
    [
        pytest.param([rule("FailJobSet", "PodFailurePolicy")], "PodFailurePolicy", True, id="reason"),
        pytest.param([rule("FailJobSet", "PodFailurePolicy")], "BackoffLimitExceeded", False, id="other reason"),
        pytest.param([rule("FailJobSet", patterns=["exit code (42|43)"])], "PodFailurePolicy", True, id="pattern"),
        pytest.param([rule("FailJobSet", patterns=["^exit code"])], "PodFailurePolicy", False, id="other pattern"),
        pytest.param([rule("FailJobSet", targets=["node"])], "PodFailurePolicy", True, id="target"),
        pytest.param([rule("FailJobSet", targets=["launcher"])], "PodFailurePolicy", False, id="other target"),
        pytest.param([rule("RestartJobSet"), rule("FailJobSet")], "PodFailurePolicy", False, id="first wins"),
    ],
)
def test_the_first_rule_that_matches_decides(rules: list[Body], reason: str, ends: bool) -> None:
    @virtual_time
    async def check() -> None:
        async with Scene.running() as scene:
            policy = {"maxRestarts": 3, "rules": rules}
            await scene.create(jobset(replicated("node"), replicated("launcher"), failurePolicy=policy))
            await scene.fail("llm-node-0", reason, "Container node failed with exit code 42")
            assert scene.jobset()["status"]["restarts"] == (0 if ends else 1)
            found = conditions(scene.jobset()).get("Failed")
            assert found == (("True", "FailJobSetFailurePolicyAction") if ends else None)

    check()


async def hold(scene: Scene, job: str) -> None:
    """Add a finalizer to the Job, as if one of its pods did not terminate."""
    patch = {"metadata": {"finalizers": ["test/held"]}}
    scene.server.patch(JOBS, job, patch, kind=PatchKind.MERGE, namespace=NAMESPACE)
    await scene.quiet()


async def release(scene: Scene, job: str) -> None:
    patch = {"metadata": {"finalizers": None}}
    scene.server.patch(JOBS, job, patch, kind=PatchKind.MERGE, namespace=NAMESPACE)
    await scene.quiet()


@virtual_time
async def test_old_jobs_are_deleted_in_the_foreground_and_once() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(failurePolicy=ANY))
        await hold(scene, "llm-node-0")
        await scene.fail("llm-node-0")
        marked = scene.job("llm-node-0")["metadata"]
        assert "deletionTimestamp" in marked
        await scene.play("llm-node-0", succeeded=1)
        assert scene.job("llm-node-0")["metadata"]["deletionTimestamp"] == marked["deletionTimestamp"]
        deletions = [
            change
            for change in scene.changes
            if change.actor == "jobset-controller" and change.resource == JOBS and change.type == "MODIFIED"
        ]
        assert len(deletions) == 1
        assert deletions[0].body["metadata"]["finalizers"] == ["test/held", "foregroundDeletion"]


@virtual_time
async def test_restarts_raised_from_outside_restart_all_finished_jobs_included() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("prepare"), replicated("node", after=[("prepare", "Complete")])))
        await scene.complete("llm-prepare-0")
        before = scene.uids()
        status = scene.jobset()["status"]
        swap = [
            {"op": "test", "path": "/status/restarts", "value": 0},
            {"op": "replace", "path": "/status/restarts", "value": 1},
        ]
        scene.server.patch(JOB_SETS, "llm", swap, kind=PatchKind.JSON, namespace=NAMESPACE, subresource="status")
        await scene.quiet()
        assert "terminalState" not in status
        assert scene.attempts() == {"llm-prepare-0": "1"}, "the nodes wait for the initializer once more"
        assert scene.uids()["llm-prepare-0"] != before["llm-prepare-0"]
        await scene.complete("llm-prepare-0")
        assert scene.attempts() == {"llm-prepare-0": "1", "llm-node-0": "1"}


@virtual_time
async def test_a_jobset_that_has_ended_restarts_no_more() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        await scene.fail("llm-node-0")
        before = scene.uids()
        await scene.patch_jobset({"status": {"restarts": 1}}, subresource="status")
        assert scene.uids() == before


@virtual_time
async def test_a_failed_job_that_is_deleted_before_jobset_looks_fails_nothing() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        scene.jobsets.stall(True)
        await scene.fail("llm-node-0")
        await scene.delete_job("llm-node-0")
        scene.jobsets.stall(False)
        await scene.quiet()
        assert met(scene.jobset()) == []
        assert scene.attempts() == {"llm-node-0": "0"}


@virtual_time
async def test_a_failed_job_counts_while_it_is_being_deleted() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        await hold(scene, "llm-node-0")
        await scene.delete_job("llm-node-0")
        assert met(scene.jobset()) == []
        await scene.fail("llm-node-0")
        assert met(scene.jobset()) == ["Failed"]


@virtual_time
async def test_of_several_failed_jobs_the_one_that_failed_first_is_named() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("node", replicas=3)))
        scene.jobsets.stall(True)
        await scene.fail("llm-node-2")
        await scene.fail("llm-node-0")
        scene.jobsets.stall(False)
        await scene.quiet()
        assert message(scene.jobset(), "Failed").endswith("(first failed job: llm-node-2)")


@virtual_time
async def test_a_status_written_meanwhile_is_not_overwritten() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(failurePolicy=ANY))
        scene.jobsets.stall(True)
        await scene.fail("llm-node-0")
        await scene.patch_jobset({"status": {"restarts": 1}}, subresource="status")
        scene.jobsets.stall(False)
        await scene.quiet()
        assert scene.jobset()["status"]["restarts"] == 1, "the failed Job is of the attempt before by then"
        assert scene.attempts() == {"llm-node-0": "1"}
