"""Elastic groups that Kueue admits: real Kueue, with its webhooks, beside JobSet and Trainer."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Protocol

import pytest
import pytest_asyncio

from recovery import api_verbs
from recovery.core.model.annotations import KUEUE_PATCH_MANAGER
from recovery.kube.projections.workloads import decode_train_job
from recovery.ports import NODES, RECOVERY_INCIDENTS, TRAIN_JOBS, PatchKind, Resource
from recovery.sim.kubelets.node_run import NodeDeath
from tests.cluster import elastic
from tests.cluster.acts import exit_rank, incidents_of, running_pods, set_room, until_rounds
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import MakesRuntime, StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, recovery, workload_writes
from tests.cluster.controlplane.build import KUEUE, provide
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.elastic import AVOID_43, ELASTIC, PREPARED, RACK, actions, room_for, runs_with, settings, take_away
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Job, Object, apply, policy
from tests.cluster.stations import is_trigger
from tests.cluster.test_nodes import silent
from tests.cluster.test_policies import as_it_was
from tests.cluster.test_resumed_within_the_grace import hangs, runs_again, slow_to_end
from tests.cluster.test_runbooks import with_config

pytestmark = pytest.mark.usefixtures("no_complaints", "kueue")
GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
WORKLOADS = Resource(GROUP, VERSION, "workloads", "Workload")
LOCAL_QUEUES = Resource(GROUP, VERSION, "localqueues", "LocalQueue")
QUEUE = "research"
ANYWHERE, PINNED = "anywhere", "pinned"
"""ClusterQueues. In the second one Kueue chooses the node of each pod (topology-aware scheduling)."""


class MakesQueue(Protocol):
    """The type of the fixture `queue`. It creates a queue in the namespace and returns its name."""

    async def __call__(self, cluster_queue: str = ANYWHERE) -> str: ...


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kueue(installed: ControlPlane) -> AsyncIterator[None]:
    await elastic.add_component(installed)
    async with installed.kueue(provide(tools=(KUEUE,))):
        await apply(installed, None, *_cluster_queues())
        yield
    await elastic.remove_component(installed)


def _cluster_queues() -> list[Object]:
    """They have more quota than the tests need, because deleted jobs keep theirs until they are garbage-collected."""
    nodes = {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": PINNED}
    made = [kueue_object("Topology", PINNED, {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})]
    for name, flavor in ((ANYWHERE, {}), (PINNED, nodes)):
        quota = {"name": name, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 1024}]}
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}]
        made.append(kueue_object("ResourceFlavor", name, flavor))
        made.append(kueue_object("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups}))
    return made


def kueue_object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def queue(installed: ControlPlane, namespace: str) -> MakesQueue:
    async def make(cluster_queue: str = ANYWHERE) -> str:
        await apply(installed, namespace, kueue_object("LocalQueue", QUEUE, {"clusterQueue": cluster_queue}))
        return QUEUE

    return make


async def workload_of(job: Job) -> Object:
    [found] = [
        each for each in await job.items(WORKLOADS) if each["metadata"]["ownerReferences"][0]["name"] == job.name
    ]
    return found


def condition(workload: Object, type_: str) -> Object:
    """The condition of that type. Empty: the Workload has none."""
    conditions: list[Object] = workload["status"]["conditions"]
    return next((each for each in conditions if each["type"] == type_), {})


async def set_stop_policy(job: Job, policy: str) -> None:
    """Set `stopPolicy` of the job's queue. `HoldAndDrain` evicts the job, `None` admits it again."""
    change = {"spec": {"stopPolicy": policy}}
    await api_verbs.patch(job.fleet.api, LOCAL_QUEUES, QUEUE, change, kind=PatchKind.MERGE, namespace=job.namespace)


async def is_suspended(job: Job) -> bool:
    found = json.loads(await api_verbs.get(job.fleet.api, TRAIN_JOBS, job.name, namespace=job.namespace))
    return bool(found["spec"]["suspend"])


def suspends(seen: SeenRequest) -> bool:
    return seen.resource in {"trainjobs", "jobsets"} and b'"suspend"' in seen.body


async def test_a_smaller_group_stays_admitted_with_the_quota_of_its_full_size_and_grows_back(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, fleet: Fleet, queue: MakesQueue
) -> None:
    job = await training(runtime=PREPARED, queue=await queue(), **ELASTIC)
    admitted = condition(await workload_of(job), "Admitted")
    whole = await job.child_uid()
    async with room_for(fleet, job), controller():
        rack = await take_away(job, RACK)
        smaller = await runs_with(job, 12, since_uid=whole)
        await job.closed_incidents(1)
        async with asyncio.timeout(GUARD_SECONDS):  # otherwise Kueue would evict it later
            while condition(workload := await workload_of(job), "PodsReady")["reason"] != "Recovered":
                await asyncio.sleep(0.1)
        [assigned] = workload["status"]["admission"]["podSetAssignments"]
        assert (assigned["count"], assigned["resourceUsage"]) == (16, {"nvidia.com/gpu": "128"})
        kubeconfig = str(job.control_plane.kubeconfig)
        told = json.loads((await recovery("status", "-n", job.namespace, "-o", "json", "--kubeconfig", kubeconfig)).out)
        assert [row["size"] for row in told] == [{"nodes": 12, "wantedNodes": 16, "quotaReserved": True}]
        await set_room(fleet, rack, room=True)
        await runs_with(job, 16, since_uid=smaller["metadata"]["uid"])
        await job.closed_incidents(2)
    workload = await workload_of(job)
    assert (condition(workload, "Admitted"), condition(workload, "Evicted")) == (admitted, {})
    assert proxy.writes(suspends) == [], "spec.suspend is Kueue's"


@pytest.mark.central
async def test_an_eviction_amid_a_shrink_supersedes_it_and_the_group_comes_back_smaller(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, fleet: Fleet, queue: MakesQueue
) -> None:
    job = await training(runtime=PREPARED, queue=await queue(), **ELASTIC)
    async with room_for(fleet, job), controller():
        first = proxy.hold(is_trigger)
        whole = await job.child_uid()
        await take_away(job, RACK)
        await first.wait()
        # The trigger for another Job: the first trigger is refused and sent again if its Job has just changed.
        shrink = proxy.hold(lambda seen: is_trigger(seen) and whole.encode() not in seen.body)
        first.release()
        await shrink.wait()
        await set_stop_policy(job, "HoldAndDrain")
        async with asyncio.timeout(GUARD_SECONDS):
            while not await is_suspended(job):
                await asyncio.sleep(0.05)
            shrink.release()
            [closed] = await job.closed_incidents(1)
            while await job.pods():
                await asyncio.sleep(0.1)
        assert (closed["outcome"], closed["outcomeReason"]) == ("Superseded", "JobSuspended")
        assert (await settings(job))["nodes"] == 12
        await set_stop_policy(job, "None")
        await runs_with(job, 12)
    [incident] = await incidents_of(job)
    assert actions(incident) == ["RecreateGroup", "Shrink"]
    assert condition(await workload_of(job), "Admitted")["status"] == "True"
    assert proxy.writes(suspends) == []
    assert fleet.world.trace.overlaps(job.training) == []


@pytest.mark.central
@pytest.mark.parametrize(
    ("cluster_queue", "action", "refused"),
    [(ANYWHERE, "AvoidNode", []), (PINNED, "RecreateGroup", [("AvoidNode", "NodeNotAvoided")])],
)
async def test_a_node_is_avoided_unless_kueue_chooses_the_nodes(
    training: StartsTraining,
    controller: StartsController,
    queue: MakesQueue,
    cluster_queue: str,
    action: str,
    refused: list[tuple[str, str]],
) -> None:
    job = await training(runtime=PREPARED, rules=[AVOID_43], queue=await queue(cluster_queue))
    suspect = await elastic.node_of_rank(job, 5)
    uid = await job.child_uid()
    async with controller():
        await exit_rank(job, 5, 43)
        await runs_with(job, 16, since_uid=uid)
        await job.closed_incidents(1)
    [incident] = await incidents_of(job)
    assert actions(incident) == [action]
    assert [(each["action"], each["reason"]) for each in incident.get("alternatives", [])] == refused
    nodes = {pod["spec"]["nodeName"] for pod in await job.pods()}
    assert (suspect in nodes) is (cluster_queue == PINNED)


@pytest.mark.central
async def test_where_kueue_chooses_the_nodes_it_replaces_a_quarantined_one(
    installed: ControlPlane, training: StartsTraining, controller: StartsController, fleet: Fleet, queue: MakesQueue
) -> None:
    """Each pod names its node, by Kueue's choice. None of these nodes is the last one that fits its pod: 8 are idle."""
    rule = {**AVOID_43, "action": "ReplaceNode"}
    job = await training(runtime=PREPARED, rules=[rule], queue=await queue(PINNED))
    suspect = await elastic.node_of_rank(job, 5)
    admitted, uid = condition(await workload_of(job), "Admitted"), await job.child_uid()
    async with with_config(installed, allow={"cordon": True}, quarantine={"maxNodes": 1}), controller():
        try:
            await exit_rank(job, 5, 43)
            await runs_with(job, 16, since_uid=uid)
            await job.closed_incidents(1)
        finally:
            await as_it_was(fleet, suspect)
    [incident] = await incidents_of(job)
    assert (actions(incident), incident.get("alternatives", [])) == (["ReplaceNode"], [])
    assert suspect not in {pod["spec"]["nodeName"] for pod in await job.pods()}
    workload = await workload_of(job)
    assert (condition(workload, "Admitted"), condition(workload, "Evicted")) == (admitted, {})


async def power_off_and_delete(back: AsyncExitStack, fleet: Fleet, nodes: Iterable[str]) -> None:
    """The nodes lose power, and a client deletes their objects. `back` brings them back."""
    for node in nodes:
        await back.enter_async_context(silent(fleet, node, NodeDeath.POWER_LOSS))
        await api_verbs.delete(fleet.api, NODES, node)


@pytest.mark.central
@pytest.mark.parametrize("how", ["drained", "deleted"])
async def test_where_kueue_chooses_the_nodes_it_replaces_one_that_another_client_takes(
    installed: ControlPlane,
    training: StartsTraining,
    controller: StartsController,
    fleet: Fleet,
    queue: MakesQueue,
    how: str,
) -> None:
    job = await training(runtime=PREPARED, ranks=4, queue=await queue(PINNED))
    node, uid = await elastic.node_of_rank(job, 1), await job.child_uid()
    admitted = condition(await workload_of(job), "Admitted")
    async with controller(), AsyncExitStack() as back:
        if how == "drained":
            back.push_async_callback(installed.kubectl, "uncordon", node)
            await installed.kubectl("drain", node, "--ignore-daemonsets", "--force", timeout_seconds=120)
        else:
            await power_off_and_delete(back, fleet, [node])
        await runs_with(job, 4, since_uid=uid)
        await job.closed_incidents(1)
        nodes = {pod["spec"]["nodeName"] for pod in await job.pods()}
    [incident] = await incidents_of(job)
    assert (incident["outcome"], actions(incident), incident["charged"]) == ("Recovered", ["RecreateGroup"], True)
    assert node not in nodes
    workload = await workload_of(job)
    assert (condition(workload, "Admitted"), condition(workload, "Evicted")) == (admitted, {})


@pytest.mark.central
async def test_where_kueue_chooses_the_nodes_it_evicts_a_job_that_loses_two(
    training: StartsTraining, controller: StartsController, fleet: Fleet, queue: MakesQueue
) -> None:
    job = await training(runtime=PREPARED, ranks=4, queue=await queue(PINNED))
    nodes, rounds = [await elastic.node_of_rank(job, rank) for rank in (1, 2)], len(fleet.world.rounds(job.training))
    admitted = condition(await workload_of(job), "Admitted")
    async with controller() as process, AsyncExitStack() as back:
        await power_off_and_delete(back, fleet, nodes)
        await until_rounds(job, rounds + 1)
        await has_reconciled(process, job)
        left = {pod["spec"]["nodeName"] for pod in await running_pods(job)}
    ended = [(each["outcome"], each["outcomeReason"]) for each in await incidents_of(job)]
    assert ended in ([], [("Superseded", "JobSuspended")]), "none, if Kueue was faster"
    assert "incident" not in await job.ledger()
    assert len(fleet.world.rounds(job.training)) == rounds + 1
    workload = await workload_of(job)
    assert condition(workload, "Admitted")["lastTransitionTime"] > admitted["lastTransitionTime"]
    assert not left & set(nodes)
    assert fleet.world.trace.overlaps(job.training) == []


@pytest.mark.central
async def test_pods_of_an_evicted_run_that_end_after_the_next_admission_open_no_incident(
    installed: ControlPlane,
    namespace: str,
    training: StartsTraining,
    runtime: MakesRuntime,
    controller: StartsController,
    proxy: ApiProxy,
    queue: MakesQueue,
) -> None:
    job = await training(ranks=4, gpus=1, runtime=await runtime(slow_to_end()), queue=await queue(), with_policy=False)
    await hangs(job)
    await apply(installed, namespace, policy(teardown={"graceSeconds": 1}))
    async with controller() as process:
        await has_reconciled(process, job)
        await set_stop_policy(job, "HoldAndDrain")
        async with asyncio.timeout(GUARD_SECONDS):
            while not await is_suspended(job):
                await asyncio.sleep(0.05)
        await set_stop_policy(job, "None")
        async with asyncio.timeout(GUARD_SECONDS):
            while await is_suspended(job):
                await asyncio.sleep(0.05)
        old = [pod["metadata"]["name"] for pod in await job.pods() if "deletionTimestamp" in pod["metadata"]]
        await runs_again(process, job, old)
    assert len(old) == job.ranks - 1, "the hung ones use their grace period"
    assert await job.items(RECOVERY_INCIDENTS) == await job.groups() == []
    assert workload_writes(proxy) == []


@pytest.mark.central
async def test_a_workload_that_kueue_gave_up_on_is_explained(training: StartsTraining, queue: MakesQueue) -> None:
    """The condition is the one that Kueue sets when `backoffLimitCount` is exceeded. All after it is Kueue's own."""
    job = await training(ranks=1, gpus=1, queue=await queue())
    target = {
        "type": "DeactivationTarget",
        "status": "True",
        "reason": "RequeuingLimitExceeded",
        "message": "exceeding the maximum number of re-queuing retries",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    name = (await workload_of(job))["metadata"]["name"]
    change = [{"op": "add", "path": "/status/conditions/-", "value": target}]
    await api_verbs.patch(
        job.fleet.api, WORKLOADS, name, change, kind=PatchKind.JSON, namespace=job.namespace, subresource="status"
    )
    async with asyncio.timeout(GUARD_SECONDS):
        while not await is_suspended(job) or not condition(await workload_of(job), "Evicted"):
            await asyncio.sleep(0.1)
    told = ("-n", job.namespace, "-o", "json", "--kubeconfig", str(job.control_plane.kubeconfig))
    state, how, limit = json.loads((await recovery("explain", job.name, *told)).out)["kueue"]
    assert state.startswith(f"Kueue has given up on the job: its Workload {name} is not active since ")
    assert "(DeactivatedDueToRequeuingLimitExceeded: The workload is deactivated due to exceeding the maximum" in state
    assert how.startswith(f"kubectl delete workload {name} ")
    assert "recoveryTimeout" in limit
    [row] = json.loads((await recovery("status", *told)).out)
    assert (row["phase"], row["message"]) == ("Suspended", state)
    await job.control_plane.kubectl("delete", "workload", name, "-n", job.namespace)
    async with asyncio.timeout(GUARD_SECONDS):
        while await is_suspended(job):
            await asyncio.sleep(0.1)


async def test_a_job_without_a_queue_is_not_taken_for_one_ofkueue_object(training: StartsTraining) -> None:
    """Kueue's webhook adds its entry even to such a job."""
    job = await training(ranks=1, with_policy=False)
    raw = await api_verbs.get(job.fleet.api, TRAIN_JOBS, job.name, namespace=job.namespace)
    assert [each["manager"] for each in json.loads(raw)["spec"]["runtimePatches"]] == [KUEUE_PATCH_MANAGER]
    assert decode_train_job(raw).value.patched_by == ()
