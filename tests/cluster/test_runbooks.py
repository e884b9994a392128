"""Each runbook, walked: the state of its alert is provoked, and every command of the page is run as it stands there.

The alert itself is not needed for that. tests/prometheus fires alerts.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from recovery import api_verbs
from recovery.ports import NODES
from tests.cluster.acts import exit_rank, lose, no_room, running_pods, second_is_over, until_rounds
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_pods import SYSTEM, controller_pods
from tests.cluster.controller_record import scrape
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.runbook import Page, Shell, walked
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, apply, policy, train_job, until
from tests.cluster.test_progress import report

RANKS = 2
AT_ONCE = {"backoff": {"initial": "0s"}}


@pytest.fixture
def shell(installed: ControlPlane, toolbox: Toolbox) -> Shell:
    return Shell(installed, toolbox)


@pytest_asyncio.fixture(loop_scope="session")
async def pods(installed: ControlPlane, fleet: Fleet, tmp_path: Path) -> AsyncIterator[None]:
    async with controller_pods(installed, fleet, tmp_path):
        yield


def config(**spec: object) -> Object:
    kind = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryConfig"}
    return {**kind, "metadata": {"name": "default"}, "spec": spec}


async def recovers(job: Job, *, times: int) -> None:
    """It loses a rank to a SIGKILL, and trains again, so many times more."""
    for _ in range(times):
        await second_is_over()
        done = len((await job.ledger()).get("history", []))
        await exit_rank(job, 1, 137)
        await job.closed_incidents(done + 1)
        await job.trains(past=job.fleet.world.step_of(job.training))


async def test_pages_about_a_job_and_its_budget(
    shell: Shell, fleet: Fleet, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, budget={"limit": 4}, **AT_ONCE)
    async with controller():
        await recovers(job, times=3)
        async with walked(shell, "RecoveryBudgetLow", job) as page:
            shown = await page.look()
            assert "1 of 4 recoveries left" in shown
            began = [line.split() for line in shown.splitlines() if line.startswith("llm ")]
            assert [(cause, node[:4]) for _, _, cause, node in began] == [("Exit137", "gpu-")] * 3
            assert "3 charges no longer count" in await page.do("recovery reset-budget")

        async with walked(shell, "RecoveryRestartLoop", job) as page:
            assert (await page.look()).split("NODES")[1].count("Exit137") == 3
            await quarantined(page, fleet)
            assert "is paused" in await page.do("recovery pause")
        await shell.run("recovery resume $JOB -n $NS", page.names, 0)

        await recovers(job, times=4)
        async with no_room(fleet):
            async with walked(shell, "RecoveryRestartBudgetExhausted", job) as page:
                shown = await page.look()
                assert "the budget allows the next one at " in shown.split("Policy:")[1].split("\n\n")[0]
                await quarantined(page, fleet)
                await lose(job, 1)
                await job.reaches("Held")
                assert "no longer count" in await page.do("recovery reset-budget")
                await job.reaches("Scheduling")
                assert "3 of 4 recoveries left" in await explained(page)

            async with walked(shell, "RecoveryOverdue", job) as page:
                shown = await page.look()
                assert "Pending, Unschedulable" in shown.split("Now:")[1].split("\n\n")[0]
                assert "Scheduling" in phases(shown)[-1]
                await shell.run("recovery quarantine gpu-0 --reason 'is well'", {}, 0)
                assert "gpu-0" in await page.do("kubectl get nodes")
                assert "gpu-0 is released" in await page.do("recovery release", NODE="gpu-0")
                pod = (await job.pods())[0]["metadata"]["name"]
                assert "force deleted" in await page.do("kubectl delete pod", POD=pod)
                assert "nothing is held back" in await page.do("recovery retry", exit_code=1)
                assert "free of charge" in await page.do("recovery restart")


async def quarantined(page: Page, fleet: Fleet) -> None:
    """The step that quarantines a suspected node; afterwards it is released again."""
    node = fleet.nodes[-1]
    assert f"node {node} is quarantined" in await page.do("recovery quarantine", NODE=node)
    await page.shell.run(f"recovery release {node}", {}, 0)


async def explained(page: Page) -> str:
    return await page.shell.run("recovery explain $JOB -n $NS", page.names, 0)


def phases(shown: str) -> list[str]:
    """The rows below Phases, which end the section Incident."""
    return shown.split("Phases:\n")[1].split("\n\n")[0].splitlines()[1:]


async def test_pages_about_a_job_that_waits_for_a_person(
    shell: Shell, fleet: Fleet, training: StartsTraining, controller: StartsController
) -> None:
    held = await training(name="held", ranks=RANKS, budget={"limit": 0})
    async with controller():
        async with no_room(fleet):
            await lose(held, 1)
            await held.reaches("Held")
            async with walked(shell, "RecoveryHeldGPUs", held) as page:
                shown = await page.look()
                assert "held, because the budget" in shown.split("Decision:")[1].split("\n\n")[0]
                assert "free of charge" in await page.do("recovery retry")
                await held.reaches("Scheduling")
                assert "nothing to reset" in await page.do("recovery reset-budget")
                assert "patched" in await page.do("kubectl patch trainjob")
                assert "Suspended" in await shell.run("recovery status -n $NS", page.names, 0)
        await shell.run("""kubectl patch trainjob held -n $NS --type=merge -p '{"spec": {"suspend": false}}'""", page.names, 0)
        await until_rounds(held, 2)
        await held.closed_incidents(1)
        await lose(held, 1)
        await held.reaches("Held")
        async with walked(shell, "RecoveryHeld", held) as page:
            assert "held, because the budget" in (await page.look()).split("Decision:")[1].split("\n\n")[0]
            assert "free of charge" in await page.do("recovery retry")
        await held.closed_incidents(2)
