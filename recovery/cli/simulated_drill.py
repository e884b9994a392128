"""Runs an experiment in a trial: as a user of the modelled cluster, with the engine of `recovery chaos run`."""

import random
from collections.abc import Callable

from recovery.chaos.chaos_run import ChaosRun, RunOutcome
from recovery.chaos.drill_record import drill_name
from recovery.chaos.run_plan import RunPlan, planned
from recovery.chaos.tools import ChaosRefusedError, ChaosTools
from recovery.cli.chaos_probe import StatusProbe
from recovery.cli.job_lookup import NAMESPACES
from recovery.core.model.drill import DRILLS_ALLOWED, DRILLS_LABEL
from recovery.core.model.facts import GroupKey
from recovery.kube.client import KubeApiClient
from recovery.ports import ApiClient, Clock, RefusedError
from recovery.scenario.experiment import Experiment
from recovery.sim.api.client import ModelClient
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.kubelets.processes import SIGKILL_CODE
from recovery.sim.trials.actors import USER
from recovery.sim.virtual_time import VirtualClock

TRAINS_FIRST_SECONDS = 60.0
"""How long the trial runs before the experiment may begin. The group trains by then."""
READY_WITHIN_SECONDS = 5 * 60.0
READY_AGAIN_SECONDS = 5.0
STARTED_BY = "recovery simulate"


class SimulatedDrill:
    """The visitor of one trial. Its results are there when the trial has ended."""

    def __init__(
        self,
        experiment: Experiment,
        client: Callable[[EmbeddedCluster], ApiClient] = lambda cluster: ModelClient(cluster.server, USER),
    ) -> None:
        """`experiment`: with the namespace of its job. `client`: the connection that the engine gets."""
        assert experiment.namespace is not None, "the modelled job has a namespace"
        self.key = GroupKey(experiment.namespace, experiment.job)
        self.outcome: RunOutcome | None = None
        """None: the experiment was refused, or the trial ended before."""
        self.problems: tuple[str, ...] = ()
        """Why it was refused."""
        self._experiment = experiment
        self._client = client

    async def __call__(self, cluster: EmbeddedCluster, clock: VirtualClock, say: Callable[[str], None]) -> None:
        """`trial.Visitor`."""
        labels = {DRILLS_LABEL: DRILLS_ALLOWED}
        with cluster.server.acting(USER):
            cluster.server.create(NAMESPACES, {"metadata": {"name": self.key.namespace, "labels": labels}})
        entropy = random.Random(f"drill {self._experiment.seed}")  # noqa: S311 - the same file gives the same trial
        api = KubeApiClient(self._client(cluster), clock=clock, entropy=entropy)
        probe = StatusProbe(api, clock, self.key)
        tools = ChaosTools(api, clock, entropy, KubeletProcessKiller(cluster), probe)
        await clock.sleep(TRAINS_FIRST_SECONDS)
        try:
            plan = await self._planned(tools, clock)
        except ChaosRefusedError as refused:
            self.problems = refused.problems
            return
        run = ChaosRun(
            tools,
            self._experiment,
            plan,
            name=drill_name(self._experiment.name, entropy),
            started_by=STARTED_BY,
            note=lambda seconds, text: say(f"drill: {text}"),
        )
        self.outcome = await run.run()

    async def _planned(self, tools: ChaosTools, clock: Clock) -> RunPlan:
        """Waits until the job trains. Raises ChaosRefusedError if something still speaks against the run then."""
        until = clock.monotonic_seconds() + READY_WITHIN_SECONDS
        while True:
            try:
                return await planned(tools, self._experiment)
            except ChaosRefusedError:
                if clock.monotonic_seconds() >= until:
                    raise
            await clock.sleep(READY_AGAIN_SECONDS)


class KubeletProcessKiller:
    """`chaos.tools.ProcessKiller`: the process ends as if the kernel had killed it, and its pod stays."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._kubelets = cluster.kubelets

    async def kill(self, namespace: str, pod: str, container: str) -> str:
        try:
            self._kubelets.exit_container(pod, SIGKILL_CODE, namespace=namespace, container=container)
        except LookupError as error:
            raise RefusedError(str(error)) from error
        return "killed 1 process"
