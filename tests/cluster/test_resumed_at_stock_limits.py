"""A TrainJob of 128 pods that was created suspended, as under Kueue, at the default request limits.

At 20 requests a second the Job controller takes seconds to create the pods, and dates `Suspended=False` only then. So
nearly all pods of the run are older than that condition, which the suite's raised limits do not show.
"""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest_asyncio

from recovery import api_verbs
from recovery.ports import JOBS, TRAIN_JOBS, PatchKind
from tests.cluster.conftest import KUBELET, TRAINING
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import ControllerProcess, Fleet, Job, apply, install, policy, train_job

RANKS = 128
PATIENCE_SECONDS = 240.0


@pytest_asyncio.fixture(loop_scope="session")
async def stock(toolbox: Toolbox) -> AsyncIterator[ControlPlane]:
    async with ControlPlane.start(ControlPlaneSettings(request_limits="stock"), toolbox) as running:
        await install(running)
        yield running


def _older_than_resume(pods: list[dict[str, dict[str, str]]], resumed: str) -> int:
    created = [datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods]
    return sum(each < datetime.fromisoformat(resumed) for each in created)


async def test_a_rank_lost_after_the_resume_is_one_incident_and_all_come_back(
    stock: ControlPlane, tmp_path: Path
) -> None:
    async with Fleet.running(stock, nodes=16, training=TRAINING, kubelet=KUBELET) as fleet:
        job = Job(stock, fleet, "default", "llm", RANKS)
        suspended = train_job(job.name, ranks=RANKS, gpus=1)
        suspended["spec"]["suspend"] = True
        await apply(stock, job.namespace, policy(teardown={"graceSeconds": 1}), suspended)
        account = await stock.kubeconfig_for_service_account("recovery-system", "recovery-controller")
        async with ControllerProcess.running(account, tmp_path / "controller.log"):
            await api_verbs.patch(
                fleet.api,
                TRAIN_JOBS,
                job.name,
                {"spec": {"suspend": False}},
                kind=PatchKind.MERGE,
                namespace=job.namespace,
            )
            await job.trains(timeout_seconds=PATIENCE_SECONDS)
            child = json.loads(await api_verbs.get(fleet.api, JOBS, job.child, namespace=job.namespace))
            (resumed,) = [each for each in child["status"]["conditions"] if each["type"] == "Suspended"]
            older = _older_than_resume(await job.pods(), resumed["lastTransitionTime"])
            assert older > RANKS // 2, "else the limits do not show what this test is for"
            step = fleet.world.step_of(job.training)
            fleet.kubelets.exit_container(await job.pod_of_rank(77), 137, namespace=job.namespace)
            (incident,) = await job.closed_incidents(1, timeout_seconds=PATIENCE_SECONDS)
            assert incident["outcome"] == "Recovered"
            await job.trains(past=step, timeout_seconds=PATIENCE_SECONDS)
        ledger = await job.ledger()
        assert ledger["totals"]["incidents"] == ledger["totals"]["restarts"] == ledger["epoch"] == 1
        await job.remove(timeout_seconds=PATIENCE_SECONDS)
