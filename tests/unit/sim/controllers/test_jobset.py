"""JobSet: the Jobs that it makes, starts, suspends and calls complete."""

import hashlib
from typing import Any

import pytest

from recovery.ports import EVENTS, JOB_SETS, JOBS, PatchKind
from recovery.sim.api.kinds.core import SERVICES
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.status_error import StatusError
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.workload_scene import NAMESPACE, Scene, conditions, jobset, met, replicated

PREFIX = "jobset.sigs.k8s.io/"


@virtual_time
async def test_a_child_job_and_its_pods_carry_every_mark_of_their_place() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("launcher", pods=1), replicated("node", pods=4, replicas=2)))
        job, owner = scene.job("llm-node-1"), scene.jobset()
        expected = {
            "jobset-name": "llm",
            "jobset-uid": owner["metadata"]["uid"],
            "replicatedjob-name": "node",
            "replicatedjob-replicas": "2",
            "global-replicas": "3",
            "job-index": "1",
            "job-global-index": "2",
            "job-key": hashlib.sha1(b"team-a/llm-node-1").hexdigest(),
            "restart-attempt": "0",
            "group-name": "default",
            "group-replicas": "3",
            "job-group-index": "2",
        }
        for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
            for marks in (metadata["labels"], metadata["annotations"]):
                assert {key[len(PREFIX) :]: marks[key] for key in marks if key.startswith(PREFIX)} == expected
        assert scene.jobs() == ["llm-launcher-0", "llm-node-0", "llm-node-1"]
        assert job["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "name": "llm",
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


@virtual_time
async def test_what_the_webhook_fills_in_reaches_the_job() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        spec = scene.jobset()["spec"]
        assert spec["successPolicy"] == {"operator": "All"}
        assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
        assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
        job = scene.job("llm-node-0")["spec"]
        assert job["completionMode"] == "Indexed"
        assert job["template"]["spec"]["restartPolicy"] == "OnFailure"
        assert job["template"]["spec"]["subdomain"] == "llm"
        assert job["backoffLimit"] == 6
        assert job["suspend"] is False


@virtual_time
async def test_one_headless_service_gives_the_pods_their_names() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        await scene.fail("llm-node-0")
        (service,) = scene.server.objects(SERVICES)
        assert service["metadata"]["name"] == "llm"
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == {f"{PREFIX}jobset-name": "llm"}
        assert service["spec"]["publishNotReadyAddresses"] is True


@virtual_time
async def test_restarts_are_zero_from_the_start_and_the_counts_are_those_of_jobs() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("node", pods=2, replicas=2)))
        assert scene.jobset()["status"]["restarts"] == 0
        assert "restartsCountTowardsMax" not in scene.jobset()["status"]
        assert scene.counts("node") == {}
        await scene.play("llm-node-0", active=2, ready=1)
        assert scene.counts("node") == {"active": 1}
        await scene.play("llm-node-0", active=2, ready=2)
        await scene.play("llm-node-1", active=1, ready=1, succeeded=1)
        assert scene.counts("node") == {"active": 2, "ready": 2}
        await scene.complete("llm-node-1")
        assert scene.counts("node") == {"active": 1, "ready": 1, "succeeded": 1}


@virtual_time
async def test_a_jobset_that_is_deleted_is_left_to_the_garbage_collector() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        scene.garbage.stall(True)
        await scene.delete_jobset()
        await scene.fail("llm-node-0")
        assert met(scene.jobset()) == []
        scene.garbage.stall(False)
        await scene.quiet()
        assert [*scene.server.objects(JOB_SETS), *scene.server.objects(JOBS), *scene.server.objects(SERVICES)] == []


@virtual_time
async def test_a_job_that_depends_on_ready_starts_when_all_pods_of_the_other_are_ready() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("node", pods=3), replicated("launcher", after=[("node", "Ready")])))
        await scene.play("llm-node-0", active=3, ready=2)
        assert scene.jobs() == ["llm-node-0"]
        await scene.play("llm-node-0", active=3, ready=3)
        assert scene.jobs() == ["llm-node-0", "llm-launcher-0"]


@virtual_time
async def test_in_order_each_replicated_job_waits_for_the_one_before_it() -> None:
    async with Scene.running() as scene:
        in_order = {"startupPolicyOrder": "InOrder"}
        await scene.create(jobset(replicated("first"), replicated("second"), startupPolicy=in_order))
        assert scene.jobs() == ["llm-first-0"]
        assert conditions(scene.jobset())["StartupPolicyInProgress"] == ("True", "InOrderStartupPolicyInProgress")
        await scene.play("llm-first-0", active=2, ready=2)
        assert scene.jobs() == ["llm-first-0", "llm-second-0"]
        await scene.play("llm-second-0", active=2, ready=2)
        assert conditions(scene.jobset()) == {
            "StartupPolicyInProgress": ("False", "InOrderStartupPolicyInProgress"),
            "StartupPolicyCompleted": ("True", "InOrderStartupPolicyCompleted"),
        }


@virtual_time
async def test_all_jobs_complete_is_the_end_and_the_finished_jobs_stay() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("node", replicas=2)))
        await scene.complete("llm-node-0")
        assert met(scene.jobset()) == []
        await scene.complete("llm-node-1")
        assert conditions(scene.jobset()) == {"Completed": ("True", "AllJobsCompleted")}
        assert scene.jobset()["status"]["terminalState"] == "Completed"
        assert scene.jobs() == ["llm-node-0", "llm-node-1"]


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"operator": "All", "targetReplicatedJobs": ["launcher"]}, id="all of the target"),
        pytest.param({"operator": "Any"}, id="any"),
    ],
)
def test_the_jobs_that_the_success_policy_does_not_wait_for_are_deleted_at_the_end(policy: dict[str, Any]) -> None:
    @virtual_time
    async def check() -> None:
        async with Scene.running() as scene:
            await scene.create(jobset(replicated("node"), replicated("launcher"), successPolicy=policy))
            await scene.play("llm-node-0", active=2, ready=2)
            await scene.complete("llm-launcher-0")
            assert met(scene.jobset()) == ["Completed"]
            assert scene.jobs() == ["llm-launcher-0"]

    check()


@virtual_time
async def test_suspended_from_the_start_it_makes_suspended_jobs() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(suspend=True))
        assert scene.job("llm-node-0")["spec"]["suspend"] is True
        assert conditions(scene.jobset()) == {"Suspended": ("True", "SuspendedJobs")}
        assert scene.counts("node") == {"suspended": 1}


@virtual_time
async def test_suspend_and_resume_keep_the_jobs_and_clear_their_start_time() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        before = scene.uids()
        await scene.play("llm-node-0", startTime="2026-11-02T08:00:00Z", active=2, ready=2)
        await scene.patch_jobset({"spec": {"suspend": True}})
        assert scene.job("llm-node-0")["spec"]["suspend"] is True
        await scene.play("llm-node-0", active=0, ready=0)
        await scene.patch_jobset({"spec": {"suspend": False}})
        job = scene.job("llm-node-0")
        assert job["spec"]["suspend"] is False
        assert "startTime" not in job["status"]
        assert scene.uids() == before
        assert conditions(scene.jobset()) == {"Suspended": ("False", "ResumeJobs")}


@virtual_time
async def test_a_resume_adds_what_the_template_has_got_and_takes_nothing_away() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(suspend=True))
        suspended = scene.jobset()["spec"]
        template = suspended["replicatedJobs"][0]["template"]["spec"]["template"]

        def changed(selector: dict[str, str], *, suspend: bool) -> dict[str, Any]:
            pods = {**template, "spec": {**template["spec"], "nodeSelector": selector}}
            pods["metadata"] = {"labels": {"queue": "b"}}
            whole = suspended["replicatedJobs"][0]
            spec = {**whole["template"]["spec"], "template": pods}
            return {"spec": {"suspend": suspend, "replicatedJobs": [{**whole, "template": {"spec": spec}}]}}

        await scene.patch_jobset(changed({"zone": "one"}, suspend=False))
        pods = scene.job("llm-node-0")["spec"]["template"]
        assert pods["spec"]["nodeSelector"] == {"zone": "one"}
        assert pods["metadata"]["labels"]["queue"] == "b"
        assert pods["metadata"]["labels"][f"{PREFIX}jobset-name"] == "llm"
        await scene.patch_jobset(changed({"rack": "two"}, suspend=True))
        await scene.patch_jobset({"spec": {"suspend": False}})
        pods = scene.job("llm-node-0")["spec"]["template"]
        assert pods["spec"]["nodeSelector"] == {"zone": "one", "rack": "two"}


@virtual_time
async def test_each_resume_adds_tolerations_with_seconds_once_more() -> None:
    async with Scene.running() as scene:
        node = replicated("node")
        lasting = {"key": "a", "operator": "Exists"}
        passing = {"key": "b", "operator": "Exists", "tolerationSeconds": 30}
        node["template"]["spec"]["template"]["spec"]["tolerations"] = [lasting, passing]
        await scene.create(jobset(node, suspend=True))
        await scene.patch_jobset({"spec": {"suspend": False}})
        assert scene.job("llm-node-0")["spec"]["template"]["spec"]["tolerations"] == [lasting, passing, passing]


@virtual_time
async def test_a_job_suspended_behind_its_back_is_resumed() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset())
        job = scene.job("llm-node-0")
        scene.server.replace(JOBS, {**job, "spec": {**job["spec"], "suspend": True}}, namespace=NAMESPACE)
        await scene.quiet()
        assert scene.job("llm-node-0")["spec"]["suspend"] is False


@virtual_time
async def test_a_quiet_jobset_costs_no_write() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(replicated("node", replicas=3)))
        await scene.play("llm-node-0", active=2, ready=2)
        written = len(scene.changes)
        scene.jobsets.enqueue((NAMESPACE, "llm"))
        await scene.quiet()
        assert len(scene.changes) == written


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"failurePolicy": {"maxRestarts": 9, "restartStrategy": "Recreate"}}, "spec.failurePolicy"),
        ({"successPolicy": {"operator": "Any"}}, "spec.successPolicy"),
        ({"replicatedJobs": [replicated("other")]}, "spec.replicatedJobs"),
        ({"suspend": True, "replicatedJobs": [replicated("node", pods=3)]}, "spec.replicatedJobs"),
    ],
)
def test_what_decides_over_its_jobs_never_changes(change: dict[str, Any], field: str) -> None:
    @virtual_time
    async def check() -> None:
        async with Scene.running() as scene:
            await scene.create(jobset(failurePolicy={"maxRestarts": 1}))
            with pytest.raises(StatusError) as refused:
                await scene.patch_jobset({"spec": change})
            assert (refused.value.code, [cause.field for cause in refused.value.causes]) == (422, [field])

    check()


@pytest.mark.parametrize(
    "wrong",
    [
        jobset(replicated("node", after=[("node", "Ready")])),
        jobset(replicated("a"), replicated("b", after=[("c", "Ready")])),
        jobset(successPolicy={"operator": "All", "targetReplicatedJobs": ["c"]}),
        jobset(failurePolicy={"restartStrategy": "InPlaceRestart"}),
        jobset(failurePolicy={"rules": [{"action": "RestartJob"}]}),
        jobset(failurePolicy={"rules": [{"action": "FailJobSet", "onJobFailureReasons": ["Boredom"]}]}),
        jobset(failurePolicy={"rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["c"]}]}),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    @virtual_time
    async def check() -> None:
        async with Scene.running() as scene:
            with pytest.raises(StatusError) as refused:
                await scene.create(wrong)
            assert refused.value.code == 422

    check()


# --- Jobs that are refused -------------------------------------------------------------------------------------------


def invalid(name: str = "node", replicas: int = 1) -> Body:
    """A ReplicatedJob whose Jobs the API server refuses."""
    body = replicated(name, replicas=replicas)
    body["template"]["spec"] |= {"backoffLimitPerIndex": 1, "maxFailedIndexes": 3}
    return body


def told(scene: Scene) -> list[Body]:
    return [event for event in scene.server.objects(EVENTS) if event["reason"] == "JobCreationFailed"]


@virtual_time
async def test_jobs_that_are_refused_are_told_in_one_event_and_tried_again_ever_later() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(invalid(replicas=2)))
        assert scene.jobs() == []
        (event,) = told(scene)
        one, other = event["message"].splitlines()
        assert one.startswith('job "llm-node-0" creation failed with error: Job.batch "llm-node-0" is invalid: ')
        assert other.startswith('job "llm-node-1" creation failed with error: ')
        assert event["involvedObject"]["uid"] == scene.jobset()["metadata"]["uid"]
        first, second = event["eventTime"], event["series"]["lastObservedTime"]
        assert (event["series"]["count"], first < second < "2026-11-02T08:00:01Z") == (2, True)
        await scene.quiet(300)
        (again,) = told(scene)
        assert again == event, "the third time and those that follow are counted, and not written"


@virtual_time
async def test_a_refusal_about_another_version_of_the_set_is_another_event() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(invalid()))
        touch = {"metadata": {"annotations": {"touched": "1"}}}
        scene.server.patch(JOB_SETS, "llm", touch, kind=PatchKind.MERGE, namespace=NAMESPACE)
        await scene.quiet()
        assert len(told(scene)) == 2, "a touch has it tried at once"


@virtual_time
async def test_what_is_too_long_for_an_event_no_one_hears() -> None:
    async with Scene.running() as scene:
        await scene.create(jobset(invalid(replicas=12)))
        assert (scene.jobs(), told(scene)) == ([], [])
