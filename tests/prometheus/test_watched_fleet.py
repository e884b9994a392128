"""Hours of a simulated fleet under the committed rules: no alert if all goes well, the right ones if it does not.

The controllers are the production program, and each scrape is what their registries show at that moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from recovery.dashboards.rules import FLEET_METRICS, JOB_METRICS
from recovery.dashboards.series import fleet_series, job_series
from recovery.ports import RECOVERY_GROUPS
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan
from tests.cluster.controlplane.build import Toolbox
from tests.prometheus.recorder import SCRAPE_SECONDS, Recording, Story, play
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
GPUS = {str(job): job.pods * job.gpus_per_pod for job in JOBS}
FIRST_LEADER = 0
"""The replica that leads at first in this story."""
KILLED_AT_SECONDS = 3150.0
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
    """A node of the largest job has no power for 25 minutes, and there is no spare. In that hour this costs more than a
    tenth of all GPU time."""
    lost = _fault(6, FaultKind.NODE_POWER_LOSS, 2400, LARGE, 2, seconds=1500.0)
    recording = play(story(*HOURLY, lost, nodes=NODES))
    fired = {
        '{alertname="RecoveryOverdue", job_name="llm"}': 1.0,
        '{alertname="RecoveryEfficiencyBurn"}': 1.0,
    }
    replay(promtool, tmp_path, recording, [(FIRED, fired), (FIRES_STILL, {})])


def test_a_leader_that_dies_in_mid_incident(promtool: Path, tmp_path: Path) -> None:
    """The standby takes over. No counter falls and nothing counts twice. Each scrape of a leader agrees with the
    ledgers, also the first scrape of the next leader."""
    told: list[_Told] = []

    def compare(cluster: EmbeddedCluster, recording: Recording, at: datetime) -> None:
        scrape_members(cluster, recording, at)
        told.append(_told(cluster, recording, at))

    faults = (
        _fault(0, FaultKind.NODE_POWER_LOSS, 3000, LARGE, 2, seconds=240.0),
        _fault(1, FaultKind.PROCESS_KILL, KILLED_AT_SECONDS, LARGE, FIRST_LEADER, seconds=1200.0),
    )
    base = story(*faults, nodes=NODES)
    recording = play(Story(plan=base.plan, run_seconds=base.run_seconds, nodes=base.nodes, after_scrape=compare))
    killed_at = recording.evidence.began_at + timedelta(seconds=KILLED_AT_SECONDS + SCRAPE_SECONDS)
    led = [each for each in told if each.leader]
    before, after = [[each for each in led if (each.at > killed_at) == later] for later in (False, True)]
    assert {each.leader for each in before} == {f"controller-{FIRST_LEADER}"}
    assert {each.leader for each in after} == {f"controller-{1 - FIRST_LEADER}"}
    assert before[-1].kept[LARGE] not in {"Healthy", ""}, "the leader dies in mid-incident"
    assert after[0].kept[LARGE] not in {"Healthy", ""}, "and the next one leads in it"
    for each in led:
        assert each.shown == each.kept, each.at
        assert each.idle == {job: GPUS[job] * (phase != "Healthy") for job, phase in each.kept.items()}, each.at
    counters = [job_series(name) for name in JOB_METRICS if name.endswith("_total")]
    counters += [fleet_series(name) for name in FLEET_METRICS if name.endswith("_total")]
    fell: list[tuple[str, Mapping[str, float]]] = [(f"sum(resets({series}[2h])) > 0", {}) for series in counters]
    once = [
        f"count(abs(sum(increase({series}[2h])) - 1) < 0.1)"
        for series in (job_series("recovery_failures_total"), fleet_series("recovery_fleet_incidents_total"))
    ]
    replay(promtool, tmp_path, recording, [*fell, *((expr, {"{}": 1.0}) for expr in once), (FIRED, {})])


@dataclass(frozen=True)
class _Told:
    """One scrape, by job: the phase in the ledger, the phase that the leader shows, and the GPUs that it counts as
    idle."""

    at: datetime
    leader: str
    """Empty: no replica says that it leads."""
    kept: Mapping[str, str]
    shown: Mapping[str, str]
    idle: Mapping[str, float]


def _told(cluster: EmbeddedCluster, recording: Recording, at: datetime) -> _Told:
    scrape = [sample for sample in recording.samples if sample.at == at]
    leaders = [sample.replica for sample in scrape if sample.name == "recovery_leader" and sample.value == 1]
    of_job = [
        (f"{each.labels['namespace']}/{each.labels['job_name']}", each) for each in scrape if "job_name" in each.labels
    ]
    kept = dict.fromkeys((str(job) for job in JOBS), "Healthy")
    for group in cluster.server.objects(RECOVERY_GROUPS):
        job = f"{group['metadata']['namespace']}/{group['spec']['workloadRef']['name']}"
        kept[job] = group.get("status", {}).get("phase", "Healthy")
    phases = {
        job: each.labels["phase"] for job, each in of_job if each.name == "recovery_job_phase" and each.value == 1
    }
    idle: dict[str, float] = dict.fromkeys(kept, 0.0)
    for job, each in of_job:
        if each.name == "recovery_gpus_idle":
            idle[job] += each.value
    return _Told(at, leaders[0] if leaders else "", kept, phases, idle)
