"""What commands read once: a fleet, or one job."""

import json
from datetime import UTC, datetime

import pytest

from recovery.core.model.facts import GroupKey, Room
from recovery.kube.cluster_reader import read_fleet, read_job, with_fleet
from recovery.kube.node_uses import NODES_LOOKED_AT_MAX
from recovery.ports import ApiError, ForbiddenError, NoSuchResourceError, NotFoundError
from tests.unit.kube.store_world import (
    LEDGER_NAME,
    LLM,
    WORKLOAD_UID,
    Body,
    bare,
    cluster_policy,
    config,
    job,
    listed,
    load,
    pod,
)
from tests.unit.kube.test_fleet_facts import node
from tests.unit.kube.testing import START, ScriptedApi, fixture, message

NODE = "gpu-0001"
NO_TRAINER = NoSuchResourceError("the API server knows no trainjobs")


def named(body: Body, name: str, *, namespace: str = "default") -> Body:
    body["metadata"] |= {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return body


def read(body: Body) -> bytes:
    """The body as a GET returns it."""
    body["metadata"]["resourceVersion"] = "9"
    return json.dumps(body).encode()


@pytest.fixture
def api() -> ScriptedApi:
    """The TrainJob llm, its JobSet, Job, pods and RecoveryGroup. Its namespace has a policy, the cluster has none."""
    api = ScriptedApi()
    api.objects |= {
        ("trainjobs", ""): listed("TrainJob", load("trainjob")),
        ("trainjobs", "llm"): fixture("trainjob"),
        ("jobsets", ""): listed("JobSet", load("jobset")),
        ("jobsets", "llm"): fixture("jobset"),
        ("jobs", ""): listed("Job", job()),
        ("pods", ""): listed("Pod", pod(0), pod(1)),
        ("recoverygroups", ""): listed("RecoveryGroup", load("recoverygroup-tearing-down")),
        ("recoverygroups", LEDGER_NAME): fixture("recoverygroup-tearing-down"),
        ("recoverypolicies", ""): listed("RecoveryPolicy", load("recoverypolicy")),
        ("clusterrecoverypolicies", ""): listed("ClusterRecoveryPolicy"),
        ("recoveryconfigs", "default"): NotFoundError("there is none"),
        ("nodes", NODE): fixture("node"),
    }
    return api


class TestFleet:
    async def test_workloads_are_train_jobs_and_the_job_sets_that_nothing_controls(self, api: ScriptedApi) -> None:
        shadowed = named(bare(), "llm")
        api.objects["jobsets", ""] = listed("JobSet", load("jobset"), named(bare(), "alone"))
        fleet = await read_fleet(api, None)
        assert {str(key): workload.kind for key, workload in fleet.workloads.items()} == {
            "default/llm": "TrainJob",
            "default/alone": "JobSet",
        }
        api.objects["jobsets", ""] = listed("JobSet", shadowed)
        fleet = await read_fleet(api, None)
        assert [workload.kind for workload in fleet.workloads.values()] == ["TrainJob"]
        assert list(fleet.groups) == [WORKLOAD_UID]

    async def test_without_trainer_there_are_job_sets_alone(self, api: ScriptedApi) -> None:
        api.objects["trainjobs", ""] = NO_TRAINER
        api.objects["jobsets", ""] = listed("JobSet", named(bare(), "alone"))
        fleet = await read_fleet(api, "default")
        assert list(fleet.workloads) == [GroupKey("default", "alone")]
        assert fleet.unreadable == ()

    async def test_each_namespace_has_its_own_policies_and_the_clusters(self, api: ScriptedApi) -> None:
        elsewhere = named(load("recoverypolicy"), "theirs", namespace="elsewhere")
        api.objects["recoverypolicies", ""] = listed("RecoveryPolicy", load("recoverypolicy"), elsewhere)
        api.objects["clusterrecoverypolicies", ""] = listed("ClusterRecoveryPolicy", cluster_policy())
        api.objects["recoveryconfigs", "default"] = read(config(paused=True))
        fleet = await read_fleet(api, None)
        assert [policy.name for policy in fleet.policy_set("default").policies] == ["standard", "everywhere"]
        assert [policy.name for policy in fleet.policy_set("elsewhere").policies] == ["theirs", "everywhere"]
        assert fleet.config is not None
        assert fleet.config.spec.paused
        assert fleet.policy_set("default").config is fleet.config
        assert fleet.unreadable == ()

    async def test_what_of_the_cluster_may_not_be_read_is_said_and_left_out(self, api: ScriptedApi) -> None:
        api.objects["clusterrecoverypolicies", ""] = ForbiddenError("cannot list clusterrecoverypolicies")
        api.objects["recoveryconfigs", "default"] = ForbiddenError("cannot get recoveryconfigs")
        fleet = await read_fleet(api, "default")
        assert [policy.name for policy in fleet.policies] == ["standard"]
        assert fleet.config is None
        assert fleet.unreadable == (
            "ClusterRecoveryPolicies may not be read, so none is taken into account: "
            "cannot list clusterrecoverypolicies",
            "RecoveryConfig default may not be read, so a pause of all recoveries is not seen: "
            "cannot get recoveryconfigs",
        )

    @pytest.mark.parametrize("plural", ["trainjobs", "jobsets", "recoverygroups", "recoverypolicies"])
    async def test_what_of_the_namespace_may_not_be_read_is_an_error(self, api: ScriptedApi, plural: str) -> None:
        api.objects[plural, ""] = ForbiddenError(f"cannot list {plural}")
        with pytest.raises(ForbiddenError, match=plural):
            await read_fleet(api, "default")

    async def test_what_cannot_be_decoded_is_said_by_name(self, api: ScriptedApi) -> None:
        broken = cluster_policy()
        broken["spec"]["mode"] = "Automatic"
        api.objects["clusterrecoverypolicies", ""] = listed("ClusterRecoveryPolicy", broken)
        api.objects["recoveryconfigs", "default"] = read(config(paused="yes"))
        fleet = await read_fleet(api, "default")
        assert [policy.name for policy in fleet.policies] == ["standard"]
        about_policy, about_config = fleet.unreadable
        assert about_policy.startswith("ClusterRecoveryPolicy everywhere cannot be read: ")
        assert about_config.startswith("RecoveryConfig default cannot be read (")
        assert fleet.config is not None
        assert message(fleet.config.pause) == about_config


class TestJob:
    async def test_it_is_read_with_its_group_and_what_is_laid_down(self, api: ScriptedApi) -> None:
        api.objects["clusterrecoverypolicies", ""] = listed("ClusterRecoveryPolicy", cluster_policy())
        reading = await read_job(api, LLM)
        assert reading.snapshot.workload is not None
        assert (reading.snapshot.live, reading.snapshot.expected_jobs, len(reading.snapshot.pods)) == (True, 1, 2)
        assert reading.group is not None
        assert reading.group.ledger.incident is not None
        assert [policy.name for policy in reading.policies.policies] == ["standard", "everywhere"]
        assert reading.unreadable == ()

    async def test_a_job_set_of_its_own_is_read_where_trainer_is_and_where_it_is_not(self, api: ScriptedApi) -> None:
        api.objects["jobsets", "llm"] = read(bare())
        api.objects["recoverygroups", "llm-bare"] = NotFoundError("none")
        answers: tuple[ApiError, ...] = (NotFoundError("there is none"), NO_TRAINER)
        for answer in answers:
            api.objects["trainjobs", "llm"] = answer
            reading = await read_job(api, LLM)
            assert reading.snapshot.workload is not None
            assert reading.snapshot.workload.kind == "JobSet"
            assert reading.group is None

    async def test_without_job_set_nothing_can_be_said(self, api: ScriptedApi) -> None:
        api.objects["trainjobs", "llm"] = NO_TRAINER
        api.objects["jobsets", "llm"] = NoSuchResourceError("the API server knows no jobsets")
        with pytest.raises(NoSuchResourceError, match="jobsets"):
            await read_job(api, LLM)

    async def test_nodes_of_its_pods_are_read_with_the_last_sign_of_life_of_those_that_do_not_answer(
        self, api: ScriptedApi
    ) -> None:
        silent = load("node")
        for condition in silent["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition["status"] = "Unknown"
        api.objects["nodes", NODE] = read(silent)
        api.objects["leases", NODE] = read(
            {"kind": "Lease", "metadata": {"name": NODE}, "spec": {"renewTime": "2026-11-02T08:00:00.000000Z"}}
        )
        reading = await read_job(api, LLM)
        assert not reading.snapshot.nodes[NODE].reachable
        assert reading.snapshot.nodes[NODE].lease_renewed_at == datetime(2026, 11, 2, 8, tzinfo=UTC)

    async def test_a_node_that_does_not_exist_is_gone_and_one_that_may_not_be_read_is_not(
        self, api: ScriptedApi
    ) -> None:
        api.objects["nodes", NODE] = NotFoundError("there is none")
        reading = await read_job(api, LLM)
        assert not reading.snapshot.nodes
        assert reading.snapshot.gone_nodes == {NODE}
        api.objects["nodes", NODE] = ForbiddenError("cannot get nodes")
        reading = await read_job(api, LLM)
        assert not reading.snapshot.nodes
        assert not reading.snapshot.gone_nodes

    async def test_a_user_of_one_namespace_is_told_what_he_may_not_read(self, api: ScriptedApi) -> None:
        api.objects["clusterrecoverypolicies", ""] = ForbiddenError("cannot list")
        api.objects["recoveryconfigs", "default"] = ForbiddenError("cannot get")
        reading = await read_job(api, LLM)
        assert len(reading.unreadable) == 2
        assert [policy.name for policy in reading.policies.policies] == ["standard"]
        assert reading.policies.config is None


class TestRoom:
    """The room for more pods, by the pods on each node that would take one."""

    async def room(self, api: ScriptedApi, count: int) -> Room | None:
        """The room on that many nodes. The scripted server lists the same pods for every node."""
        snapshot = (await read_job(api, LLM)).snapshot
        api.objects["nodes", ""] = listed("Node", *(node(f"n{number}") for number in range(count)))
        api.lists.clear()
        fleet = (await with_fleet(api, snapshot, START, room=True)).fleet
        assert fleet is not None
        return fleet.room

    async def test_each_node_that_would_take_one_is_looked_at(self, api: ScriptedApi) -> None:
        ended_pod = pod(0)
        ended_pod["status"]["phase"] = "Succeeded"
        api.objects["pods", ""] = listed("Pod", ended_pod)
        assert await self.room(api, 2) == Room(2, ("n0", "n1"))
        ended = "status.phase!=Succeeded,status.phase!=Failed"
        assert api.lists[1:] == [("pods", f"spec.nodeName={name},{ended}", "") for name in ("n0", "n1")]
        api.objects["pods", ""] = listed("Pod", pod(0))
        assert await self.room(api, 2) == Room(0), "all of them are full"

    async def test_where_those_are_many_or_may_not_be_asked_about_it_is_not_known(self, api: ScriptedApi) -> None:
        assert await self.room(api, NODES_LOOKED_AT_MAX + 1) is None
        snapshot = (await read_job(api, LLM)).snapshot
        api.objects["nodes", ""] = listed("Node", node("n0"))
        api.objects["pods", ""] = ForbiddenError("cannot list pods")
        fleet = (await with_fleet(api, snapshot, START, room=True)).fleet
        assert fleet is not None
        assert fleet.room is None

    async def test_who_does_not_ask_sends_no_request(self, api: ScriptedApi) -> None:
        snapshot = (await read_job(api, LLM)).snapshot
        api.objects["nodes", ""] = listed("Node", node("n0"))
        api.lists.clear()
        fleet = (await with_fleet(api, snapshot, START)).fleet
        assert fleet is not None
        assert (fleet.room, api.lists) == (None, [("nodes", "", "")])
