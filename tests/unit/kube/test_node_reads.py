"""A storm: many groups ask at once about shared nodes, and one read answers all that wait for it."""

import asyncio
import json
from collections import Counter

import pytest

from recovery.core.model.facts import NodeFacts
from recovery.kube.live_reader import LiveReader
from recovery.kube.node_reads import NODES_IN_FLIGHT_MAX
from recovery.ports import ApiRequest, NotFoundError, TryLaterError
from tests.unit.kube.store_world import load
from tests.unit.kube.testing import ScriptedApi

GROUPS, NODES = 40, 64
SILENT = [f"gpu-{index:04}" for index in range(NODES)]


class StormApi(ScriptedApi):
    """Every node is silent. An answer takes some turns of the event loop and shows the state at its request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.in_flight = self.most = 0
        self.reason = "NodeStatusUnknown"
        self.failing: Exception | None = None

    async def answer(self, request: ApiRequest) -> bytes:
        self.asked[f"{request.resource.plural} {request.name}"] += 1
        reason, failing = self.reason, self.failing
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        for _ in range(3):
            await asyncio.sleep(0)
        self.in_flight -= 1
        if failing is not None:
            raise failing
        if request.resource.plural == "leases":
            return json.dumps({"spec": {"renewTime": "2026-11-21T10:00:07.250000Z"}}).encode()
        body = load("node")
        body["metadata"] |= {"name": request.name, "uid": f"uid-{request.name}"}
        body["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": reason}]
        return json.dumps(body).encode()


async def test_forty_groups_on_the_same_silent_nodes_share_their_reads() -> None:
    api = StormApi()
    reader = LiveReader(api)
    found = await asyncio.gather(*(reader.nodes(SILENT) for _ in range(GROUPS)))
    assert all(list(each) == SILENT for each in found)
    assert all(isinstance(node, NodeFacts) and node.lease_renewed_at for each in found for node in each.values())
    # The first group uses its own reads. All other groups share one more read of each node.
    assert max(api.asked.values()) <= 2
    assert sum(api.asked.values()) <= 2 * 2 * NODES, f"{GROUPS * NODES * 2} where each group reads for itself"
    assert api.most <= NODES_IN_FLIGHT_MAX


async def test_groups_on_nodes_of_their_own_do_not_take_more_slots_together_than_one_does() -> None:
    api = StormApi()
    reader = LiveReader(api)
    await asyncio.gather(*(reader.nodes([f"{group}-{name}" for name in SILENT[:8]]) for group in range(GROUPS)))
    assert api.most == NODES_IN_FLIGHT_MAX
    assert set(api.asked.values()) == {1}


async def test_no_answer_is_older_than_its_question() -> None:
    api = StormApi()
    reader = LiveReader(api)
    first = asyncio.create_task(reader.nodes(["gpu-0000"]))
    await asyncio.sleep(0)
    while not api.in_flight:
        await asyncio.sleep(0)
    api.reason = "NodeStatusNeverUpdated"
    second = await reader.nodes(["gpu-0000"])
    assert (await first)["gpu-0000"] != second["gpu-0000"]
    node = second["gpu-0000"]
    assert node is not None
    assert node.ready_reason == "NodeStatusNeverUpdated"


async def test_a_group_that_gives_up_does_not_take_the_answer_from_the_others() -> None:
    api = StormApi()
    reader = LiveReader(api)
    impatient = asyncio.create_task(reader.nodes(["gpu-0000"]))
    patient = asyncio.create_task(reader.nodes(["gpu-0000"]))
    while not api.in_flight:
        await asyncio.sleep(0)
    impatient.cancel()
    assert isinstance((await patient)["gpu-0000"], NodeFacts)
    with pytest.raises(asyncio.CancelledError):
        await impatient


@pytest.mark.parametrize("failing", [TryLaterError("busy"), NotFoundError("gone", status=404)])
async def test_what_keeps_one_from_its_answer_is_no_one_elses_later(failing: Exception) -> None:
    api = StormApi()
    reader = LiveReader(api)
    api.failing = failing
    outcomes = await asyncio.gather(*(reader.nodes(["gpu-0000"]) for _ in range(2)), return_exceptions=True)
    missing = {"gpu-0000": None}
    assert outcomes == ([missing, missing] if isinstance(failing, NotFoundError) else [failing, failing])
    api.failing = None
    assert isinstance((await reader.nodes(["gpu-0000"]))["gpu-0000"], NodeFacts)
