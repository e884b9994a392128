"""The client of a drill dies, or is interrupted, at each of its writes. Production controllers work meanwhile."""

import asyncio
from functools import cache

import pytest

from recovery.chaos.abort import abort
from recovery.cli.simulated_drill import SimulatedDrill
from recovery.core.model.drill import DrillVerdict
from recovery.core.model.reason import Reason
from recovery.ports import NODES, RECOVERY_DRILLS, RECOVERY_INCIDENTS
from recovery.scenario.experiment import Experiment
from recovery.sim.api.client import ModelClient
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.virtual_time import VirtualClock
from tests.counted_writes import Writes
from tests.simulation.chaos.simulated import EXAMPLES, DrillTrial, run

EXAMPLES_AND_SIDES = [
    pytest.param("health-agent-mark", True, id="health-agent-mark after"),
    pytest.param("health-agent-mark", False, id="health-agent-mark before", marks=pytest.mark.long),
    pytest.param("cordon-and-evict-rank-0", True, id="cordon-and-evict-rank-0 after", marks=pytest.mark.long),
    pytest.param("cordon-and-evict-rank-0", False, id="cordon-and-evict-rank-0 before", marks=pytest.mark.long),
]


class _ClientDiedError(Exception):
    """The process of the client has died: nothing of it runs any more."""


def example(name: str) -> tuple[TrialPlan, Experiment]:
    """With two pods, which is faster."""
    jobs = "jobs: [{name: llm, namespace: research, pods: 2, runtime: joined, policy: {mode: Enforce}}]\n"
    scenario = read_scenario((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8") + jobs + "healing: 3m\n")
    assert scenario.experiment is not None
    return scenario.plan, scenario.experiment


def stopped(name: str, number: int, *, applied: bool, dies: bool) -> tuple[DrillTrial, int]:
    """The trial in which the client dies, or is interrupted, at that write, and how many it made. `number` 0: never."""
    plan, experiment = example(name)
    tasks: list[asyncio.Task[None]] = []

    def stop() -> None:
        if dies:
            raise _ClientDiedError
        for task in tasks:
            task.cancel()

    clients: list[Writes] = []

    def client(cluster: EmbeddedCluster) -> Writes:
        clients.append(Writes(ModelClient(cluster.server, "user"), number, stop, applied=applied))
        return clients[-1]

    async def visit(cluster: EmbeddedCluster, clock: VirtualClock, drill: SimulatedDrill) -> None:
        tasks.append(asyncio.create_task(drill(cluster, clock, lambda _: None)))
        await asyncio.wait(tasks)
        if isinstance(tasks[0].exception(), _ClientDiedError):
            await clock.sleep(5)
            done = await abort(ModelClient(cluster.server, "john"), clock, None, None)
            assert done.left_over == ()
        await clock.sleep(60)

    return run(plan, experiment, client, visit), clients[0].count


@cache
def writes_of(name: str) -> int:
    """How many writes the client makes: the drill, the names, marks and acts of its entries, the undo, the end."""
    found, count = stopped(name, 0, applied=False, dies=True)
    assert (found.outcome.verdict, found.broken, found.nodes) == (DrillVerdict.PASSED, [], found.nodes_before)
    assert count >= 6
    return count


@pytest.mark.parametrize(("name", "applied"), EXAMPLES_AND_SIDES)
def test_after_a_death_at_any_write_an_abort_puts_everything_back(name: str, applied: bool) -> None:
    for number in range(1, writes_of(name) + 1):
        found, _ = stopped(name, number, applied=applied, dies=True)
        assert (found.broken, found.nodes) == ([], found.nodes_before), f"write {number}"
        assert len(found.ended_drills()) == (number > 1 or applied), f"write {number}"
        assert all("verdict" in drill["status"] for drill in found.server.objects(RECOVERY_DRILLS))
        incidents = [record["spec"] for record in found.server.objects(RECOVERY_INCIDENTS)]
        assert all("drill" in incident for incident in incidents), f"write {number}"
        assert found.charges() == 0, f"write {number}"


@pytest.mark.parametrize(("name", "applied"), EXAMPLES_AND_SIDES)
def test_an_interruption_at_any_write_leaves_nothing_behind(name: str, applied: bool) -> None:
    last = writes_of(name)
    for number in range(1, last + 1):
        found, _ = stopped(name, number, applied=applied, dies=False)
        assert (found.broken, found.nodes) == ([], found.nodes_before), f"write {number}"
        assert (found.outcome.interrupted, found.outcome.left_over) == (True, ()), f"write {number}"
        assert found.outcome.reason is Reason.DRILL_INTERRUPTED or number == last, f"write {number}"
        assert len(found.ended_drills()) == 1, f"write {number}"
        assert found.charges() == 0, f"write {number}"


def test_the_leader_takes_back_what_a_client_that_died_has_done_to_a_node() -> None:
    """No one runs `recovery chaos abort`. The drill is over after three quarters of an hour."""
    plan, experiment = example("cordon-and-evict-rank-0")

    def die() -> None:
        raise _ClientDiedError

    async def visit(cluster: EmbeddedCluster, clock: VirtualClock, drill: SimulatedDrill) -> None:
        task = asyncio.create_task(drill(cluster, clock, lambda _: None))
        await asyncio.wait({task})
        assert isinstance(task.exception(), _ClientDiedError)
        assert any(node["spec"].get("unschedulable") for node in cluster.server.objects(NODES))
        await clock.sleep(50 * 60)

    found = run(
        plan, experiment, lambda cluster: Writes(ModelClient(cluster.server, "user"), 4, die, applied=True), visit
    )
    assert (found.broken, found.nodes) == ([], found.nodes_before)
    [drill] = found.server.objects(RECOVERY_DRILLS)
    assert (drill["status"]["verdict"], found.charges()) == ("Aborted", 0)
