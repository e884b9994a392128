"""The parts of `make bench ARGS=in-place` that need no cluster: agents in modelled pods, and the table."""

import random
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from recovery.controller.clock import SystemClock
from recovery.sim.kubelets.objects import COMPLETION_INDEX_LABEL, Pod
from recovery.sim.kubelets.processes import ContainerProcess, Exit
from recovery.sim.training.training import JOBSET_NAME_LABEL
from tests.agent.fake_controller import fake_controller
from tests.bench.in_place import world as module
from tests.bench.in_place.measure import Row, table
from tests.bench.in_place.world import AgentWorld, Setup
from tests.unit.fake_api import FakeApi
from tests.unit.patience import comes

SLOTS = 3


def process(slot: int) -> ContainerProcess:
    owner = {"kind": "Job", "name": "llm-node-0", "uid": "job-1", "controller": True}
    labels = {COMPLETION_INDEX_LABEL: str(slot), JOBSET_NAME_LABEL: "llm"}
    metadata = {"name": f"llm-{slot}", "namespace": "team", "uid": f"pod-{slot}", "labels": labels}
    body = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"containers": [{"name": "node"}]}}
    pod = msgspec.convert(body, Pod)
    nothing: Any = lambda _: None  # noqa: E731 - a kubelet that is told nothing
    node = pod.spec.containers[0]
    return ContainerProcess(pod, node, "gpu-0", 0, pod_ip="", host_ip="", answers=nothing, ended=nothing)


async def test_agents_in_modelled_pods_restart_in_place_and_end_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def token(*_: object) -> str:
        return "a-token"

    monkeypatch.setattr(module, "_token", token)
    world = AgentWorld(FakeApi(), SystemClock(), random.Random(1))
    async with fake_controller(tmp_path) as fake:
        where = (fake.controller.port, fake.controller.ca_pem)
        world.setups["team/llm"] = Setup(cast(Any, None), SLOTS, tmp_path, *where)
        processes = [process(slot) for slot in range(SLOTS)]
        for each in processes:
            world.process_started(each)
        [group] = world.groups.values()
        await comes(lambda: group.permitted)
        group.agents[1].fail()
        await comes(lambda: 2 in group.ran_at)
        assert [sorted(group.started[epoch]) for epoch in (1, 2)] == [list(range(SLOTS))] * 2
        assert fake.reports[-1]["slots"] == SLOTS
        for each in processes:
            each.end(Exit(137))
            world.process_exited(each)
        await comes(lambda: not any(agent.tasks for agent in group.agents.values()))


def test_the_table_compares_with_each_other_way() -> None:
    def row(way: str, seconds: float | None) -> Row:
        return Row(way, 128, 1.0, seconds)

    rows = [row("fresh start", 5.0), row("JobSet's own restart", 20.0), row("a process dies: in place", 1.0)]
    *_, last = table([*rows]).splitlines()
    assert [cell.strip() for cell in last.split("|")[2:6]] == ["1.00", "0.050", "", "0.200"]
