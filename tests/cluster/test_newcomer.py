"""The five commands of the README, run as written, lead from a cluster with Trainer to the first recovered job."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster.acts import running_pods, second_is_over
from tests.cluster.controlplane.__main__ import TRAINING_PODS_ONLY
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Fleet, Job, until

pytestmark = pytest.mark.central

RANKS = 4
EXPLAIN = ".venv/bin/recovery explain first"
TAKE_AWAY = "kubectl delete -f examples/first-recovery.yaml"


def the_commands() -> list[str]:
    text = (REPOSITORY / "README.md").read_text()
    [(block, explained)] = re.findall(r"^## Install\n.*?^```\n(.*?)^```(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert f"`{EXPLAIN}`" in explained
    assert f"`{TAKE_AWAY}`" in explained
    return [line for line in str(block).splitlines() if not line.startswith("#")]


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


@pytest.fixture
def shell(control_plane: ControlPlane, toolbox: Toolbox, namespace: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a newcomer's terminal: an administrator whose context is in the test's namespace."""
    kubeconfig = yaml.safe_load(control_plane.kubeconfig.read_text())
    for context in kubeconfig["contexts"]:
        context["context"]["namespace"] = namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    return {
        "PATH": f"{toolbox.binary('kubectl').parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "HOME": str(tmp_path),
    }


@asynccontextmanager
async def running(command: str, shell: Mapping[str, str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs the command in the repository. `.venv` stands for the environment in which the tests run."""
    program, *arguments = words(command)
    if program.startswith(".venv/bin/"):
        program = str(Path(sys.executable).parent / Path(program).name)
    with log.open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            *(program, *arguments),
            cwd=REPOSITORY,
            env=shell,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            preexec_fn=die_with_parent(),
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def do(command: str, shell: Mapping[str, str], log: Path) -> str:
    """Run the command, which must succeed; returns all that it printed."""
    log.write_text("")
    async with running(command, shell, log) as process, asyncio.timeout(GUARD_SECONDS):
        code = await process.wait()
    assert code == 0, f"{command}: exit code {code}: {log.read_text()}"
    return log.read_text()


async def test_five_commands_lead_to_the_first_recovered_job(
    control_plane: ControlPlane, fleet: Fleet, namespace: str, shell: dict[str, str], tmp_path: Path
) -> None:
    set_up, definitions, controller, job_and_policy, breakage = the_commands()
    output, log = tmp_path / "output", tmp_path / "controller.log"
    assert words(set_up) == ["make", "venv"]  # without it no test would run
    job = Job(control_plane, fleet, namespace, "first", RANKS)
    await do(definitions, shell, output)
    async with running(controller, shell, log) as process:
        await until("the controller leads", lambda: '"msg": "leading"' in log.read_text())
        try:
            await do(job_and_policy, shell, output)
            async with asyncio.timeout(GUARD_SECONDS):
                while len(await running_pods(job)) < RANKS:  # as the last command's comment asks
                    await asyncio.sleep(0.1)
            await second_is_over()
            before, broken_at = await job.child_uid(), fleet.clock.now()
            await do(breakage, shell, output)
            [incident] = await job.closed_incidents(1)
            await until("all ranks train anew", lambda: fleet.world.passed(job.training, 0, broken_at))
            account = await do(EXPLAIN, shell, output)
            await do(TAKE_AWAY, shell, output)
        finally:
            await job.remove()
        assert incident["outcome"] == "Recovered"
        assert "(rank 2, " in incident["message"]
        assert incident["message"] in account
        assert before not in {round_.job_uid for round_ in fleet.world.rounds(job.training)[-1:]}
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), GUARD_SECONDS) == 130
    assert [line for line in map(json.loads, log.read_text().splitlines()) if line["level"] == "error"] == []


async def test_a_cluster_to_try_things_on_shows_no_pod_as_ready_that_is_not_a_training(
    control_plane: ControlPlane, namespace: str
) -> None:
    policy, binding = yaml.safe_load_all(TRAINING_PODS_ONLY.read_text())
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding["spec"]["matchResources"] = here  # other tests have pods of other kinds
    both = yaml.safe_dump_all([policy, binding])
    await control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=both)
    create = ("run", "plain", "--image=none", "-n", namespace, "--dry-run=server")
    try:
        async with asyncio.timeout(GUARD_SECONDS):  # until the API server has noticed
            while not (refusal := await refused(control_plane, *create)):
                await asyncio.sleep(0.2)
        assert "the controller runs outside, by `recovery run`" in refusal
        assert not await refused(control_plane, *create, "--labels=jobset.sigs.k8s.io/jobset-name=first")
    finally:
        await control_plane.kubectl("delete", "-f", "-", stdin=both)


async def refused(control_plane: ControlPlane, *command: str) -> str:
    """The API server's refusal of the command. Empty: there is none."""
    try:
        await control_plane.kubectl(*command)
    except KubectlError as error:
        return error.stderr
    return ""
