"""Each documented block of commands that needs a cluster runs as written, beside a job that has recovered."""

import re
from pathlib import Path

from tests.cluster.acts import exit_rank, second_is_over
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.runbook import Shell
from tests.cluster.scene import Fleet
from tests.documentation.commands import CLUSTER, documented, linked_checkout

RANKS = 2


def filled_in(script: str, names: dict[str, str]) -> str:
    """Replaces the words in capitals by names, as a person would."""
    for word, name in names.items():
        script = re.sub(rf"(?<![\w$-]){word}(?![\w=-])", name, script)
    return script


async def test_the_documented_commands_run(
    installed: ControlPlane,
    toolbox: Toolbox,
    fleet: Fleet,
    training: StartsTraining,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    blocks = [block for block in documented() if block.mark == CLUSTER]
    assert len(blocks) > 5
    job = await training(ranks=RANKS, backoff={"initial": "0s"})
    shell = Shell(installed, toolbox)
    async with controller():
        await second_is_over()
        await exit_rank(job, 1, 137)
        await job.closed_incidents(1)
        await shell.run("kubectl apply -f policies/recovery-config.yaml")
        config = tmp_path / "kubeconfig"
        await shell.run(
            f"cp $KUBECONFIG {config}; kubectl --kubeconfig {config} config set-context --current -n {job.namespace}"
        )
        names = {"JOB": job.name, "NODE": fleet.nodes[0], "NAMESPACE": job.namespace, "/tmp": str(tmp_path)}
        begin = f"cd {linked_checkout(tmp_path)}; export KUBECONFIG={config}"
        failed = {}
        try:
            for block in blocks:
                try:
                    await shell.run(f"{begin}\n{filled_in(block.script, names)}")
                except AssertionError as error:
                    failed[str(block)] = str(error)
        finally:
            await shell.run("kubectl delete recoveryconfig default --ignore-not-found")
        assert failed == {}
