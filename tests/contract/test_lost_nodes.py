"""What becomes of pods whose node is lost. All of it is slow by design, so the tests begin together."""

from recovery.ports import JOBS, NODES, PODS, PatchKind
from recovery.sim.kubelets.nodes import NodeDeath
from tests.contract.bodies import job, pod
from tests.contract.expectations import slow_expectation
from tests.contract.scene import Object, Scene, Story, condition, deleting, ended, index_of, ready, uid, uids

LOST_SECONDS = 100.0
"""By then a node that has fallen silent is marked: 50 s of grace, and the round of who marks it."""
CLEANED_SECONDS = 150.0
"""By then the pod garbage collector has looked twice, and has waited for its own certainty about a missing node."""
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def node_name(scene: Scene) -> str:
    return f"node-{scene.namespace[-6:]}"


async def on_its_own_node(
    scene: Scene, *, grace_seconds: int, tolerated_seconds: int = 2
) -> tuple[Story, Story, Object]:
    """Stories of nodes and pods; a Job's one pod, which runs on a node that nobody else uses."""
    name = node_name(scene)
    await scene.add_nodes(name)
    nodes, pods = await scene.follow(NODES), await scene.follow(PODS)
    spec = {"node": name, "grace_seconds": grace_seconds, "tolerated_seconds": tolerated_seconds}
    await scene.create(JOBS, job("llm", 1, pod=spec))
    [one] = await scene.running(pods, 1)
    assert one["spec"]["nodeName"] == name
    return nodes, pods, one


def taints(nodes: Story, name: str) -> list[tuple[str, str]]:
    found = (nodes.named(name) or {}).get("spec", {}).get("taints", [])
    return sorted((each["key"], each["effect"]) for each in found)


async def marked(scene: Scene, nodes: Story) -> None:
    """Wait until the control plane has noticed that the node is silent."""
    name = node_name(scene)
    await scene.until(
        "the node is marked as unreachable",
        lambda: taints(nodes, name) == [(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")],
        LOST_SECONDS,
    )
    conditions = {each["type"]: each for each in (nodes.named(name) or {})["status"]["conditions"]}
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert conditions["MemoryPressure"]["status"] == "Unknown"


@slow_expectation
async def test_a_pod_without_grace_is_gone_with_its_node(scene: Scene) -> None:
    nodes, pods, one = await on_its_own_node(scene, grace_seconds=0)
    scene.kubelets.kill_node(node_name(scene), NodeDeath.POWER_LOSS)
    await marked(scene, nodes)
    await scene.until("the pod is gone", lambda: uid(one) not in pods.present)
    states = pods.states(uid(one))
    reasons = {(condition(state, "DisruptionTarget") or {}).get("reason") for state in states} - {None}
    assert reasons == {"DeletionByTaintManager"}
    assert any(condition(state, "Ready") is None and not deleting(state) for state in states[2:]), "not ready at first"
    assert not any(ended(state) for state in states), "nobody has seen its processes end"
    await scene.until("its Job has made another", lambda: bool(pods.present))
    [other] = pods.present.values()
    assert index_of(other) == 0
    assert "nodeName" not in other["spec"], "which finds no other node"


@slow_expectation
async def test_a_pod_with_grace_stays_until_its_node_is_said_to_be_out_of_service(scene: Scene) -> None:
    nodes, pods, one = await on_its_own_node(scene, grace_seconds=3)
    scene.kubelets.kill_node(node_name(scene), NodeDeath.POWER_LOSS)
    await marked(scene, nodes)
    await scene.until("the pod is asked to go", lambda: uid(one) in pods.present and deleting(pods.present[uid(one)]))
    asked = pods.present[uid(one)]
    assert (condition(asked, "DisruptionTarget") or {})["reason"] == "DeletionByTaintManager"
    assert asked["metadata"]["deletionGracePeriodSeconds"] == 3
    await scene.pass_seconds(6)
    stuck = await scene.read(PODS, one["metadata"]["name"])
    assert (uid(stuck), deleting(stuck), stuck["status"]["phase"]) == (uid(one), True, "Running")
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    await scene.patch(NODES, node_name(scene), {"spec": {"taints": [taint]}}, PatchKind.STRATEGIC)
    await scene.until("the pod is gone", lambda: uid(one) not in pods.present, CLEANED_SECONDS)
    last = pods.states(uid(one))[-1]
    assert last["status"]["phase"] == "Failed"
    assert (condition(last, "DisruptionTarget") or {})["reason"] == "DeletionByTaintManager"


@slow_expectation
async def test_a_pod_whose_node_object_is_deleted_is_cleaned_up(scene: Scene) -> None:
    _, pods, one = await on_its_own_node(scene, grace_seconds=30, tolerated_seconds=300)
    await scene.kubelets.remove_node(node_name(scene))
    await scene.until("the pod is gone", lambda: uid(one) not in pods.present, CLEANED_SECONDS)
    last = pods.states(uid(one))[-1]
    assert last["status"]["phase"] == "Failed"
    assert (condition(last, "DisruptionTarget") or {})["reason"] == "DeletionByPodGC"


@slow_expectation
async def test_a_pod_that_is_asked_to_go_ends_when_its_node_comes_back(scene: Scene) -> None:
    nodes, pods, one = await on_its_own_node(scene, grace_seconds=30)
    name = node_name(scene)
    scene.kubelets.kill_node(name, NodeDeath.PARTITION)
    await marked(scene, nodes)
    await scene.until("the pod is asked to go", lambda: uid(one) in pods.present and deleting(pods.present[uid(one)]))
    scene.kubelets.revive_node(name)
    [other] = await scene.others_run(pods, 1, one)
    await scene.until("the old pod is gone", lambda: uid(one) not in pods.present)
    assert ended(pods.states(uid(one))[-1])
    assert other["spec"]["nodeName"] == name
    assert taints(nodes, name) == []


@slow_expectation
async def test_a_node_that_is_back_in_time_keeps_its_pods(scene: Scene) -> None:
    nodes, pods, one = await on_its_own_node(scene, grace_seconds=1, tolerated_seconds=300)
    name = node_name(scene)
    scene.kubelets.kill_node(name, NodeDeath.PARTITION)
    await marked(scene, nodes)
    await scene.until("the pod is not ready", lambda: not ready(pods))
    assert [uid(body) for body in pods.present.values() if not deleting(body)] == [uid(one)]
    scene.kubelets.revive_node(name)
    await scene.until("the taints are gone", lambda: taints(nodes, name) == [])
    assert uids(await scene.running(pods, 1)) == {uid(one)}
    assert condition(pods.present[uid(one)], "DisruptionTarget") is None


@slow_expectation
async def test_pods_go_nowhere_where_there_is_no_room_and_go_on_when_there_is(scene: Scene) -> None:
    name = node_name(scene)
    pods = await scene.follow(PODS)
    await scene.create(PODS, pod("one", node=name))
    await scene.until(
        "the scheduler has said why not",
        lambda: any(
            each["type"] == "PodScheduled" and each["status"] == "False"
            for each in (pods.named("one") or {"status": {}})["status"].get("conditions", [])
        ),
    )
    [why] = [each for each in (pods.named("one") or {})["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert why["reason"] == "Unschedulable"
    assert "nodes are available" in why["message"]
    await scene.add_nodes(name)
    await scene.running(pods, 1)
    await scene.patch(NODES, name, {"spec": {"unschedulable": True}})
    await scene.create(PODS, pod("two", node=name))
    await scene.pass_seconds(3)
    assert "nodeName" not in (pods.named("two") or {})["spec"]
    assert len(ready(pods)) == 1, "cordoning ends nothing"
    await scene.patch(NODES, name, {"spec": {"unschedulable": None}})
    await scene.running(pods, 2)
