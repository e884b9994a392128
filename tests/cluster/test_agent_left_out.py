"""A job whose pods cannot start because of the agent's image: the real JobSet creates it again without the agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from recovery.core.diagnosis.agent_blocked import LASTS
from recovery.core.model.reason import Reason
from recovery.ports import JOBS, PODS
from tests.cluster.acts import incidents_of
from tests.cluster.agents import (
    COMMAND,
    IMAGE,
    has_agent,
    labelled_namespace,
    node,
    runtime_patch,
    service_account,
    set_parameters,
    settles,
    switch_off,
    torchrun_job,
)
from tests.cluster.controller_record import recovery
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, apply, install_component, policy

pytestmark = [pytest.mark.central]
RANKS = 2


@pytest_asyncio.fixture(loop_scope="session")
async def labelled(installed: ControlPlane) -> AsyncIterator[str]:
    """A namespace whose jobs get the agent."""
    namespace = await labelled_namespace(installed, "left-out")
    await install_component(installed, "agent")
    await set_parameters(installed)
    await settles(installed, namespace, has_agent)
    await apply(installed, namespace, service_account("default"))
    yield namespace
    await switch_off(installed)
    await installed.kubectl("delete", "namespace", namespace, "--wait=false")


def train_job(name: str) -> Object:
    body = torchrun_job(name)
    # The plug-in that names the ServiceAccount `default` in each pod does not run here.
    body["spec"]["runtimePatches"] = [runtime_patch(serviceAccountName="default")]
    return body


async def left_out(control_plane: ControlPlane) -> str:
    """The jobs that the parameters of the component name."""
    said = await control_plane.kubectl("get", "configmap", "recovery-agent", "-n", "recovery-system", "-o", "json")
    return str(json.loads(said)["data"].get("without", ""))


async def all_wait(job: Job) -> None:
    """Until the kubelets say of all pods of the job that the agent's image cannot be pulled."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            pods = await job.pods()
            states = [each["state"] for pod in pods for each in pod["status"].get("containerStatuses", ())]
            messages = [state["waiting"]["message"] for state in states if "waiting" in state]
            if len(messages) == RANKS and all(IMAGE in message for message in messages):
                return
            await asyncio.sleep(0.2)


async def test_a_job_whose_agent_cannot_be_pulled_is_created_again_without_it(
    installed: ControlPlane, fleet: Fleet, labelled: str, tmp_path: Path
) -> None:
    blocked, other = (Job(installed, fleet, labelled, name, RANKS) for name in ("llm", "other"))
    kubeconfig = await installed.kubeconfig_for_service_account("recovery-system", "recovery-controller")
    options = ("--agent-address", "127.0.0.1:0")
    try:
        await apply(installed, labelled, policy(), train_job("other"))
        await other.trains()
        fleet.kubelets.withhold_image(IMAGE)
        async with ControllerProcess.running(kubeconfig, tmp_path / "controller.log", options=options):
            # The controller has given the component an authority of its own, which changes nothing here.
            await settles(installed, labelled, has_agent)
            begun_at = datetime.now(UTC).replace(microsecond=0)
            await apply(installed, labelled, train_job("llm"))
            await all_wait(blocked)
            uid, other_uid = await blocked.child_uid(), await other.child_uid()
            where = ("-n", labelled, "--kubeconfig", str(installed.kubeconfig))
            explained = await recovery("explain", "llm", *where)
            assert "the key without of ConfigMap recovery-agent leaves it out" in explained.out
            assert (await left_out(installed), await blocked.child_uid()) == ("", uid)
            await blocked.trains(timeout_seconds=LASTS.total_seconds() + GUARD_SECONDS)
            [closed] = await blocked.closed_incidents(1)
            [made] = [each for each in await blocked.items(JOBS) if each["metadata"]["name"] == blocked.child]
            assert made["metadata"]["uid"] != uid
            assert not has_agent(made)
            assert node(made)["command"] == COMMAND
            assert await left_out(installed) == f"{labelled}/llm\n"
            assert closed["outcome"] == "Recovered"
            [recorded] = await incidents_of(blocked)
            [attempt] = recorded["attempts"]
            assert attempt["reason"] == Reason.AGENT_BLOCKS_START
            assert datetime.fromisoformat(attempt["startedAt"]) - begun_at >= LASTS
            assert not recorded.get("charged")
            said = await installed.kubectl("get", "events", "-n", labelled, "-o", "json")
            notes = [each["message"] for each in json.loads(said)["items"] if each["reason"] == "RecreatingGroup"]
            assert len(notes) == 1
            assert f"the next Jobs of {labelled}/llm are created without the agent" in notes[0]
            # The other job is as it was.
            assert await other.child_uid() == other_uid
            [kept] = [each for each in await other.items(JOBS) if each["metadata"]["name"] == other.child]
            assert has_agent(kept)
            assert await other.groups() == []
            assert len(await blocked.items(PODS)) == 2 * RANKS
    finally:
        fleet.kubelets.provide_image(IMAGE)
        for job in (blocked, other):
            await job.remove()
