"""Groups on their way: one that lacks a member, one that has never run whole, one that resumes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from recovery.dashboards.series import job_series
from tests.cluster.acts import lose, until_rounds
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import Fleet, Job, apply, train_job
from tests.cluster.test_progress import report
from tests.prometheus.monitoring import monitored, of
from tests.prometheus.walk import follow

RANKS = 4
LATE = 2
"""The rank that does not start."""
NEVER_SECONDS = 3600.0


async def test_a_member_that_does_not_start_is_missing_until_the_runbook_is_followed(
    toolbox: Toolbox,
    installed: ControlPlane,
    fleet: Fleet,
    training: StartsTraining,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    job = await training(ranks=RANKS)
    async with controller() as process, monitored(toolbox, tmp_path / "prometheus") as monitoring:
        prometheus = monitoring.prometheus
        monitoring.scrape(controller_1=process)
        await prometheus.until(of(job, job_series("recovery_failures_total")))
        joined, expected = (
            of(job, job_series("recovery_rendezvous_participants"), state=state) for state in ("joined", "expected")
        )
        assert await prometheus.query(joined) == []
        await lose(job, 1, grace_seconds=0)
        fleet.kubelets.delay_start(f"{job.child}-{LATE}-", NEVER_SECONDS, namespace=job.namespace)
        await job.reaches("Starting")
        await prometheus.until(f"{joined} == {RANKS - 1}")
        await prometheus.until(f"{expected} == {RANKS}")
        said = await monitoring.fires("RecoveryRendezvousStuck", job)
        assert said["summary"] == f"Only {RANKS - 1} members of {job.namespace}/{job.name} have joined."

        shown = await follow(installed, "RecoveryRendezvousStuck", "recovery explain", job)
        assert "Starting" in shown, shown
        shown = await follow(installed, "RecoveryRendezvousStuck", "kubectl get pods", job)
        waiting = await job.pod_of_rank(LATE)
        [line] = [line for line in shown.splitlines() if "1/1" not in line and "NAME" not in line]
        assert line.split()[0] == waiting, shown
        shown = await follow(installed, "RecoveryRendezvousStuck", "kubectl describe pod", job, POD=waiting)
        assert waiting in shown
        fleet.kubelets.delay_start(f"{job.child}-{LATE}-", 0.0, namespace=job.namespace)
        await follow(installed, "RecoveryRendezvousStuck", "recovery restart", job)
        await until_rounds(job, 2)
        await job.closed_incidents(1)
        await monitoring.is_resolved("RecoveryRendezvousStuck", job)
        assert await prometheus.until(joined, lambda answer: not answer) == []


async def test_a_job_that_has_never_run_whole_and_one_that_reports_progress(
    toolbox: Toolbox,
    installed: ControlPlane,
    fleet: Fleet,
    training: StartsTraining,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    job = await training(ranks=RANKS)
    late = Job(installed, fleet, job.namespace, "late", RANKS)
    fleet.kubelets.delay_start(f"{late.child}-{LATE}-", NEVER_SECONDS, namespace=late.namespace)
    try:
        await apply(installed, late.namespace, train_job(late.name, ranks=RANKS))
        async with controller() as process, monitored(toolbox, tmp_path / "prometheus") as monitoring:
            prometheus = monitoring.prometheus
            monitoring.scrape(controller_1=process)
            not_started = f"sum({of(late, job_series('recovery_gpus_not_started'))})"
            await prometheus.until(f"{not_started} == {RANKS * 8}")  # who does not start has a node, and holds its GPUs

            told = await report(job, 40)
            await prometheus.until(f"{of(job, job_series('recovery_job_progress_ratio'))} == 0.4")
            at = of(job, job_series("recovery_job_progress_timestamp_seconds"))
            await prometheus.until(f"{at} == {told.timestamp()}")
            await lose(job, 1, grace_seconds=0)
            await job.reaches("Resuming")
            await prometheus.until(f"{of(job, job_series('recovery_gpus_idle'), reason='resume')} == {RANKS * 8}")
            await report(job, 42, datetime.now(UTC) + timedelta(seconds=1))
            await job.closed_incidents(1)
            await prometheus.until(f"{of(job, job_series('recovery_gpus_idle'), reason='resume')} == 0")
            await prometheus.until(f"{of(job, job_series('recovery_job_progress_ratio'))} == 0.42")
            assert await prometheus.query(f"{of(job, job_series('recovery_gpus_not_started'))}") == []
    finally:
        fleet.kubelets.delay_start(f"{late.child}-{LATE}-", 0.0, namespace=late.namespace)
        await late.remove()
