"""Experiments on a job of the modelled cluster, with the production controller in it. Time is virtual."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recovery.chaos.abort import ABORTED_BY_COMMAND, abort
from recovery.chaos.chaos_run import ChaosRun, RunOutcome
from recovery.chaos.run_plan import planned
from recovery.chaos.tools import ChaosTools
from recovery.cli.chaos_probe import StatusProbe
from recovery.cli.job_lookup import NAMESPACES
from recovery.core.model.drill import DRILLS_ALLOWED, DRILLS_LABEL, DrillVerdict
from recovery.core.model.facts import GroupKey
from recovery.core.model.reason import Reason
from recovery.kube.client import KubeApiClient
from recovery.ports import NODES, RECOVERY_GROUPS, RECOVERY_INCIDENTS
from recovery.scenario.experiment import read_experiment
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.kind import Body
from recovery.sim.demo.objects import NAME, NAMESPACE, Restarter
from recovery.sim.demo.stage import Stage
from recovery.sim.virtual_time import VirtualClock, virtual_time

RANKS = 4
FILE = f"name: lose-a-rank\ntarget: {{job: {NAMESPACE}/{NAME}}}\nseed: 7\n"
POD_KILL = FILE + "chaos:\n- {kind: PodChaos, action: pod-kill, mode: one}\n"


class StageWithChaos:
    """The stage of the demo, whose namespace allows drills, and the engine on it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.stage = Stage(self.clock, random.Random(1), Restarter.CONTROLLER, ranks=RANKS)
        self.server = self.stage.cluster.server
        self.notes: list[str] = []

    @asynccontextmanager
    async def training(self) -> AsyncIterator[None]:
        """Within the context, the job has begun to train."""
        labels = {DRILLS_LABEL: DRILLS_ALLOWED}
        self.server.create(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}})
        async with self.stage.running():
            await self.stage.set_up()
            await self.clock.sleep(30)
            yield

    def tools(self, api: ModelClient | None = None) -> ChaosTools:
        client = KubeApiClient(api or ModelClient(self.server, "jane"), clock=self.clock, entropy=random.Random(2))
        probe = StatusProbe(client, self.clock, GroupKey(NAMESPACE, NAME))
        return ChaosTools(client, self.clock, random.Random(3), self, probe)

    async def kill(self, namespace: str, pod: str, container: str) -> str:
        """The stage is its own `ProcessKiller`."""
        self.stage.cluster.kubelets.exit_container(pod, 137, namespace=namespace, container=container)
        return "killed 1 process"

    async def run(self, text: str) -> RunOutcome:
        return await (await self.prepared(text)).run()

    async def prepared(self, text: str) -> ChaosRun:
        experiment, tools = read_experiment(text), self.tools()
        plan = await planned(tools, experiment)
        return ChaosRun(
            tools,
            experiment,
            plan,
            name="lose-a-rank-x7k2p",
            started_by="jane",
            note=lambda seconds, text: self.notes.append(f"{seconds:.1f} {text}"),
        )

    def nodes(self) -> list[Body]:
        """What a drill could change on nodes."""
        return [
            {"spec": node["spec"], "annotations": node["metadata"].get("annotations")}
            for node in self.server.objects(NODES)
        ]

    def records(self) -> list[Body]:
        return [record["spec"] for record in self.server.objects(RECOVERY_INCIDENTS)]

    def charges(self) -> int:
        [group] = self.server.objects(RECOVERY_GROUPS)
        return len(group["status"].get("budget", {}).get("charges", ()))


@virtual_time
async def test_a_killed_pod_is_recovered_from_as_from_a_failure_and_costs_no_budget() -> None:
    world = StageWithChaos()
    async with world.training():
        outcome = await world.run(POD_KILL)
        assert (outcome.verdict, outcome.reason) == (DrillVerdict.PASSED, Reason.DRILL_DONE), (outcome, world.notes)
        [case], [record] = outcome.cases, world.records()
        assert case.incidents == (record["id"],)
        assert record["drill"]["name"] == "lose-a-rank-x7k2p"
        assert (case.actions, world.charges()) == (("RecreateGroup",), 0)
        assert case.recovery_seconds is not None
        assert case.idle_gpu_seconds > 0


@virtual_time
async def test_a_killed_process_is_recovered_from_too() -> None:
    world = StageWithChaos()
    async with world.training():
        outcome = await world.run(POD_KILL.replace("pod-kill", "process-kill"))
        assert outcome.verdict is DrillVerdict.PASSED, (outcome, world.notes)


@virtual_time
async def test_repeats_are_one_incident_each_and_all_pass() -> None:
    world = StageWithChaos()
    async with world.training():
        outcome = await world.run(POD_KILL + "repeat: 3\n")
        assert outcome.verdict is DrillVerdict.PASSED, (outcome, world.notes)
        assert [case.incidents for case in outcome.cases] == [(record["id"],) for record in world.records()]


@virtual_time
async def test_a_second_pod_that_is_killed_while_the_ranks_meet_belongs_to_the_drill() -> None:
    world = StageWithChaos()
    async with world.training():
        later = "- {kind: PodChaos, action: pod-kill, mode: one, during: Starting}\n"
        outcome = await world.run(POD_KILL + later)
        assert outcome.verdict is DrillVerdict.PASSED, (outcome, world.notes)
        assert world.charges() == 0


@virtual_time
async def test_the_node_of_rank_0_is_free_again_after_the_drill() -> None:
    world = StageWithChaos()
    async with world.training():
        before = world.nodes()
        text = FILE + (
            "chaos:\n"
            "- {kind: PhysicalMachineChaos, action: cordon, mode: all, selector: {indexes: [0]}}\n"
            "- {kind: PodChaos, action: pod-evict, mode: all, selector: {indexes: [0]}, at: 2s}\n"
        )
        outcome = await world.run(text)
        assert outcome.verdict is DrillVerdict.PASSED, (outcome, world.notes)
        assert world.nodes() == before


@virtual_time
async def test_an_abort_from_another_machine_ends_a_run_and_frees_its_node() -> None:
    world = StageWithChaos()
    async with world.training():
        before = world.nodes()
        text = FILE + (
            "hypothesis: {incidents: 0}\n"
            "chaos:\n- {kind: PhysicalMachineChaos, action: cordon, mode: all, selector: {indexes: [0]}}\n"
        )
        run = await world.prepared(text)
        task = asyncio.create_task(run.run())
        await world.clock.sleep(10)
        assert world.nodes() != before
        done = await abort(ModelClient(world.server, "john"), world.clock, NAMESPACE, "lose-a-rank-x7k2p")
        assert (len(done.freed), done.left_over) == (1, ())
        outcome = await task
        assert (outcome.verdict, outcome.message) == (DrillVerdict.ABORTED, ABORTED_BY_COMMAND)
        assert world.nodes() == before
