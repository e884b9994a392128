"""Restarts in place, end to end: the whole controller, and one real agent for each pod of a job.

The API server injects the agent, mints its token and says whose it is. Only the pods' kubelets are modelled, and torch
is a package that does nothing.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.agent.launches import free_master_port
from tests.cluster.acts import PAUSED, annotate, incidents_of
from tests.cluster.agents import (
    ENABLED,
    has_agent,
    labelled_namespace,
    runtime_patch,
    service_account,
    set_parameters,
    settles,
    switch_off,
)
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.controller_record import has_reconciled, scrape
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.pod_agents import PodAgents, script_of, waiting_zygote
from tests.cluster.scene import (
    REPOSITORY,
    ControllerProcess,
    Fleet,
    Job,
    Object,
    apply,
    install_component,
    policy,
    train_job,
    until,
)

pytestmark = pytest.mark.central
RANKS = 4
REPORTS = "recovery_agent_reports_total"


@dataclass
class Stage:
    """A namespace whose jobs get the agent, and controllers that serve agents."""

    control_plane: ControlPlane
    fleet: Fleet
    folder: Path
    namespace: str
    port: int
    kubeconfig: Path
    controllers: int = 0

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[ControllerProcess]:
        self.controllers += 1
        log = self.folder / f"controller-{self.controllers}.log"
        options = ("--agent-address", f"127.0.0.1:{self.port}")
        async with ControllerProcess.running(self.kubeconfig, log, options=options, warm=True) as process:
            await until(
                "it serves agents", lambda: any(line.get("msg") == "serving agents" for line in process.lines())
            )
            yield process

    @asynccontextmanager
    async def training(
        self, runtime: str = "torch-distributed", config_map: Mapping[str, str] | None = None, **spec: Any
    ) -> AsyncIterator[PodAgents]:
        """A job of 4 pods under this policy. Every rank runs. `config_map` None: the agent is injected."""
        if config_map is None:
            await settles(self.control_plane, self.namespace, has_agent)
        job = Job(self.control_plane, self.fleet, self.namespace, "llm", RANKS)
        body = train_job("llm", ranks=RANKS, runtime=runtime)
        body["spec"]["trainer"] |= {"command": ["torchrun", str(script_of(self.folder))], "numProcPerNode": 1}
        body["spec"]["runtimePatches"] = [runtime_patch(serviceAccountName="default")]
        rules = policy(**{"teardown": {"graceSeconds": 1}, "inPlace": {"enabled": True}, **spec})
        try:
            async with PodAgents.running(job, self.folder, config_map or {}) as agents:
                await apply(self.control_plane, self.namespace, rules, body)
                await job.trains()
                await agents.all_run(1)
                yield agents
        finally:
            print(json.dumps(await job.ledger(), indent=1))
            await job.remove()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def port(installed: ControlPlane) -> AsyncIterator[int]:
    """The port at which controllers serve agents, as the parameters say."""
    await install_component(installed, "agent")
    number = free_master_port()
    await set_parameters(installed, **{"url": f"https://127.0.0.1:{number}", "ca.crt": ""})
    yield number
    await switch_off(installed)


@pytest_asyncio.fixture(loop_scope="session")
async def stage(
    installed: ControlPlane, fleet: Fleet, proxy: ApiProxy, port: int, tmp_path: Path
) -> AsyncIterator[Stage]:
    namespace = await labelled_namespace(installed, "in-place")
    await apply(installed, namespace, service_account("default"))
    yield Stage(installed, fleet, tmp_path, namespace, port, proxy.write_kubeconfig(tmp_path / "kubeconfig"))
    for log in sorted(tmp_path.glob("controller-*.log")):
        print(log.name, *log.read_text().splitlines()[-40:], sep="\n")
    await installed.kubectl("delete", "namespace", namespace, "--wait=false")


@dataclass(frozen=True)
class Pods:
    """The pods of a job and the restarts of their containers."""

    restarts: dict[str, int]
    job: str


async def pods_of(agents: PodAgents) -> Pods:
    found = await agents.job.pods()
    counts = {
        pod["metadata"]["uid"]: sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
        for pod in found
    }
    return Pods(counts, await agents.job.child_uid())


async def assert_one_incident(agents: PodAgents, actions: list[str]) -> Object:
    """It is over, charged once, and it alone was written down."""
    [closed] = await agents.job.closed_incidents(1)
    [incident] = await incidents_of(agents.job)
    assert (closed["outcome"], incident["charged"]) == ("Recovered", True), incident
    assert [attempt["action"] for attempt in incident["attempts"]] == actions, incident
    ledger = await agents.job.ledger()
    assert (ledger["totals"]["incidents"], ledger["totals"]["charged"], len(ledger["budget"]["charges"])) == (1, 1, 1)
    return incident


async def test_a_killed_rank_runs_again_in_the_same_pods(stage: Stage) -> None:
    async with stage.controller(), stage.training() as agents:
        await agents.permitted()
        before = await pods_of(agents)
        agents.kill_rank(2, epoch=1)
        await agents.all_run(2)
        incident = await assert_one_incident(agents, ["RestartInPlace"])
        assert await pods_of(agents) == before
        assert incident["source"] == "agent"
        [suspect] = incident["suspects"]
        assert (suspect["index"], suspect["exitCode"]) == (2, 137)
        assert agents.codes == []


async def test_without_a_controller_the_agents_restart_alone_and_it_is_booked_once(stage: Stage) -> None:
    async with stage.controller() as first, stage.training() as agents:
        await agents.permitted()
        before = await pods_of(agents)
        await first.end()
        agents.kill_rank(3, epoch=1)
        await agents.all_run(2)
        async with stage.controller():
            incident = await assert_one_incident(agents, ["RestartInPlace"])
        assert "the agents have started all ranks again in their pods" in incident["message"]
        assert await pods_of(agents) == before
        assert agents.codes == []


async def test_a_frozen_controller_does_not_keep_the_agents_from_restarting(stage: Stage) -> None:
    async with stage.controller() as controller, stage.training() as agents:
        await agents.permitted()
        before = await pods_of(agents)
        controller.freeze()
        agents.kill_rank(1, epoch=1)
        await agents.all_run(2)
        controller.thaw()
        await assert_one_incident(agents, ["RestartInPlace"])
        assert await pods_of(agents) == before


async def test_in_observe_the_agent_of_a_failed_rank_ends_as_torchrun_does(stage: Stage) -> None:
    async with stage.controller(), stage.training(mode="Observe") as agents:
        before, running = await pods_of(agents), agents.starts(1)
        agents.kill_rank(2, epoch=1)
        await until("the agent of slot 2 ends", lambda: agents.codes == [(2, 1)])
        await until("the container of slot 2 runs again", lambda: agents.starts(1).get(2) not in {None, running[2]})
        after = await pods_of(agents)
        assert (after.job, after.restarts.keys()) == (before.job, before.restarts.keys())
        assert sorted(after.restarts.values()) == [0, 0, 0, 1]
        others = {slot: start for slot, start in agents.starts(1).items() if slot != 2}
        assert others == {slot: start for slot, start in running.items() if slot != 2}
        assert agents.starts(2) == {}


async def test_a_pause_ends_the_permission(stage: Stage) -> None:
    async with stage.controller() as controller, stage.training() as agents:
        await agents.permitted()
        await annotate(agents.job, PAUSED, "true")
        await has_reconciled(controller, agents.job)
        known = (await scrape(controller)).sum(REPORTS, result="accepted")
        async with asyncio.timeout(GUARD_SECONDS):
            while (await scrape(controller)).sum(REPORTS, result="accepted") == known:
                await asyncio.sleep(0.5)
        agents.kill_rank(2, epoch=1)
        await until("the agent of slot 2 ends", lambda: agents.codes == [(2, 1)])
        assert agents.starts(2) == {}


async def test_a_rank_that_dies_again_in_the_incident_costs_a_new_group_and_no_second_charge(stage: Stage) -> None:
    async with stage.controller(), stage.training(backoff={"initial": "0s"}) as agents:
        await agents.permitted()
        before = await pods_of(agents)
        agents.order_to_die(1, epoch=2)
        # Slot 3 cannot start its rank before its zygote is given up, so epoch 2 does not run whole before rank 1 dies.
        await until("its zygote waits", lambda: waiting_zygote(agents.of_slot(3)) is not None)
        zygote = waiting_zygote(agents.of_slot(3))
        assert zygote is not None
        os.kill(zygote, signal.SIGSTOP)
        agents.kill_rank(2, epoch=1)
        incident = await assert_one_incident(agents, ["RestartInPlace", "RecreateGroup"])
        after = await pods_of(agents)
        assert (after.job == before.job, after.restarts.keys() & before.restarts.keys()) == (False, set()), incident
        await agents.all_run(1)


async def test_the_loss_of_the_agent_of_slot_0_recreates_the_group(stage: Stage) -> None:
    async with stage.controller(), stage.training() as agents:
        await agents.permitted()
        before = await pods_of(agents)
        agents.of_slot(0).process.kill()
        await assert_one_incident(agents, ["RecreateGroup"])
        assert (await pods_of(agents)).job != before.job
        await agents.all_run(1)


async def test_the_runtime_with_the_agent_needs_no_injection(stage: Stage) -> None:
    """Its namespace has no label, as before Kubernetes 1.36. It has a ConfigMap with what the injection would give."""
    plane = stage.control_plane
    await plane.kubectl("apply", "--server-side", "-f", str(REPOSITORY / "policies" / "runtime-agent.yaml"))
    await plane.kubectl("label", "namespace", stage.namespace, f"{ENABLED}-")
    async with stage.controller():
        published = json.loads(
            await plane.kubectl("get", "configmap", "recovery-agent", "-n", "recovery-system", "-o", "json")
        )["data"]
        async with stage.training("torch-recoverable-agent", published) as agents:
            await agents.permitted()
            before = await pods_of(agents)
            agents.kill_rank(1, epoch=1)
            await agents.all_run(2)
            await assert_one_incident(agents, ["RestartInPlace"])
            assert await pods_of(agents) == before
