"""What happens to pods whose node is lost. All of it is slow by design, so the tests start together."""

from recovery.ports import JOBS, NODES, PODS, PatchKind
from recovery.sim.kubelets.node_run import NodeDeath
from tests.contract.bodies import job, pod
from tests.contract.expectations import slow_expectation
from tests.contract.scene import Object, Scene, Story, condition, deleting, ended, ready, uid, uids

LOST_SECONDS = 100.0
"""A silent node is marked by then: 50 s of grace, the interval of the node controller, one node in 10 s."""
CLEANED_SECONDS = 150.0
"""By then the pod garbage collector has run twice, and has waited until it is sure that a node is missing."""
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def node_name(scene: Scene) -> str:
    return f"node-{scene.namespace[-6:]}"


async def on_its_own_node(scene: Scene, **jobs: Object) -> tuple[Story, Story, list[Object]]:
    """Stories of nodes and pods, and a pod for each Job (name -> arguments of `pod_spec`) on one node of the scene."""
    name = node_name(scene)
    await scene.add_nodes(name)
    nodes, pods = await scene.follow(NODES), await scene.follow(PODS)
    for each, spec in jobs.items():
        await scene.create(JOBS, job(each, 1, pod={"node": name, **spec}))
    await scene.running(pods, len(jobs))
    placed = [pod_of(pods, each) for each in jobs]
    assert {each["spec"]["nodeName"] for each in placed} == {name}
    return nodes, pods, placed


def pods_of(pods: Story, job_name: str) -> list[Object]:
    return [each for each in pods.present.values() if each["metadata"]["labels"]["job-name"] == job_name]


def pod_of(pods: Story, job_name: str) -> Object:
    """The only pod of that Job."""
    [found] = pods_of(pods, job_name)
    return found


def taints(nodes: Story, name: str) -> list[tuple[str, str]]:
    found = (nodes.named(name) or {}).get("spec", {}).get("taints", [])
    return sorted((each["key"], each["effect"]) for each in found)


async def is_tainted(scene: Scene, nodes: Story) -> None:
    await scene.until(
        "the node is tainted as unreachable",
        lambda: taints(nodes, node_name(scene)) == [(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")],
        LOST_SECONDS,
    )


def asked_to_go(pods: Story, one: Object) -> bool:
    return uid(one) in pods.present and deleting(pods.present[uid(one)])


def disruption(pod: Object) -> str:
    """The reason of its DisruptionTarget condition. Empty: it has none."""
    return str((condition(pod, "DisruptionTarget") or {}).get("reason", ""))


@slow_expectation
async def test_a_silent_node_is_marked_and_what_becomes_of_its_pods_depends_on_them(scene: Scene) -> None:
    """One pod tolerates it for long, one has no grace, one has; then the node is back, its processes still running."""
    name = node_name(scene)
    nodes, pods, [patient, graceless, graceful] = await on_its_own_node(
        scene,
        patient={"tolerated_seconds": 300},
        graceless={"grace_seconds": 0},
        graceful={"grace_seconds": 30},
    )
    scene.kubelets.kill_node(name, NodeDeath.PARTITION)
    await is_tainted(scene, nodes)
    told = {each["type"]: each for each in (nodes.named(name) or {})["status"]["conditions"]}
    assert (told["Ready"]["status"], told["Ready"]["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert told["MemoryPressure"]["status"] == "Unknown"
    await scene.until("its pods are not ready", lambda: not ready(pods))
    assert not deleting(pods.present[uid(patient)])

    await scene.until("the pod without grace is gone", lambda: uid(graceless) not in pods.present)
    states = pods.states(uid(graceless))
    assert {disruption(state) for state in states} == {"", "DeletionByTaintManager"}
    assert not any(ended(state) for state in states), "nobody has seen its processes end"
    await scene.until("its Job has made another", lambda: bool(pods_of(pods, "graceless")))
    assert "nodeName" not in pod_of(pods, "graceless")["spec"], "which finds no other node"

    await scene.until("the pod with grace is asked to go", lambda: asked_to_go(pods, graceful))
    asked = pods.present[uid(graceful)]
    assert disruption(asked) == "DeletionByTaintManager"
    assert (asked["metadata"]["deletionGracePeriodSeconds"], asked["status"]["phase"]) == (30, "Running")

    scene.kubelets.revive_node(name)
    await scene.until("the taints are gone", lambda: taints(nodes, name) == [])
    await scene.until("the pod with grace is gone", lambda: uid(graceful) not in pods.present)
    assert ended(pods.states(uid(graceful))[-1]), "its kubelet has ended it"
    await scene.until("three pods run again", lambda: len(ready(pods)) == 3)
    assert uid(patient) in uids(ready(pods)), "it was never asked to go"
    assert disruption(pods.present[uid(patient)]) == ""


@slow_expectation
async def test_a_pod_of_a_dead_node_stays_until_that_is_said_to_be_out_of_service(scene: Scene) -> None:
    name = node_name(scene)
    nodes, pods, [one] = await on_its_own_node(scene, llm={"grace_seconds": 2, "tolerated_seconds": 1})
    scene.kubelets.kill_node(name, NodeDeath.POWER_LOSS)
    # Reported by someone who knows within less than 50 s. The node controller acts on it as if it were its own.
    lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "power is off"}
    await scene.patch(NODES, name, {"status": {"conditions": [lost]}}, PatchKind.STRATEGIC, "status")
    await is_tainted(scene, nodes)
    await scene.until("the pod is asked to go", lambda: asked_to_go(pods, one))
    await scene.pass_seconds(4)
    stuck = await scene.read(PODS, one["metadata"]["name"])
    assert (uid(stuck), deleting(stuck), stuck["status"]["phase"]) == (uid(one), True, "Running")
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    await scene.patch(NODES, name, {"spec": {"taints": [taint]}}, PatchKind.STRATEGIC)
    await scene.until("the pod is gone", lambda: uid(one) not in pods.present, CLEANED_SECONDS)
    last = pods.states(uid(one))[-1]
    assert (last["status"]["phase"], disruption(last)) == ("Failed", "DeletionByTaintManager")


@slow_expectation
async def test_a_pod_whose_node_object_is_deleted_is_cleaned_up(scene: Scene) -> None:
    _, pods, [one] = await on_its_own_node(scene, llm={"grace_seconds": 30, "tolerated_seconds": 300})
    await scene.kubelets.remove_node(node_name(scene))
    await scene.until("the pod is gone", lambda: uid(one) not in pods.present, CLEANED_SECONDS)
    last = pods.states(uid(one))[-1]
    assert (last["status"]["phase"], disruption(last)) == ("Failed", "DeletionByPodGC")


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
