"""`recovery chaos` on real nodes: pods under kubelets, real processes, the shipped controller and its rights."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.agents import ENABLED
from tests.cluster.drills import EXAMPLES, Drills, nodes
from tests.real_nodes.agents import containers, permitted, worker
from tests.real_nodes.conftest import RANKS
from tests.real_nodes.hollow import HollowTraining
from tests.real_nodes.test_agent import Started, started
from tests.real_nodes.trainings import JOINED, PREPARED, Object, Training

__all__ = ["started"]
pytestmark = pytest.mark.usefixtures("token_reader")

THIRD: Object = {"kind": "PodChaos", "action": "pod-kill", "mode": "fixed-percent", "value": 34}
OF_FEW_RANKS: dict[str, Object] = {"one-percent": {"chaos": [THIRD]}, "one-pod": {"repeat": 1}}
"""One per cent of three ranks is none."""
KILLED_PROCESS: Object = {"kind": "PodChaos", "action": "process-kill", "mode": "one"}


async def of(training: Training, folder: Path) -> Drills:
    """Drills of that training, in a namespace that allows them."""
    plane = training.cluster.control_plane
    await plane.kubectl("label", "namespace", training.namespace, "recovery.trainjob.dev/drills=allowed", "--overwrite")
    return Drills(plane, training.namespace, training.name, folder)


async def test_a_process_that_is_killed_by_exec_runs_again_in_place(started: Started, tmp_path: Path) -> None:
    async with started(HollowTraining) as training:
        await permitted(training)
        before = await containers(training)
        ranks = {await worker(training, rank) for rank in range(RANKS)}
        drills = await of(training, tmp_path)
        ended, said = await drills.judged("real nodes, agent", "one-pod", repeat=1, chaos=[KILLED_PROCESS])
        assert (said["verdict"], ended.exit_code) == ("Passed", 0), ended
        assert said["cases"][0]["actions"] == ["RestartInPlace"]
        assert await containers(training) == before
        assert not {await worker(training, rank) for rank in range(RANKS)} & ranks
        [incident] = await training.incidents()
        assert not incident.get("charged")
        assert incident["drill"]["name"] == said["drill"]


@pytest.mark.torch
@pytest.mark.parametrize("agent", [True, False], ids=["with the agent", "without it"])
@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.yaml"))])
async def test_an_example_with_ranks_that_train(name: str, agent: bool, started: Started, tmp_path: Path) -> None:
    annotations = {} if agent else {ENABLED: "disabled"}
    spec: dict[str, Any] = {} if agent else {"inPlace": None}
    async with started(runtime=PREPARED if agent else JOINED, annotations=annotations, **spec) as training:
        drills = await of(training, tmp_path)
        before = await nodes(training.cluster.control_plane)
        where = "real nodes, agent" if agent else "real nodes"
        try:
            ended, said = await drills.judged(where, name, **OF_FEW_RANKS.get(name, {}))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await training.describe()}") from None
        print(name, json.dumps(said.get("cases"), indent=1), ended.err)
        assert (said["verdict"], ended.exit_code) == ("Passed", 0), ended
        assert await nodes(training.cluster.control_plane) == before
