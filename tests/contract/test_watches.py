"""What a watch reports, and in which order: the informers rely on it without checking."""

import asyncio
import json
from typing import Any

from recovery import api_verbs
from recovery.ports import PODS, RECOVERY_POLICIES
from tests.contract.bodies import pod, recovery_policy
from tests.contract.expectations import expectation
from tests.contract.scene import INITIAL_EVENTS_END, Event, Scene, events_of


async def told(scene: Scene, count: int, **query: Any) -> list[Event]:
    """The first `count` lines of a watch on the scene's policies; all lines if it ends before."""
    lines = api_verbs.watch(scene.api, RECOVERY_POLICIES, namespace=scene.namespace, **query)
    heard: list[Event] = []
    async with asyncio.timeout(60):
        async for event in events_of(lines):
            heard.append(event)
            if len(heard) == count:
                break
    await lines.aclose()
    return heard


def gist(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.name) for event in events]


async def two_policies(scene: Scene) -> str:
    """Create two policies. Returns the position of a list made after that."""
    for name in ("a", "b"):
        await scene.create(RECOVERY_POLICIES, recovery_policy(name))
    listed = json.loads(await api_verbs.list_page(scene.api, RECOVERY_POLICIES, namespace=scene.namespace))
    return str(listed["metadata"]["resourceVersion"])


@expectation
async def test_a_stream_begins_with_what_is_there_and_marks_where_that_ends(scene: Scene) -> None:
    position = await two_policies(scene)
    heard = await told(scene, 3, send_initial_events=True)
    assert sorted(gist(heard[:2])) == [("ADDED", "a"), ("ADDED", "b")]
    mark = heard[2]
    assert mark.type == "BOOKMARK"
    assert mark.object["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
    assert mark.position >= int(position)


@expectation
async def test_an_empty_namespace_is_told_as_such(scene: Scene) -> None:
    [mark] = await told(scene, 1, send_initial_events=True)
    assert (mark.type, mark.object["metadata"]["annotations"]) == ("BOOKMARK", {INITIAL_EVENTS_END: "true"})


@expectation
async def test_a_stream_from_a_position_tells_all_that_came_after_it_once(scene: Scene) -> None:
    position = await two_policies(scene)
    await scene.patch(RECOVERY_POLICIES, "a", {"spec": {"priority": 1}})
    await api_verbs.delete(scene.api, RECOVERY_POLICIES, "b", namespace=scene.namespace)
    await scene.create(RECOVERY_POLICIES, recovery_policy("c"))
    await scene.patch(RECOVERY_POLICIES, "a", {"spec": {"priority": 2}})
    heard = await told(scene, 4, resource_version=position)
    assert gist(heard) == [("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "c"), ("MODIFIED", "a")]
    assert [event.object["spec"]["priority"] for event in heard] == [1, 0, 0, 2]
    positions = [event.position for event in heard]
    assert positions == sorted(set(positions)), "a deletion has a position of its own"
    again = await told(scene, 2, resource_version=str(positions[1]))
    assert gist(again) == [("ADDED", "c"), ("MODIFIED", "a")]


@expectation
async def test_without_a_position_a_stream_begins_with_what_is_there(scene: Scene) -> None:
    await two_policies(scene)
    assert sorted(gist(await told(scene, 2))) == [("ADDED", "a"), ("ADDED", "b")]


@expectation
async def test_what_begins_or_ceases_to_be_selected_comes_or_goes(scene: Scene) -> None:
    position = await two_policies(scene)
    await api_verbs.delete(scene.api, RECOVERY_POLICIES, "b", namespace=scene.namespace)
    for value in ("yes", "yes", None, "yes"):
        await scene.patch(RECOVERY_POLICIES, "a", {"metadata": {"labels": {"chosen": value}}})
        await scene.patch(RECOVERY_POLICIES, "a", {"metadata": {"annotations": {"for": str(value)}}})
    heard = await told(scene, 5, resource_version=position, label_selector="chosen=yes")
    assert gist(heard) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("MODIFIED", "a")]
    gone = heard[2]
    assert gone.object["metadata"]["labels"] == {"chosen": "yes"}, "the state in which it was selected last"
    assert gone.position > heard[1].position


@expectation
async def test_pods_are_followed_by_whether_they_have_a_node(scene: Scene) -> None:
    lines = api_verbs.watch(
        scene.api,
        PODS,
        namespace=scene.namespace,
        field_selector="spec.nodeName!=",
        send_initial_events=True,
        timeout_seconds=60,
    )
    heard: list[Event] = []

    async def listen() -> None:
        async for event in events_of(lines):
            if event.type != "BOOKMARK" or not heard:
                heard.append(event)

    listening = asyncio.create_task(listen())
    await scene.until("the stream has begun", lambda: bool(heard))
    await scene.create(PODS, pod("runs"))
    await scene.create(PODS, pod("waits", node="nowhere"))
    await scene.until("the pod with a node is told", lambda: len(heard) >= 2)
    await scene.until("it runs", lambda: heard[-1].object["status"].get("phase") == "Running")
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert {event.name for event in heard[1:]} == {"runs"}
    assert heard[1].type == "ADDED"
    assert heard[1].object["spec"]["nodeName"]


@expectation
async def test_a_stream_ends_quietly_when_its_time_is_over(scene: Scene) -> None:
    position = await two_policies(scene)
    began = scene.clock.monotonic_seconds()
    heard = await told(scene, 100, resource_version=position, timeout_seconds=1)
    assert [event.type for event in heard if event.type != "BOOKMARK"] == []
    assert scene.clock.monotonic_seconds() - began >= 0.9


@expectation
async def test_a_position_that_the_server_has_forgotten_is_an_error_with_410(scene: Scene) -> None:
    await two_policies(scene)
    scene.world.forget_history()
    [event] = await told(scene, 100, resource_version="1")
    assert event.type == "ERROR"
    assert (event.object["kind"], event.object["code"], event.object["reason"]) == ("Status", 410, "Expired")


@expectation
async def test_each_object_is_told_in_the_order_of_its_versions(scene: Scene) -> None:
    pods = await scene.follow(PODS)
    for name in ("a", "b", "c"):
        await scene.create(PODS, pod(name))
    await scene.running(pods, 3)
    for name in ("a", "b", "c"):
        await api_verbs.delete(scene.api, PODS, name, namespace=scene.namespace)
    await scene.until("all are gone", lambda: not pods.present)
    positions = [event.position for event in pods.events]
    assert positions == sorted(set(positions))
