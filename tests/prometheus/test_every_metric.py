"""Every metric of the catalogue, and every series recorded from it, on the real control plane and a real Prometheus.

One job is restarted and waits for a member that does not join, until a person follows the runbook and restarts it once
more. Another job has never run whole. The rules are the committed ones with shorter times
(`tests.prometheus.shortened`).
"""

from pathlib import Path

from recovery.dashboards.rules import FLEET_METRICS, JOB_METRICS
from recovery.dashboards.series import fleet_series, job_series
from recovery.telemetry.catalogue import CATALOGUE
from tests.cluster.acts import exit_rank, report_progress
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import recovery
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import LONG_SECONDS
from tests.cluster.scene import Fleet, Job, apply, train_job
from tests.prometheus.monitoring import Monitoring, monitored, of, silent
from tests.prometheus.walk import follow

RANKS = 4
LATE = 2
"""The rank that does not join."""
ALERT = "RecoveryRendezvousStuck"
PARTICIPANTS = job_series("recovery_rendezvous_participants")
ABSENT = {
    # The controller here serves no webhooks.
    "recovery_admission_up",
    "recovery_admission_requests_total",
    "recovery_certificate_expiry_timestamp_seconds",
    # Nor does it answer agents. test_rendezvous.py has one that does.
    "recovery_agent_reports_total",
    "recovery_agent_jobs",
    "recovery_agent_report_seconds",
    "recovery_agent_certificate_expiry_timestamp_seconds",
    # The shipped role lacks no permission.
    "recovery_missing_permissions",
    # No container fails like one on broken hardware, so no node is suspected.
    "recovery_node_suspicions",
    # No group continues with fewer nodes.
    "recovery_group_nodes",
    "recovery_group_nodes_wanted",
    "recovery_group_reduced_start_timestamp_seconds",
    "recovery_group_failed_growths",
    # No JobSet restarts its group again and again. tests/cluster/test_crash_loops.py has one that does.
    "recovery_job_crash_loop",
    # No policy asks for a proof that its jobs recover. A person helps with the only recovery, so it proves nothing.
    "recovery_proof_valid",
    "recovery_proven_timestamp_seconds",
}


async def test_every_metric_is_scraped(
    toolbox: Toolbox,
    installed: ControlPlane,
    fleet: Fleet,
    proxy: ApiProxy,
    training: StartsTraining,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    job = await training(ranks=RANKS)
    waits = Job(installed, fleet, job.namespace, "waits", 2)
    async with monitored(toolbox, tmp_path / "prometheus") as monitoring, controller() as process:
        monitoring.scrape(controller_1=process)
        try:
            await a_member_does_not_join(job, monitoring)
            await a_job_does_not_start(waits, monitoring)
        finally:
            await waits.remove()
        proxy.cut_watches(broken=True)
        await monitoring.prometheus.until("sum(recovery_watch_restarts_total) > 0")

        recorded = [job_series(name) for name in JOB_METRICS] + [fleet_series(name) for name in FLEET_METRICS]
        wanted = {record.name for record in CATALOGUE} | set(recorded)
        absent = {*ABSENT, *map(job_series, ABSENT), *map(fleet_series, ABSENT)}
        named = 'count by (__name__) (last_over_time({__name__!=""}[10m]))'
        told = {labels["__name__"] for labels, _ in await monitoring.prometheus.query(named)}
        told |= {name.removesuffix("_count") for name in told}
        assert sorted(wanted - told - absent) == []
        assert sorted(wanted & told & absent) == [], "they are seen after all"


async def a_member_does_not_join(job: Job, monitoring: Monitoring) -> None:
    """After a restart one rank runs and does not become Ready. The test follows the runbook until it is."""
    prometheus, kubelets = monitoring.prometheus, job.fleet.kubelets
    prefix = f"{job.child}-{LATE}-"
    kubelets.delay_ready(prefix, LONG_SECONDS, namespace=job.namespace)
    await exit_rank(job, 1, 137)
    joined, expected = (of(job, PARTICIPANTS, state=state) for state in ("joined", "expected"))
    await prometheus.until(f"{joined} == {RANKS - 1}")
    await monitoring.scraped_twice()
    assert [value for _, value in await prometheus.query(expected)] == [RANKS]
    said = await monitoring.fires(ALERT, job)
    assert said["summary"] == f"{job.namespace}/{job.name} waits for members to join (joined: {RANKS - 1})."

    shown = await follow(job.control_plane, ALERT, "recovery explain", job)
    assert "Rendezvous" in shown, shown
    rows = [line.split() for line in (await follow(job.control_plane, ALERT, "kubectl get pods", job)).splitlines()]
    [(pod, node)] = [(row[0], row[rows[0].index("NODE")]) for row in rows[1:] if row[1] == "0/1"]
    assert pod == await job.pod_of_rank(LATE)
    shown = await follow(job.control_plane, ALERT, "kubectl describe pod", job, POD=pod)
    assert "ContainersReady" in shown, shown
    # The pod's log is not read: a modelled kubelet serves none.
    try:
        await follow(job.control_plane, ALERT, "recovery quarantine", NODE=node)
        kubelets.delay_ready(prefix, 0.0, namespace=job.namespace)
        await follow(job.control_plane, ALERT, "recovery restart", job)
        [closed] = await job.closed_incidents(1)
    finally:
        released = await recovery("release", node, "--kubeconfig", str(job.control_plane.kubeconfig))
    assert (released.exit_code, closed["outcome"]) == (0, "Recovered")
    await monitoring.is_resolved(ALERT, job)
    for state in (joined, expected):
        await prometheus.until(state, silent)


async def a_job_does_not_start(job: Job, monitoring: Monitoring) -> None:
    """One of its pods has a node and does not start, but the training reports progress."""
    job.fleet.kubelets.delay_start(f"{job.child}-0-", LONG_SECONDS, namespace=job.namespace)
    await apply(job.control_plane, job.namespace, train_job(job.name, ranks=job.ranks))
    waiting = of(job, job_series("recovery_gpus_not_started"))
    await monitoring.prometheus.until(f"sum({waiting}) == {8 * job.ranks}")
    reported = await report_progress(job, 10)
    ratio, at = (job_series(f"recovery_job_progress_{what}") for what in ("ratio", "timestamp_seconds"))
    await monitoring.prometheus.until(f"{of(job, ratio)} == 0.1")
    await monitoring.prometheus.until(f"{of(job, at)} == {reported.timestamp()}")
