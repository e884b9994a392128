"""A node dies under a 16-pod training whose pods have a grace of 30 s. Stock Kubernetes never restarts the training.

The pod on such a node never ends by itself, and the group waits for it. The group continues with proof that the pod's
processes are dead, or with permission to assume it. Without either the controller waits, says so, and continues when
the node is back.

The tests mark a silent node at once, as a fencing agent or a cloud's node controller does. The node lifecycle
controller would take 50 s.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

import pytest
import pytest_asyncio
import yaml

from recovery import api_verbs
from recovery.ports import NODES, PODS, NotFoundError, PatchKind
from recovery.sim.kubelets.node_run import NodeDeath
from recovery.sim.training.trace import EventKind
from tests.cluster.acts import incidents_of, set_room, until_said
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, workload_writes
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Fleet, Job, Object, apply, until
from tests.cluster.stations import is_trigger
from tests.cluster.verdict import Before, Member, assert_one_trigger, moment, remember

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]

GRACE_SECONDS = 30
NATIVE_GRACE_SECONDS = 2
HASTY_SECONDS, PATIENT_SECONDS = 2, 300
"""How long pods tolerate a node that does not answer, before the taint manager deletes them."""
MARKED_WITHIN_SECONDS = 120.0
"""50 s of grace, and the period of the node lifecycle controller, on a busy machine."""
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
ASSUME_AT_ONCE = {"graceSeconds": 1, "fencing": {"mode": "AssumeDead", "assumeDeadAfter": "0s"}}

RecordProperty = Callable[[str, object], None]


class Permits(Protocol):
    """The type of the fixture `permit`. It writes the RecoveryConfig. There is none before and after the test."""

    async def __call__(self, **spec: Any) -> None: ...


@pytest_asyncio.fixture(loop_scope="session")
async def permit(installed: ControlPlane) -> AsyncIterator[Permits]:
    async def write(**spec: Any) -> None:
        meaning = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryConfig"}
        await apply(installed, None, {**meaning, "metadata": {"name": "default"}, "spec": spec})

    yield write
    await installed.kubectl("delete", "recoveryconfig", "default", "--ignore-not-found")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def runtimes(installed: ControlPlane) -> AsyncIterator[None]:
    """Shipped runtimes with other grace periods and tolerations.

    `torch-hasty` and `torch-patient`: the prepared one with 30 s of grace. `torch-native`: the one that JobSet itself
    restarts. JobSet gives hung ranks their whole grace.
    """
    made = (
        ("torch-hasty", "runtime-prepared", GRACE_SECONDS, HASTY_SECONDS),
        ("torch-patient", "runtime-prepared", GRACE_SECONDS, PATIENT_SECONDS),
        ("torch-native", "runtime-failure-policy", NATIVE_GRACE_SECONDS, HASTY_SECONDS),
    )
    for name, shipped, grace_seconds, tolerated_seconds in made:
        body = yaml.safe_load((REPOSITORY / "policies" / f"{shipped}.yaml").read_text())
        body["metadata"]["name"] = name
        [replicated] = body["spec"]["template"]["spec"]["replicatedJobs"]
        pod = replicated["template"]["spec"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = grace_seconds
        for toleration in pod["tolerations"]:
            toleration["tolerationSeconds"] = tolerated_seconds
        await apply(installed, None, body)
    yield
    await installed.kubectl("delete", "clustertrainingruntime", *(name for name, *_ in made), "--wait=false")


@asynccontextmanager
async def silent(fleet: Fleet, name: str, how: NodeDeath) -> AsyncIterator[None]:
    """The node is silent inside the block. Afterwards it is back, whatever happened to its objects."""
    fleet.kubelets.kill_node(name, how)
    try:
        yield
    finally:
        await come_back(fleet, name)


async def come_back(fleet: Fleet, name: str) -> None:
    """Remove the out-of-service taint and revive the kubelet, and wait until the node takes pods again."""
    try:
        node = await node_of(fleet, name)
        kept = [taint for taint in node["spec"].get("taints", []) if taint["key"] != OUT_OF_SERVICE["key"]]
        await api_verbs.patch(fleet.api, NODES, name, {"spec": {"taints": kept}}, kind=PatchKind.MERGE)
    except NotFoundError:
        pass  # Its kubelet creates it again.
    fleet.kubelets.revive_node(name)
    async with asyncio.timeout(GUARD_SECONDS):
        while not await ready(fleet, name):
            await asyncio.sleep(0.1)


async def node_of(fleet: Fleet, name: str) -> Object:
    found: Object = json.loads(await api_verbs.get(fleet.api, NODES, name))
    return found


def readiness(node: Object) -> Object:
    [condition] = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
    found: Object = condition
    return found


async def ready(fleet: Fleet, name: str) -> bool:
    """The node is Ready, and no taint keeps pods off it."""
    try:
        node = await node_of(fleet, name)
    except NotFoundError:
        return False
    return bool(readiness(node)["status"] == "True") and not node["spec"].get("taints")


async def mark_not_ready(fleet: Fleet, name: str) -> datetime:
    """Set Ready to Unknown on a node; the node lifecycle controller does the rest. Returns the transition time."""
    now = fleet.clock.now().replace(microsecond=0)
    said = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "power is off"}
    condition = said | {"lastTransitionTime": now.isoformat().replace("+00:00", "Z")}
    await api_verbs.patch(
        fleet.api, NODES, name, {"status": {"conditions": [condition]}}, kind=PatchKind.STRATEGIC, subresource="status"
    )
    return now


async def marked_not_ready(fleet: Fleet, name: str) -> datetime:
    """Wait until the node lifecycle controller has marked the node. Returns the transition time."""
    async with asyncio.timeout(MARKED_WITHIN_SECONDS):
        while True:
            condition = readiness(await node_of(fleet, name))
            if condition["status"] == "Unknown":
                return moment(condition["lastTransitionTime"])
            await asyncio.sleep(0.1)


async def trains_elsewhere(job: Job, before: Before, dead: Member, since: datetime) -> timedelta:
    """Wait until all ranks of a new Job, none on that node, train past the old step. Returns how long that took.

    The wait is shorter than the 300 s after which stock Kubernetes deletes the pods of `torch-patient`. `since` is an
    API time in whole seconds. The old ranks may have met in the same second, and do not count.
    """
    world = job.fleet.world
    await until(f"{job.training} trains again", lambda: world.passed(job.training, before.step, before.at))
    nodes = [pod["spec"]["nodeName"] for pod in await job.pods()]
    assert len(nodes) == job.ranks
    assert dead.node not in nodes
    assert await job.child_uid() != before.job_uid
    return next(formed.formed_at for formed in world.rounds(job.training) if formed.formed_at >= before.at) - since


def forced(proxy: ApiProxy) -> list[str]:
    """Names of the pods that the controller deleted without any grace."""
    deletes = proxy.writes(lambda seen: (seen.method, seen.resource) == ("DELETE", "pods"))
    return [seen.path.rsplit("/", 1)[-1] for seen in deletes if json.loads(seen.body).get("gracePeriodSeconds") == 0]


async def assert_fenced_once(
    job: Job, proxy: ApiProxy, before: Before, dead: Member, *, collected: bool = False
) -> Object:
    """One recovery wrote the ledger first, and force-deleted only the dead pod, by its UID. Returns the incident.

    `collected`: the controller-manager force-deletes the pod too, and may be first.
    """
    [closed] = await job.closed_incidents(1)
    [incident] = await incidents_of(job)
    assert closed["outcome"] == "Recovered", closed
    assert incident["class"] == "NodeLost"
    assert incident["suspects"][0]["node"] == dead.node
    kinds = [f"{write.method} {write.resource}" for write in proxy.writes()]
    first = min(kinds.index(kind) for kind in ("PATCH jobs", "DELETE jobs") if kind in kinds)
    assert kinds.index("PATCH recoverygroups/status") < first < kinds.index("DELETE pods")
    assert_one_trigger(proxy)
    assert set(forced(proxy)) == {dead.pod} or (collected and not forced(proxy))
    asked = proxy.writes(lambda seen: seen.method == "DELETE" and seen.path.endswith(f"/pods/{dead.pod}"))
    assert all("uid" in json.loads(seen.body)["preconditions"] for seen in asked)
    totals = (await job.ledger())["totals"]
    assert (totals["incidents"], totals["restarts"], totals["charged"]) == (1, 1, 1)
    return incident


async def by_the_controller(job: Job, proxy: ApiProxy, before: Before, dead: Member) -> None:
    incident = await assert_fenced_once(job, proxy, before, dead)
    assert "assumes that it is dead (AssumeDead)" in incident["message"]


async def by_the_platform(job: Job, proxy: ApiProxy, before: Before, dead: Member) -> None:
    """JobSet restarts it itself, but waits for the pod of the dead node. The controller only deletes that pod."""
    del before
    [closed] = await job.closed_incidents(1)
    assert closed["outcome"] == "Recovered", closed
    assert set(forced(proxy)) == {dead.pod}
    assert proxy.writes(is_trigger) == [], "no deletion on top of the platform's own"
    [incident] = await incidents_of(job)
    assert "Adopted" in [attempt["action"] for attempt in incident["attempts"]]


@pytest.mark.usefixtures("runtimes")
@pytest.mark.parametrize(
    ("runtime", "assert_restarted"),
    [("torch-patient", by_the_controller), ("torch-native", by_the_platform)],
    ids=["restarted-by-the-controller", "restarted-by-the-platform"],
)
async def test_a_dead_node_that_may_be_assumed_dead(
    runtime: str,
    assert_restarted: Callable[[Job, ApiProxy, Before, Member], Awaitable[None]],
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    permit: Permits,
    record_property: RecordProperty,
) -> None:
    await permit(allow={"assumeDead": True})
    job = await training(runtime=runtime, teardown=ASSUME_AT_ONCE)
    async with controller():
        before = await remember(job)
        dead = before[5]
        async with silent(job.fleet, dead.node, NodeDeath.POWER_LOSS):
            since = await mark_not_ready(job.fleet, dead.node)
            took = await trains_elsewhere(job, before, dead, since)
            await assert_restarted(job, proxy, before, dead)
    # The platform spends most of it before it evicts the pod.
    record_property("seconds_from_not_ready", took.total_seconds())
    assert job.fleet.world.trace.overlaps(job.training) == []


@pytest.mark.usefixtures("runtimes")
async def test_a_dead_node_whose_node_object_is_deleted(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, record_property: RecordProperty
) -> None:
    """Until then the controller does nothing, because a node that does not answer may still compute."""
    job = await training(runtime="torch-patient")
    async with controller() as process:
        before = await remember(job)
        dead = before[5]
        async with silent(job.fleet, dead.node, NodeDeath.POWER_LOSS):
            await mark_not_ready(job.fleet, dead.node)
            await has_reconciled(process, job)
            assert workload_writes(proxy) == []
            since = job.fleet.clock.now()
            await api_verbs.delete(job.fleet.api, NODES, dead.node)
            took = await trains_elsewhere(job, before, dead, since)
            incident = await assert_fenced_once(job, proxy, before, dead)
    record_property("seconds_from_deletion", took.total_seconds())
    assert f"node {dead.node} was deleted" in incident["message"]
    assert job.fleet.world.trace.overlaps(job.training) == []


@pytest.mark.usefixtures("runtimes")
async def test_a_dead_node_that_is_tainted_out_of_service(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, record_property: RecordProperty
) -> None:
    """Its pod is already being deleted, and the group waits only for the proof that the node is dead."""
    job = await training(runtime="torch-hasty")
    async with controller():
        before = await remember(job)
        dead = before[5]
        async with silent(job.fleet, dead.node, NodeDeath.POWER_LOSS):
            await mark_not_ready(job.fleet, dead.node)
            await waits_for_proof(job, proxy, before, dead)
            since = job.fleet.clock.now()
            taint = {"spec": {"taints": [OUT_OF_SERVICE]}}
            await api_verbs.patch(job.fleet.api, NODES, dead.node, taint, kind=PatchKind.STRATEGIC)
            took = await trains_elsewhere(job, before, dead, since)
            # Every 20 s the pod garbage collector looks for nodes that are not Ready and have that taint.
            await assert_fenced_once(job, proxy, before, dead, collected=True)
    record_property("seconds_from_out_of_service", took.total_seconds())
    assert job.fleet.world.trace.overlaps(job.training) == []


async def waits_for_proof(job: Job, proxy: ApiProxy, before: Before, dead: Member) -> Object:
    """Wait until only the pod of the dead node is left, and the controller says what it waits for."""
    await job.reaches("Fencing")
    said = await until_said(
        job, "its processes may still run until its Node object is deleted or has the out-of-service taint"
    )
    assert dead.node in said["message"]

    async def left() -> list[str]:
        old = [pod for pod in await job.pods() if pod["metadata"]["name"] in {member.pod for member in before.members}]
        return [pod["metadata"]["name"] for pod in old]

    async with asyncio.timeout(GUARD_SECONDS):
        while await left() != [dead.pod]:
            await asyncio.sleep(0.1)
    assert forced(proxy) == []
    return said


@pytest.mark.usefixtures("runtimes")
async def test_without_leave_to_assume_it_waits_and_finishes_when_the_node_returns(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, permit: Permits
) -> None:
    """The policy would assume the node dead at once. RecoveryConfig does not allow it, and the message says so."""
    await permit(allow={"assumeDead": False})
    job = await training(runtime="torch-hasty", teardown=ASSUME_AT_ONCE)
    async with controller():
        before = await remember(job)
        dead = before[5]
        async with silent(job.fleet, dead.node, NodeDeath.POWER_LOSS):
            await mark_not_ready(job.fleet, dead.node)
            said = await waits_for_proof(job, proxy, before, dead)
            assert "RecoveryConfig does not allow assumeDead" in said["message"]
            since = job.fleet.clock.now()
            # The new group must run elsewhere: a pod is evicted if it comes before the node's NoExecute taint is gone.
            await set_room(job.fleet, [dead.node], room=False)
            try:
                job.fleet.kubelets.revive_node(dead.node)
                await until("it trains", lambda: job.fleet.world.passed(job.training, before.step, since))
                [closed] = await job.closed_incidents(1)
            finally:
                await set_room(job.fleet, [dead.node], room=True)
    assert closed["outcome"] == "Recovered"
    assert forced(proxy) == []
    assert_one_trigger(proxy)
    assert job.fleet.world.trace.overlaps(job.training) == []


@pytest.mark.usefixtures("runtimes")
async def test_a_partitioned_node_comes_back_with_its_old_pod_and_no_old_rank_counts(
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    permit: Permits,
    record_property: RecordProperty,
) -> None:
    """Its rank lives until the node can be reached. AssumeDead accepts this, and only the new ranks train."""
    await permit(allow={"assumeDead": True})
    job = await training(runtime="torch-patient", teardown=ASSUME_AT_ONCE)
    world = job.fleet.world
    async with controller() as process:
        before = await remember(job)
        cut_off = before[5]
        async with silent(job.fleet, cut_off.node, NodeDeath.PARTITION):
            since = await mark_not_ready(job.fleet, cut_off.node)
            took = await trains_elsewhere(job, before, cut_off, since)
            await assert_fenced_once(job, proxy, before, cut_off)
            assert alive(job, before.job_uid) == 1, "the old rank lives, and no one can tell it to end"
            step = world.step_of(job.training)
        await until("the old rank has ended", lambda: alive(job, before.job_uid) == 0)
        await job.trains(past=step)
        await has_reconciled(process, job)
    record_property("seconds_from_not_ready", took.total_seconds())
    new = world.rounds(job.training)[-1]
    counted = world.trace.of(job.training, EventKind.ROUND_FORMED, EventKind.CHECKPOINT)
    assert {record.job_uid for record in counted if record.at >= new.formed_at} == {new.job_uid}
    assert len(world.rounds(job.training)) == 2
    assert [incident["outcome"] for incident in await incidents_of(job)] == ["Recovered"], "its return is no failure"


def alive(job: Job, job_uid: str) -> int:
    """How many processes of that Job run."""
    trace = job.fleet.world.trace
    started = [each for each in trace.of(job.training, EventKind.PROCESS_STARTED) if each.job_uid == job_uid]
    ended = [each for each in trace.of(job.training, EventKind.PROCESS_EXITED) if each.job_uid == job_uid]
    return len(started) - len(ended)


@pytest.mark.usefixtures("runtimes")
async def test_a_drain_of_two_nodes_is_one_incident_and_one_restart(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy, installed: ControlPlane
) -> None:
    """`kubectl drain` as people run it: it cordons both, then evicts one pod after the other."""
    job = await training(runtime="torch-patient")
    async with controller() as process:
        before = await remember(job)
        drained = [before[5], before[9]]
        names = [member.node for member in drained]
        try:
            await installed.kubectl("drain", *names, "--ignore-daemonsets", "--force", timeout_seconds=120)
            await job.closed_incidents(1)
            await until("it trains", lambda: job.fleet.world.passed(job.training, before.step, before.at))
            await has_reconciled(process, job)
            nodes = {pod["spec"]["nodeName"] for pod in await job.pods()}
        finally:
            await installed.kubectl("uncordon", *names)
    [incident] = await incidents_of(job)
    assert (incident["outcome"], incident["class"]) == ("Recovered", "PodDisrupted")
    assert [attempt["action"] for attempt in incident["attempts"]] == ["RecreateGroup"]
    assert_one_trigger(proxy)
    assert not nodes & set(names)
    assert incident["suspects"][0]["node"] in names
    assert forced(proxy) == []
    assert len(job.fleet.world.rounds(job.training)) == 2
    pods = json.loads(await api_verbs.list_page(job.fleet.api, PODS, namespace=job.namespace))["items"]
    assert len(pods) == job.ranks
