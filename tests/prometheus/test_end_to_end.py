"""The real controller on the real control plane, killed and restored, as seen by a real Prometheus and
kube-state-metrics.

The rules are the committed ones with shorter times (`tests.prometheus.shortened`).
"""

import time
from pathlib import Path

from recovery.dashboards.series import job_series
from tests.cluster.acts import exit_rank, no_room, until_rounds
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import Fleet, apply
from tests.prometheus.monitoring import monitored, of
from tests.prometheus.server import kube_state_metrics
from tests.prometheus.walk import follow

RANKS = 4


async def test_alerts_fire_and_are_resolved(
    toolbox: Toolbox,
    installed: ControlPlane,
    fleet: Fleet,
    training: StartsTraining,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    """Five alerts. Each is handled with the commands of its runbook, exactly as written there."""
    job = await training(ranks=RANKS, budget={"limit": 1, "window": "24h"})
    config = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryConfig", "metadata": {"name": "default"}}
    async with (
        kube_state_metrics(toolbox.binary("kube-state-metrics"), tmp_path / "ksm", installed.kubeconfig) as members,
        monitored(toolbox, tmp_path / "prometheus", members=members) as monitoring,
    ):
        prometheus = monitoring.prometheus
        async with controller() as process:
            monitoring.scrape(controller_1=process)
            await prometheus.until(of(job, job_series("recovery_failures_total"), failure_class="Killed"))
            before = time.time()

            async with no_room(fleet):
                await exit_rank(job, 1, 137)
                said = await monitoring.fires("RecoveryOverdue", job)
                assert f"{job.namespace}/{job.name}" in said["summary"]
                shown = await follow(installed, "RecoveryOverdue", "recovery explain", job)
                assert "Scheduling" in shown, shown
            await job.closed_incidents(1)
            await monitoring.is_resolved("RecoveryOverdue", job)

            await monitoring.fires("RecoveryRestartBudgetExhausted", job)
            shown = await follow(installed, "RecoveryRestartBudgetExhausted", "recovery explain", job)
            assert "History" in shown, shown
            await follow(installed, "RecoveryRestartBudgetExhausted", "recovery reset-budget", job)
            await monitoring.is_resolved("RecoveryRestartBudgetExhausted", job)

            failures = of(job, job_series("recovery_failures_total"))
            seen = f"sum(increase({failures}[{int(time.time() - before) + 5}s])) > 0.9"
            await prometheus.until(seen)

            await apply(installed, None, {**config, "spec": {"paused": True}})
            await monitoring.fires("RecoveryPaused")
            assert "paused: true" in await follow(installed, "RecoveryPaused", "kubectl get recoveryconfig")
            await follow(installed, "RecoveryPaused", "kubectl patch recoveryconfig")
            await monitoring.is_resolved("RecoveryPaused")

        await monitoring.fires("RecoveryControllerAbsent")
        assert "holderIdentity" in await follow(installed, "RecoveryControllerAbsent", "kubectl get lease")
        await exit_rank(job, 2, 137)
        said = await monitoring.fires("RecoveryDeadMemberUnattended", job)
        assert f"{job.namespace}/{job.name} has a dead member" in said["summary"]
        shown = await follow(installed, "RecoveryDeadMemberUnattended", "kubectl get pods -n $NS", job)
        assert len(shown.splitlines()) == RANKS + 1, shown
        await follow(installed, "RecoveryDeadMemberUnattended", "kubectl delete job", job)
        await monitoring.is_resolved("RecoveryDeadMemberUnattended", job)
        await until_rounds(job, 3)

        async with controller() as process:
            monitoring.scrape(controller_2=process)
            await monitoring.is_resolved("RecoveryControllerAbsent")
            assert [each for each in await prometheus.alerts() if "error expanding" in str(each["annotations"])] == []
    await installed.kubectl("delete", "recoveryconfig", "default", "--ignore-not-found")
