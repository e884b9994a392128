"""For each alert: series that make it fire, and when it must not fire yet, must fire, and must be resolved."""

from collections.abc import Mapping
from dataclasses import dataclass

_SCRAPE = 'instance="10.0.0.1:8080", pod="controller-1", job="recovery-controller-metrics"'
JOB_LABELS = {"namespace": "team", "job_name": "llm"}


def job(metric: str, **labels: str) -> str:
    """A raw series of team/llm."""
    return _series(metric, {**JOB_LABELS, **labels})


def own(metric: str, **labels: str) -> str:
    """A raw series of the fleet, or of one replica."""
    return _series(metric, {"namespace": "recovery-system", **labels})


def _series(metric: str, labels: Mapping[str, str]) -> str:
    ours = "".join(f', {name}="{value}"' for name, value in labels.items())
    return f"recovery_{metric}{{{_SCRAPE}{ours}}}"


def pod(metric: str, index: int, **labels: str) -> str:
    """A series of kube-state-metrics about one member of team/llm."""
    ours = "".join(f', {name}="{value}"' for name, value in labels.items())
    return f'kube_pod_{metric}{{namespace="team", pod="llm-node-0-{index}", uid="u{index}"{ours}}}'


def members(dead_from_minute: int, until_minute: int) -> dict[str, str]:
    """The series of kube-state-metrics for two members. Member 0 dies, and its pod is deleted later."""
    label = {
        "label_jobset_sigs_k8s_io_jobset_name": "llm",
        "label_jobset_sigs_k8s_io_replicatedjob_name": "node",
    }
    before, dead = dead_from_minute - 1, until_minute - dead_from_minute - 1
    series = {}
    for index in (0, 1):
        series[pod("labels", index, **label)] = "1x90"
        series[pod("owner", index, owner_kind="Job", owner_name="llm-node-0")] = "1x90"
        series[pod("created", index)] = "0x90"
    return series | {
        pod("status_phase", 0, phase="Failed"): f"0x{before} 1x{dead} stale",
        pod("status_phase", 0, phase="Running"): f"1x{before} 0x{dead} stale",
        pod("status_phase", 1, phase="Running"): "1x90",
        pod("completion_time", 0): f"_x{dead_from_minute} {dead_from_minute * 60}x{dead} stale",
    }


@dataclass(frozen=True)
class Scenario:
    series: Mapping[str, str]
    silent: str
    firing: str
    resolved: str
    labels: Mapping[str, str]


_OFF_ON_OFF = "0x4 1x19 0x60"
"""On from minute 5 to minute 24."""

SCENARIOS: dict[str, Scenario] = {
    "RecoveryControllerAbsent": Scenario({own("leader"): "1x4 stale _x15 1x20"}, "9m10s", "12m10s", "23m10s", {}),
    "RecoveryNoLeader": Scenario({own("leader"): "1x4 0x19 1x20"}, "6m10s", "9m10s", "30m10s", {}),
    "RecoverySplitBrain": Scenario(
        {
            own("leader"): "1x40",
            own("leader", replica="b"): _OFF_ON_OFF,
            own("holds_for_another_controller", replica="b"): "0x40",
        },
        "6m10s",
        "9m10s",
        "30m10s",
        {},
    ),
    "RecoveryCircuitBreakerOpen": Scenario({own("circuit_breaker_open"): _OFF_ON_OFF}, "5m40s", "9m10s", "30m10s", {}),
    "RecoveryPaused": Scenario({own("paused"): "0x4 1x79 0x20"}, "60m10s", "68m10s", "90m10s", {}),
    "RecoveryPermissionMissing": Scenario(
        {
            own("missing_permissions", verb="create", resource="pods/eviction"): "_x5 1x19 stale",
            own("jobs", mode="enforce"): "1x60",
        },
        "5m40s",
        "9m10s",
        "30m10s",
        {"verb": "create", "resource": "pods/eviction"},
    ),
    "RecoveryWatchStale": Scenario(
        {own("watch_last_event_timestamp_seconds", resource="pods"): "0+60x4 240x19 1500+60x20"},
        "10m10s",
        "13m10s",
        "30m10s",
        {
            "namespace": "recovery-system",
            "resource": "pods",
            "instance": "10.0.0.1:8080",
            "pod": "controller-1",
            "job": "recovery-controller-metrics",
        },
    ),
    "RecoveryUndecodableObjects": Scenario(
        {own("undecodable_objects", resource="pods"): "0x4 2x19 0x20"},
        "9m10s",
        "12m10s",
        "30m10s",
        {"resource": "pods"},
    ),
    "RecoveryAPIErrors": Scenario(
        {
            own("api_requests_total", verb="get", resource="pods", code="200"): "0+100x90",
            own("api_requests_total", verb="get", resource="pods", code="503"): "0x5 0+50x29 1450x50",
        },
        "13m10s",
        "22m10s",
        "50m10s",
        {"instance": "10.0.0.1:8080"},
    ),
    "RecoveryLossWait": Scenario(
        {
            own("loss_wait_seconds_bucket", cause="queue", le="0.1"): "0x5 0x29 0+10x50",
            own("loss_wait_seconds_bucket", cause="queue", le="1"): "0x5 0x29 0+10x50",
            own("loss_wait_seconds_bucket", cause="queue", le="2.5"): "0x5 0+10x29 300+10x50",
            own("loss_wait_seconds_bucket", cause="queue", le="+Inf"): "0x5 0+10x29 300+10x50",
        },
        "10m10s",
        "20m10s",
        "60m10s",
        {"instance": "10.0.0.1:8080"},
    ),
    "RecoveryQueueLag": Scenario(
        {
            own("workqueue_queue_duration_seconds_bucket", name="group", le="1"): "0x5 0x29 0+100x50",
            own("workqueue_queue_duration_seconds_bucket", name="group", le="30"): "0x5 0+100x29 3000+100x50",
            own("workqueue_queue_duration_seconds_bucket", name="group", le="+Inf"): "0x5 0+100x29 3000+100x50",
        },
        "13m10s",
        "22m10s",
        "60m10s",
        {"instance": "10.0.0.1:8080"},
    ),
    "RecoveryAdmissionDown": Scenario({own("admission_up"): "1x4 0x19 1x20"}, "9m10s", "12m10s", "30m10s", {}),
    "RecoveryCertificateExpiring": Scenario(
        {own("certificate_expiry_timestamp_seconds"): "9000000x4 1000000x79 9000000x20"},
        "60m10s",
        "68m10s",
        "90m10s",
        {},
    ),
    "RecoveryQuarantineHigh": Scenario(
        {
            own("nodes_quarantined", by="controller"): "0x4 3x19 0x20",
            own("nodes_quarantined", by="person"): "1x50",
            own("nodes_quarantined_limit"): "5x50",
        },
        "9m10s",
        "12m10s",
        "30m10s",
        {},
    ),
    "RecoveryUnclassifiedFailures": Scenario(
        {
            own(
                "fleet_incidents_total", failure_class="Unknown", outcome="Recovered", handling="automatic"
            ): "0x4 4x480",
            own(
                "fleet_incidents_total", failure_class="NodeLost", outcome="Recovered", handling="automatic"
            ): "0x4 2x480",
            # Drills hide no share of failures without a known cause.
            own(
                "fleet_incidents_total", failure_class="Drill", outcome="Recovered", handling="automatic"
            ): "0x4 100x480",
        },
        "5m40s",
        "9m10s",
        "400m10s",
        {},
    ),
    "RecoveryUnprotectedJobs": Scenario(
        {own("unprotected_jobs", reason="NoPolicy"): "0x4 2x79 0x20"},
        "60m10s",
        "68m10s",
        "90m10s",
        {"reason": "NoPolicy"},
    ),
    "RecoveryEfficiencyBurn": Scenario(
        {
            job("job_gpus"): "100x200",
            job("gpus_released"): "0x200",
            own(
                "fleet_gpu_idle_seconds_total", reason="start", failure_class="NodeLost", badput="other"
            ): "0x60 0+6000x20 120000x150",
            # Drills cost more all the time, and burn nothing.
            own("fleet_gpu_idle_seconds_total", reason="drill", failure_class="Drill", badput="other"): "0+6000x200",
        },
        "66m10s",
        "85m10s",
        "170m10s",
        {},
    ),
    "RecoveryDeadMemberUnattended": Scenario(members(5, 25), "9m10s", "12m10s", "30m10s", JOB_LABELS),
    "RecoveryHeldGPUs": Scenario(
        {job("gpus_idle", reason="hung"): "0x4 64x19 0x20", job("job_phase", phase="Held"): _OFF_ON_OFF},
        "9m10s",
        "12m10s",
        "30m10s",
        JOB_LABELS,
    ),
    "RecoveryHeld": Scenario(
        {job("job_phase", phase="Held"): _OFF_ON_OFF}, "9m10s", "12m10s", "30m10s", {**JOB_LABELS, "phase": "Held"}
    ),
    "RecoveryGroupBroken": Scenario(
        {
            job("gpus_idle", reason="hung"): "0x4 64x19 0x20",
            job("job_standing", standing="Broken"): "_x5 1x19 stale",
            job("job_phase", phase="Healthy"): "1x50",
        },
        "9m10s",
        "12m10s",
        "30m10s",
        JOB_LABELS,
    ),
    "RecoveryRestartBudgetExhausted": Scenario(
        {job("restart_budget_remaining"): "1x4 0x19 3x20", job("restart_budget_limit"): "3x50"},
        "5m40s",
        "9m10s",
        "30m10s",
        JOB_LABELS,
    ),
    "RecoveryCrashLoop": Scenario({job("job_crash_loop"): "_x5 1x19 stale"}, "5m40s", "9m10s", "30m10s", JOB_LABELS),
    "RecoveryBudgetLow": Scenario(
        {job("restart_budget_remaining"): "3x4 2x19 10x20", job("restart_budget_limit"): "10x50"},
        "5m40s",
        "9m10s",
        "30m10s",
        JOB_LABELS,
    ),
    "RecoveryRendezvousStuck": Scenario(
        {
            job("rendezvous_participants", state="joined"): "_x5 15x19 stale",
            job("rendezvous_participants", state="expected"): "_x5 16x19 stale",
        },
        "9m10s",
        "12m10s",
        "30m10s",
        JOB_LABELS,
    ),
    "RecoveryOverdue": Scenario(
        {job("incident_start_timestamp_seconds"): "_x5 300x19 stale"}, "15m10s", "18m10s", "30m10s", JOB_LABELS
    ),
    "RecoveryGPUsIdle": Scenario(
        {
            job("gpus_idle", reason="start"): "0x4 64x9 0x9 0x20",
            job("gpus_idle", reason="schedule"): "0x4 0x9 128x9 0x20",
            job("job_gpus"): "512x50",
        },
        "14m10s",
        "18m10s",
        "30m10s",
        JOB_LABELS,
    ),
    "RecoveryRestartLoop": Scenario(
        {job("group_restarts_total", scope="group"): "0x10 1x5 2x5 3x100"}, "20m10s", "25m10s", "95m10s", JOB_LABELS
    ),
    "RecoveryNotStarted": Scenario(
        {
            job("gpus_not_started", reason="Unschedulable"): "_x5 8x19 stale",
            job("gpus_not_started", reason="ImagePull"): "_x25 8x29 stale",
        },
        "32m10s",
        "40m10s",
        "60m10s",
        JOB_LABELS,
    ),
    "RecoveryProgressStalled": Scenario(
        {
            job("job_progress_timestamp_seconds"): "0+60x5 300x49 3300+60x20",
            job("job_progress_ratio"): "0.4x90",
            job("job_gpus"): "64x90",
        },
        "35m10s",
        "40m10s",
        "60m10s",
        JOB_LABELS,
    ),
    "RecoveryFewerNodes": Scenario(
        {job("group_reduced_start_timestamp_seconds"): "_x5 300x79 stale"}, "65m10s", "68m10s", "90m10s", JOB_LABELS
    ),
    "RecoveryNotProven": Scenario({job("proof_valid"): "1x4 0x80 1x20"}, "64m10s", "67m10s", "90m10s", JOB_LABELS),
}
