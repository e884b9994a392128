"""Trials in which an experiment is run against the production controllers, as `recovery simulate` does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from recovery.chaos.chaos_run import RunOutcome
from recovery.cli.simulated_drill import SimulatedDrill
from recovery.ports import NODES, RECOVERY_DRILLS, RECOVERY_GROUPS, ApiClient
from recovery.scenario.experiment import Experiment
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.trial import TrialOutcome, run_trial
from recovery.sim.virtual_time import VirtualClock

EXAMPLES = Path(__file__).parents[3] / "examples/chaos"
JOB = "name: drill\nseed: 7\ntarget: {job: research/llm}\n"
SMALL = f"{JOB}healing: 5m\njobs: [{{name: llm, namespace: research, pods: 2, policy: {{mode: Enforce}}}}]\n"
POD_KILL = "chaos: [{kind: PodChaos, action: pod-kill, mode: one}]\n"

Meanwhile = Callable[[EmbeddedCluster, VirtualClock, SimulatedDrill], Awaitable[None]]


@dataclass
class DrillTrial:
    """The result of a trial."""

    drill: SimulatedDrill
    trial: TrialOutcome
    nodes_before: list[Body] = field(default_factory=list)
    """What a drill could change on nodes, when the drill began."""

    @property
    def outcome(self) -> RunOutcome:
        assert self.drill.outcome is not None, self.drill.problems
        return self.drill.outcome

    @property
    def server(self) -> ApiServer:
        return self.trial.evidence.server

    @property
    def broken(self) -> list[str]:
        return [f"{each.invariant}: {each.sentence}" for each in self.trial.violations]

    @property
    def nodes(self) -> list[Body]:
        return marks(self.server)

    def ended_drills(self) -> list[str]:
        return [drill["spec"]["end"]["reason"] for drill in self.server.objects(RECOVERY_DRILLS)]

    def charges(self) -> int:
        groups = self.server.objects(RECOVERY_GROUPS)
        return sum(group["status"]["totals"].get("charged", 0) for group in groups)


def marks(server: ApiServer) -> list[Body]:
    """What a drill could change on nodes."""
    return [
        {
            "name": node["metadata"]["name"],
            "spec": node["spec"],
            "labels": node["metadata"].get("labels"),
            "annotations": node["metadata"].get("annotations"),
            "conditions": sorted(each["type"] for each in node["status"].get("conditions", ())),
        }
        for node in server.objects(NODES)
    ]


def simulated(text: str, **plan: Any) -> DrillTrial:
    """The trial of the file, whose plan has these fields."""
    scenario = read_scenario(text)
    assert scenario.experiment is not None
    return run(replace(scenario.plan, **plan), scenario.experiment)


def run(
    plan: TrialPlan,
    experiment: Experiment,
    client: Callable[[EmbeddedCluster], ApiClient] | None = None,
    visit: Meanwhile | None = None,
) -> DrillTrial:
    """`client`: the connection of the engine. `visit`: runs the drill, and whatever else is to happen."""
    drill = SimulatedDrill(experiment) if client is None else SimulatedDrill(experiment, client)
    before: list[Body] = []

    async def visitor(cluster: EmbeddedCluster, clock: VirtualClock, say: Callable[[str], None]) -> None:
        await clock.sleep(30)  # The kubelets have written their nodes.
        before.extend(marks(cluster.server))
        if visit is None:
            await drill(cluster, clock, say)
        else:
            await visit(cluster, clock, drill)

    return DrillTrial(drill, run_trial(plan, visitor), before)
