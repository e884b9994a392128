"""Five ways back to training for 128 pods at stock limits, side by side in one run.

JobSet's own restart, the controller without the agent, and two with it: a process that dies is started again in place,
and a pod that dies costs a new group. The fresh start of the same TrainJob is the lower bound for what creates pods.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.training.rounds import TrainingSettings
from tests.agent.launches import free_master_port
from tests.bench.in_place.world import START_SECONDS, STOP_SECONDS, AgentGroup, AgentWorld, Setup
from tests.bench.recoveries import KILLED_RANK, NODES, PATIENCE_SECONDS, REFILL_SECONDS, Bench, Case, runtime
from tests.cluster.agents import (
    COMMAND,
    has_agent,
    labelled_namespace,
    runtime_patch,
    service_account,
    set_parameters,
    settles,
)
from tests.cluster.controlplane.build import provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import (
    ControllerProcess,
    Fleet,
    Job,
    apply,
    install,
    install_component,
    policy,
    train_job,
    until,
)

_ERRORS = ("ValueError: the shapes differ", "OSError: the disk is full", "KeyError: no such name")
"""Of the processes that die, one after the other. The same error again would cost a new group."""


@dataclass(frozen=True)
class Row:
    """One way, in seconds until all pods train. Seconds depend on the machine; the ratios within a run count."""

    way: str
    pods: int
    load: float
    """The load average of the last minute, when it ended."""
    seconds: float | None
    """None: not within the patience."""


async def measure(pods: int = 128, limits: Literal["stock", "raised"] = "stock") -> list[Row]:
    """Builds the control plane, which needs Go. Some six minutes."""
    toolbox = provide()
    training = TrainingSettings(step_seconds=0.1, nccl_timeout_seconds=600.0, term_seconds=STOP_SECONDS)
    kubelet = KubeletSettings(start_seconds=START_SECONDS)
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder:
        async with ControlPlane.start(ControlPlaneSettings(request_limits=limits), toolbox) as control_plane:
            await install(control_plane)
            await install_component(control_plane, "agent")
            nodes = min(NODES, pods)
            async with Fleet.running(
                control_plane, nodes=nodes, training=training, kubelet=kubelet, played_by=AgentWorld
            ) as fleet:
                return await _InPlaceBench(control_plane, fleet, Path(folder)).rows(Case(limits, pods, 0, None))


class _InPlaceBench(Bench):
    async def rows(self, case: Case) -> list[Row]:
        plain = await self.row(case)
        rows = [
            _row("fresh start", case, plain.fresh_start_seconds),
            _row("JobSet's own restart", case, plain.jobset_seconds),
            _row("a new group, without the agent", case, plain.controller_seconds),
        ]
        async with self._training_with_agents(case) as (job, fresh_seconds):
            rows.insert(1, _row("fresh start with the agent", case, fresh_seconds))
            taken = [await self._process_dies(job, number, error) for number, error in enumerate(_ERRORS, 1)]
            rows.append(_row("a process dies: in place", case, statistics.median(taken)))
            await asyncio.sleep(REFILL_SECONDS)
            rows.append(_row("a pod dies: a new group with the agent", case, await self._pod_dies(job)))
        return rows

    @asynccontextmanager
    async def _training_with_agents(self, case: Case) -> AsyncIterator[tuple[Job, float]]:
        """A TrainJob whose pods have the agent, the controller that it reports to, and the seconds of its start."""
        port = free_master_port()
        await set_parameters(self._control_plane, **{"url": f"https://127.0.0.1:{port}", "ca.crt": ""})
        namespace = await labelled_namespace(self._control_plane, "bench-agents")
        await apply(self._control_plane, namespace, service_account("default"))
        await apply(self._control_plane, None, runtime(namespace, case.grace_seconds, own_restart=False))
        await apply(
            self._control_plane,
            namespace,
            policy(inPlace={"enabled": True, "maxInARow": 10}, backoff={"initial": "0s"}),
        )
        account = await self._control_plane.kubeconfig_for_service_account("recovery-system", "recovery-controller")
        options = ("--agent-address", f"127.0.0.1:{port}")
        async with ControllerProcess.running(account, self._folder / f"{namespace}.log", options=options):
            await settles(self._control_plane, namespace, has_agent)
            await asyncio.sleep(REFILL_SECONDS)
            job = Job(self._control_plane, self._fleet, namespace, "train", case.pods)
            setup = Setup(self._control_plane, case.pods, self._folder, port, await self._authority())
            self._world.setups[job.training] = setup
            body = train_job("train", ranks=case.pods, runtime=namespace)
            body["spec"]["trainer"] |= {"command": COMMAND, "numProcPerNode": 1}
            body["spec"]["runtimePatches"] = [runtime_patch(serviceAccountName="default")]
            began, clock = time.monotonic(), self._fleet.clock.now()
            await apply(self._control_plane, namespace, body)
            assert await self._trains_since(job, clock) is not None, "it never started"
            group = await self._newest_runs(1)
            fresh_seconds = group.ran_at[1] - began
            await until("all agents are permitted", lambda: group.permitted)
            await asyncio.sleep(REFILL_SECONDS)
            yield job, fresh_seconds
            await self._control_plane.kubectl("delete", "trainjob", "-n", namespace, "train")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await job.pods():
                    await asyncio.sleep(0.5)

    async def _authority(self) -> str:
        """What the leader has published for agents."""
        asked = ("get", "configmap", "recovery-agent", "-n", "recovery-system", "-o", "json")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "BEGIN" not in (found := json.loads(await self._control_plane.kubectl(*asked))["data"]["ca.crt"]):
                await asyncio.sleep(0.2)
        return str(found)

    async def _process_dies(self, job: Job, number: int, error: str) -> float:
        """Seconds until all have started the next epoch, in the same pods."""
        group = self._newest()
        before = {agent.process for agent in group.agents.values()}
        began = time.monotonic()
        group.agents[KILLED_RANK].fail(error)
        await self._newest_runs(number + 1)
        assert self._newest() is group
        assert {agent.process for agent in group.agents.values()} == before, "no container was started again"
        await job.closed_incidents(number)
        return group.ran_at[number + 1] - began

    async def _pod_dies(self, job: Job) -> float:
        """Seconds until all agents of the next Job have started their ranks."""
        group, victim = self._newest(), await job.pod_of_rank(KILLED_RANK)
        began = time.monotonic()
        self._fleet.kubelets.exit_container(victim, 137, namespace=job.namespace)
        await until("there is a new group", lambda: self._newest() is not group, PATIENCE_SECONDS)
        fresh = await self._newest_runs(1)
        return fresh.ran_at[1] - began

    @property
    def _world(self) -> AgentWorld:
        world = self._fleet.world
        assert isinstance(world, AgentWorld)
        return world

    def _newest(self) -> AgentGroup:
        return list(self._world.groups.values())[-1]

    async def _newest_runs(self, epoch: int) -> AgentGroup:
        await until(f"epoch {epoch} runs", lambda: epoch in self._newest().ran_at, PATIENCE_SECONDS)
        return self._newest()


def _row(way: str, case: Case, seconds: float | None) -> Row:
    return Row(way, case.pods, os.getloadavg()[0], seconds)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table. The ratios count: seconds depend on the machine."""
    by_way = {row.way: row.seconds for row in rows}
    against = ("JobSet's own restart", "a new group, without the agent", "fresh start")
    head = "| way | s | of JobSet's | of a new group without the agent | of a fresh start | load |"
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for row in rows:
        cells = [row.way, "" if row.seconds is None else f"{row.seconds:.2f}"]
        for way in against:
            base = by_way.get(way)
            cells.append("" if row.seconds is None or not base else f"{row.seconds / base:.3f}")
        lines.append("| " + " | ".join([*cells, f"{row.load:.1f}"]) + " |")
    return "\n".join(lines)
