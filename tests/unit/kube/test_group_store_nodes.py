"""What a live read says about nodes. It asks the API server where the answer may allow a force deletion."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from recovery.core.model.facts import NodeFacts
from recovery.kube.live_reader import LiveReader
from recovery.kube.node_reads import NODES_IN_FLIGHT_MAX
from recovery.ports import (
    LEASES,
    NODES,
    PODS,
    ApiError,
    ApiRequest,
    ForbiddenError,
    NotFoundError,
    TryLaterError,
)
from tests.unit.kube.store_world import LLM, Body, FedApi, World, config, job, listed, load, pod
from tests.unit.kube.testing import fixture

GONE = NotFoundError("there is none", status=404)
HEARD = datetime(2026, 11, 21, 10, 0, 7, 250_000, tzinfo=UTC)


def node(name: str = "gpu-0001", *, ready: str = "True", **spec: object) -> Body:
    body = load("node")
    body["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    body["spec"] = spec
    body["status"]["conditions"] = [{"type": "Ready", "status": ready, "reason": "said"}]
    return body


def answers(world: World, name: str, node: Body | ApiError, *, lease: ApiError | None = None) -> None:
    """Set what the API server has, whatever the cache knows."""
    lease_body = json.dumps({"spec": {"renewTime": "2026-11-21T10:00:07.250000Z"}}).encode()
    world.api.objects["leases", name] = lease or lease_body
    world.api.objects["nodes", name] = node if isinstance(node, ApiError) else json.dumps(node).encode()


@pytest.fixture
async def world(world: World) -> World:
    """The pods llm-node-0-0 and -1 run on gpu-0001."""
    world.api.objects |= {
        ("trainjobs", "llm"): fixture("trainjob"),
        ("jobsets", "llm"): fixture("jobset"),
        ("jobs", ""): listed("Job", job()),
        ("pods", ""): listed("Pod", pod(0), pod(1)),
    }
    return world


def asked(world: World) -> list[tuple[str, str, str | None]]:
    asked = [*world.api.sent("get", NODES), *world.api.sent("get", LEASES)]
    return [(each.resource.plural, each.name, each.namespace) for each in asked]


async def test_a_node_that_is_ready_is_not_asked_about(world: World) -> None:
    await world.tell(NODES, node())
    live = await world.store.read_live(LLM)
    assert (list(live.nodes), live.gone_nodes, asked(world)) == (["gpu-0001"], frozenset(), [])


@pytest.mark.parametrize("cached", [None, "False", "Unknown"])
async def test_one_that_is_not_there_any_more_is_gone(world: World, cached: str | None) -> None:
    if cached is not None:
        await world.tell(NODES, node(ready=cached))
    answers(world, "gpu-0001", GONE)
    live = await world.store.read_live(LLM)
    assert (dict(live.nodes), live.gone_nodes) == ({}, frozenset({"gpu-0001"}))
    assert asked(world) == [("nodes", "gpu-0001", None)], "once, for both pods"


async def test_one_that_the_cache_has_not_seen_yet_is_not_gone(world: World) -> None:
    answers(world, "gpu-0001", node())
    live = await world.store.read_live(LLM)
    assert (live.nodes["gpu-0001"].ready, live.gone_nodes) == (True, frozenset())


async def test_one_that_was_made_again_under_its_name_is_not_gone(world: World) -> None:
    """Its kubelet may have registered again, and may still run the earlier pods."""
    made_again = node(ready="False")
    made_again["metadata"] |= {"uid": "another", "creationTimestamp": "2026-11-21T23:00:00Z"}
    await world.tell(NODES, node(ready="False"))
    answers(world, "gpu-0001", made_again)
    live = await world.store.read_live(LLM)
    assert (live.nodes["gpu-0001"].uid, live.gone_nodes) == ("another", frozenset())


async def test_one_that_has_come_back_is_ready_whatever_the_cache_says(world: World) -> None:
    await world.tell(NODES, node(ready="Unknown"))
    answers(world, "gpu-0001", node())
    live = await world.store.read_live(LLM)
    assert live.nodes["gpu-0001"].ready
    assert asked(world) == [("nodes", "gpu-0001", None)]


async def test_of_one_that_is_silent_the_last_sign_of_life_is_read(world: World) -> None:
    await world.tell(NODES, node(ready="Unknown"))
    answers(world, "gpu-0001", node(ready="Unknown"))
    live = await world.store.read_live(LLM)
    assert live.nodes["gpu-0001"].lease_renewed_at == HEARD
    assert asked(world) == [("nodes", "gpu-0001", None), ("leases", "gpu-0001", "kube-node-lease")]


async def test_of_one_that_speaks_for_itself_it_is_not(world: World) -> None:
    await world.tell(NODES, node(ready="False"))
    answers(world, "gpu-0001", node(ready="False"))
    live = await world.store.read_live(LLM)
    assert live.nodes["gpu-0001"].lease_renewed_at is None
    assert asked(world) == [("nodes", "gpu-0001", None)]


async def test_one_that_is_tainted_out_of_service_is_asked_about_though_the_cache_has_it_ready(world: World) -> None:
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    await world.tell(NODES, node(taints=[taint]))
    answers(world, "gpu-0001", node(ready="False", taints=[taint]))
    live = await world.store.read_live(LLM)
    assert not live.nodes["gpu-0001"].ready


async def test_where_leases_may_not_be_read_it_is_said_once(world: World) -> None:
    await world.tell(NODES, node(ready="Unknown"))
    refused = ForbiddenError('User "r" cannot get leases', status=403)
    answers(world, "gpu-0001", node(ready="Unknown"), lease=refused)
    with capture_logs() as logs:
        for _ in range(2):
            live = await world.store.read_live(LLM)
            assert live.nodes["gpu-0001"].lease_renewed_at is None
    assert [each["log_level"] for each in logs] == ["warning"]


async def test_a_node_that_is_not_ready_and_has_no_lease_has_no_renewal(world: World) -> None:
    await world.tell(NODES, node(ready="Unknown"))
    answers(world, "gpu-0001", node(ready="Unknown"), lease=GONE)
    assert (await world.store.read_live(LLM)).nodes["gpu-0001"].lease_renewed_at is None


async def test_no_answer_about_a_node_is_no_reading(world: World) -> None:
    answers(world, "gpu-0001", TryLaterError("busy"))
    with pytest.raises(TryLaterError):
        await world.store.read_live(LLM)


async def test_a_pod_without_a_node_names_none(world: World) -> None:
    waiting = pod(0)
    del waiting["spec"]["nodeName"]
    world.api.objects["pods", ""] = listed("Pod", waiting)
    live = await world.store.read_live(LLM)
    assert (live.nodes, live.gone_nodes, asked(world)) == ({}, frozenset(), [])
    await world.tell(PODS, waiting)
    assert world.llm.gone_nodes == frozenset()


async def test_however_many_nodes_were_lost_all_are_asked_about_so_many_at_a_time() -> None:
    class SlowApi(FedApi):
        in_flight = most = 0

        async def answer(self, request: ApiRequest) -> bytes:
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            await asyncio.sleep(0)
            self.in_flight -= 1
            raise GONE

    api = SlowApi()
    names = [f"gpu-{index:04}" for index in range(3 * NODES_IN_FLIGHT_MAX)]
    assert await LiveReader(api).nodes(names) == dict.fromkeys(names)
    assert api.most == NODES_IN_FLIGHT_MAX


async def test_one_node_and_the_config_can_be_read_by_themselves(world: World) -> None:
    answers(world, "gpu-0001", node(unschedulable=True))
    found = await world.store.read_node_live("gpu-0001")
    assert isinstance(found, NodeFacts)
    assert found.unschedulable
    answers(world, "gpu-0001", GONE)
    assert await world.store.read_node_live("gpu-0001") is None
    world.api.objects["recoveryconfigs", "default"] = GONE
    assert await world.store.read_config_live() is None
    paused = config(paused=True)
    paused["metadata"]["resourceVersion"] = "9"
    world.api.objects["recoveryconfigs", "default"] = json.dumps(paused).encode()
    read = await world.store.read_config_live()
    assert read is not None
    assert (read.spec.paused, read.resource_version) == (True, "9")
    assert world.store.config() is None, "the watch keeps the cache, not this"
