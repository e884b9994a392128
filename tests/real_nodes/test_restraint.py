"""Events on real kubelets that are no failures: the controller ignores them, and sees the failure that follows."""

import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.cluster.real_nodes.images import BUSYBOX_IMAGE
from tests.cluster.scene import REPOSITORY, apply, policy
from tests.real_nodes.installation import Installation
from tests.real_nodes.pods import eventually
from tests.real_nodes.trainings import Training

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("token_reader")]
RANKS = 3
ACCOMPANIED = "torch-accompanied"
"""A runtime that adds to each rank a helper that completes, and a sidecar that fails again and again."""


def runtime() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((REPOSITORY / "policies/runtime-prepared.yaml").read_text())
    made["metadata"]["name"] = ACCOMPANIED
    [job] = made["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    pod["restartPolicy"] = "OnFailure"
    for name, script in (("helper", "exit 0"), ("broken", "exit 1")):
        pod["containers"].append({"name": name, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script]})
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def accompanied(installation: Installation, tmp_path: Path) -> AsyncIterator[Training]:
    cluster, namespace = installation.cluster, f"accompanied-{secrets.token_hex(3)}"
    kubectl = cluster.control_plane.kubectl
    await apply(cluster.control_plane, None, runtime())
    await kubectl("create", "namespace", namespace)
    await apply(cluster.control_plane, namespace, policy())
    job = Training(cluster, namespace, tmp_path / "checkpoints", RANKS, ACCOMPANIED)
    await job.start()
    await job.trains(starts=1)
    yield job
    await job.remove()
    await kubectl("delete", "namespace", namespace, "--wait=false")
    await kubectl("delete", "clustertrainingruntime", ACCOMPANIED)


async def test_helpers_that_end_sidecars_that_fail_and_a_suspended_job_are_no_failure_and_a_killed_worker_is(
    accompanied: Training,
) -> None:
    training = accompanied

    async def sidecars_have_failed_twice() -> bool:
        return [await restarts(training, rank) >= 2 for rank in range(training.ranks)] == [True] * training.ranks

    async def no_pods() -> bool:
        return not await training.pods()

    await eventually("all sidecars have been restarted twice", sidecars_have_failed_twice)
    await training.trains(starts=1, past=training.step())
    assert await training.closed_incidents(0) == []

    await training.suspend(True)
    await eventually("the pods of the suspended job are gone", no_pods)
    await training.suspend(False)
    await training.trains(starts=2, past=training.step())
    assert await training.closed_incidents(0) == []

    os.kill((await training.processes_of_rank(1))[-1], signal.SIGKILL)
    await training.trains(starts=3, past=training.step())
    [incident] = await training.closed_incidents(1)
    assert (incident["outcome"], incident["attempts"]) == ("Recovered", 1)


async def restarts(training: Training, rank: int) -> int:
    """Restarts of the sidecar of that rank."""
    statuses = (await training.pod_of_rank(rank))["status"]["containerStatuses"]
    return next(int(each["restartCount"]) for each in statuses if each["name"] == "broken")
