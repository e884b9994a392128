"""How pods are deleted: what a deletion writes, in which order, and what has to happen before the object is gone."""

import json
from datetime import datetime, timedelta
from typing import Any

from recovery import api_verbs
from recovery.kube.projections.pods import decode_pod
from recovery.ports import PODS, PatchKind
from tests.contract.bodies import pod
from tests.contract.expectations import expectation
from tests.contract.scene import Object, Scene, Story, condition, deleting
from tests.contract.workload import DEAF, exits


async def running(scene: Scene, **spec: Any) -> tuple[Story, Object]:
    pods = await scene.follow(PODS)
    await scene.create(PODS, pod("one", **spec))
    [one] = await scene.running(pods, 1)
    return pods, one


async def delete(scene: Scene, grace_seconds: int | None = None) -> None:
    await api_verbs.delete(scene.api, PODS, "one", namespace=scene.namespace, grace_seconds=grace_seconds)


def leaving(states: list[Object]) -> list[Object]:
    return [state for state in states if deleting(state)]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@expectation
async def test_a_pod_that_is_asked_to_go_says_so_ends_and_is_gone(scene: Scene) -> None:
    pods, one = await running(scene, grace_seconds=20)
    await delete(scene)
    await scene.until("it is gone", lambda: not pods.present)
    states = leaving(pods.states(one["metadata"]["uid"]))
    assert [event.type for event in pods.events][-len(states) :] == ["MODIFIED"] * (len(states) - 1) + ["DELETED"]
    asked, last = states[0], states[-1]
    assert asked["metadata"]["deletionGracePeriodSeconds"] == 20
    assert asked["status"]["phase"] == "Running", "asked to go, still there"
    [container] = last["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 143
    assert last["status"]["phase"] == "Failed"
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0, "the kubelet's own deletion is the last one"
    asked_for = moment(asked["metadata"]["deletionTimestamp"]) - timedelta(seconds=20)
    assert moment(last["metadata"]["deletionTimestamp"]) - asked_for < timedelta(seconds=10)


@expectation
async def test_a_grace_of_centuries_wraps_around_and_still_tells_when_it_was_asked_for(scene: Scene) -> None:
    """The server counts it in int64 nanoseconds: 1e11 seconds end in 246 years."""
    pods, one = await running(scene, image=DEAF)
    await delete(scene, grace_seconds=10**11)
    await scene.until("it is asked to go", lambda: any(map(deleting, pods.present.values())))
    [asked] = pods.present.values()
    assert asked["metadata"]["deletionGracePeriodSeconds"] == 10**11
    asked_at = decode_pod(json.dumps(asked).encode()).value.facts.deleting_since
    assert asked_at is not None
    assert moment(asked["metadata"]["deletionTimestamp"]).year - asked_at.year in (246, 247)
    assert timedelta() <= asked_at - moment(one["metadata"]["creationTimestamp"]) < timedelta(hours=1)
    await delete(scene, grace_seconds=0)
    await scene.until("it is gone", lambda: not pods.present)


@expectation
async def test_a_pod_that_has_no_node_goes_at_once(scene: Scene) -> None:
    pods = await scene.follow(PODS)
    await scene.create(PODS, pod("one", node="nowhere", grace_seconds=30))
    await delete(scene)
    await scene.until("it is gone", lambda: bool(pods.events) and not pods.present)
    assert last_two(pods) == [("MODIFIED", 0), ("DELETED", 0)]


def last_two(pods: Story) -> list[tuple[str, int]]:
    """A pod's deletion is dated in a separate revision, even where it takes effect at once."""
    return [(event.type, event.object["metadata"]["deletionGracePeriodSeconds"]) for event in pods.events[-2:]]


@expectation
async def test_a_pod_that_has_ended_goes_at_once(scene: Scene) -> None:
    pods = await scene.follow(PODS)
    await scene.create(PODS, pod("one", image=exits(3), grace_seconds=30))
    await scene.until(
        "it has failed", lambda: any(each["status"].get("phase") == "Failed" for each in pods.present.values())
    )
    await delete(scene)
    await scene.until("it is gone", lambda: not pods.present)
    graces = [state["metadata"]["deletionGracePeriodSeconds"] for state in leaving(pods.states(pods.events[0].uid))]
    assert graces == [0, 0], "its own 30 s were never asked for"


@expectation
async def test_force_takes_the_object_at_once(scene: Scene) -> None:
    pods, _ = await running(scene, image=DEAF, grace_seconds=30)
    await delete(scene, grace_seconds=0)
    await scene.until("it is gone", lambda: not pods.present)
    assert last_two(pods) == [("MODIFIED", 0), ("DELETED", 0)]
    last = pods.events[-1].object
    assert last["status"]["phase"] == "Running", "nobody has seen its processes end"


@expectation
async def test_a_grace_is_shortened_by_a_second_deletion_and_never_made_longer(scene: Scene) -> None:
    """On the server. Its kubelet keeps to the first one."""
    pods, one = await running(scene, image=DEAF, grace_seconds=9)
    await delete(scene)
    await delete(scene, grace_seconds=100)
    kept = (await scene.read(PODS, "one"))["metadata"]
    assert kept["deletionGracePeriodSeconds"] == 9
    await delete(scene, grace_seconds=2)
    shorter = (await scene.read(PODS, "one"))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 2
    assert moment(shorter["deletionTimestamp"]) < moment(kept["deletionTimestamp"])
    await scene.until("it is gone", lambda: not pods.present, seconds=30)
    [container] = pods.states(one["metadata"]["uid"])[-1]["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137


@expectation
async def test_a_grace_that_is_over_already_ends_now(scene: Scene) -> None:
    """For the server: the controller's own grace, asked for when the pod has had more of its own."""
    pods, _ = await running(scene, image=DEAF, grace_seconds=9)
    await delete(scene)
    before = (await scene.read(PODS, "one"))["metadata"]
    await scene.pass_seconds(4)
    await delete(scene, grace_seconds=2)
    after = (await scene.read(PODS, "one"))["metadata"]
    assert after["deletionGracePeriodSeconds"] == 1, "its kubelet has yet to hear of it"
    since_asked = moment(after["deletionTimestamp"]) - (moment(before["deletionTimestamp"]) - timedelta(seconds=9))
    assert timedelta(seconds=3) <= since_asked <= timedelta(seconds=8)
    await scene.until("it is gone", lambda: not pods.present, seconds=30)


@expectation
async def test_a_finalizer_keeps_the_object_of_a_pod_whose_processes_have_ended(scene: Scene) -> None:
    pods, one = await running(scene, finalizers=("example.com/hold",), grace_seconds=20)
    await delete(scene)
    await scene.until(
        "its kubelet is done",
        lambda: (
            bool(leaving(list(pods.present.values())))
            and pods.present[one["metadata"]["uid"]]["metadata"]["deletionGracePeriodSeconds"] == 0
        ),
    )
    held = await scene.read(PODS, "one")
    assert held["status"]["phase"] == "Failed"
    await scene.patch(PODS, "one", {"metadata": {"finalizers": None}})
    await scene.until("it is gone", lambda: not pods.present)


@expectation
async def test_a_finalizer_that_goes_first_leaves_the_pod_to_its_kubelet(scene: Scene) -> None:
    pods, one = await running(scene, image=DEAF, finalizers=("example.com/hold",), grace_seconds=4)
    await delete(scene)
    await scene.patch(PODS, "one", {"metadata": {"finalizers": None}})
    still = await scene.read(PODS, "one")
    assert (still["metadata"]["uid"], deleting(still)) == (one["metadata"]["uid"], True)
    await scene.until("it is gone", lambda: not pods.present, seconds=20)


@expectation
async def test_an_eviction_says_why_before_the_pod_goes(scene: Scene) -> None:
    pods, one = await running(scene, grace_seconds=20)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "one", "namespace": scene.namespace},
    }
    await api_verbs.create(scene.api, PODS, eviction, namespace=scene.namespace, name="one", subresource="eviction")
    await scene.until("it is gone", lambda: not pods.present)
    states = pods.states(one["metadata"]["uid"])
    disrupted = [state for state in states if condition(state, "DisruptionTarget")]
    assert {(condition(state, "DisruptionTarget") or {})["reason"] for state in disrupted} == {"EvictionByEvictionAPI"}
    assert all(state in disrupted for state in leaving(states)), "it is said with the deletion or before it"


@expectation
async def test_a_status_write_for_a_pod_of_another_uid_is_refused(scene: Scene) -> None:
    """What keeps a kubelet that was away from writing into the pod that has the name now."""
    _, one = await running(scene)
    body = {"metadata": {"uid": one["metadata"]["uid"]}, "status": {"message": "seen"}}
    assert (await scene.patch(PODS, "one", body, PatchKind.STRATEGIC, "status"))["status"]["message"] == "seen"
