"""Hours of a simulated fleet under the committed rules: no alert where all goes well, the right ones where it does not.

The controllers are the production program, and every scrape is what their registries tell at that moment.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest

from recovery.dashboards.rules import FLEET_METRICS, JOB_METRICS
from recovery.dashboards.series import fleet_series, job_series
from recovery.ports import RECOVERY_GROUPS
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.trials.failure_signs import Sign
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, PlannedRuntime, TrialPlan
from tests.cluster.controlplane.build import Toolbox
from tests.prometheus.recorder import Recording, Story, play
from tests.prometheus.replay import replay, scrape_members

HOURS = 2
RUN_SECONDS = HOURS * 3600
_POLICY = {"mode": "Enforce", "budget": {"limit": 10, "window": "24h"}, "teardown": {"graceSeconds": 10}}
LARGE, MIDDLE, SMALL = "team-a/llm", "team-a/vision", "team-b/speech"
JOBS = (
    JobPlan("team-a", "llm", PlannedRuntime.PREPARED, pods=16, grace_seconds=5, policy=_POLICY),
    JobPlan("team-a", "vision", PlannedRuntime.JOINED, pods=8, grace_seconds=5, policy=_POLICY),
    JobPlan("team-b", "speech", PlannedRuntime.PREPARED, pods=4, grace_seconds=5, policy=_POLICY),
)
NODES = sum(job.pods for job in JOBS)
FIRED = 'sum by (alertname, job_name) (count_over_time(ALERTS{alertstate="firing"}[3h])) > bool 0'
FIRES_STILL = 'ALERTS{alertstate="firing"}'


def _fault(number: int, kind: FaultKind, at_seconds: float, job: str, *indexes: int, **more: object) -> TrialFault:
    key = FaultKey("world", number, kind)
    return TrialFault(key, at_seconds=at_seconds, job=job, indexes=indexes, **more)  # type: ignore[arg-type]


HOURLY = (
    _fault(0, FaultKind.POD_KILL, 1200, LARGE, 3),
    _fault(1, FaultKind.CONTAINER_KILL, 1900, MIDDLE, 5, sign=Sign.HOST_OOM),
    _fault(2, FaultKind.CONTAINER_KILL, 2600, SMALL, 1, sign=Sign.HOST_OOM),
    _fault(3, FaultKind.CONTAINER_KILL, 4800, LARGE, 7, sign=Sign.HOST_OOM),
    _fault(4, FaultKind.POD_KILL, 5500, MIDDLE, 2),
    _fault(5, FaultKind.POD_KILL, 6200, SMALL, 0),
)


def story(*faults: TrialFault, nodes: int = NODES + 1) -> Story:
    plan = TrialPlan(seed=16, jobs=JOBS, faults=faults, active_seconds=RUN_SECONDS + 600.0, replicas=2)
    return Story(plan=plan, run_seconds=RUN_SECONDS, nodes=nodes, after_scrape=scrape_members)


@pytest.fixture
def promtool(toolbox: Toolbox) -> Path:
    return toolbox.binary("promtool")


def test_two_hours_with_a_recovery_of_each_job_in_each_raise_no_alert(promtool: Path, tmp_path: Path) -> None:
    recording = play(story(*HOURLY))
    for job in (LARGE, MIDDLE, SMALL):
        assert len(recording.idle_spans(job)) == HOURS
    recovered = f"sum(increase({fleet_series('recovery_fleet_incidents_total')}[2h])) > 5.5"
    replay(promtool, tmp_path, recording, [(FIRED, {}), (f"count({recovered})", {"{}": 1})])


def test_a_node_that_nothing_replaces_fires_what_its_runbook_is_about_and_nothing_else(
    promtool: Path, tmp_path: Path
) -> None:
    """The power of a node of the largest job is lost for 25 minutes, and there is no spare. In that hour it costs more
    than a tenth of all GPU time."""
    lost = _fault(6, FaultKind.NODE_POWER_LOSS, 2400, LARGE, 2, seconds=1500.0)
    recording = play(story(*HOURLY, lost, nodes=NODES))
    fired = {
        '{alertname="RecoveryOverdue", job_name="llm"}': 1.0,
        '{alertname="RecoveryEfficiencyBurn"}': 1.0,
    }
    replay(promtool, tmp_path, recording, [(FIRED, fired), (FIRES_STILL, {})])


def test_a_leader_that_dies_in_mid_incident(promtool: Path, tmp_path: Path) -> None:
    """No counter falls, nothing counts twice, and what the next leader tells first is what the ledger says."""
    told: list[tuple[str, str]] = []

    def compare(cluster: EmbeddedCluster, recording: Recording, at: datetime) -> None:
        scrape_members(cluster, recording, at)
        told.extend(_phases_told_and_kept(cluster, recording, at))

    faults = (
        _fault(0, FaultKind.NODE_POWER_LOSS, 3000, LARGE, 2, seconds=240.0),
        _fault(1, FaultKind.PROCESS_KILL, 3150, LARGE, 0, 1, seconds=60.0),
    )
    base = story(*faults, nodes=NODES)
    recording = play(Story(plan=base.plan, run_seconds=base.run_seconds, nodes=base.nodes, after_scrape=compare))
    assert {kept for kept, _ in told} > {"Healthy"}, "a scrape fell into the incident"
    assert [each for each in told if each[0] != each[1]] == []
    counters = [job_series(name) for name in JOB_METRICS if name.endswith("_total")]
    counters += [fleet_series(name) for name in FLEET_METRICS if name.endswith("_total")]
    fell: list[tuple[str, Mapping[str, float]]] = [(f"sum(resets({series}[2h])) > 0", {}) for series in counters]
    once = [
        f"count(abs(sum(increase({series}[2h])) - 1) < 0.1)"
        for series in (job_series("recovery_failures_total"), fleet_series("recovery_fleet_incidents_total"))
    ]
    replay(promtool, tmp_path, recording, [*fell, *((expr, {"{}": 1.0}) for expr in once), (FIRED, {})])


def _phases_told_and_kept(cluster: EmbeddedCluster, recording: Recording, at: datetime) -> list[tuple[str, str]]:
    """Of each group: the phase in its ledger, and the one that the leader tells at that scrape."""
    scrape = [sample for sample in recording.samples if sample.at == at]
    shown = {
        (sample.labels["namespace"], sample.labels["job_name"]): sample.labels["phase"]
        for sample in scrape
        if sample.name == "recovery_job_phase" and sample.value == 1
    }
    kept = {
        (group["metadata"]["namespace"], group["spec"]["workloadRef"]["name"]): group["status"]["phase"]
        for group in cluster.server.objects(RECOVERY_GROUPS)
        if "phase" in group.get("status", {})
    }
    return [(phase, shown[key]) for key, phase in kept.items() if key in shown]
